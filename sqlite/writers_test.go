package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

// manyWriters has a thousand writers append at the same time, and each message is then there once.
func manyWriters(t *testing.T, stores []*sqlite.Store, each func(store *sqlite.Store, r *outmill.Record) error) {
	t.Helper()
	writers := 200
	if testenv.All() && !testenv.UnderRace {
		writers = 1000
	}
	begin := make(chan struct{})
	var work errgroup.Group
	for i := range writers {
		work.Go(func() error {
			<-begin
			return each(stores[i%len(stores)], &outmill.Record{MessageID: fmt.Sprint("m", i), Topic: "orders"})
		})
	}
	close(begin)
	require.NoError(t, work.Wait())
	seen := map[string]int{}
	for after := (outmill.WorkItemID{}); ; {
		found, err := stores[0].List(t.Context(), outmill.ListQuery{After: after, Limit: 500})
		require.NoError(t, err)
		if len(found) == 0 {
			break
		}
		for _, r := range found {
			seen[r.MessageID]++
			after = r.ID
		}
	}
	require.Len(t, seen, writers, "nothing is lost")
	for id, n := range seen {
		require.Equal(t, 1, n, id)
	}
}

// onFile opens as many stores on one file as there are processes, each of which queues for itself.
func onFile(t *testing.T, processes int, patience time.Duration) (stores []*sqlite.Store) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	for range processes {
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(OFF)")
		require.NoError(t, err)
		store, err := sqlite.New(db, sqlite.Config{BusyTimeout: patience}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, errors.Join(store.Close(), db.Close())) })
		stores = append(stores, store)
	}
	require.NoError(t, stores[0].Ensure(t.Context()))
	require.NoError(t, stores[0].RegisterGroup(t.Context(), outmill.Registration{}))
	return stores
}

func TestStore_ManyWriters(t *testing.T) {
	t.Parallel()

	t.Run("a thousand writers of one process all write, although together they take longer than the busy timeout", func(t *testing.T) {
		t.Parallel()
		manyWriters(t, onFile(t, 1, time.Second), func(store *sqlite.Store, r *outmill.Record) error {
			return store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
				if err := store.Append(ctx, r); err != nil {
					return err
				}
				<-time.After(10 * time.Millisecond)
				return nil
			})
		})
	})

	t.Run("of a thousand writers of four processes each has written, or has ErrBusy and has written nothing", func(t *testing.T) {
		t.Parallel()
		var busy atomic.Int64
		manyWriters(t, onFile(t, 4, 5*time.Millisecond), func(store *sqlite.Store, r *outmill.Record) error {
			for {
				err := store.Append(t.Context(), r)
				if !errors.Is(err, storekit.ErrBusy) {
					return err
				}
				busy.Add(1)
				// It has a new id with each append.
				r.ID = outmill.WorkItemID{}
			}
		})
		t.Logf("%d appends had ErrBusy", busy.Load())
	})
}
