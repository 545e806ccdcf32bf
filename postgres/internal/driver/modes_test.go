package driver_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/driver/drivertest"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
	"github.com/outmill/outmill/storetest"
)

// hostile are settings of a session with which PostgreSQL writes and reads times, numbers and texts in unusual ways, and plans with
// other methods.
var hostile = map[string]string{
	"DateStyle": "SQL, DMY", "TimeZone": "Asia/Kathmandu", "IntervalStyle": "sql_standard", "extra_float_digits": "-15",
	"bytea_output": "escape", "standard_conforming_strings": "on", "default_transaction_isolation": "serializable",
	"default_transaction_deferrable": "on", "enable_indexscan": "off", "enable_nestloop": "off", "search_path": "nowhere", "lc_messages": "C",
	"statement_timeout": "60s",
}

var modes = map[string]pgx.QueryExecMode{
	"cached statements": pgx.QueryExecModeCacheStatement, "cached descriptions": pgx.QueryExecModeCacheDescribe,
	"described": pgx.QueryExecModeDescribeExec, "exec": pgx.QueryExecModeExec, "simple protocol": pgx.QueryExecModeSimpleProtocol,
}

// No mode of pgx and no setting of a session changes what a call returns.
func TestDriver_ModesAndSettings(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if mode != pgx.QueryExecModeSimpleProtocol {
				testenv.Long(t, "another mode of pgx")
			}
			db := connect(t, postgrestest.Database(t), 4, func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = mode
				for setting, value := range hostile {
					c.ConnConfig.RuntimeParams[setting] = value
				}
			})
			drivertest.Run(t, func(t *testing.T) contract.DB {
				d := driver.New(driver.PoolOf(db), driver.Config{Name: name, Schema: "outmill"})
				require.NoError(t, d.Ensure(t.Context()))
				return d
			})
		})
	}
}

// The whole contract holds with these settings where all values are texts. TestDriver_ModesAndSettings has each mode, and the suites behind
// PgBouncer have two more.
func TestConformance_Settings_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "the contract with settings that change texts")
	db := connect(t, postgrestest.Database(t), 8, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
		for setting, value := range hostile {
			c.ConnConfig.RuntimeParams[setting] = value
		}
	})
	e := (&suite{t: t, config: db.Config()}).engine()
	e.Unsupported = map[string]string{
		"inspect: the view for people agrees with Stats and List": "people read it without these settings, with which the server takes minutes",
	}
	storetest.Run(t, e)
}

func inMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }
}

func inSession(setting, value string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[setting] = value }
}
