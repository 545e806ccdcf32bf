package next_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/driver/drivertest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/next"
)

// Each search, page and change is what it is in memory.
func TestDriver(t *testing.T) {
	t.Parallel()
	db := connect(t, postgrestest.Database(t), 8, nil)
	drivertest.Run(t, func(t *testing.T) driver.DB {
		d := next.New(next.PoolOf(db), next.Config{Name: "driver", Schema: "outmill"})
		require.NoError(t, d.Ensure(t.Context()))
		return d
	})
}
