package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func workerSentences() []sentence {
	return []sentence{
		{"OBX-100 ten workers on one table ack each record once", tenWorkers},
		{"ten workers in order ack each record once and the records of a key in order", tenOrderedWorkers},
		{"ten workers beside writers lose nothing", workersBesideWriters},
		{"records of workers that died come to others, and are acked once", workersThatDie},
	}
}

// tally counts acks by name, and their order by key.
type tally struct {
	mu    sync.Mutex
	acks  map[string]int
	order map[string][]string
	total int
}

func newTally() *tally { return &tally{acks: map[string]int{}, order: map[string][]string{}} }

func (t *tally) acked(r *outmill.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acks[r.MessageID]++
	t.order[r.Key] = append(t.order[r.Key], r.MessageID)
	t.total++
}

func (t *tally) done(n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total >= n
}

func (t *tally) requireOnce(e *env, want []string) {
	e.t.Helper()
	require.Len(e.t, t.acks, len(want), "records acked")
	for _, name := range want {
		require.Equal(e.t, 1, t.acks[name], "acks of %s", name)
	}
}

func tenWorkers(e *env) {
	want := numbered(60)
	e.filled(recs(orders, plain, want...)...)
	counts := newTally()
	e.tenOwners(func(store outmill.Store, owner outmill.OwnerToken) error {
		for !counts.done(len(want)) {
			found, err := store.Claim(e.ctx, request(owner, limit(1+rand.IntN(9))))
			if err != nil {
				return err
			}
			if err := e.settleSome(store, counts, found); err != nil {
				return err
			}
		}
		return nil
	})
	counts.requireOnce(e, want)
	require.Empty(e.t, e.claimAll())
}

// settleSome acks most of the records and gives the others back.
func (e *env) settleSome(store outmill.Store, counts *tally, found []*outmill.Record) error {
	var acked, back []*outmill.Record
	for _, r := range found {
		if rand.IntN(4) > 0 {
			acked = append(acked, r)
		} else {
			back = append(back, r)
		}
	}
	if err := store.Ack(e.ctx, "", leases(acked)); err != nil {
		return err
	}
	for _, r := range acked {
		counts.acked(r)
	}
	switch rand.IntN(3) {
	case 0:
		return store.Abandon(e.ctx, delayedBy(0, "boom", leases(back)))
	case 1:
		return store.Snooze(e.ctx, delayedBy(0, "", leases(back)))
	}
	return store.Release(e.ctx, leases(back))
}

func tenOrderedWorkers(e *env) {
	const keys, each = 12, 4
	e.register(group)
	var want []string
	for i := range each {
		for k := range keys {
			name := fmt.Sprintf("k%02d.%d", k, i)
			want = append(want, name)
			e.append(rec(orders, name, withKey(fmt.Sprintf("k%02d", k))))
		}
	}
	counts := newTally()
	e.tenOwners(func(store outmill.Store, owner outmill.OwnerToken) error {
		for !counts.done(len(want)) {
			found, err := store.Claim(e.ctx, request(owner, limit(1+rand.IntN(6)), byKey))
			if err != nil {
				return err
			}
			if err := e.settleInOrder(store, counts, found); err != nil {
				return err
			}
		}
		return nil
	})
	counts.requireOnce(e, want)
	for key, got := range counts.order {
		require.True(e.t, slices.IsSorted(got), "key %s was acked in the order %q", key, got)
	}
}

// settleInOrder handles one record after the other, as a holder of keys does:
// behind a record that it gives back, it gives back the rest of the key.
func (e *env) settleInOrder(store outmill.Store, counts *tally, found []*outmill.Record) error {
	given := map[string]bool{}
	var rest []*outmill.Record
	for _, r := range found {
		switch {
		case given[r.Key]:
			rest = append(rest, r)
		case rand.IntN(5) == 0:
			given[r.Key] = true
			if err := store.Abandon(e.ctx, delayedBy(0, "boom", leases([]*outmill.Record{r}))); err != nil {
				return err
			}
		default:
			// Counted before it is acked: afterwards another worker may be quicker.
			counts.acked(r)
			if err := store.Ack(e.ctx, "", leases([]*outmill.Record{r})); err != nil {
				return err
			}
		}
	}
	return store.Release(e.ctx, leases(rest))
}

func workersBesideWriters(e *env) {
	const writers, each = 3, 20
	e.register(group)
	var want []string
	for w := range writers {
		for i := range each {
			want = append(want, fmt.Sprintf("w%d.%d", w, i))
		}
	}
	counts := newTally()
	var next sync.Mutex
	left := want
	take := func() (string, bool) {
		next.Lock()
		defer next.Unlock()
		if len(left) == 0 {
			return "", false
		}
		name := left[0]
		left = left[1:]
		return name, true
	}
	e.tenOwners(func(store outmill.Store, owner outmill.OwnerToken) error {
		for !counts.done(len(want)) {
			if name, ok := take(); ok {
				if err := store.Append(e.ctx, rec(orders, name)); err != nil {
					return err
				}
			}
			found, err := store.Claim(e.ctx, request(owner, limit(5)))
			if err != nil {
				return err
			}
			if err := e.settleSome(store, counts, found); err != nil {
				return err
			}
		}
		return nil
	})
	counts.requireOnce(e, want)
}

func workersThatDie(e *env) {
	want := numbered(40)
	e.filled(recs(orders, plain, want...)...)
	counts := newTally()
	for generation := 0; !counts.done(len(want)); generation++ {
		require.Less(e.t, generation, 200, "generations of workers")
		e.tenOwners(func(store outmill.Store, owner outmill.OwnerToken) error {
			found, err := store.Claim(e.ctx, request(owner, limit(6)))
			if err != nil || generation < 2 && rand.IntN(2) == 0 {
				return err
			}
			return e.settleSome(store, counts, found)
		})
		e.elapse(leaseOf + time.Minute)
	}
	counts.requireOnce(e, want)
	require.Empty(e.t, e.claimAll())
}
