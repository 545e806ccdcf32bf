package joinstest

import (
	"math/rand/v2"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func attachSentences() []sentence {
	return []sentence{
		{"OBX-083 AttachStep makes a record that is pending a step", attachPending},
		{"AttachStep makes a record that is leased a step", attachLeased},
		{"AttachStep makes one record of a message a step, and none that another group has", attachOneOfSeveral},
		{"AttachStep of a processed record counts at once", attachProcessed},
		{"AttachStep of a dead record counts at once, and a requeue takes the step back", attachDead},
		{"OBX-084 AttachStep again changes nothing, nor in a join that is full", attachTwice},
		{"AttachStep of a step that was appended as one changes nothing", attachMember},
		{"OBX-096 AttachStep attaches a record to joins besides those that it has", attachBeside},
		{"AttachStep of a record that waits for a group makes it a step", attachUnrouted},
		{"the records of a message tell of the joins that AttachStep attached it to", attachIsTold},
		{"AttachStep of an unknown record is ErrUnknownMessage", attachUnknown},
		{"AttachStep of a record that was deleted is ErrUnknownMessage", attachDeleted},
		{"AttachStep to an unknown join is ErrUnknownJoin", attachToUnknown},
		{"AttachStep to a join that has ended is ErrJoinFinished", attachToEnded},
		{"AttachStep beyond the steps that a join expects is ErrTooManySteps", attachTooMany},
		{"AttachStep of a record that waits for a join is an error", attachWaiter},
		{"a record that waits for a join becomes due when AttachStep decides the join", attachWakes},
		{"a late step is settled by all that settles a step", attachedEndings},
		{"ten callers that attach records while others ack them count each once", attachBesideAcks},
	}
}

func (e *env) attach(id outmill.JoinID, records ...*outmill.Record) {
	e.T.Helper()
	for _, r := range records {
		require.NoError(e.T, e.joins().AttachStep(e.Ctx, id, r.ID), "AttachStep")
	}
}

func (e *env) requireNoAttach(id outmill.JoinID, r *outmill.Record, want error) {
	e.T.Helper()
	before := e.seen()
	require.ErrorIs(e.T, e.joins().AttachStep(e.Ctx, id, r.ID), want)
	require.Equal(e.T, before, e.seen(), "something was written")
}

func attachPending(e *env) {
	id := e.startJoin(2)
	r, delayed := suite.Rec(orders, "m1"), suite.Rec(orders, "m2", suite.WithDelay(time.Hour))
	e.Filled(r, delayed)
	e.attach(id, r, delayed)
	require.Equal(e.T, pendingSteps(r, delayed), e.steps(id))
	e.completeSteps(r)
	e.requireCounts(id, 1, 0)
	e.Elapse(61 * time.Minute)
	e.failSteps(delayed)
	e.requireCounts(id, 1, 1)
}

func attachLeased(e *env) {
	id := e.startJoin(2)
	e.Filled(suite.Recs(orders, suite.Plain, "m1", "m2")...)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.attach(id, found["m1"], found["m2"])
	e.requireCounts(id, 0, 0)
	e.Ack(found["m1"])
	e.Fail(found["m2"])
	e.requireCounts(id, 1, 1)
}

func attachOneOfSeveral(e *env) {
	for _, leased := range []bool{false, true} {
		e.Register("a")
		e.Register("b")
		r := suite.Rec(orders, "m1")
		e.Append(r)
		other := &outmill.Record{ID: outmill.CopyID(r.ID, "b")}
		of := map[string]*outmill.Record{}
		claim := func() {
			of["a"] = e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("a"))
			of["b"] = e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("b"))
		}
		if leased {
			claim()
		}
		first, second := e.startJoin(1), e.startJoin(1)
		// This store may not know the groups that read the topic by now.
		(&env{e.On(e.Reopen())}).attach(first, r)
		e.attach(second, other)
		if !leased {
			claim()
		}
		require.Equal(e.T, []outmill.JoinID{first}, e.Get(r).Joins)
		require.Equal(e.T, []outmill.JoinID{second}, e.Get(other).Joins)
		e.Fail(of["b"])
		e.requireCounts(first, 0, 0)
		e.requireCounts(second, 0, 1)
		e.Ack(of["a"])
		e.requireCounts(first, 1, 0)
		e.Delete(other)
		e = &env{e.Fresh()}
	}
}

func attachProcessed(e *env) {
	id := e.startJoin(2)
	r := suite.Rec(orders, "m1")
	e.Filled(r)
	e.completeSteps(r)
	e.attach(id, r)
	e.requireCounts(id, 1, 0)
	e.requireStep(id, r, roles.StepCompleted)
	require.Equal(e.T, 1, e.Delete(r))
	e.requireCounts(id, 1, 0)
}

func attachDead(e *env) {
	id := e.startJoin(2)
	r := suite.Rec(orders, "m1")
	e.Filled(r)
	e.failSteps(r)
	e.attach(id, r)
	e.requireCounts(id, 0, 1)
	e.requireStep(id, r, roles.StepFailed)
	require.Equal(e.T, 1, e.Requeue(r))
	e.requireCounts(id, 0, 0)
	e.completeSteps(r)
	e.requireCounts(id, 1, 0)
}

func attachTwice(e *env) {
	id := e.startJoin(3)
	records := suite.Recs(orders, suite.Plain, "pending", "processed", "dead")
	e.Filled(records...)
	e.completeSteps(records[1])
	e.failSteps(records[2])
	for range 3 {
		e.attach(id, records...)
		require.Len(e.T, e.steps(id), 3)
		e.requireCounts(id, 1, 1)
	}
	e.completeSteps(records[0])
	e.attach(id, records...)
	e.requireCounts(id, 2, 1)
}

func attachMember(e *env) {
	id := e.startJoin(2)
	records := e.members(id, "m1", "m2")
	e.attach(id, records...)
	require.Equal(e.T, pendingSteps(records...), e.steps(id))
	e.completeSteps(records...)
	e.attach(id, records...)
	e.requireCounts(id, 2, 0)
}

func attachBeside(e *env) {
	first, second, third := e.startJoin(1), e.startJoin(1), e.startJoin(1)
	r := e.members(first, "m1")[0]
	e.attach(second, r)
	e.completeSteps(r)
	e.attach(third, r)
	for _, id := range []outmill.JoinID{first, second, third} {
		e.requireCounts(id, 1, 0)
	}
}

func attachUnrouted(e *env) {
	id := e.startJoin(2)
	r := suite.Rec(orders, "m1")
	e.Append(r)
	e.attach(id, r)
	e.Register(group)
	e.completeSteps(r)
	e.requireCounts(id, 1, 0)
}

func attachUnknown(e *env) {
	id := e.startJoin(1)
	e.requireNoAttach(id, &outmill.Record{ID: outmill.NewWorkItemID()}, roles.ErrUnknownMessage)
	e.requireNoAttach(id, &outmill.Record{}, roles.ErrUnknownMessage)
}

func attachDeleted(e *env) {
	id := e.startJoin(3)
	records := suite.Recs(orders, suite.Plain, "m1", "m2")
	e.Filled(records...)
	e.completeSteps(records[0])
	e.Elapse(suite.Retention + time.Minute)
	require.Equal(e.T, 1, e.Did(e.Store.DeleteProcessed, 10))
	require.Equal(e.T, 1, e.Delete(records[1]))
	for _, r := range records {
		e.requireNoAttach(id, r, roles.ErrUnknownMessage)
	}
}

func attachToUnknown(e *env) {
	r := suite.Rec(orders, "m1")
	e.Filled(r)
	e.requireNoAttach(outmill.NewJoinID(), r, roles.ErrUnknownJoin)
	e.requireNoAttach(outmill.JoinID{}, r, roles.ErrUnknownJoin)
}

func attachToEnded(e *env) {
	ended := e.ended()
	r := suite.Rec(orders, "m1")
	e.Append(r)
	for _, id := range ended {
		e.requireNoAttach(id, r, roles.ErrJoinFinished)
	}
	e.completeSteps(r)
	for _, id := range ended {
		e.requireNoAttach(id, r, roles.ErrJoinFinished)
	}
}

func attachTooMany(e *env) {
	id := e.startJoin(2)
	e.members(id, "m1")
	late := suite.Recs(orders, suite.Plain, "m2", "m3")
	e.Append(late...)
	e.attach(id, late[0])
	e.requireNoAttach(id, late[1], roles.ErrTooManySteps)
	open := e.startJoin(0, unsealed)
	e.attach(open, late...)
	require.Len(e.T, e.steps(open), 2)
}

func attachWaiter(e *env) {
	id := e.startJoin(1)
	r := waiter(e.startJoin(1))
	e.Filled(r)
	require.Error(e.T, e.joins().AttachStep(e.Ctx, id, r.ID))
	require.Empty(e.T, e.steps(id))
}

func attachWakes(e *env) {
	id := e.startJoin(2)
	records := suite.Recs(orders, suite.Plain, "m1", "m2")
	e.Filled(records...)
	e.Append(waiter(id))
	e.completeSteps(records[0])
	e.failSteps(records[1])
	e.attach(id, records[0])
	e.requireAsleep()
	e.attach(id, records[1])
	e.requireAwake()
}

func attachedEndings(e *env) {
	for _, x := range messageOutcomes() {
		id := e.startJoin(2)
		r := x.member(e, nil)
		e.attach(id, r)
		x.apply(e, r)
		completed, failed := x.counts()
		e.requireCounts(id, completed, failed)
		for _, left := range e.List(outmill.ListQuery{}) {
			e.Delete(left)
		}
	}
}

func attachBesideAcks(e *env) {
	const n = 60
	id := e.startJoin(n)
	records := suite.Recs(orders, suite.Plain, suite.Numbered(n)...)
	e.Filled(records...)
	acks := suite.NewTally()
	e.workers(10, func(i int, store joinStore) error {
		if i < 4 {
			return e.attachAll(store, id, records)
		}
		for !acks.Done(n) {
			found, err := store.Claim(e.Ctx, suite.Request(outmill.NewOwnerToken(), suite.Limit(3)))
			if err != nil {
				return err
			}
			if err := store.Ack(e.Ctx, "", suite.Leases(found)); err != nil {
				return err
			}
			for _, r := range found {
				acks.Acked(r)
			}
		}
		return nil
	})
	e.requireCounts(id, n, 0)
}

// attachAll attaches the records in random order.
func (e *env) attachAll(store joinStore, id outmill.JoinID, records []*outmill.Record) error {
	for _, i := range rand.Perm(len(records)) {
		if err := store.AttachStep(e.Ctx, id, records[i].ID); err != nil {
			return err
		}
	}
	return nil
}
