package storetest

import (
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func joinAttachSentences() []sentence {
	return []sentence{
		{"OBX-083 AttachStep makes a record that is pending a step", attachPending},
		{"AttachStep makes a record that is leased a step", attachLeased},
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
		{"a record becomes due that waits for a join which AttachStep decides", attachWakes},
		{"a late step is settled by all that settles a step", attachedEndings},
		{"ten callers that attach records while others ack them count each once", attachBesideAcks},
	}
}

func (e *env) attach(id outmill.JoinID, records ...*outmill.Record) {
	e.t.Helper()
	for _, r := range records {
		require.NoError(e.t, e.joins().AttachStep(e.ctx, id, r.ID), "AttachStep")
	}
}

func (e *env) requireNoAttach(id outmill.JoinID, r *outmill.Record, want error) {
	e.t.Helper()
	before := e.seen()
	require.ErrorIs(e.t, e.joins().AttachStep(e.ctx, id, r.ID), want)
	require.Equal(e.t, before, e.seen(), "something was written")
}

func attachPending(e *env) {
	id := e.startJoin(2)
	r, delayed := rec(orders, "m1"), rec(orders, "m2", withDelay(time.Hour))
	e.filled(r, delayed)
	e.attach(id, r, delayed)
	require.Equal(e.t, pendingSteps(r, delayed), e.steps(id))
	e.completeSteps(r)
	e.requireCounts(id, 1, 0)
	e.elapse(61 * time.Minute)
	e.failSteps(delayed)
	e.requireCounts(id, 1, 1)
}

func attachLeased(e *env) {
	id := e.startJoin(2)
	e.filled(recs(orders, plain, "m1", "m2")...)
	found := e.claimNamed(outmill.NewOwnerToken())
	e.attach(id, found["m1"], found["m2"])
	e.requireCounts(id, 0, 0)
	e.ack(found["m1"])
	e.fail(found["m2"])
	e.requireCounts(id, 1, 1)
}

func attachProcessed(e *env) {
	id := e.startJoin(2)
	r := rec(orders, "m1")
	e.filled(r)
	e.completeSteps(r)
	e.attach(id, r)
	e.requireCounts(id, 1, 0)
	e.requireStep(id, r, storekit.StepCompleted)
	require.Equal(e.t, 1, e.delete(r))
	e.requireCounts(id, 1, 0)
}

func attachDead(e *env) {
	id := e.startJoin(2)
	r := rec(orders, "m1")
	e.filled(r)
	e.failSteps(r)
	e.attach(id, r)
	e.requireCounts(id, 0, 1)
	e.requireStep(id, r, storekit.StepFailed)
	require.Equal(e.t, 1, e.requeue(r))
	e.requireCounts(id, 0, 0)
	e.completeSteps(r)
	e.requireCounts(id, 1, 0)
}

func attachTwice(e *env) {
	id := e.startJoin(3)
	records := recs(orders, plain, "pending", "processed", "dead")
	e.filled(records...)
	e.completeSteps(records[1])
	e.failSteps(records[2])
	for range 3 {
		e.attach(id, records...)
		require.Len(e.t, e.steps(id), 3)
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
	require.Equal(e.t, pendingSteps(records...), e.steps(id))
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
	r := rec(orders, "m1")
	e.append(r)
	e.attach(id, r)
	e.register(group)
	e.completeSteps(r)
	e.requireCounts(id, 1, 0)
}

func attachUnknown(e *env) {
	id := e.startJoin(1)
	e.requireNoAttach(id, &outmill.Record{ID: outmill.NewWorkItemID()}, storekit.ErrUnknownMessage)
	e.requireNoAttach(id, &outmill.Record{}, storekit.ErrUnknownMessage)
}

func attachDeleted(e *env) {
	id := e.startJoin(3)
	records := recs(orders, plain, "m1", "m2")
	e.filled(records...)
	e.completeSteps(records[0])
	e.elapse(retention + time.Minute)
	require.Equal(e.t, 1, e.did(e.store.DeleteProcessed, 10))
	require.Equal(e.t, 1, e.delete(records[1]))
	for _, r := range records {
		e.requireNoAttach(id, r, storekit.ErrUnknownMessage)
	}
}

func attachToUnknown(e *env) {
	r := rec(orders, "m1")
	e.filled(r)
	e.requireNoAttach(outmill.NewJoinID(), r, storekit.ErrUnknownJoin)
	e.requireNoAttach(outmill.JoinID{}, r, storekit.ErrUnknownJoin)
}

func attachToEnded(e *env) {
	ended := e.ended()
	r := rec(orders, "m1")
	e.append(r)
	for _, id := range ended {
		e.requireNoAttach(id, r, storekit.ErrJoinFinished)
	}
	e.completeSteps(r)
	for _, id := range ended {
		e.requireNoAttach(id, r, storekit.ErrJoinFinished)
	}
}

func attachTooMany(e *env) {
	id := e.startJoin(2)
	e.members(id, "m1")
	late := recs(orders, plain, "m2", "m3")
	e.append(late...)
	e.attach(id, late[0])
	e.requireNoAttach(id, late[1], storekit.ErrTooManySteps)
	open := e.startJoin(0, unsealed)
	e.attach(open, late...)
	require.Len(e.t, e.steps(open), 2)
}

func attachWaiter(e *env) {
	id := e.startJoin(1)
	r := waiter(e.startJoin(1))
	e.filled(r)
	require.Error(e.t, e.joins().AttachStep(e.ctx, id, r.ID))
	require.Empty(e.t, e.steps(id))
}

func attachWakes(e *env) {
	id := e.startJoin(2)
	records := recs(orders, plain, "m1", "m2")
	e.filled(records...)
	e.append(waiter(id))
	e.completeSteps(records[0])
	e.failSteps(records[1])
	e.attach(id, records[0])
	e.requireAsleep()
	e.attach(id, records[1])
	e.requireAwake()
}

func attachedEndings(e *env) {
	for _, x := range endings() {
		id := e.startJoin(2)
		r := x.member(e, nil)
		e.attach(id, r)
		x.apply(e, r)
		completed, failed := x.counts()
		e.requireCounts(id, completed, failed)
		for _, left := range e.list(outmill.ListQuery{}) {
			e.delete(left)
		}
	}
}

func attachBesideAcks(e *env) {
	const n = 60
	id := e.startJoin(n)
	records := recs(orders, plain, numbered(n)...)
	e.filled(records...)
	acks := newTally()
	e.workers(10, func(i int, store joinStore) error {
		if i < 4 {
			return e.attachAll(store, id, records)
		}
		for !acks.done(n) {
			found, err := store.Claim(e.ctx, request(outmill.NewOwnerToken(), limit(3)))
			if err != nil {
				return err
			}
			if err := store.Ack(e.ctx, "", leases(found)); err != nil {
				return err
			}
			for _, r := range found {
				acks.acked(r)
			}
		}
		return nil
	})
	e.requireCounts(id, n, 0)
}

// attachAll attaches the records in an order of its own.
func (e *env) attachAll(store joinStore, id outmill.JoinID, records []*outmill.Record) error {
	for _, i := range rand.Perm(len(records)) {
		if err := store.AttachStep(e.ctx, id, records[i].ID); err != nil {
			return err
		}
	}
	return nil
}
