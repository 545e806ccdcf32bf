package sqlite_test

import (
	"database/sql"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

func Test_a_setting_that_makes_no_sense_is_refused_by_name(t *testing.T) {
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
}

func Test_New_refuses_a_nil_handle(t *testing.T) {
	t.Parallel()
	_, err := sqlite.New(nil, sqlite.Config{}, nil)
	require.ErrorIs(t, err, outmill.ErrInvalidConfig)
}

func Test_a_store_leaves_a_handle_open_that_it_was_given(t *testing.T) {
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
}

func Test_stores_of_different_prefixes_share_a_database(t *testing.T) {
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
}
