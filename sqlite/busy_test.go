package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

// lock holds the database's write lock from outside of the store, as another
// process would, until unlock is called.
func lock(t *testing.T, store file) (unlock func()) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+store.path+"?_txlock=immediate")
	require.NoError(t, err)
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	unlock = func() {
		_ = tx.Rollback()
		_ = db.Close()
	}
	t.Cleanup(unlock)
	return unlock
}

func TestStore_Busy(t *testing.T) {
	t.Parallel()

	t.Run("a write waits for a database that another process has locked", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, sqlite.Config{BusyTimeout: time.Minute})
		unlock := lock(t, store)
		done := make(chan error, 1)
		go func() { done <- store.Append(t.Context(), rec("m1", "")) }()
		select {
		case err := <-done:
			t.Fatalf("the append did not wait: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		unlock()
		require.NoError(t, <-done)
	})

	t.Run("the error of a write that waited too long names what to look for", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, sqlite.Config{BusyTimeout: 20 * time.Millisecond})
		lock(t, store)
		err := store.Append(t.Context(), rec("m1", ""))
		require.ErrorContains(t, err, "locked by another write transaction for 20ms")
		require.ErrorContains(t, err, "look for one that stays open too long")
	})

	t.Run("a write stops waiting when its context ends", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, sqlite.Config{BusyTimeout: time.Hour})
		lock(t, store)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begin := time.Now()
		require.ErrorIs(t, store.Append(ctx, rec("m1", "")), context.DeadlineExceeded)
		require.Less(t, time.Since(begin), 30*time.Second, "SQLite's own busy handler would have gone on for an hour")
	})

	t.Run("a claim of nothing does not wait for a locked database", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, sqlite.Config{BusyTimeout: time.Millisecond})
		lock(t, store)
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
			require.Empty(t, claim(t, store, claimRequest(outmill.NewOwnerToken(), 10, order)))
		}
	})

	t.Run("a store leaves the busy timeout of a connection as it was", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		store.DB().SetMaxOpenConns(1)
		_, err := store.DB().ExecContext(t.Context(), `PRAGMA busy_timeout = 1234`)
		require.NoError(t, err)
		appendAll(t, store, rec("m1", ""))
		require.Equal(t, 1234, number(t, store.DB(), `PRAGMA busy_timeout`))
	})

	t.Run("writers of one process queue however long the queue is", func(t *testing.T) {
		t.Parallel()
		// Each transaction is short, but all of them together take longer than the patience for
		// one.
		store := newStore(t, sqlite.Config{BusyTimeout: time.Second})
		const writers = 20
		done := make(chan error, writers)
		for range writers {
			go func() {
				done <- store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
					if err := store.Append(ctx, rec("m", "")); err != nil {
						return err
					}
					<-time.After(100 * time.Millisecond)
					return nil
				})
			}()
		}
		for range writers {
			require.NoError(t, <-done)
		}
		require.Equal(t, writers, number(t, store.DB(), `SELECT count(*) FROM outmill_records`))
	})

	t.Run("a handle without WAL and busy timeout serves concurrent processes", func(t *testing.T) {
		t.Parallel()
		const processes, each = 3, 15
		path := filepath.Join(t.TempDir(), "users.db")
		var work errgroup.Group
		var ensured sync.WaitGroup
		ensured.Add(processes)
		for range processes {
			db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(OFF)")
			require.NoError(t, err)
			store, err := sqlite.New(db, sqlite.Config{BusyTimeout: time.Minute}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, errors.Join(store.Close(), db.Close())) })
			work.Go(func() error {
				err := errors.Join(store.Ensure(t.Context()), store.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
				ensured.Done()
				if err != nil {
					return err
				}
				ensured.Wait()
				for range each {
					if err := store.Append(t.Context(), rec("m", "k")); err != nil {
						return err
					}
					found, err := store.Claim(t.Context(), claimRequest(outmill.NewOwnerToken(), 1, outmill.OrderNone))
					if err != nil {
						return err
					}
					if err := store.Ack(t.Context(), "", leases(found)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, work.Wait())
		db, err := sql.Open("sqlite", path)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		require.Zero(t, number(t, db, `SELECT count(*) FROM outmill_records`), "records that nobody claimed")
	})
}
