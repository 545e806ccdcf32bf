package driver_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/driver/drivertest"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	sqlserver "github.com/outmill/outmill/sqlserver/internal/driver"
)

// Each search, page and change is what it is in memory.
func TestDriver(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlserver", sqlservertest.Database(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	drivertest.Run(t, func(t *testing.T) driver.DB {
		d := sqlserver.New(db, sqlserver.Config{Name: "driver", Schema: "dbo", Table: "Outbox"})
		require.NoError(t, d.Ensure(t.Context()))
		return d
	})
}
