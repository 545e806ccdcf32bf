package driver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/driver/drivertest"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/mysql/internal/driver"
)

// Each search, page and change is what it is in memory. The sentences of the contract of stores run in package mysql.
func TestDriver(t *testing.T) {
	t.Parallel()
	db := mysqltest.Pool(t, mysqltest.Database(t))
	db.SetMaxOpenConns(60)
	drivertest.Run(t, func(t *testing.T) contract.DB {
		d := driver.New(db, driver.Config{Name: "driver", Prefix: "driver_"})
		require.NoError(t, d.Ensure(t.Context()))
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		return d
	})
}
