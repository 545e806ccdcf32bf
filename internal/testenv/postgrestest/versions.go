package postgrestest

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
)

// envPostgresVersions names the environment variable with the versions that
// Each runs on: 14,15,16,17,18 or releases in full such as 17.5.0.
const envPostgresVersions = "OUTMILL_TEST_POSTGRES_VERSIONS"

// Each runs the test in parallel on each version of PostgreSQL that
// OUTMILL_TEST_POSTGRES_VERSIONS names, or else on the server of Server, each time with the
// URL of a new database. All tests of the binary share the servers. If a named version is
// not available, the test fails.
func Each(t *testing.T, test func(t *testing.T, databaseURL string)) {
	t.Helper()
	versions := strings.FieldsFunc(os.Getenv(envPostgresVersions), func(r rune) bool { return r == ',' || r == ' ' })
	if len(versions) == 0 {
		t.Run("on PostgreSQL", func(t *testing.T) {
			t.Parallel()
			test(t, Database(t))
		})
	}
	for _, version := range versions {
		t.Run("on PostgreSQL "+version, func(t *testing.T) {
			t.Parallel()
			test(t, DatabaseOn(t, postgresVersion(t, version)))
		})
	}
}

func postgresVersion(tb testing.TB, version string) string {
	tb.Helper()
	if testing.Short() {
		tb.Skipf("skipped: PostgreSQL %s is not started under -short", version)
	}
	start, _ := postgresVersions.LoadOrStore(version, sync.OnceValues(func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), testenv.StartWithin)
		defer cancel()
		return startSharedPostgres(ctx, func(ctx context.Context) (string, error) { return postgresengine.BinariesOf(ctx, version) })
	}))
	url, err := start.(func() (string, error))()
	if err != nil {
		tb.Fatalf("no PostgreSQL %s, which %s names: %v", version, envPostgresVersions, err)
	}
	return url
}

// postgresVersions has a function for each version, which starts its server once.
var postgresVersions sync.Map
