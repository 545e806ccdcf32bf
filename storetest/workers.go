package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

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

func tenWorkers(e *env) {
	want := suite.Numbered(60)
	e.Filled(suite.Recs(orders, suite.Plain, want...)...)
	counts := suite.NewTally()
	e.tenOwners(func(store outmill.Store, owner outmill.OwnerToken) error {
		for !counts.Done(len(want)) {
			found, err := store.Claim(e.Ctx, suite.Request(owner, suite.Limit(1+rand.IntN(9))))
			if err != nil {
				return err
			}
			if err := e.settleSome(store, counts, found); err != nil {
				return err
			}
		}
		return nil
	})
	counts.RequireOnce(e.Env, want)
	require.Empty(e.T, e.ClaimAll())
}

// settleSome acks most of the records and releases the others.
func (e *env) settleSome(store outmill.Store, counts *suite.Tally, found []*outmill.Record) error {
	var acked, back []*outmill.Record
	for _, r := range found {
		if rand.IntN(4) > 0 {
			acked = append(acked, r)
		} else {
			back = append(back, r)
		}
	}
	if err := store.Ack(e.Ctx, "", suite.Leases(acked)); err != nil {
		return err
	}
	for _, r := range acked {
		counts.Acked(r)
	}
	switch rand.IntN(3) {
	case 0:
		return store.Abandon(e.Ctx, suite.DelayedBy(0, "boom", suite.Leases(back)))
	case 1:
		return store.Snooze(e.Ctx, suite.DelayedBy(0, "", suite.Leases(back)))
	}
	return store.Release(e.Ctx, suite.Leases(back))
}

func tenOrderedWorkers(e *env) {
	const keys, each = 12, 4
	e.Register(group)
	var want []string
	for i := range each {
		for k := range keys {
			name := fmt.Sprintf("k%02d.%d", k, i)
			want = append(want, name)
			e.Append(suite.Rec(orders, name, suite.WithKey(fmt.Sprintf("k%02d", k))))
		}
	}
	counts := suite.NewTally()
	e.tenOwners(func(store outmill.Store, owner outmill.OwnerToken) error {
		for !counts.Done(len(want)) {
			found, err := store.Claim(e.Ctx, suite.Request(owner, suite.Limit(1+rand.IntN(6)), suite.ByKey))
			if err != nil {
				return err
			}
			if err := e.settleInOrder(store, counts, found); err != nil {
				return err
			}
		}
		return nil
	})
	counts.RequireOnce(e.Env, want)
	for key, got := range counts.Order {
		require.True(e.T, slices.IsSorted(got), "key %s was acked in the order %q", key, got)
	}
}

// settleInOrder handles one record after the other, as the contract requires of the owner of a
// key. After it gives a record back, it gives back the later records of the key, too.
func (e *env) settleInOrder(store outmill.Store, counts *suite.Tally, found []*outmill.Record) error {
	given := map[string]bool{}
	var rest []*outmill.Record
	for _, r := range found {
		switch {
		case given[r.Key]:
			rest = append(rest, r)
		case rand.IntN(5) == 0:
			given[r.Key] = true
			if err := store.Abandon(e.Ctx, suite.DelayedBy(0, "boom", suite.Leases([]*outmill.Record{r}))); err != nil {
				return err
			}
		default:
			// Count before the ack, because after it another worker may be faster.
			counts.Acked(r)
			if err := store.Ack(e.Ctx, "", suite.Leases([]*outmill.Record{r})); err != nil {
				return err
			}
		}
	}
	return store.Release(e.Ctx, suite.Leases(rest))
}

func workersBesideWriters(e *env) {
	const writers, each = 3, 20
	e.Register(group)
	var want []string
	for w := range writers {
		for i := range each {
			want = append(want, fmt.Sprintf("w%d.%d", w, i))
		}
	}
	counts := suite.NewTally()
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
		for !counts.Done(len(want)) {
			if name, ok := take(); ok {
				if err := store.Append(e.Ctx, suite.Rec(orders, name)); err != nil {
					return err
				}
			}
			found, err := store.Claim(e.Ctx, suite.Request(owner, suite.Limit(5)))
			if err != nil {
				return err
			}
			if err := e.settleSome(store, counts, found); err != nil {
				return err
			}
		}
		return nil
	})
	counts.RequireOnce(e.Env, want)
}

func workersThatDie(e *env) {
	want := suite.Numbered(40)
	e.Filled(suite.Recs(orders, suite.Plain, want...)...)
	counts := suite.NewTally()
	for generation := 0; !counts.Done(len(want)); generation++ {
		require.Less(e.T, generation, 200, "generations of workers")
		e.tenOwners(func(store outmill.Store, owner outmill.OwnerToken) error {
			found, err := store.Claim(e.Ctx, suite.Request(owner, suite.Limit(6)))
			if err != nil || generation < 2 && rand.IntN(2) == 0 {
				return err
			}
			return e.settleSome(store, counts, found)
		})
		e.Elapse(leaseOf + time.Minute)
	}
	counts.RequireOnce(e.Env, want)
	require.Empty(e.T, e.ClaimAll())
}
