package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/connect"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
)

func TestProviders(t *testing.T) {
	t.Parallel()

	t.Run("the workers parameters are taken out of the URL of any store", func(t *testing.T) {
		t.Parallel()
		all := outmill.WorkerDefaults{Lease: 90 * time.Second, BatchSize: 500, MaxAttempts: 20}
		for _, tc := range []struct {
			url, rest string
			want      outmill.WorkerDefaults
		}{
			{"postgres://u:p@h/db?lease=90s&batch_size=500&max_attempts=20", "postgres://u:p@h/db", all},
			{"postgresql://h/db?sslmode=disable&lease=1m30s&schema=shop&batch_size=500&max_attempts=20&x=%20+",
				"postgresql://h/db?sslmode=disable&schema=shop&x=%20+", all},
			{"mongodb://a:1,b:2/db?replicaSet=rs0&lease=90s&batch_size=500&max_attempts=20", "mongodb://a:1,b:2/db?replicaSet=rs0", all},
			{"mongodb+srv://h/?lease=90s", "mongodb+srv://h/", outmill.WorkerDefaults{Lease: 90 * time.Second}},
			{"sqlserver://h?database=orders&max_attempts=-1", "sqlserver://h?database=orders", outmill.WorkerDefaults{MaxAttempts: -1}},
			{"sqlite:orders.db?batch_size=1", "sqlite:orders.db", outmill.WorkerDefaults{BatchSize: 1}},
			{"file:orders.db?mode=rwc&lease=1h30m", "file:orders.db?mode=rwc", outmill.WorkerDefaults{Lease: 90 * time.Minute}},
			{"sqlite::memory:", "sqlite::memory:", outmill.WorkerDefaults{}},
			{"sqlite:a?", "sqlite:a?", outmill.WorkerDefaults{}},
			{"sqlite:a?Lease=1&leases=2&xlease=3", "sqlite:a?Lease=1&leases=2&xlease=3", outmill.WorkerDefaults{}},
		} {
			t.Run(tc.url, func(t *testing.T) {
				t.Parallel()
				defaults, _, err := outmill.DefaultsOf(tc.url)
				require.NoError(t, err)
				require.Equal(t, tc.want, defaults)
				choice, err := connect.Resolve(connect.Connection{URL: tc.url})
				require.NoError(t, err)
				require.Equal(t, tc.want, choice.Defaults)
				require.Equal(t, tc.rest, choice.URL)
			})
		}
	})

	t.Run("a workers parameter that makes no sense is refused by name on every store", func(t *testing.T) {
		t.Parallel()
		for _, scheme := range []string{"postgres", "mongodb", "sqlserver", "sqlite"} {
			for parameter, says := range map[string]string{
				"lease=30":              `lease="30"`,
				"lease=":                `lease=""`,
				"lease":                 `lease=""`,
				"lease=-1s":             "above 0",
				"lease=25h":             "at most 24h",
				"lease=1s&x=y&lease=2s": "lease twice",
				"batch_size=0":          "from 1 to 10000",
				"batch_size=10001":      "from 1 to 10000",
				"batch_size=many":       `batch_size="many"`,
				"batch_size=%zz":        "batch_size",
				"max_attempts=0":        "negative one for no limit",
				"max_attempts=1.5":      `max_attempts="1.5"`,
			} {
				url := scheme + "://u:S3CRET@127.0.0.1:1/db?" + parameter
				_, _, err := outmill.DefaultsOf(url)
				_, resolveErr := connect.Resolve(connect.Connection{URL: url})
				_, openErr := outmill.Open(t.Context(), url, nil)
				for _, err := range []error{err, resolveErr, openErr} {
					require.ErrorAs(t, err, new(*outmill.InvalidURLError), url)
					require.ErrorIs(t, err, outmill.ErrInvalidConfig)
					require.ErrorContains(t, err, says)
					require.NotContains(t, err.Error(), "S3CRET")
				}
			}
		}
	})

	t.Run("a store opens with the workers parameters which its driver does not see", func(t *testing.T) {
		t.Parallel()
		for name, url := range map[string]func(t *testing.T) string{
			"sqlite":    func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "orders.db") },
			"postgres":  func(t *testing.T) string { return postgrestest.Database(t) },
			"mongo":     func(t *testing.T) string { return mongotest.Server(t) },
			"mysql":     func(t *testing.T) string { return mysqltest.Database(t) },
			"sqlserver": func(t *testing.T) string { return sqlservertest.Database(t) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				at := url(t)
				separator := "?"
				if strings.Contains(at, "?") {
					separator = "&"
				}
				store, choice, err := connect.Open(t.Context(), connect.Connection{URL: at + separator + "lease=90s&batch_size=500&max_attempts=20"},
					nil)
				require.NoError(t, err)
				require.NoError(t, store.Close())
				require.Equal(t, outmill.WorkerDefaults{Lease: 90 * time.Second, BatchSize: 500, MaxAttempts: 20}, choice.Defaults)
			})
		}
	})

	t.Run("where no provider is named mongo wins and the embedded store is the last resort", func(t *testing.T) {
		t.Parallel()
		settings := map[string]string{
			"connection_strings.mongo":     "mongodb://h/db",
			"connection_strings.postgres":  "postgres://h/db",
			"connection_strings.sqlserver": "sqlserver://h",
			"connection_strings.sqlite":    "sqlite:orders.db",
		}
		for _, want := range []string{"mongo", "postgres", "sqlserver", "sqlite"} {
			choice, err := connect.Resolve(connect.Connection{Lookup: connect.LookupMap(settings)})
			require.NoError(t, err)
			require.Equal(t, want, choice.Provider)
			delete(settings, "connection_strings."+want)
		}
	})
}
