package worker

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// noStore has the name that a worker asks for.
type noStore struct{ outmill.Queue }

func (noStore) Name() string { return "none" }

// TestWorker_TenantsDue decides about claims without a store and without waiting, because polls
// would hide a wake-up that is missing.
func TestWorker_TenantsDue(t *testing.T) {
	t.Parallel()

	held := func(t *testing.T) (w *Worker, items []*Item) {
		w = New(Config{Queue: noStore{}, Logger: watermill.NopLogger{}, ByTopic: true, BatchSize: 10, MaxPerTenant: 2, MaxBytes: 1000,
			Lease: time.Hour, PollInterval: time.Hour, Running: NewRegistry()})
		w.Open("orders", 10)
		o, _ := w.room(time.Now())
		require.Zero(t, o.request.Full("", "orders"))
		records := make([]roles.RawRecord, 2)
		for i := range records {
			records[i].Record = &outmill.Record{ID: outmill.NewWorkItemID(), Topic: "orders", TenantID: "a"}
		}
		w.endRound(o, w.accept(o, records, func(outmill.Lease) time.Time { return time.Now() }), nil)
		for _, rec := range records {
			items = append(items, w.items[rec.ID])
		}
		return w, items
	}
	// claim makes a claim that finds nothing, and calls during it.
	claim := func(t *testing.T, w *Worker, during func(o order)) {
		o, _ := w.room(time.Now().Add(time.Minute))
		require.Len(t, o.feeds, 1)
		during(o)
		w.endRound(o, w.accept(o, nil, nil), nil)
	}
	full := func(t *testing.T) func(order) {
		return func(o order) {
			require.Equal(t, uint64(1)<<storekit.PartOf("orders", "a"), o.request.Full("", "orders"))
			require.Zero(t, o.request.Full("other store", "orders"))
		}
	}
	store := func(w *Worker, it *Item) {
		it.Ack()
		w.forget([]outcome{{kind: acked, item: it}})
	}
	due := func(w *Worker) bool {
		o, _ := w.room(time.Now())
		return o.feeds != nil
	}

	t.Run("a claim is due when a tenant that was at its limit has room", func(t *testing.T) {
		t.Parallel()
		w, items := held(t)
		claim(t, w, full(t))
		require.False(t, due(w), "the last claim found nothing")
		store(w, items[0])
		require.True(t, due(w))
	})

	t.Run("a claim is due when a tenant has room since the last one began", func(t *testing.T) {
		t.Parallel()
		w, items := held(t)
		claim(t, w, func(o order) {
			full(t)(o)
			store(w, items[0])
			full(t)(o)
		})
		require.True(t, due(w))
	})

	t.Run("no claim is due when a tenant that was not at its limit gets room", func(t *testing.T) {
		t.Parallel()
		w, items := held(t)
		store(w, items[0])
		claim(t, w, func(order) {})
		store(w, items[1])
		require.False(t, due(w))
		require.Empty(t, w.tenantsOf("orders").loads, "nothing is kept of a tenant without records")
	})
}
