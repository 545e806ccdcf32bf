package postgres_test

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

func TestStore_Dates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode    pgx.QueryExecMode
		refused bool
	}{
		"exec":            {pgx.QueryExecModeExec, true},
		"simple_protocol": {pgx.QueryExecModeSimpleProtocol, true},
		"cache_describe":  {pgx.QueryExecModeCacheDescribe, false},
		"describe_exec":   {pgx.QueryExecModeDescribeExec, false},
		"cache_statement": {pgx.QueryExecModeCacheStatement, false},
	} {
		t.Run("a DateStyle that the driver cannot read with "+name+" is one clear error", func(t *testing.T) {
			t.Parallel()
			database := postgrestest.Database(t)
			execute(t, connect(t, database),
				`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET datestyle = ''German''', current_database()); END $$`)
			db := connectAs(t, database, func(p *pgxpool.Config) { p.ConnConfig.DefaultQueryExecMode = c.mode })
			store := newStore(t, db, postgres.Config{EnsureSchema: true, NotifyInterval: -1})
			err := store.Append(t.Context(), made("orders", "x", 1)...)
			u, urlErr := url.Parse(database)
			require.NoError(t, urlErr)
			query := u.Query()
			query.Set("default_query_exec_mode", name)
			u.RawQuery = query.Encode()
			opened, openErr := postgres.Open(t.Context(), u.String(), postgres.Config{NotifyInterval: -1}, nil)
			if !c.refused {
				require.NoError(t, err)
				require.NoError(t, openErr)
				require.NoError(t, opened.Close())
				return
			}
			for _, err := range []error{err, openErr} {
				require.ErrorIs(t, err, outmill.ErrInvalidConfig)
				require.ErrorContains(t, err, "German")
				require.ErrorContains(t, err, "cache_describe")
			}
		})
	}
}
