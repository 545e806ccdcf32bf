package suite

import (
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

// someLeases draws leases, those that stand and others.
func (w *Walk) someLeases(t *rapid.T) []outmill.Lease {
	standing := slices.DeleteFunc(slices.Clone(w.leases), func(l outmill.Lease) bool { return w.Queue.standing(l) == nil })
	from := standing
	if rapid.IntRange(0, 3).Draw(t, "any lease at 0") == 0 {
		from = w.leases
	}
	if len(from) == 0 {
		t.Skip("no leases")
	}
	list := make([]outmill.Lease, rapid.IntRange(1, 3).Draw(t, "leases"))
	for i := range list {
		list[i] = Pick(t, "lease", from...)
	}
	return list
}

// settled applies f to the items whose leases stand, once each.
func (w *Walk) settled(leases []outmill.Lease, f func(*Item)) {
	for _, l := range leases {
		if it := w.Queue.standing(l); it != nil {
			f(it)
		}
	}
}

func (w *Walk) settle(t *rapid.T) {
	leases := w.someLeases(t)
	w.Queue.calls++
	Pick(t, "settlement", w.ack, w.ack, w.abandon, w.fail, w.fail, w.release, w.snooze, w.extend)(t, leases)
}

func (w *Walk) ack(_ *rapid.T, leases []outmill.Lease) {
	w.NoError(w.Store.Ack(w.Ctx(), Worker, leases), "Ack")
	w.settled(leases, w.Queue.ack)
}

func (w *Walk) abandon(t *rapid.T, leases []outmill.Lease) {
	delay := Pick(t, "delay", 0, Tick, 3*Tick)
	w.NoError(w.Store.Abandon(w.Ctx(), DelayedBy(delay, "boom", leases)), "Abandon")
	w.settled(leases, func(it *Item) {
		it.toPending()
		it.Next, it.dueCall = w.Queue.Now+delay, w.Queue.calls
		it.Attempts++
		it.Expiries = 0
	})
}

func (w *Walk) snooze(t *rapid.T, leases []outmill.Lease) {
	delay := Pick(t, "delay", 0, Tick, 3*Tick)
	w.NoError(w.Store.Snooze(w.Ctx(), DelayedBy(delay, "", leases)), "Snooze")
	w.settled(leases, func(it *Item) {
		it.toPending()
		it.Next, it.dueCall = w.Queue.Now+delay, w.Queue.calls
		it.Expiries = 0
	})
}

func (w *Walk) release(_ *rapid.T, leases []outmill.Lease) {
	w.NoError(w.Store.Release(w.Ctx(), leases), "Release")
	w.settled(leases, (*Item).toPending)
}

func (w *Walk) fail(t *rapid.T, leases []outmill.Lease) {
	park := rapid.Bool().Draw(t, "park")
	if park {
		leases = leases[:1]
		it := w.Queue.standing(leases[0])
		park = it != nil && !w.parkArguable(it)
	}
	w.NoError(w.Store.Fail(w.Ctx(), Failures(park, "poison", leases)), "Fail")
	w.settled(leases, func(it *Item) {
		for _, behind := range w.Queue.fail(it, park) {
			if w.Queue.inSteps || behind.claims == 0 {
				w.adoptNotYetParked(behind)
			}
		}
	})
}

// adoptNotYetParked: which of the records that no claim has returned yet Fail parks at once is the store's affair. It
// leaves the others as they are to the next claim that meets them.
func (w *Walk) adoptNotYetParked(it *Item) {
	got, err := w.Store.Get(w.Ctx(), it.ID)
	w.NoError(err, "Get")
	if got.Status == outmill.StatusPending {
		it.toPending()
		it.parked = false
	}
}

// parkArguable: the contract does not say what becomes of records of the key
// that went dead on their own before it is parked.
func (w *Walk) parkArguable(it *Item) bool {
	return slices.ContainsFunc(w.Queue.Items, func(other *Item) bool {
		return other != it && w.Queue.sameKey(it, other) && other.Status == outmill.StatusDead && !other.parked
	})
}

func (w *Walk) extend(t *rapid.T, leases []outmill.Lease) {
	standing, err := w.Store.Extend(w.Ctx(), 2*Tick, leases)
	w.NoError(err, "Extend")
	want := map[outmill.Lease]bool{}
	for _, l := range leases {
		if it := w.Queue.standing(l); it != nil {
			want[l] = true
			it.leaseUntil, it.leaseCall = w.Queue.Now+2*Tick, w.Queue.calls
		}
	}
	got := map[outmill.Lease]bool{}
	for _, l := range standing {
		got[l] = true
	}
	require.Equal(w.T, want, got, "leases that Extend returned")
}
