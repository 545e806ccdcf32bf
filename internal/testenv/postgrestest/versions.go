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
// OUTMILL_TEST_POSTGRES_VERSIONS names, else on the server of Postgres, with the
// URL of a database of its own. The servers are the same for all tests of the
// binary. A version that is named and cannot be had is a failure.
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

// postgresVersions holds what starts the server of a version, once.
var postgresVersions sync.Map
