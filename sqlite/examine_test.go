package sqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

func examined(t *testing.T, store *sqlite.Store) roles.Examination {
	t.Helper()
	found, err := store.Examine(t.Context(), roles.ExamineRequest{LockWait: 50 * time.Millisecond})
	require.NoError(t, err)
	return found
}

// onlyFinding returns the finding of a store that has one fault.
func onlyFinding(t *testing.T, store *sqlite.Store) roles.Finding {
	t.Helper()
	found := examined(t, store)
	require.Len(t, found.Findings, 1, "%+v", found)
	require.NotEmpty(t, found.Findings[0].Text)
	require.NotEmpty(t, found.Findings[0].Remedy)
	return found.Findings[0]
}

func TestStore_Examine(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, file string) *sqlite.Store {
		t.Helper()
		store, err := sqlite.Open(t.Context(), file, sqlite.Config{EnsureSchema: true, BusyTimeout: 50 * time.Millisecond}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}
	newFile := func(t *testing.T) string { t.Helper(); return filepath.Join(t.TempDir(), "shop.db") }

	t.Run("a store that works has no findings, in a file and in memory", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, roles.Examination{}, examined(t, open(t, newFile(t))))
		inMemory := examined(t, open(t, ":memory:"))
		require.Empty(t, inMemory.Findings)
		require.Len(t, inMemory.Unchecked, 1)
	})

	t.Run("a missing schema is the error of the call", func(t *testing.T) {
		t.Parallel()
		store, err := sqlite.Open(t.Context(), newFile(t), sqlite.Config{}, nil)
		require.NoError(t, err)
		defer store.Close()
		_, err = store.Examine(t.Context(), roles.ExamineRequest{})
		require.ErrorIs(t, err, outmill.ErrSchemaMissing)
	})

	t.Run("a part of the schema that was dropped is named", func(t *testing.T) {
		t.Parallel()
		for statement, want := range map[string]roles.Finding{
			"DROP INDEX outmill_line":    {Code: "index_missing", Subject: "outmill_line", Failure: true},
			"DROP TABLE outmill_dedup":   {Code: "table_missing", Subject: "outmill_dedup", Failure: true},
			"DROP VIEW outmill_readable": {Code: "view_missing", Subject: "outmill_readable"},
		} {
			store := open(t, newFile(t))
			_, err := store.DB().ExecContext(t.Context(), statement)
			require.NoError(t, err)
			found := examined(t, store).Findings
			require.NotEmpty(t, found)
			require.Equal(t, want, roles.Finding{Code: found[0].Code, Subject: found[0].Subject, Failure: found[0].Failure})
		}
	})

	t.Run("a write lock that another connection keeps is found", func(t *testing.T) {
		t.Parallel()
		store := open(t, newFile(t))
		tx, err := store.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "lock_wait", onlyFinding(t, store).Code)
		require.NoError(t, tx.Rollback())
		require.Empty(t, examined(t, store).Findings)
	})

	t.Run("a file that may not be written is found", func(t *testing.T) {
		t.Parallel()
		file := newFile(t)
		open(t, file)
		store, err := sqlite.Open(t.Context(), "file:"+file+"?mode=ro", sqlite.Config{}, nil)
		require.NoError(t, err)
		defer store.Close()
		require.Equal(t, "right_missing", onlyFinding(t, store).Code)
	})

	t.Run("a database without a write-ahead log is found", func(t *testing.T) {
		t.Parallel()
		db, err := sql.Open("sqlite", "file:"+newFile(t)+"?_txlock=immediate")
		require.NoError(t, err)
		defer db.Close()
		store, err := sqlite.New(db, sqlite.Config{EnsureSchema: true}, nil)
		require.NoError(t, err)
		defer store.Close()
		require.NoError(t, store.Ensure(t.Context()))
		f := onlyFinding(t, store)
		require.Equal(t, []string{"journal_mode", "journal_mode=delete"}, []string{f.Code, f.Subject})
	})

	t.Run("a reader that keeps the log from being emptied is found, and not a log that was large once", func(t *testing.T) {
		t.Parallel()
		store := open(t, newFile(t))
		reader, err := store.DB().Conn(t.Context())
		require.NoError(t, err)
		defer reader.Close()
		_, err = reader.ExecContext(t.Context(), "BEGIN DEFERRED")
		require.NoError(t, err)
		var n int
		require.NoError(t, reader.QueryRowContext(t.Context(), "SELECT count(*) FROM outmill_records").Scan(&n))
		for range 2 {
			require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "large", Payload: make([]byte, 40<<20)}))
		}
		require.Equal(t, "old_transaction", onlyFinding(t, store).Code)
		_, err = reader.ExecContext(context.WithoutCancel(t.Context()), "ROLLBACK")
		require.NoError(t, err)
		require.Empty(t, examined(t, store).Findings)
	})

	t.Run("a closed store says so", func(t *testing.T) {
		t.Parallel()
		store := open(t, newFile(t))
		require.NoError(t, store.Close())
		_, err := store.Examine(t.Context(), roles.ExamineRequest{})
		require.ErrorIs(t, err, outmill.ErrClosed)
	})
}
