package driver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/driver/drivertest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

// Each search, page and change is what it is in memory.
func TestDriver(t *testing.T) {
	t.Parallel()
	db := connect(t, postgrestest.Database(t), 8, nil)
	drivertest.Run(t, func(t *testing.T) contract.DB {
		d := driver.New(driver.PoolOf(db), driver.Config{Name: "driver", Schema: "outmill"})
		require.NoError(t, d.Ensure(t.Context()))
		return d
	})
}
