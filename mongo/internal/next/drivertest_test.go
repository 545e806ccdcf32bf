package next_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/driver/drivertest"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo/internal/next"
)

// Each search, page and change is what it is in memory.
func TestDriver(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	drivertest.Run(t, func(t *testing.T) driver.DB {
		d := next.New(db.Client(), next.Config{Name: "driver", Database: db.Name()})
		require.NoError(t, d.Ensure(t.Context()))
		return d
	})
}
