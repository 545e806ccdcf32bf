package storetest

import (
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

// someLeases draws leases, those that stand and others.
func (w *walk) someLeases(t *rapid.T) []outmill.Lease {
	standing := slices.DeleteFunc(slices.Clone(w.leases), func(l outmill.Lease) bool { return w.m.standing(l) == nil })
	from := standing
	if rapid.IntRange(0, 3).Draw(t, "any lease at 0") == 0 {
		from = w.leases
	}
	if len(from) == 0 {
		t.Skip("no leases")
	}
	list := make([]outmill.Lease, rapid.IntRange(1, 3).Draw(t, "leases"))
	for i := range list {
		list[i] = pick(t, "lease", from...)
	}
	return list
}

// settled applies f to the items whose leases stand, once each.
func (w *walk) settled(leases []outmill.Lease, f func(*item)) {
	for _, l := range leases {
		if it := w.m.standing(l); it != nil {
			f(it)
		}
	}
}

func (w *walk) settle(t *rapid.T) {
	leases := w.someLeases(t)
	w.m.calls++
	pick(t, "settlement", w.ack, w.ack, w.abandon, w.fail, w.fail, w.release, w.snooze, w.extend)(t, leases)
}

func (w *walk) ack(_ *rapid.T, leases []outmill.Lease) {
	w.no(w.store.Ack(w.ctx(), worker, leases), "Ack")
	w.settled(leases, w.m.ack)
}

func (w *walk) abandon(t *rapid.T, leases []outmill.Lease) {
	delay := pick(t, "delay", 0, tick, 3*tick)
	w.no(w.store.Abandon(w.ctx(), delayedBy(delay, "boom", leases)), "Abandon")
	w.settled(leases, func(it *item) {
		it.toPending()
		it.next, it.dueCall = w.m.now+delay, w.m.calls
		it.attempts++
		it.expiries = 0
	})
}

func (w *walk) snooze(t *rapid.T, leases []outmill.Lease) {
	delay := pick(t, "delay", 0, tick, 3*tick)
	w.no(w.store.Snooze(w.ctx(), delayedBy(delay, "", leases)), "Snooze")
	w.settled(leases, func(it *item) {
		it.toPending()
		it.next, it.dueCall = w.m.now+delay, w.m.calls
		it.expiries = 0
	})
}

func (w *walk) release(_ *rapid.T, leases []outmill.Lease) {
	w.no(w.store.Release(w.ctx(), leases), "Release")
	w.settled(leases, (*item).toPending)
}

func (w *walk) fail(t *rapid.T, leases []outmill.Lease) {
	park := rapid.Bool().Draw(t, "park")
	if park {
		leases = leases[:1]
		it := w.m.standing(leases[0])
		park = it != nil && !w.parkArguable(it)
	}
	w.no(w.store.Fail(w.ctx(), failures(park, "poison", leases)), "Fail")
	w.settled(leases, func(it *item) {
		for _, behind := range w.m.fail(it, park) {
			if w.m.inSteps {
				w.adoptNotYetParked(behind)
			}
		}
	})
}

// adoptNotYetParked: how many records Fail parks is the store's affair.
func (w *walk) adoptNotYetParked(it *item) {
	got, err := w.store.Get(w.ctx(), it.id)
	w.no(err, "Get")
	if got.Status == outmill.StatusPending {
		it.toPending()
		it.parked = false
	}
}

// parkArguable: the contract does not say what becomes of records of the key
// that went dead on their own before it is parked.
func (w *walk) parkArguable(it *item) bool {
	return slices.ContainsFunc(w.m.items, func(other *item) bool {
		return other != it && sameKey(it, other) && other.status == outmill.StatusDead && !other.parked
	})
}

func (w *walk) extend(t *rapid.T, leases []outmill.Lease) {
	standing, err := w.store.Extend(w.ctx(), 2*tick, leases)
	w.no(err, "Extend")
	want := map[outmill.Lease]bool{}
	for _, l := range leases {
		if it := w.m.standing(l); it != nil {
			want[l] = true
			it.leaseUntil, it.leaseCall = w.m.now+2*tick, w.m.calls
		}
	}
	got := map[outmill.Lease]bool{}
	for _, l := range standing {
		got[l] = true
	}
	require.Equal(t, want, got, "leases that Extend returned")
}
