package allstores

import (
	"fmt"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

// addresses are the URLs of empty stores for processes.
var addresses = map[string]func(t *testing.T) string{
	"memory": func(*testing.T) string { return inMemory },
	// The processes of several services write to one file, and SQLite keeps no order among them.
	"SQLite": func(t *testing.T) string {
		return "sqlite:" + filepath.Join(t.TempDir(), "outbox.db") + "?busy_timeout=2m"
	},
	"PostgreSQL": func(t *testing.T) string { return postgrestest.Database(t) },
	"MySQL":      func(t *testing.T) string { return mysqltest.Database(t) },
	"MongoDB": func(t *testing.T) string {
		address, err := url.Parse(mongotest.Server(t))
		require.NoError(t, err)
		address.Path = "/" + mongotest.Database(t).Name()
		return address.String()
	},
}

func openAt(t *testing.T, address string) outmill.Store {
	t.Helper()
	if address == inMemory {
		return nil
	}
	store, err := outmill.Open(t.Context(), address, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	return store
}

func TestStop(t *testing.T) {
	t.Parallel()

	t.Run("no message that a service has handled comes again after the service has stopped", func(t *testing.T) {
		t.Parallel()
		for name, address := range addresses {
			t.Run("on "+name, func(t *testing.T) {
				t.Parallel()
				at := address(t)
				store := openAt(t, at)
				for _, kind := range []string{likeTheReadme, busy, ofCQRS} {
					for _, way := range []string{bySignal, byClose, byContext, byExit} {
						t.Run(kind+" by "+way, func(t *testing.T) {
							t.Parallel()
							for i := range timesStopped(way) {
								result := stopOnce(t, at, kind, way, fmt.Sprint(kind, way, i), store)
								require.NotEmpty(t, result.handled)
								require.Empty(t, result.again(), "of %d handled", len(result.handled))
								require.Empty(t, result.leased, "not given back")
							}
						})
					}
				}
			})
		}
	})
}

func timesStopped(way string) int {
	switch {
	case !testenv.All():
		return 1
	case way == bySignal:
		return 20
	}
	return 5
}
