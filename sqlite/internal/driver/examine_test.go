package driver_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite/internal/driver"
	"github.com/outmill/outmill/storetest"
)

func examined(t *testing.T, store store) roles.Examination {
	t.Helper()
	found, err := store.Examine(t.Context(), roles.ExamineRequest{LockWait: 50 * time.Millisecond})
	require.NoError(t, err)
	return found
}

// onlyFinding returns the finding of a store that has one fault.
func onlyFinding(t *testing.T, store store) roles.Finding {
	t.Helper()
	found := examined(t, store)
	require.Len(t, found.Findings, 1, "%+v", found)
	require.NotEmpty(t, found.Findings[0].Text)
	require.NotEmpty(t, found.Findings[0].Remedy)
	return found.Findings[0]
}

func TestDriver_Examine(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T) store { t.Helper(); return newHarness(t, storetest.Options{}, 0).store }
	// on is a store on the handle of a file that exists.
	on := func(t *testing.T, source string) store {
		t.Helper()
		db, err := sql.Open("sqlite", source)
		require.NoError(t, err)
		d := driver.New(db, driver.Config{Name: "file", Prefix: "outmill_", Owned: true})
		s := store{engine.New(d, engine.Config{}), d}
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}

	t.Run("a store that works has no findings, in a file and in memory", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, roles.Examination{}, examined(t, open(t)))
		memory := on(t, "file:examined?mode=memory&cache=shared")
		require.NoError(t, memory.Ensure(t.Context()))
		inMemory := examined(t, memory)
		require.Empty(t, inMemory.Findings)
		require.Len(t, inMemory.Unchecked, 1)
	})

	t.Run("a missing schema is the error of the call", func(t *testing.T) {
		t.Parallel()
		_, err := newHarness(t, storetest.Options{NoSchema: true}, 0).store.Examine(t.Context(), roles.ExamineRequest{})
		require.ErrorIs(t, err, outmill.ErrSchemaMissing)
	})

	t.Run("a part of the schema that was dropped is named", func(t *testing.T) {
		t.Parallel()
		for statement, want := range map[string]roles.Finding{
			"DROP INDEX outmill_line":    {Code: "index_missing", Subject: "outmill_line", Failure: true},
			"DROP TABLE outmill_entries": {Code: "table_missing", Subject: "outmill_entries", Failure: true},
			"DROP TABLE outmill_notes":   {Code: "table_missing", Subject: "outmill_notes", Failure: true},
			"DROP INDEX outmill_step":    {Code: "index_missing", Subject: "outmill_step", Failure: true},
			"DROP VIEW outmill_readable": {Code: "view_missing", Subject: "outmill_readable"},
		} {
			store := open(t)
			_, err := store.DB().ExecContext(t.Context(), statement)
			require.NoError(t, err)
			found := examined(t, store).Findings
			require.NotEmpty(t, found)
			require.Equal(t, want, roles.Finding{Code: found[0].Code, Subject: found[0].Subject, Failure: found[0].Failure})
		}
	})

	t.Run("a write lock that another connection keeps is found", func(t *testing.T) {
		t.Parallel()
		store := open(t)
		tx, err := store.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "lock_wait", onlyFinding(t, store).Code)
		require.NoError(t, tx.Rollback())
		require.Empty(t, examined(t, store).Findings)
	})

	t.Run("a file that may not be written is found", func(t *testing.T) {
		t.Parallel()
		file := newHarness(t, storetest.Options{}, 0).path
		require.Equal(t, "right_missing", onlyFinding(t, on(t, "file:"+file+"?mode=ro")).Code)
	})

	t.Run("a database without a write-ahead log is found", func(t *testing.T) {
		t.Parallel()
		store := on(t, "file:"+filepath.Join(t.TempDir(), "shop.db")+"?_txlock=immediate")
		require.NoError(t, store.Ensure(t.Context()))
		f := onlyFinding(t, store)
		require.Equal(t, []string{"journal_mode", "journal_mode=delete"}, []string{f.Code, f.Subject})
	})

	t.Run("a reader that keeps the log from being emptied is found, and not a log that was large once", func(t *testing.T) {
		t.Parallel()
		store := open(t)
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
		store := open(t)
		require.NoError(t, store.Close())
		_, err := store.Examine(t.Context(), roles.ExamineRequest{})
		require.ErrorIs(t, err, outmill.ErrClosed)
	})
}
