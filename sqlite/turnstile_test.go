package sqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

// queued is a store whose write lock a transaction has, until end is called.
func queued(t *testing.T) (store *sqlite.Store, hold func() (end func())) {
	t.Helper()
	path := "file:" + filepath.Join(t.TempDir(), "shop.db") + "?_pragma=synchronous(OFF)"
	store, err := sqlite.Open(t.Context(), path, sqlite.Config{BusyTimeout: time.Minute, EnsureSchema: true}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store, func() func() {
		begun, over, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- store.InTx(t.Context(), func(context.Context, *sql.Tx) error {
				close(begun)
				<-over
				return nil
			})
		}()
		<-begun
		return func() {
			close(over)
			require.NoError(t, <-ended)
		}
	}
}

func TestStore_Queue(t *testing.T) {
	t.Parallel()

	queue := func(t *testing.T, store *sqlite.Store, n int) {
		t.Helper()
		require.Eventually(t, func() bool { return store.Waiting() == n }, time.Minute, time.Millisecond)
	}

	t.Run("an extension passes before a claim that waits for the write lock and would take the record", func(t *testing.T) {
		t.Parallel()
		store, hold := queued(t)
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
		require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders"}))
		claim := func() ([]*outmill.Record, error) {
			return store.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: 1, Lease: time.Millisecond})
		}
		found, err := claim()
		require.NoError(t, err)
		require.Len(t, found, 1)
		lease := found[0].Lease()
		// A claim asks without the lock whether something is due.
		over := found[0].LeaseUntil.Add(10 * time.Millisecond)
		require.Eventually(t, func() bool { return time.Now().After(over) }, time.Minute, time.Millisecond)
		end := hold()
		claimed := make(chan []*outmill.Record, 1)
		go func() {
			records, err := claim()
			if err != nil {
				t.Error(err)
			}
			claimed <- records
		}()
		queue(t, store, 1)
		extended := make(chan []outmill.Lease, 1)
		go func() {
			standing, err := store.Extend(t.Context(), time.Hour, []outmill.Lease{lease})
			if err != nil {
				t.Error(err)
			}
			extended <- standing
		}()
		queue(t, store, 2)
		end()
		require.Equal(t, []outmill.Lease{lease}, <-extended)
		require.Empty(t, <-claimed)
	})

	t.Run("a call that gives up leaves its place, and the others pass in their order", func(t *testing.T) {
		t.Parallel()
		store, hold := queued(t)
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
		end := hold()
		ended := make(chan error, 4)
		ctx, giveUp := context.WithCancel(t.Context())
		for i, id := range []string{"first", "gone", "second", "third"} {
			ctx := ctx
			if id != "gone" {
				ctx = t.Context()
			}
			go func() { ended <- store.Append(ctx, &outmill.Record{MessageID: id, Topic: "orders"}) }()
			queue(t, store, i+1)
		}
		giveUp()
		require.ErrorIs(t, <-ended, context.Canceled)
		queue(t, store, 3)
		end()
		for range 3 {
			require.NoError(t, <-ended)
		}
		found, err := store.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: 9, Lease: time.Minute})
		require.NoError(t, err)
		var order []string
		for _, r := range found {
			order = append(order, r.MessageID)
		}
		require.Equal(t, []string{"first", "second", "third"}, order)
		require.Zero(t, store.Waiting())
	})
}
