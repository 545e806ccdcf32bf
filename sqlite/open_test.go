package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/clock"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

func TestStore_Open(t *testing.T) {
	t.Parallel()

	t.Run("Open takes paths URLs and DSNs", func(t *testing.T) {
		t.Parallel()
		const odd = "or ders?50%#ü.db"
		for name, database := range map[string]func(path string) string{
			"a path":                     func(path string) string { return path },
			"a file: DSN":                func(path string) string { return "file:" + (&url.URL{Path: path}).EscapedPath() + "?mode=rwc" },
			"a file: URL with a host":    func(path string) string { return "file://localhost" + (&url.URL{Path: path}).EscapedPath() },
			"a path with needless parts": func(path string) string { return filepath.Dir(path) + "//./" + filepath.Base(path) },
			"a file:// URL":              func(path string) string { return "file://" + (&url.URL{Path: path}).EscapedPath() },
			"a sqlite: URL":              func(path string) string { return "sqlite:" + (&url.URL{Path: path}).EscapedPath() },
			"a sqlite:/// URL":           func(path string) string { return "sqlite://" + (&url.URL{Path: path}).EscapedPath() },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(t.TempDir(), odd)
				store, err := sqlite.Open(t.Context(), database(path), sqlite.Config{}, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, store.Close()) }()
				require.NoError(t, store.Ensure(t.Context()))
				require.FileExists(t, path)
				require.Equal(t, "sqlite:"+odd, store.Name())
			})
		}
	})

	t.Run("Open applies the settings of an outbox", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "orders.db")
		settings := map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "1500"}
		check := func(t *testing.T, database string, changed map[string]string) {
			store, err := sqlite.Open(t.Context(), database, sqlite.Config{BusyTimeout: 1500 * time.Millisecond}, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, store.Close()) }()
			for name, want := range settings {
				if other, ok := changed[name]; ok {
					want = other
				}
				var got string
				require.NoError(t, store.DB().QueryRowContext(t.Context(), "PRAGMA "+name).Scan(&got))
				require.Equal(t, want, got, name)
			}
		}
		check(t, path, nil)
		t.Run("and the user's settings win", func(t *testing.T) {
			check(t, "file:"+path+"?_pragma=synchronous(NORMAL)", map[string]string{"synchronous": "1"})
		})
	})

	t.Run("transactions of the opened handle have the write lock", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, sqlite.Config{BusyTimeout: time.Millisecond})
		tx, err := store.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback()) }()
		require.ErrorContains(t, store.Append(t.Context(), rec("m1", "")), "locked")
	})

	t.Run("Open refuses an invalid database with the reason", func(t *testing.T) {
		t.Parallel()
		noDatabase := filepath.Join(t.TempDir(), "notes.txt")
		require.NoError(t, os.WriteFile(noDatabase,
			[]byte("this is not a database, but it is long enough to look like a header of one, which has a hundred bytes"), 0o600))
		for name, c := range map[string]struct{ database, says string }{
			"a folder that does not exist": {filepath.Join(t.TempDir(), "missing", "orders.db"), "check that its folder exists"},
			"a file of another kind":       {noDatabase, "not a database"},
			"an empty path":                {"", "the path is empty"},
			"a URL without a file":         {"sqlite://", "names no file"},
			"a bad escape":                 {"sqlite:%zz", "%zz"},
			"a bad query":                  {"sqlite:orders.db?a=%zz", "%zz"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, err := sqlite.Open(t.Context(), c.database, sqlite.Config{}, nil)
				require.ErrorContains(t, err, c.says)
			})
		}
		t.Run("a context that has ended", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "orders.db"), sqlite.Config{}, nil)
			require.ErrorIs(t, err, context.Canceled)
		})
	})

	t.Run("a store in memory has one connection and keeps its records", func(t *testing.T) {
		t.Parallel()
		for _, database := range []string{":memory:", "sqlite::memory:", "file:orders?mode=memory"} {
			t.Run(database, func(t *testing.T) {
				t.Parallel()
				store, err := sqlite.Open(t.Context(), database, sqlite.Config{}, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, store.Close()) }()
				require.Equal(t, 1, store.DB().Stats().MaxOpenConnections)
				require.NoError(t, store.Ensure(t.Context()))
				require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: group}))

				// The store's first statement is sent in a caller's transaction, which has the
				// only connection.
				require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
					return store.Append(ctx, rec("m1", ""))
				}))
				cancelled, cancel := context.WithCancel(t.Context())
				cancel()
				require.ErrorIs(t, store.Append(cancelled, rec("never", "")), context.Canceled)
				require.Equal(t, []string{"m1"}, names(claim(t, store, claimRequest(outmill.NewOwnerToken(), 10, outmill.OrderNone))))
			})
		}
	})

	t.Run("the parameters of a URL are settings", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "orders.db")
		logger := journal.New()
		at := &clock.Clock{}
		opened, err := outmill.Open(clock.With(t.Context(), at), "sqlite:"+path+
			"?append_log_level=debug-4&table_prefix=shop_&_pragma=cache_size(123)&retain=1h&retain_joins=90m"+
			"&name=a%20shop&dedup_window=2h&busy_timeout=3s", logger)
		require.NoError(t, err)
		defer func() { require.NoError(t, opened.Close()) }()
		require.NoError(t, opened.Ensure(t.Context()))
		require.Equal(t, "a shop", opened.Name())
		db := opened.(*sqlite.Store).DB()
		require.Equal(t, 123, number(t, db, `PRAGMA cache_size`))
		require.Equal(t, 3000, number(t, db, `PRAGMA busy_timeout`))
		require.NoError(t, opened.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
		record := rec("m1", "")
		record.DedupKey = "k"
		require.NoError(t, opened.Append(t.Context(), record))
		require.Len(t, logger.Lines(watermill.TraceLogLevel), 1, "the line of the append")
		require.InDelta(t, 7200, number(t, db,
			`SELECT (d.at - r.created_at) / 1000000 FROM shop_entries AS d, shop_records AS r WHERE d.kind = 'dedup'`), 1)
		found := claim(t, opened, claimRequest(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		require.NoError(t, opened.Ack(t.Context(), "", leases(found)))
		require.Equal(t, 1, number(t, db, `SELECT count(*) FROM shop_records WHERE stage = 5`))

		join := roles.Join{ExpectedSteps: 1}
		require.NoError(t, opened.(*sqlite.Store).StartJoin(t.Context(), &join))
		require.NoError(t, opened.(*sqlite.Store).CancelJoin(t.Context(), join.ID, ""))
		for _, deleted := range []int{0, 1} {
			at.Elapse(time.Hour)
			n, err := opened.(*sqlite.Store).DeleteJoins(t.Context(), 10)
			require.NoError(t, err)
			require.Equal(t, deleted, n)
		}

		for parameter, says := range map[string]string{"retain=soon": "want a duration", "append_log_level=loud": "want info, debug",
			"append_log_level=error": "AppendLogLevel is ERROR", "table_prefix=a-b": "TablePrefix", "name=%zz": "%zz",
			"ensure_schema=perhaps": "ensure_schema"} {
			_, err := outmill.Open(t.Context(), "sqlite:"+path+"?"+parameter, nil)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, says)
		}
	})

	t.Run("a URL with mode=rw or mode=ro does not create a file, and the error names it", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "a shop.db")
		for _, mode := range []string{"rw", "ro"} {
			for _, database := range []string{"sqlite:" + path + "?mode=" + mode, "file:" + path + "?cache=private&mode=" + mode} {
				_, err := outmill.Open(t.Context(), database, nil)
				var missing *sqlite.FileNotFoundError
				require.ErrorAs(t, err, &missing)
				require.ErrorIs(t, err, fs.ErrNotExist)
				require.Equal(t, path, missing.Path)
				require.ErrorContains(t, err, path+" does not exist")
				require.NoFileExists(t, path)
			}
		}
		for _, mode := range []string{"rwc", "rw"} {
			store, err := outmill.Open(t.Context(), "sqlite:"+path+"?mode="+mode, nil)
			require.NoError(t, err, mode)
			require.NoError(t, store.Ensure(t.Context()))
			require.NoError(t, store.Append(t.Context(), rec(mode, "")))
			require.NoError(t, store.Close())
		}
		_, err := outmill.Open(t.Context(), "sqlite:"+filepath.Dir(path)+"?mode=rw", nil)
		require.Error(t, err, "a folder is no database")
		require.NotErrorIs(t, err, fs.ErrNotExist)
	})

	t.Run("a store makes its schema where that is asked", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "orders.db")
		plain := openFile(t, path, sqlite.Config{})
		require.ErrorIs(t, plain.Append(t.Context(), rec("one", "")), outmill.ErrSchemaMissing)
		lazy, err := sqlite.New(plain.DB(), sqlite.Config{EnsureSchema: true}, nil)
		require.NoError(t, err)
		require.Zero(t, number(t, plain.DB(), `SELECT count(*) FROM sqlite_master`), "New does not connect")
		tx, err := plain.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.ErrorIs(t, lazy.Append(lazy.WithTx(t.Context(), tx), rec("one", "")), outmill.ErrSchemaMissing,
			"nothing is made in a caller's transaction")
		require.NoError(t, tx.Rollback())
		require.NoError(t, lazy.Append(t.Context(), rec("one", "")))
		require.NoError(t, lazy.Close())
		require.NoError(t, plain.Append(t.Context(), rec("two", "")))

		for name, database := range map[string]string{"a file": "sqlite:" + filepath.Join(t.TempDir(), "new.db"), "in memory": "sqlite::memory:",
			"a file that has it": "sqlite:" + path} {
			opened, err := outmill.Open(t.Context(), database+"?ensure_schema=true", nil)
			require.NoError(t, err, name)
			require.NotZero(t, number(t, opened.(*sqlite.Store).DB(), `SELECT count(*) FROM sqlite_master`), "Open makes it at once: %s", name)
			require.NoError(t, opened.Append(t.Context(), rec("three", "")), name)
			require.NoError(t, opened.Close())
		}
	})

	t.Run("a store that makes its schema sets the fair topics too", func(t *testing.T) {
		t.Parallel()
		plain := openFile(t, filepath.Join(t.TempDir(), "orders.db"), sqlite.Config{})
		config := sqlite.Config{EnsureSchema: true, FairTopics: []string{"orders"}}
		var starts errgroup.Group
		for range 4 {
			lazy, err := sqlite.New(plain.DB(), config, nil)
			require.NoError(t, err)
			starts.Go(func() error { return errors.Join(lazy.Append(t.Context(), rec("one", "")), lazy.Close()) })
		}
		require.NoError(t, starts.Wait())
		require.ErrorIs(t, plain.Append(t.Context(), rec("two", "")), outmill.ErrFairTopics)
	})

	t.Run("ten stores that ensure the schema may start at once", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "orders.db")
		var starts errgroup.Group
		for i := range 10 {
			starts.Go(func() error {
				store, err := sqlite.Open(t.Context(), path, sqlite.Config{EnsureSchema: true, BusyTimeout: time.Minute}, nil)
				if err != nil {
					return err
				}
				return errors.Join(store.Append(t.Context(), rec(fmt.Sprint(i), "")), store.Close())
			})
		}
		require.NoError(t, starts.Wait())
		require.Equal(t, 10, number(t, openFile(t, path, sqlite.Config{}).DB(), `SELECT count(*) FROM outmill_records`))
	})

	t.Run("a schema that is newer is not opened where it should be ensured", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "orders.db")
		store := openFile(t, path, sqlite.Config{EnsureSchema: true})
		_, err := store.DB().ExecContext(t.Context(), `UPDATE outmill_meta SET version = 999`)
		require.NoError(t, err)
		_, err = sqlite.Open(t.Context(), path, sqlite.Config{EnsureSchema: true}, nil)
		require.ErrorIs(t, err, outmill.ErrSchemaNewer)
	})

	t.Run("outmill Open finds this store by its scheme", func(t *testing.T) {
		t.Parallel()
		_, err := outmill.ProviderFor("sqlite:orders.db")
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "orders.db")
		for _, scheme := range []string{"sqlite:", "sqlite://", "file:"} {
			store, err := outmill.Open(t.Context(), scheme+path, nil)
			require.NoError(t, err)
			require.NoError(t, store.Ensure(t.Context()))
			require.IsType(t, &sqlite.Store{}, store)
			require.NoError(t, store.Close())
		}
	})
}

func TestStore_Open_Serial(t *testing.T) {
	// Not parallel: it changes the folder of the process.
	t.Run("Open takes relative URLs", func(t *testing.T) {
		t.Chdir(t.TempDir())
		for _, database := range []string{"orders.db", "sqlite:orders.db", "sqlite://orders.db", "file:orders.db"} {
			store, err := sqlite.Open(t.Context(), database, sqlite.Config{}, nil)
			require.NoError(t, err, database)
			require.NoError(t, store.Close())
			require.FileExists(t, "orders.db", database)
			require.NoError(t, os.Remove("orders.db"))
		}
	})
}
