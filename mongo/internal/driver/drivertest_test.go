package driver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/driver/drivertest"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo/internal/driver"
)

// Each search, page and change is what it is in memory.
func TestDriver(t *testing.T) {
	t.Parallel()
	db := mongotest.Database(t)
	drivertest.Run(t, func(t *testing.T) contract.DB {
		d := driver.New(db.Client(), driver.Config{Name: "driver", Database: db.Name()})
		require.NoError(t, d.Ensure(t.Context()))
		return d
	})
}
