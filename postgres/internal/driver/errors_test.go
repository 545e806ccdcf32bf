package driver_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

func TestDriver_Errors(t *testing.T) {
	t.Parallel()

	t.Run("a plan that an upgrade made stale is known in any language", func(t *testing.T) {
		t.Parallel()
		conn, err := connect(t, postgrestest.Database(t), 1, nil).Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		for _, statement := range []string{`CREATE TABLE t (a integer)`, `PREPARE p AS SELECT * FROM t`, `EXECUTE p`,
			`ALTER TABLE t ADD COLUMN b integer`} {
			_, err := conn.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err, statement)
		}
		_, err = conn.Exec(t.Context(), `EXECUTE p`, pgx.QueryExecModeSimpleProtocol)
		var stale *pgconn.PgError
		require.ErrorAs(t, err, &stale)
		require.True(t, driver.Passes(stale))
		stale.Message = "zwischengespeicherter Plan darf den Ergebnistyp nicht ändern"
		require.True(t, driver.Passes(stale))
		_, err = conn.Exec(t.Context(), `SELECT count(*) FROM t FOR UPDATE`, pgx.QueryExecModeSimpleProtocol)
		var unsupported *pgconn.PgError
		require.ErrorAs(t, err, &unsupported)
		require.Equal(t, stale.Code, unsupported.Code)
		require.False(t, driver.Passes(err))
	})
}
