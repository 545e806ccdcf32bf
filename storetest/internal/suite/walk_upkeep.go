package suite

import (
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

func (w *Walk) reap(t *rapid.T) {
	limit := Pick(t, "limit", 1, 2, 100)
	ended := w.filter(w.Queue.leaseEnded)
	n, err := w.Store.ReapExpired(w.Ctx(), limit)
	w.NoError(err, "ReapExpired")
	w.adopt(n, limit, ended, outmill.StatusPending, func(it *Item, _ *outmill.Record) {
		it.countExpiry()
		it.toPending()
	})
}

func (w *Walk) expire(t *rapid.T) {
	limit := Pick(t, "limit", 1, 2, 100)
	w.expireDue(limit)
}

func (w *Walk) expireDue(limit int) {
	expired := w.filter(func(it *Item) bool {
		return w.Queue.expired(it) && (it.Status == outmill.StatusPending || w.Queue.leaseEnded(it))
	})
	n, err := w.Store.ExpireDue(w.Ctx(), limit)
	w.NoError(err, "ExpireDue")
	w.adopt(n, limit, expired, outmill.StatusDead, func(it *Item, got *outmill.Record) {
		it.toDead()
		it.Attempts = got.Attempts
	})
}

func (w *Walk) filter(f func(*Item) bool) []*Item {
	var list []*Item
	for _, it := range w.Queue.Items {
		if f(it) {
			list = append(list, it)
		}
	}
	return list
}

// adopt checks that a bounded call did as much as it could, and follows the
// store in which of the candidates it took.
func (w *Walk) adopt(n, limit int, candidates []*Item, to outmill.Status, f func(*Item, *outmill.Record)) {
	require.Equal(w.T, min(limit, len(candidates)), n, "records done with limit %d", limit)
	for _, it := range candidates {
		got, err := w.Store.Get(w.Ctx(), it.ID)
		w.NoError(err, "Get")
		if got.Status == to {
			f(it, got)
			n--
		}
	}
	require.Zero(w.T, n, "records counted and not done")
}

func (w *Walk) requeue(t *rapid.T) {
	candidates := w.filter(func(it *Item) bool {
		return it.Group != "" && (it.parked || it.Status != outmill.StatusDead || !w.Queue.keyParked(it))
	})
	dead := slices.DeleteFunc(slices.Clone(candidates), func(it *Item) bool { return it.Status != outmill.StatusDead })
	if len(dead) > 0 && rapid.IntRange(0, 3).Draw(t, "any record at 0") > 0 {
		candidates = dead
	}
	if len(candidates) == 0 {
		t.Skip("no records")
	}
	it := Pick(t, "record", candidates...)
	w.Queue.calls++
	n, err := w.Store.Requeue(w.Ctx(), it.ID)
	w.NoError(err, "Requeue")
	require.Equal(w.T, w.Queue.requeue(it), n, "records requeued with %s", it.Name)
}

func (w *Walk) delete(t *rapid.T) {
	if len(w.Queue.Items) == 0 {
		t.Skip("no records")
	}
	it := Pick(t, "record", w.Queue.Items...)
	n, err := w.Store.Delete(w.Ctx(), it.ID)
	w.NoError(err, "Delete")
	require.Equal(w.T, w.Queue.Remove(func(other *Item) bool { return other == it }), n)
}

// maintain changes nothing that the model knows of.
func (w *Walk) maintain(*rapid.T) {
	_, err := w.Store.Maintain(w.Ctx())
	w.NoError(err, "Maintain")
}

func (w *Walk) deleteOld(t *rapid.T) {
	n, err := w.Store.DeleteProcessed(w.Ctx(), 1000)
	w.NoError(err, "DeleteProcessed")
	old := func(it *Item) bool {
		return it.Status == outmill.StatusProcessed && it.processed+w.Queue.Retain <= w.Queue.Now
	}
	require.Equal(w.T, w.Queue.Remove(old), n, "processed records deleted")
	_, err = w.Store.DeleteDedupKeys(w.Ctx(), 100)
	w.NoError(err, "DeleteDedupKeys")
	registrations, records, err := w.Store.ExpireRegistrations(w.Ctx(), 100)
	w.NoError(err, "ExpireRegistrations")
	require.Zero(w.T, registrations+records, "registrations without a TTL, and their records, that ended")
}
