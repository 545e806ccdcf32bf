package postgrestest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/postgresengine"
)

// PgBouncer starts a PgBouncer in front of a database, ends it with the test, and returns
// the URL of the database through it. It pools by transaction unless a setting changes
// this; settings are pairs such as "default_pool_size=2". If PgBouncer is not installed,
// the test is skipped.
func PgBouncer(tb testing.TB, databaseURL string, settings ...string) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("skipped: no PgBouncer is started under -short")
	}
	bouncer, err := postgresengine.StartPgBouncer(tb.Context(), databaseURL, settings...)
	if errors.Is(err, postgresengine.ErrNoPgBouncer) {
		tb.Skip("skipped: no PgBouncer on this machine; apt-get install pgbouncer")
	}
	require.NoError(tb, err)
	tb.Cleanup(bouncer.End)
	return bouncer.URL
}
