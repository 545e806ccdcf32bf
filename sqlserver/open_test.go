package sqlserver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/sqlserver"
)

func TestStore_Open(t *testing.T) {
	t.Parallel()

	t.Run("a store is opened by its URL", func(t *testing.T) {
		t.Parallel()
		table := unique("T")
		at := withParameters(t, sharedURL(t), "name=shop", "table="+table, "retain=1h", "retain_joins=2h", "retain_audit=2h",
			"dedup_window=2h", "fair_topics=bulk", "ensure_schema=true", "app name=a test")
		opened, err := outmill.Open(t.Context(), at, nil)
		require.NoError(t, err)
		store := opened.(*sqlserver.Store)
		require.Equal(t, "shop", store.Name())
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		record := one("one")
		record.DedupKey = "key"
		require.NoError(t, store.Append(t.Context(), record))
		found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
		require.Equal(t, []string{"one"}, listed(t, store), "retain")
		require.Equal(t, 1, valueOf[int](t, store.DB(), "SELECT COUNT(*) FROM "+table))
		hours := "SELECT (at - dbo." + table + "_Now()) / 60000000 FROM " + table + "Entry WHERE kind = N'dedup'"
		require.InDelta(t, 120, valueOf[int](t, store.DB(), hours), 2)
		require.NoError(t, store.Close())
		require.NoError(t, store.Close())
		require.ErrorIs(t, store.Append(t.Context(), one("late")), outmill.ErrClosed)
		require.ErrorContains(t, store.DB().PingContext(t.Context()), "closed", "the store owned its pool")
	})

	t.Run("a URL names the schema too", func(t *testing.T) {
		t.Parallel()
		// The test has a database of its own, because a new schema makes all sessions plan their
		// statements again.
		db := pool(t)
		url := withParameters(t, serverOf(t, db), "schema=shop", "ensure_schema=true")
		store, err := outmill.Open(t.Context(), url, nil)
		require.NoError(t, err)
		require.NoError(t, store.Append(t.Context(), one("one")))
		require.NoError(t, store.Close())
		require.Equal(t, 1, valueOf[int](t, db, "SELECT COUNT(*) FROM shop.Outbox"))
	})

	t.Run("a store without a schema returns an error, or makes one if EnsureSchema is set", func(t *testing.T) {
		t.Parallel()
		at := sharedURL(t)
		table := unique("T")
		store, err := sqlserver.Open(t.Context(), at, sqlserver.Config{Table: table}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		require.Equal(t, "sqlserver:"+valueOf[string](t, store.DB(), "SELECT DB_NAME()"), store.Name())
		require.ErrorIs(t, store.Append(t.Context(), one("one")), outmill.ErrSchemaMissing)
		lazy := newStore(t, store.DB(), sqlserver.Config{Table: table, EnsureSchema: true})
		require.Equal(t, "sqlserver", lazy.Name())
		require.NoError(t, lazy.Append(t.Context(), one("one")))
		require.NoError(t, store.Append(t.Context(), one("two")))
		require.Equal(t, []string{"one", "two"}, listed(t, store))
	})

	t.Run("an invalid parameter is refused by its name", func(t *testing.T) {
		t.Parallel()
		for parameter, want := range map[string]string{
			"append_log_level=loud":    "append_log_level",
			"append_log_level=error":   "Config.AppendLogLevel is ERROR",
			"retain=often":             "retain",
			"retain=-1s":               "Config.Retain",
			"retain_joins=x":           "retain_joins",
			"retain_audit=x":           "retain_audit",
			"dedup_window=1":           "dedup_window",
			"ensure_schema=":           "ensure_schema",
			"ensure_schema=perhaps":    "ensure_schema",
			"schema=a.b":               "Config.Schema",
			"table=%24":                "Config.Table",
			"w=1%":                     "parameters of the URL",
			"encrypt=perhaps":          "encrypt",
			"connection+timeout=often": "timeout",
			"dial+timeout=x":           "dial timeout",
			"keepAlive=perhaps":        "keepAlive",
		} {
			_, err := outmill.Open(t.Context(), "sqlserver://user:secret@127.0.0.1:1?"+parameter, nil)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, parameter)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "secret")
		}
	})

	t.Run("passwords are in no error", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, database := range []string{
			"sqlserver://user:secret@127.0.0.1:1?database=orders&encrypt=disable",
			"sqlserver://user:secret@127.0.0.1:port?database=orders",
			"sqlserver://user:sec/secret@127.0.0.1:1",
			"sqlserver://user:sec%zzsecret@127.0.0.1:1",
			"sqlserver://user:secret@127.0.0.1:1?encrypt=perhaps",
			"sqlserver://user@127.0.0.1:1?password=secret&encrypt=disable&dial+timeout=x",
			"sqlserver://user:secret@127.0.0.1:1?tlsmin=x&certificate=/not/there",
			"server=127.0.0.1,1;user id=user;password=secret;encrypt=disable",
			"server=127.0.0.1;port=x;user id=user;password=secret",
			"server=127.0.0.1;password=secret;encrypt=perhaps",
			"odbc:server=127.0.0.1;password={secret",
		} {
			_, err := outmill.Open(ctx, database, nil)
			require.Error(t, err, database)
			require.NotContains(t, err.Error(), "secret")
			_, err = sqlserver.Open(ctx, database, sqlserver.Config{}, nil)
			require.Error(t, err, database)
			require.NotContains(t, err.Error(), "secret")
		}
	})

	t.Run("the error of a refused login does not contain the password", func(t *testing.T) {
		t.Parallel()
		_, err := sqlserver.Open(t.Context(), asLogin(t, sharedURL(t), "nobody", "secret"), sqlserver.Config{}, nil)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "secret")
	})

	t.Run("Close does not close the user's pool", func(t *testing.T) {
		t.Parallel()
		store, _ := ensured(t, sqlserver.Config{})
		woken := testenv.Hints(t.Context(), store)
		require.NoError(t, store.Close())
		require.NoError(t, store.Close())
		require.Empty(t, woken, "nobody is woken by a store that is closed")
		require.NoError(t, store.DB().PingContext(t.Context()))
		_, err := store.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey))
		require.ErrorIs(t, err, outmill.ErrClosed)
		require.ErrorIs(t, store.InTx(t.Context(), nil), outmill.ErrInvalidConfig)
		require.ErrorIs(t, store.InTx(t.Context(), nothing), outmill.ErrClosed)
		require.ErrorIs(t, store.Ensure(t.Context()), outmill.ErrClosed)
		require.ErrorIs(t, store.Append(t.Context(), one("late")), outmill.ErrClosed)
	})

	t.Run("an unreachable server is an error within the context's deadline", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := sqlserver.Open(ctx, "sqlserver://127.0.0.1:1?encrypt=disable", sqlserver.Config{}, nil)
		require.Error(t, err)
		store := newStore(t, nowhere(t), sqlserver.Config{})
		require.Error(t, store.Append(ctx, one("never")))
		ended, end := context.WithCancel(t.Context())
		end()
		require.ErrorIs(t, store.Append(ended, one("never")), context.Canceled)
	})
}
