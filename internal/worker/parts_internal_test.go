package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// oneOfEach has a worker claim one record of each tenant, and returns its items.
func oneOfEach(t *testing.T, perTenant int, tenants ...string) (w *Worker, items []*Item) {
	t.Helper()
	w = New(Config{Queue: noStore{}, Logger: watermill.NopLogger{}, ByTopic: true, BatchSize: 10, MaxPerTenant: perTenant, MaxBytes: 1000,
		Lease: time.Hour, PollInterval: time.Hour, Running: NewRegistry()})
	w.Open("orders", 10)
	o, _ := w.room(time.Now())
	var records []roles.RawRecord
	for _, tenant := range tenants {
		records = append(records, roles.RawRecord{Record: &outmill.Record{ID: outmill.NewWorkItemID(), Topic: "orders", TenantID: tenant}})
	}
	w.endRound(o, w.accept(o, records, func(outmill.Lease) time.Time { return time.Now() }), nil)
	for _, rec := range records {
		items = append(items, w.items[rec.ID])
	}
	return w, items
}

// ofOnePart are n tenants whose records of the topic are in one part.
func ofOnePart(n int) (tenants []string) {
	for i := 0; len(tenants) < n; i++ {
		if tenant := fmt.Sprint("t", i); len(tenants) == 0 || storekit.PartOf("orders", tenant) == storekit.PartOf("orders", tenants[0]) {
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

// What a claim asks of parts is decided without a store, and without waiting, because polls would hide a wake-up that is
// missing.
func TestWorker_FullParts(t *testing.T) {
	t.Parallel()

	// claim makes a claim that finds nothing, and returns its request.
	claim := func(t *testing.T, w *Worker) outmill.ClaimRequest {
		t.Helper()
		o, _ := w.room(time.Now().Add(time.Minute))
		require.Len(t, o.feeds, 1)
		w.endRound(o, w.accept(o, nil, nil), nil)
		return o.request
	}
	store := func(w *Worker, it *Item) {
		it.Ack()
		w.forget([]outcome{{kind: acked, item: it}})
	}

	t.Run("a claim may take half of the limit of a part, and leaves out a part that has no room for it", func(t *testing.T) {
		t.Parallel()
		same := ofOnePart(1)[0]
		for most, held := range map[int]int{1: 1, 2: 2, 3: 2, 10: 6} {
			var tenants []string
			for range held {
				tenants = append(tenants, same)
			}
			w, items := oneOfEach(t, most, tenants...)
			req := claim(t, w)
			require.Equal(t, partLimit(most), req.PartLimit)
			require.Equal(t, uint64(1)<<storekit.PartOf("orders", same), req.Full("", "orders"), "%d of %d", held, most)
			require.Zero(t, req.Full("other store", "orders"))
			require.Zero(t, req.Full("", "bills"))
			store(w, items[0])
			require.NotZero(t, req.Full("", "orders"), "it is as of the claim")
			req = claim(t, w)
			require.Zero(t, req.Full("", "orders"))
			require.LessOrEqual(t, held-1+req.PartLimit, most, "the next claim cannot have more than the limit")
		}
	})

	t.Run("the tenants of a part count together, and a claim is due when the part has room", func(t *testing.T) {
		t.Parallel()
		w, items := oneOfEach(t, 4, ofOnePart(3)...)
		require.NotZero(t, claim(t, w).Full("", "orders"))
		o, _ := w.room(time.Now())
		require.Empty(t, o.feeds, "the last claim found nothing")
		store(w, items[0])
		o, _ = w.room(time.Now())
		require.Len(t, o.feeds, 1)
		require.Zero(t, o.request.Full("", "orders"))
		w.endRound(o, w.accept(o, nil, nil), nil)
		store(w, items[1])
		o, _ = w.room(time.Now())
		require.Empty(t, o.feeds, "a part that was not full has more room")
		store(w, items[2])
		require.Empty(t, w.tenantsOf("orders").parts, "nothing is kept of a part without records")
	})

	t.Run("a worker without a limit of tenants limits no part", func(t *testing.T) {
		t.Parallel()
		w, _ := oneOfEach(t, 0, "a", "b")
		req := claim(t, w)
		require.Nil(t, req.Full)
		require.Zero(t, req.PartLimit)
	})
}
