package joinstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func workerSentences() []sentence {
	return []sentence{
		{"sixteen workers that settle steps of the same joins lose no count", sixteenWorkers},
		{"sixteen workers that settle the same steps in large calls lose no count", sixteenLargeCalls},
		{"steps of workers that died come to others, and count once", joinWorkersThatDie},
		{"steps of workers that are cut short in the middle count once", joinWorkersCutShort},
		{"joins are sound after workers did everything to their steps at the same time", workersDoEverything},
		{"joins are sound after settling, requeueing and dropping during appends and registrations", workersAndGroups},
		{"a user's transaction that starts joins and attaches steps stalls nothing while it is open", openTransactionStallsNothing},
		{"a join is finished once while sixteen workers settle its steps and look", workersFinish},
	}
}

// tangle starts joins and appends messages that are steps of some of them, in
// any order. It returns the joins of each message, by its name.
func (e *env) tangle(joins, messages int) ([]outmill.JoinID, map[string][]outmill.JoinID) {
	e.T.Helper()
	of := map[string][]outmill.JoinID{}
	all := make([]outmill.JoinID, joins)
	for i := range all {
		all[i] = e.startJoin(messages)
	}
	records := make([]*outmill.Record, messages)
	for i, name := range suite.Numbered(messages) {
		shuffled := slices.Clone(all)
		rand.Shuffle(joins, func(a, b int) { shuffled[a], shuffled[b] = shuffled[b], shuffled[a] })
		of[name] = shuffled[:1+rand.IntN(joins)]
		records[i] = suite.Rec(orders, name, withJoins(of[name]...))
	}
	e.Filled(records...)
	return all, of
}

// outcomes are names of messages and whether they failed.
type outcomes struct {
	mu     sync.Mutex
	failed map[string]bool
}

func (o *outcomes) add(failed bool, records ...*outmill.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range records {
		o.failed[r.MessageID] = failed
	}
}

func (o *outcomes) done(n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.failed) >= n
}

func (o *outcomes) require(e *env, joins []outmill.JoinID, of map[string][]outmill.JoinID) {
	e.T.Helper()
	for _, id := range joins {
		completed, failed := 0, 0
		for name, ids := range of {
			switch {
			case !slices.Contains(ids, id):
			case o.failed[name]:
				failed++
			default:
				completed++
			}
		}
		e.requireCounts(id, completed, failed)
	}
}

func sixteenWorkers(e *env) {
	const n = 96
	joins, of := e.tangle(6, n)
	results := &outcomes{failed: map[string]bool{}}
	e.workers(16, func(_ int, store joinStore) error {
		owner := outmill.NewOwnerToken()
		for !results.done(n) {
			found, err := store.Claim(e.Ctx, suite.Request(owner, suite.Limit(1+rand.IntN(6))))
			if err != nil {
				return err
			}
			if err := e.settleShuffled(store, results, found); err != nil {
				return err
			}
		}
		return nil
	})
	results.require(e, joins, of)
}

// settleShuffled acks some, fails some and gives some back.
func (e *env) settleShuffled(store joinStore, results *outcomes, found []*outmill.Record) error {
	rand.Shuffle(len(found), func(a, b int) { found[a], found[b] = found[b], found[a] })
	a, b := rand.IntN(len(found)+1), rand.IntN(len(found)+1)
	a, b = min(a, b), max(a, b)
	acked, failed, back := found[:a], found[a:b], found[b:]
	err := errors.Join(
		store.Ack(e.Ctx, "", suite.Leases(acked)),
		store.Fail(e.Ctx, suite.Failures(false, "poison", suite.Leases(failed))),
		store.Abandon(e.Ctx, suite.DelayedBy(0, "boom", suite.Leases(back))))
	results.add(false, acked...)
	results.add(true, failed...)
	return err
}

// sixteenLargeCalls: each call locks steps of many joins, in an order of its
// own.
func sixteenLargeCalls(e *env) {
	const workers, each = 16, 12
	joins, of := e.tangle(8, workers*each)
	found := e.ClaimN(outmill.NewOwnerToken(), workers*each)
	rand.Shuffle(len(found), func(a, b int) { found[a], found[b] = found[b], found[a] })
	results := &outcomes{failed: map[string]bool{}}
	e.workers(workers, func(i int, store joinStore) error {
		own := found[i*each : (i+1)*each]
		// Half of what the next worker has too: the first of the two counts.
		shared := append(slices.Clone(own), found[(i+1)%workers*each:][:each/2]...)
		results.add(false, own...)
		return store.Ack(e.Ctx, "", suite.Leases(shared))
	})
	results.require(e, joins, of)
	for _, id := range joins {
		require.Zero(e.T, e.getJoin(id).FailedSteps)
	}
}

func joinWorkersThatDie(e *env) {
	const n = 48
	joins, of := e.tangle(5, n)
	results := &outcomes{failed: map[string]bool{}}
	lost := &lostLeases{}
	stores := e.twoStores()
	for generation := 0; e.unsettled() > 0; generation++ {
		require.Less(e.T, generation, 100, "generations of workers")
		e.workersOn(stores, 8, func(i int, store joinStore) error {
			found, err := store.Claim(e.Ctx, suite.Request(outmill.NewOwnerToken(), suite.Limit(6)))
			switch {
			case err != nil:
				return err
			case generation < 3 && i%2 == 0:
				lost.add(found)
				return nil
			case i%4 == 1:
				return store.Ack(e.Ctx, "", append(lost.all(), suite.Leases(found)...))
			}
			return store.Ack(e.Ctx, "", suite.Leases(found))
		})
		e.Elapse(leaseOf + time.Minute)
	}
	results.require(e, joins, of)
}

// unsettled counts the records that are pending or leased.
func (e *env) unsettled() int {
	e.T.Helper()
	return len(e.List(outmill.ListQuery{Status: outmill.StatusPending})) + len(e.List(outmill.ListQuery{Status: outmill.StatusLeased}))
}

// lostLeases are those of workers that died, which come back late.
type lostLeases struct {
	mu     sync.Mutex
	leases []outmill.Lease
}

func (l *lostLeases) add(records []*outmill.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases = append(l.leases, suite.Leases(records)...)
}

func (l *lostLeases) all() []outmill.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.leases)
}

// joinWorkersCutShort: workers end in the middle of their calls, and others
// take over when their leases have ended.
func joinWorkersCutShort(e *env) {
	const n = 64
	joins, _ := e.tangle(5, n)
	e.workers(16, func(i int, store joinStore) error {
		found, err := store.Claim(e.Ctx, suite.Request(outmill.NewOwnerToken(), suite.Limit(4)))
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(e.Ctx, time.Duration(i)*time.Millisecond)
		defer cancel()
		// What became of it nobody knows.
		_ = store.Ack(ctx, "", suite.Leases(found))
		return nil
	})
	e.Elapse(leaseOf + time.Minute)
	// A database may still work on a call that was cut short. Until it ends, no claim gets its records.
	for end := time.Now().Add(suite.Soon()); e.unsettled() > 0 && time.Now().Before(end); {
		e.Ack(e.ClaimAll()...)
	}
	require.Zero(e.T, e.unsettled(), "records")
	for _, id := range joins {
		e.requireCounts(id, len(e.steps(id)), 0)
	}
}

// workersDoEverything settles, revives, deletes and expires the same records.
func workersDoEverything(e *env) {
	const n = 48
	joins, of := e.tangle(6, n)
	var deleted sync.Map
	e.workers(16, func(_ int, store joinStore) error {
		owner := outmill.NewOwnerToken()
		for range suite.Large(40) {
			if err := e.doAnything(store, owner, &deleted); err != nil {
				return err
			}
		}
		return nil
	})
	left := suite.ByName(e.List(outmill.ListQuery{}))
	for _, id := range joins {
		requireSound(e.Ctx, e.T, e.joins(), id)
		e.requireJoin(id, roles.JoinPending)
	}
	ids := map[string]outmill.WorkItemID{}
	deleted.Range(func(name, id any) bool {
		ids[name.(string)] = id.(outmill.WorkItemID)
		return true
	})
	for name, r := range left {
		for _, id := range of[name] {
			require.Equal(e.T, stepOf(r.Status), e.steps(id)[r.ID], "step of %s, which is %s", name, r.Status)
		}
	}
	for name := range of {
		if id, gone := ids[name]; gone && left[name] == nil {
			for _, join := range of[name] {
				require.NotEqual(e.T, roles.StepPending, e.steps(join)[id], "step of %s, which was deleted", name)
			}
		}
	}
}

// stepOf is the status of a step with one record.
func stepOf(status outmill.Status) roles.StepStatus {
	switch status {
	case outmill.StatusProcessed:
		return roles.StepCompleted
	case outmill.StatusDead:
		return roles.StepFailed
	default:
		return roles.StepPending
	}
}

func (e *env) doAnything(store joinStore, owner outmill.OwnerToken, deleted *sync.Map) error {
	found, err := store.Claim(e.Ctx, suite.Request(owner, suite.Limit(1+rand.IntN(5))))
	if err != nil {
		return err
	}
	dead, err := store.List(e.Ctx, outmill.ListQuery{Status: outmill.StatusDead, Limit: 5})
	if err != nil {
		return err
	}
	switch rand.IntN(8) {
	case 0:
		return store.Ack(e.Ctx, "", suite.Leases(found))
	case 1, 2:
		return store.Fail(e.Ctx, suite.Failures(false, "poison", suite.Leases(found)))
	case 3:
		return store.Abandon(e.Ctx, suite.DelayedBy(0, "boom", suite.Leases(found)))
	case 4:
		if len(found) > 0 && rand.IntN(4) == 0 {
			deleted.Store(found[0].MessageID, found[0].ID)
			_, err = store.Delete(e.Ctx, found[0].ID)
		}
		return errors.Join(err, store.Release(e.Ctx, suite.Leases(found)))
	}
	_, err = store.Requeue(e.Ctx, suite.IDs(dead)...)
	return errors.Join(err, store.Release(e.Ctx, suite.Leases(found)))
}

func workersAndGroups(e *env) {
	joins := []outmill.JoinID{e.startJoin(0, unsealed), e.startJoin(0, unsealed)}
	e.Register("one")
	groups := []string{"one", "two", "three"}
	e.workers(8, func(i int, store joinStore) error {
		owner := outmill.NewOwnerToken()
		for n := range suite.Large(30) {
			var err error
			switch {
			case i < 2:
				err = store.Append(e.Ctx,
					suite.Recs(orders, withJoins(joins[i%2], joins[(i+1)%2]), fmt.Sprintf("m%d.%d", i, n), fmt.Sprintf("n%d.%d", i, n))...)
			case i == 2 && n%10 == 9:
				_, err = store.DropGroup(e.Ctx, groups[rand.IntN(len(groups))])
			case i == 2:
				err = store.RegisterGroup(e.Ctx, outmill.Registration{Group: groups[rand.IntN(len(groups))]})
			default:
				err = e.settleInGroup(store, owner, groups[rand.IntN(len(groups))])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	for _, id := range joins {
		requireSound(e.Ctx, e.T, e.joins(), id)
	}
	for _, name := range groups {
		e.Drop(name)
	}
	e.Register(group)
	e.Ack(e.ClaimAll()...)
	require.Zero(e.T, e.unsettled(), "records")
	for _, id := range joins {
		requireSound(e.Ctx, e.T, e.joins(), id)
		join := e.getJoin(id)
		require.Equal(e.T, len(e.steps(id)), join.CompletedSteps+join.FailedSteps, "nothing is left that a step waits for")
	}
}

func (e *env) settleInGroup(store joinStore, owner outmill.OwnerToken, name string) error {
	found, err := store.Claim(e.Ctx, suite.Request(owner, suite.Limit(4), suite.OfGroup(name)))
	if err != nil {
		return err
	}
	half := len(found) / 2
	if err := errors.Join(
		store.Ack(e.Ctx, "", suite.Leases(found[:half])),
		store.Fail(e.Ctx, suite.Failures(false, "poison", suite.Leases(found[half:])))); err != nil {
		return err
	}
	_, err = store.Requeue(e.Ctx, suite.IDs(found[half:])...)
	return err
}

// openTransactionStallsNothing is about stores whose engine lets two
// transactions write at a time.
func openTransactionStallsNothing(e *env) {
	ctx, cancel := context.WithTimeout(e.Ctx, suite.Soon())
	defer cancel()
	quick := &env{e.Under(ctx)}
	id, parent := e.startJoin(9), e.startJoin(2)
	records := e.members(id, "acked", "dead", "deleted", "completed", "failed", "requeued")
	e.failSteps(records[5])
	tx, commit, _ := e.Begin()
	join := newJoin(1)
	require.NoError(e.T, e.joins().StartJoin(tx, join))
	open := suite.Rec("others", "open", withJoins(id, parent, join.ID))
	require.NoError(e.T, e.Store.Append(tx, open, waiter(id)))
	quick.completeSteps(records[0])
	quick.failSteps(records[1])
	quick.Delete(records[2])
	quick.reportCompleted(id, records[3])
	quick.reportFailed(id, records[4])
	quick.Requeue(records[5])
	quick.Append(suite.Rec("others", "beside", withJoins(id, parent)))
	quick.requireCounts(id, 2, 3)
	commit()
	for _, id := range []outmill.JoinID{id, parent, join.ID} {
		e.requireStep(id, open, roles.StepPending)
	}
	e.requireCounts(id, 2, 3)
	e.completeSteps(open)
	e.requireCounts(id, 3, 3)
	e.requireCounts(join.ID, 1, 0)
}

func workersFinish(e *env) {
	const n = 48
	joins, _ := e.tangle(1, n)
	id := joins[0]
	e.Append(suite.Rec(waitings, "waiter", waitsFor(id)))
	var mu sync.Mutex
	finished := 0
	e.workers(16, func(i int, store joinStore) error {
		owner := outmill.NewOwnerToken()
		for e.Ctx.Err() == nil {
			if i%2 == 0 {
				found, err := store.Claim(e.Ctx, suite.Request(owner, suite.Limit(3), suite.From(orders)))
				if err != nil {
					return err
				}
				if err := store.Ack(e.Ctx, "", suite.Leases(found)); err != nil {
					return err
				}
			}
			result, err := store.FinishJoin(e.Ctx, id, finishing(failIfAny, then("end")))
			switch {
			case err != nil:
				return err
			case result.Finished:
				mu.Lock()
				finished++
				mu.Unlock()
			case result.Join.Status != roles.JoinPending:
				return nil
			}
		}
		return e.Ctx.Err()
	})
	require.Equal(e.T, 1, finished)
	e.RequireNames([]string{"end"}, e.List(outmill.ListQuery{Topic: done}))
	e.requireCounts(id, n, 0)
	e.requireJoin(id, roles.JoinCompleted)
}
