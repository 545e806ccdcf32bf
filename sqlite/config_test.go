package sqlite_test

import (
	"database/sql"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

func TestStore_Config(t *testing.T) {
	t.Parallel()

	t.Run("a setting that makes no sense is refused by name", func(t *testing.T) {
		t.Parallel()
		for field, config := range map[string]sqlite.Config{
			"AppendLogLevel is WARN": {AppendLogLevel: slog.LevelWarn},
			"TablePrefix":            {TablePrefix: `x"; DROP TABLE orders; --`},
			"Retain":                 {Retain: -time.Second},
			"DedupWindow":            {DedupWindow: -time.Second},
			"BusyTimeout":            {BusyTimeout: -time.Second},
			"MaxPayload":             {MaxPayload: sqlite.DefaultMaxPayload + 1},
		} {
			t.Run(field, func(t *testing.T) {
				t.Parallel()
				_, err := sqlite.Open(t.Context(), ":memory:", config, nil)
				require.ErrorIs(t, err, outmill.ErrInvalidConfig)
				require.ErrorContains(t, err, "Config."+field)
			})
		}
		t.Run("all at once", func(t *testing.T) {
			t.Parallel()
			err := sqlite.Config{Retain: -1, BusyTimeout: -1}.Validate()
			require.ErrorContains(t, err, "Retain")
			require.ErrorContains(t, err, "BusyTimeout")
		})
		for _, prefix := range []string{"1st_", "a-b", "ä", strings.Repeat("x", 41)} {
			require.ErrorIs(t, sqlite.Config{TablePrefix: prefix}.Validate(), outmill.ErrInvalidConfig, prefix)
		}
		require.NoError(t, sqlite.Config{}.Validate())
	})

	t.Run("the first Ensure with fair topics sets them, and a store with others does not append", func(t *testing.T) {
		t.Parallel()
		file := "sqlite:" + filepath.Join(t.TempDir(), "outbox.db")
		open := func(parameters string) outmill.Store {
			store, err := outmill.Open(t.Context(), file+parameters, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			return store
		}
		fair := open("?fair_topics=orders")
		require.NoError(t, fair.Ensure(t.Context()))
		require.NoError(t, fair.Append(t.Context(), &outmill.Record{Topic: "orders"}))
		err := open("").Append(t.Context(), &outmill.Record{Topic: "orders"})
		require.ErrorIs(t, err, outmill.ErrFairTopics)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})

	t.Run("New refuses a nil handle", func(t *testing.T) {
		t.Parallel()
		_, err := sqlite.New(nil, sqlite.Config{}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})

	t.Run("a store leaves a handle open that it was given", func(t *testing.T) {
		t.Parallel()
		db, err := sql.Open("sqlite", t.TempDir()+"/users.db")
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		store, err := sqlite.New(db, sqlite.Config{}, nil)
		require.NoError(t, err)
		require.Equal(t, "sqlite", store.Name())
		require.Same(t, db, store.DB())
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.Append(t.Context(), rec("m1", "")))
		require.NoError(t, store.Close())
		require.Equal(t, 1, number(t, db, `SELECT count(*) FROM outmill_records`))
	})

	t.Run("stores of different prefixes share a database", func(t *testing.T) {
		t.Parallel()
		first := newStore(t)
		second, err := sqlite.New(first.DB(), sqlite.Config{TablePrefix: "Other_"}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, second.Close()) }()
		require.NoError(t, second.Ensure(t.Context()))
		require.NoError(t, second.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
		appendAll(t, first, rec("m1", ""))
		appendAll(t, second, rec("m2", ""))
		require.Equal(t, []string{"m1"}, names(claim(t, first, claimRequest(outmill.NewOwnerToken(), 10, outmill.OrderNone))))
		require.Equal(t, []string{"m2"}, names(claim(t, second, claimRequest(outmill.NewOwnerToken(), 10, outmill.OrderNone))))
	})
}
