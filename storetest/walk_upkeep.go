package storetest

import (
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

func (w *walk) reap(t *rapid.T) {
	limit := pick(t, "limit", 1, 2, 100)
	ended := w.filter(w.m.leaseEnded)
	n, err := w.store.ReapExpired(w.ctx(), limit)
	w.no(err, "ReapExpired")
	w.adopt(n, limit, ended, outmill.StatusPending, func(it *item, _ *outmill.Record) {
		it.countExpiry()
		it.toPending()
	})
}

func (w *walk) expire(t *rapid.T) {
	limit := pick(t, "limit", 1, 2, 100)
	w.expireDue(limit)
}

func (w *walk) expireDue(limit int) {
	expired := w.filter(func(it *item) bool {
		return w.m.expired(it) && (it.status == outmill.StatusPending || w.m.leaseEnded(it))
	})
	n, err := w.store.ExpireDue(w.ctx(), limit)
	w.no(err, "ExpireDue")
	w.adopt(n, limit, expired, outmill.StatusDead, func(it *item, got *outmill.Record) {
		it.toDead()
		it.attempts = got.Attempts
	})
}

func (w *walk) filter(f func(*item) bool) []*item {
	var list []*item
	for _, it := range w.m.items {
		if f(it) {
			list = append(list, it)
		}
	}
	return list
}

// adopt checks that a bounded call did as much as it could, and follows the
// store in which of the candidates it took.
func (w *walk) adopt(n, limit int, candidates []*item, to outmill.Status, f func(*item, *outmill.Record)) {
	require.Equal(w.t, min(limit, len(candidates)), n, "records done with limit %d", limit)
	for _, it := range candidates {
		got, err := w.store.Get(w.ctx(), it.id)
		w.no(err, "Get")
		if got.Status == to {
			f(it, got)
			n--
		}
	}
	require.Zero(w.t, n, "records counted and not done")
}

func (w *walk) requeue(t *rapid.T) {
	candidates := w.filter(func(it *item) bool {
		return it.group != "" && (it.parked || it.status != outmill.StatusDead || !w.m.keyParked(it))
	})
	dead := slices.DeleteFunc(slices.Clone(candidates), func(it *item) bool { return it.status != outmill.StatusDead })
	if len(dead) > 0 && rapid.IntRange(0, 3).Draw(t, "any record at 0") > 0 {
		candidates = dead
	}
	if len(candidates) == 0 {
		t.Skip("no records")
	}
	it := pick(t, "record", candidates...)
	w.m.calls++
	n, err := w.store.Requeue(w.ctx(), it.id)
	w.no(err, "Requeue")
	require.Equal(t, w.m.requeue(it), n, "records requeued with %s", it.name)
}

func (w *walk) delete(t *rapid.T) {
	if len(w.m.items) == 0 {
		t.Skip("no records")
	}
	it := pick(t, "record", w.m.items...)
	n, err := w.store.Delete(w.ctx(), it.id)
	w.no(err, "Delete")
	require.Equal(t, w.m.remove(func(other *item) bool { return other == it }), n)
}

// maintain changes nothing that the model knows of.
func (w *walk) maintain(*rapid.T) {
	_, err := w.store.Maintain(w.ctx())
	w.no(err, "Maintain")
}

func (w *walk) deleteOld(t *rapid.T) {
	n, err := w.store.DeleteProcessed(w.ctx(), 100)
	w.no(err, "DeleteProcessed")
	old := func(it *item) bool {
		return it.status == outmill.StatusProcessed && it.processed+w.m.retain <= w.m.now
	}
	require.Equal(t, w.m.remove(old), n, "processed records deleted")
	_, err = w.store.DeleteDedupKeys(w.ctx(), 100)
	w.no(err, "DeleteDedupKeys")
	registrations, records, err := w.store.ExpireRegistrations(w.ctx(), 100)
	w.no(err, "ExpireRegistrations")
	require.Zero(t, registrations+records, "registrations without a TTL, and their records, that ended")
}
