package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func joinGroupSentences() []sentence {
	return []sentence{
		{"a message that reaches several groups is one step, with the id of its first record", oneStepOfGroups},
		{"a step of several groups is completed when the last of them has acked", lastGroupCompletes},
		{"a step of several groups fails with the first record that goes dead, and counts once", firstGroupFails},
		{"a step of several groups is taken back when none of its records is dead any more", lastGroupIsTakenBack},
		{"a step of several groups of which a record was deleted stays failed", deletedInOneGroup},
		{"a step of several groups that is acked in one call counts once", groupsInOneCall},
		{"a record that is settled twice in one call is one of those that its step waits for", oneGroupTwice},
		{"a record that waited for a group is a step of its joins when one takes it", adoptedSteps},
		{"hundreds of records that waited for a group are steps of their joins when one takes them", adoptedHundreds},
		{"DropGroup completes steps that waited for that group only", dropCompletes},
		{"DropGroup leaves a step waiting for the groups that are left", dropLeavesWaiting},
		{"DropGroup fails a step that has no other group", dropFails},
		{"DropGroup leaves completed steps, and those of records that have no group", dropLeavesOthers},
		{"DropGroup wakes a record that waits for a join that is decided by it", dropWakes},
		{"DropGroup of hundreds of steps counts each once", dropHundreds},
		{"a step whose records went with their registration completes where another group has acked, and fails where none has", expireSteps},
		{"a record that waits for a join is woken where the join is decided by the end of a registration", expireWakes},
	}
}

// twoGroups appends a step that reaches the groups one and two.
func (e *env) twoGroups(id outmill.JoinID) (step, one, two *outmill.Record) {
	e.t.Helper()
	e.register("two", orders)
	e.register("one", orders)
	r := rec(orders, "m1", withJoins(id))
	e.append(r)
	one = e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup("one"))
	two = e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup("two"))
	return r, one, two
}

func (e *env) drop(name string) {
	e.t.Helper()
	_, err := e.store.DropGroup(e.ctx, name)
	require.NoError(e.t, err, "DropGroup")
}

func oneStepOfGroups(e *env) {
	id := e.startJoin(1)
	for _, name := range []string{"c", "a", "b"} {
		e.register(name)
	}
	r := rec(orders, "m1", withJoins(id))
	e.append(r)
	require.Len(e.t, e.list(outmill.ListQuery{}), 3)
	require.Equal(e.t, pendingSteps(r), e.steps(id))
	require.ErrorIs(e.t, e.store.Append(e.ctx, rec(orders, "m2", withJoins(id))), storekit.ErrTooManySteps)
}

func lastGroupCompletes(e *env) {
	for _, last := range []string{"one", "two"} {
		id := e.startJoin(1)
		step, one, two := e.twoGroups(id)
		if last == "one" {
			one, two = two, one
		}
		e.ack(one)
		e.requireCounts(id, 0, 0)
		e.requireStep(id, step, storekit.StepPending)
		e.abandon(0, two)
		e.requireCounts(id, 0, 0)
		e.ack(e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup(last)))
		e.requireCounts(id, 1, 0)
		e.requireStep(id, step, storekit.StepCompleted)
	}
}

func firstGroupFails(e *env) {
	id := e.startJoin(2)
	step, one, two := e.twoGroups(id)
	e.fail(two)
	e.requireCounts(id, 0, 1)
	e.ack(one)
	e.requireCounts(id, 0, 1)
	e.requireStep(id, step, storekit.StepFailed)

	both := e.startJoin(1)
	_, one, two = e.twoGroups(both)
	e.fail(one)
	e.fail(two)
	e.requireCounts(both, 0, 1)
}

func lastGroupIsTakenBack(e *env) {
	id := e.startJoin(1)
	step, one, two := e.twoGroups(id)
	e.fail(one)
	e.fail(two)
	require.Equal(e.t, 1, e.requeue(one))
	e.requireCounts(id, 0, 1)
	require.Equal(e.t, 1, e.requeue(two))
	e.requireCounts(id, 0, 0)
	e.requireStep(id, step, storekit.StepPending)
	e.ack(e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup("one")))
	e.requireCounts(id, 0, 0)
	e.fail(e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup("two")))
	e.requireCounts(id, 0, 1)
	require.Equal(e.t, 1, e.requeue(two))
	e.requireCounts(id, 0, 0)
	e.ack(e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup("two")))
	e.requireCounts(id, 1, 0)
}

func deletedInOneGroup(e *env) {
	id := e.startJoin(2)
	step, one, two := e.twoGroups(id)
	require.Equal(e.t, 1, e.delete(one))
	e.requireCounts(id, 0, 1)
	e.fail(two)
	require.Equal(e.t, 1, e.requeue(two))
	e.requireCounts(id, 0, 1)
	e.ack(e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup("two")))
	e.requireCounts(id, 0, 1)
	e.requireStep(id, step, storekit.StepFailed)
}

func groupsInOneCall(e *env) {
	id := e.startJoin(1)
	_, one, two := e.twoGroups(id)
	e.ack(one, two)
	e.requireCounts(id, 1, 0)

	mixed := e.startJoin(1)
	_, one, two = e.twoGroups(mixed)
	e.fail(one, two)
	e.requireCounts(mixed, 0, 1)
	require.Equal(e.t, 2, e.requeue(one, two))
	e.requireCounts(mixed, 0, 0)
}

func oneGroupTwice(e *env) {
	id := e.startJoin(2)
	_, one, two := e.twoGroups(id)
	e.ack(one, one, one)
	e.requireCounts(id, 0, 0)
	e.fail(two, two)
	e.requireCounts(id, 0, 1)
	require.Equal(e.t, 1, e.requeue(two, two))
	e.requireCounts(id, 0, 0)
	e.ack(e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup("two")))
	e.requireCounts(id, 1, 0)

	gone := e.startJoin(1)
	_, one, two = e.twoGroups(gone)
	e.ack(one)
	require.Equal(e.t, 1, e.delete(two, two))
	e.requireCounts(gone, 0, 1)
}

func adoptedSteps(e *env) {
	id := e.startJoin(3)
	records := recs(orders, withJoins(id), "m1", "m2", "m3")
	e.append(records...)
	require.Equal(e.t, pendingSteps(records...), e.steps(id))
	e.register("one")
	e.register("two")
	found := byName(e.claimAll(ofGroup("one")))
	e.ack(found["m1"])
	e.requireStep(id, records[0], storekit.StepCompleted)
	e.fail(found["m2"])
	e.requireCounts(id, 1, 1)
	require.Equal(e.t, 1, e.requeue(found["m2"]))
	e.ack(found["m3"])
	e.ack(e.claimOne(outmill.NewOwnerToken(), "m2", ofGroup("one")))
	e.requireCounts(id, 3, 0)
	require.Empty(e.t, e.claimAll(ofGroup("two")))
}

func adoptedHundreds(e *env) {
	n := 600
	id := e.startJoin(n)
	e.append(recs(orders, withJoins(id), numbered(n)...)...)
	e.register(group)
	e.ack(e.claimN(outmill.NewOwnerToken(), n)...)
	e.requireCounts(id, n, 0)
}

func dropCompletes(e *env) {
	id := e.startJoin(1)
	step, one, _ := e.twoGroups(id)
	e.ack(one)
	e.requireCounts(id, 0, 0)
	e.drop("two")
	e.requireCounts(id, 1, 0)
	e.requireStep(id, step, storekit.StepCompleted)
	e.drop("two")
	e.requireCounts(id, 1, 0)
}

func dropLeavesWaiting(e *env) {
	id := e.startJoin(1)
	step, _, two := e.twoGroups(id)
	e.drop("one")
	e.requireCounts(id, 0, 0)
	e.requireStep(id, step, storekit.StepPending)
	e.ack(two)
	e.requireCounts(id, 1, 0)
	e.requireStep(id, step, storekit.StepCompleted)
}

func dropFails(e *env) {
	id := e.startJoin(3)
	e.members(id, "pending", "leased", "dead")
	found := e.claimNamed(outmill.NewOwnerToken())
	e.release(found["pending"])
	e.fail(found["dead"])
	e.requireCounts(id, 0, 1)
	e.drop(group)
	e.requireCounts(id, 0, 3)
	both := e.startJoin(1)
	e.twoGroups(both)
	e.drop("one")
	e.requireCounts(both, 0, 0)
	e.drop("two")
	e.requireCounts(both, 0, 1)
}

func dropLeavesOthers(e *env) {
	id := e.startJoin(3)
	acked := e.members(id, "acked")[0]
	e.completeSteps(acked)
	_, err := e.store.DropGroup(e.ctx, "strangers")
	require.NoError(e.t, err)
	e.drop(group)
	waits := rec(orders, "waits", withJoins(id))
	e.append(waits)
	e.drop(group)
	e.requireCounts(id, 1, 0)
	e.requireStep(id, acked, storekit.StepCompleted)
	e.requireStep(id, waits, storekit.StepPending)
	e.register(group)
	e.completeSteps(waits)
	e.requireCounts(id, 2, 0)
}

func dropWakes(e *env) {
	id := e.startJoin(1)
	e.register(group, waitings)
	e.register("leaves", orders)
	e.append(rec(orders, "m1", withJoins(id)), waiter(id))
	e.requireAsleep()
	e.drop("leaves")
	e.requireAwake()
	e.requireFinished(id, storekit.JoinFailed)
}

func dropHundreds(e *env) {
	n := 300
	id, mixed := e.startJoin(n), e.startJoin(n)
	e.register("one", orders, "mixed")
	e.register("two", "mixed")
	e.append(recs(orders, withJoins(id), numbered(n)...)...)
	e.append(recs("mixed", withJoins(mixed), numbered(n)...)...)
	e.ack(e.claimAll(ofGroup("two"))...)
	e.requireCounts(mixed, 0, 0)
	e.drop("one")
	e.requireCounts(id, 0, n)
	e.requireCounts(mixed, n, 0)
}

func expireSteps(e *env) {
	id, lonely := e.startJoin(2), e.startJoin(1)
	e.register("stays", orders)
	e.registerAs(ends("goes", time.Hour))
	both, more, only := rec(orders, "both", withJoins(id)), rec(orders, "more", withJoins(id)), rec("lonely", "only", withJoins(lonely))
	e.append(both, more, only)
	found := e.claimNamed(outmill.NewOwnerToken(), ofGroup("stays"))
	e.ack(found["both"])
	e.elapse(2 * time.Hour)
	e.requireExpired(1, 3)
	e.requireCounts(id, 1, 0)
	e.requireStep(id, both, storekit.StepCompleted)
	e.requireStep(id, more, storekit.StepPending)
	e.requireCounts(lonely, 0, 1)
	e.requireStep(lonely, only, storekit.StepFailed)
}

func expireWakes(e *env) {
	id := e.startJoin(1)
	e.register(group, waitings)
	e.registerAs(ends("leaves", time.Hour, orders))
	e.append(rec(orders, "m1", withJoins(id)))
	e.elapse(2 * time.Hour)
	e.append(waiter(id))
	e.requireAsleep()
	e.requireExpired(1, 1)
	e.requireAwake()
	e.requireFinished(id, storekit.JoinFailed)
}
