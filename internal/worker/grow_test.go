package worker_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storetest/memstore"
)

// limits is a store that notes the limits of the claims.
type limits struct {
	*memstore.Store
	mu    sync.Mutex
	asked []int
	// bytes is MaxBytes of its worker; 0 is that of the rig.
	bytes int
}

func (l *limits) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	l.mu.Lock()
	l.asked = append(l.asked, req.Limit)
	l.mu.Unlock()
	return l.Store.Claim(ctx, req)
}

// pile returns a store in which n records wait.
func pile(t *testing.T, n int) *limits {
	t.Helper()
	return pileOf(t, n, nil)
}

func pileOf(t *testing.T, n int, payload []byte) *limits {
	t.Helper()
	store := memstore.New(memstore.NewDatabase(), memstore.Options{})
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{MessageID: fmt.Sprint(i), Topic: topic, Key: fmt.Sprint(i), Payload: payload}
	}
	require.NoError(t, store.Append(t.Context(), records...))
	return &limits{Store: store}
}

// work handles n records with a worker whose batches grow from 10 to 80. handle gets the batches.
func (l *limits) work(t *testing.T, order outmill.Order, n int, handle func(items []*worker.Item)) {
	t.Helper()
	cfg := config(l)
	cfg.MaxItems, cfg.MostBatch, cfg.Order, cfg.Pipelined = 30, 80, order, true
	cfg.MaxBytes = cmp.Or(l.bytes, cfg.MaxBytes)
	w := worker.New(cfg)
	w.Start(t.Context())
	for handled := 0; handled < n; {
		items, err := w.Take(t.Context(), 80)
		require.NoError(t, err)
		handle(items)
		for _, it := range items {
			it.Ack()
		}
		handled += len(items)
	}
	require.NoError(t, w.Drain(t.Context()))
	require.NoError(t, w.Close(t.Context()))
	left, err := l.List(t.Context(), outmill.ListQuery{Limit: 1})
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestGrowth(t *testing.T) {
	t.Parallel()

	each := func(t *testing.T, name string, test func(t *testing.T, order outmill.Order)) {
		t.Helper()
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			t.Run(fmt.Sprintf("%s, order %s", name, order), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { test(t, order) })
			})
		}
	}

	each(t, "claims grow while there is a backlog", func(t *testing.T, order outmill.Order) {
		l := pile(t, 1000)
		l.work(t, order, 1000, func([]*worker.Item) { time.Sleep(20 * time.Millisecond) })
		require.Equal(t, 10, l.asked[0])
		require.Equal(t, 80, slices.Max(l.asked))
		require.Equal(t, 10, l.asked[len(l.asked)-1], "the last one was not full")
		require.Less(t, len(l.asked), 40)
	})

	each(t, "claims that the bytes end stay as large as they are", func(t *testing.T, order outmill.Order) {
		l := pileOf(t, 500, make([]byte, 3000))
		// A claim takes a third of the bytes, some 14 records.
		l.bytes = 3 * 45_000
		l.work(t, order, 500, func([]*worker.Item) { time.Sleep(20 * time.Millisecond) })
		grown := l.asked[slices.Index(l.asked, 20) : len(l.asked)-5]
		require.NotContains(t, grown, 10, "%v", l.asked)
	})

	each(t, "claims do not grow while outcomes are stored late", func(t *testing.T, order outmill.Order) {
		l := pile(t, 300)
		l.work(t, order, 300, func([]*worker.Item) { time.Sleep(soon / 3) })
		require.Equal(t, 10, slices.Max(l.asked))
	})

	each(t, "records whose lease has ended come in small batches", func(t *testing.T, order outmill.Order) {
		l := pile(t, 1500)
		_, err := l.Store.Claim(t.Context(), outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Limit: 120, Lease: time.Second, Order: order,
		})
		require.NoError(t, err)
		again := 0
		l.work(t, order, 1500, func(items []*worker.Item) {
			time.Sleep(100 * time.Millisecond)
			retried := slices.DeleteFunc(slices.Clone(items), func(it *worker.Item) bool { return it.Record.Expiries == 0 })
			again += len(retried)
			if len(retried) == 0 {
				return
			}
			// They would be suspects if the process ended now.
			leased, err := l.List(t.Context(), outmill.ListQuery{Status: outmill.StatusLeased, Limit: 10_000})
			require.NoError(t, err)
			held := 0
			for _, rec := range leased {
				held += min(rec.Expiries, 1)
			}
			require.LessOrEqual(t, held, 30)
		})
		require.Equal(t, 120, again)
		require.Equal(t, 80, slices.Max(l.asked))
	})
}
