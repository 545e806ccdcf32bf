package joinstest

import (
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func groupSentences() []sentence {
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
		{"DropGroup leaves a step that has no other group to the next group", dropLeavesToNext},
		{"DropGroup leaves completed steps, and those of records that have no group", dropLeavesOthers},
		{"DropGroup wakes a record that waits for a join that is decided by it", dropWakes},
		{"DropGroup of hundreds of steps counts each once", dropHundreds},
		{"a step whose records were deleted with their registration completes if another group has acked, and fails if none has", expireSteps},
		{"a record that waits for a join becomes due when the end of a registration decides the join", expireWakes},
	}
}

// twoGroups appends a step that reaches the groups one and two.
func (e *env) twoGroups(id outmill.JoinID) (step, one, two *outmill.Record) {
	e.T.Helper()
	e.Register("two", orders)
	e.Register("one", orders)
	r := suite.Rec(orders, "m1", withJoins(id))
	e.Append(r)
	one = e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("one"))
	two = e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("two"))
	return r, one, two
}

func oneStepOfGroups(e *env) {
	id := e.startJoin(1)
	for _, name := range []string{"c", "a", "b"} {
		e.Register(name)
	}
	r := suite.Rec(orders, "m1", withJoins(id))
	e.Append(r)
	require.Len(e.T, e.List(outmill.ListQuery{}), 3)
	require.Equal(e.T, pendingSteps(r), e.steps(id))
	require.ErrorIs(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "m2", withJoins(id))), roles.ErrTooManySteps)
}

func lastGroupCompletes(e *env) {
	for _, last := range []string{"one", "two"} {
		id := e.startJoin(1)
		step, one, two := e.twoGroups(id)
		if last == "one" {
			one, two = two, one
		}
		e.Ack(one)
		e.requireCounts(id, 0, 0)
		e.requireStep(id, step, roles.StepPending)
		e.Abandon(0, two)
		e.requireCounts(id, 0, 0)
		e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup(last)))
		e.requireCounts(id, 1, 0)
		e.requireStep(id, step, roles.StepCompleted)
	}
}

func firstGroupFails(e *env) {
	id := e.startJoin(2)
	step, one, two := e.twoGroups(id)
	e.Fail(two)
	e.requireCounts(id, 0, 1)
	e.Ack(one)
	e.requireCounts(id, 0, 1)
	e.requireStep(id, step, roles.StepFailed)

	both := e.startJoin(1)
	_, one, two = e.twoGroups(both)
	e.Fail(one)
	e.Fail(two)
	e.requireCounts(both, 0, 1)
}

func lastGroupIsTakenBack(e *env) {
	id := e.startJoin(1)
	step, one, two := e.twoGroups(id)
	e.Fail(one)
	e.Fail(two)
	require.Equal(e.T, 1, e.Requeue(one))
	e.requireCounts(id, 0, 1)
	require.Equal(e.T, 1, e.Requeue(two))
	e.requireCounts(id, 0, 0)
	e.requireStep(id, step, roles.StepPending)
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("one")))
	e.requireCounts(id, 0, 0)
	e.Fail(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("two")))
	e.requireCounts(id, 0, 1)
	require.Equal(e.T, 1, e.Requeue(two))
	e.requireCounts(id, 0, 0)
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("two")))
	e.requireCounts(id, 1, 0)
}

func deletedInOneGroup(e *env) {
	id := e.startJoin(2)
	step, one, two := e.twoGroups(id)
	require.Equal(e.T, 1, e.Delete(one))
	e.requireCounts(id, 0, 1)
	e.Fail(two)
	require.Equal(e.T, 1, e.Requeue(two))
	e.requireCounts(id, 0, 1)
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("two")))
	e.requireCounts(id, 0, 1)
	e.requireStep(id, step, roles.StepFailed)
}

func groupsInOneCall(e *env) {
	id := e.startJoin(1)
	_, one, two := e.twoGroups(id)
	e.Ack(one, two)
	e.requireCounts(id, 1, 0)

	mixed := e.startJoin(1)
	_, one, two = e.twoGroups(mixed)
	e.Fail(one, two)
	e.requireCounts(mixed, 0, 1)
	require.Equal(e.T, 2, e.Requeue(one, two))
	e.requireCounts(mixed, 0, 0)
}

func oneGroupTwice(e *env) {
	id := e.startJoin(2)
	_, one, two := e.twoGroups(id)
	e.Ack(one, one, one)
	e.requireCounts(id, 0, 0)
	e.Fail(two, two)
	e.requireCounts(id, 0, 1)
	require.Equal(e.T, 1, e.Requeue(two, two))
	e.requireCounts(id, 0, 0)
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("two")))
	e.requireCounts(id, 1, 0)

	gone := e.startJoin(1)
	_, one, two = e.twoGroups(gone)
	e.Ack(one)
	require.Equal(e.T, 1, e.Delete(two, two))
	e.requireCounts(gone, 0, 1)
}

func adoptedSteps(e *env) {
	id := e.startJoin(3)
	records := suite.Recs(orders, withJoins(id), "m1", "m2", "m3")
	e.Append(records...)
	require.Equal(e.T, pendingSteps(records...), e.steps(id))
	e.Register("one")
	e.Register("two")
	found := suite.ByName(e.ClaimAll(suite.OfGroup("one")))
	e.Ack(found["m1"])
	e.requireStep(id, records[0], roles.StepCompleted)
	e.Fail(found["m2"])
	e.requireCounts(id, 1, 1)
	require.Equal(e.T, 1, e.Requeue(found["m2"]))
	e.Ack(found["m3"])
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m2", suite.OfGroup("one")))
	e.requireCounts(id, 3, 0)
	require.Empty(e.T, e.ClaimAll(suite.OfGroup("two")))
}

func adoptedHundreds(e *env) {
	n := 600
	id := e.startJoin(n)
	e.Append(suite.Recs(orders, withJoins(id), suite.Numbered(n)...)...)
	e.Register(group)
	e.Ack(e.ClaimN(outmill.NewOwnerToken(), n)...)
	e.requireCounts(id, n, 0)
}

func dropCompletes(e *env) {
	id := e.startJoin(1)
	step, one, _ := e.twoGroups(id)
	e.Ack(one)
	e.requireCounts(id, 0, 0)
	e.Drop("two")
	e.requireCounts(id, 1, 0)
	e.requireStep(id, step, roles.StepCompleted)
	e.Drop("two")
	e.requireCounts(id, 1, 0)
}

func dropLeavesWaiting(e *env) {
	id := e.startJoin(1)
	step, _, two := e.twoGroups(id)
	e.Drop("one")
	e.requireCounts(id, 0, 0)
	e.requireStep(id, step, roles.StepPending)
	e.Ack(two)
	e.requireCounts(id, 1, 0)
	e.requireStep(id, step, roles.StepCompleted)
}

func dropLeavesToNext(e *env) {
	id := e.startJoin(3)
	e.members(id, "pending", "leased", "dead")
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Release(found["pending"])
	e.Fail(found["dead"])
	e.requireCounts(id, 0, 1)
	e.Register("others", "none of them")
	e.Drop(group)
	e.requireCounts(id, 0, 1)
	e.Register(group)
	back := e.ClaimNamed(outmill.NewOwnerToken())
	e.Fail(back["pending"])
	e.Ack(back["leased"])
	e.requireCounts(id, 1, 2)

	both := e.startJoin(1)
	e.twoGroups(both)
	e.Drop(group)
	e.Drop("one")
	e.requireCounts(both, 0, 0)
	e.Drop("two")
	e.requireCounts(both, 0, 0)
	e.Register("three")
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("three")))
	e.requireCounts(both, 1, 0)
}

func dropLeavesOthers(e *env) {
	id := e.startJoin(3)
	acked := e.members(id, "acked")[0]
	e.completeSteps(acked)
	_, err := e.Store.DropGroup(e.Ctx, "strangers")
	require.NoError(e.T, err)
	e.Drop(group)
	waits := suite.Rec(orders, "waits", withJoins(id))
	e.Append(waits)
	e.Drop(group)
	e.requireCounts(id, 1, 0)
	e.requireStep(id, acked, roles.StepCompleted)
	e.requireStep(id, waits, roles.StepPending)
	e.Register(group)
	e.completeSteps(waits)
	e.requireCounts(id, 2, 0)
}

func dropWakes(e *env) {
	id := e.startJoin(1)
	e.Register(group, waitings)
	e.Register("leaves", orders)
	e.Register("stays", orders)
	e.Append(suite.Rec(orders, "m1", withJoins(id)), waiter(id))
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("stays")))
	e.requireAsleep()
	e.Drop("leaves")
	e.requireAwake()
	e.requireFinished(id, roles.JoinCompleted)
}

func dropHundreds(e *env) {
	n := 300
	id, mixed := e.startJoin(n), e.startJoin(n)
	e.Register("one", orders, "mixed")
	e.Register("two", "mixed")
	e.Append(suite.Recs(orders, withJoins(id), suite.Numbered(n)...)...)
	e.Append(suite.Recs("mixed", withJoins(mixed), suite.Numbered(n)...)...)
	e.Ack(e.ClaimAll(suite.OfGroup("two"))...)
	e.requireCounts(mixed, 0, 0)
	e.Drop("one")
	e.requireCounts(id, 0, 0)
	e.requireCounts(mixed, n, 0)
	e.Register("three", orders)
	e.Ack(e.ClaimAll(suite.OfGroup("three"))...)
	e.requireCounts(id, n, 0)
}

func expireSteps(e *env) {
	id, lonely := e.startJoin(2), e.startJoin(1)
	e.Register("stays", orders)
	e.RegisterAs(suite.Ends("goes", time.Hour))
	both, more, only := suite.Rec(orders, "both", withJoins(id)), suite.Rec(orders, "more", withJoins(id)),
		suite.Rec("lonely", "only", withJoins(lonely))
	e.Append(both, more, only)
	found := e.ClaimNamed(outmill.NewOwnerToken(), suite.OfGroup("stays"))
	e.Ack(found["both"])
	e.Elapse(2 * time.Hour)
	e.RequireExpired(1, 3)
	e.requireCounts(id, 1, 0)
	e.requireStep(id, both, roles.StepCompleted)
	e.requireStep(id, more, roles.StepPending)
	e.requireCounts(lonely, 0, 1)
	e.requireStep(lonely, only, roles.StepFailed)
}

func expireWakes(e *env) {
	id := e.startJoin(1)
	e.Register(group, waitings)
	e.RegisterAs(suite.Ends("leaves", time.Hour, orders))
	e.Append(suite.Rec(orders, "m1", withJoins(id)))
	e.Elapse(2 * time.Hour)
	e.Append(waiter(id))
	e.requireAsleep()
	e.RequireExpired(1, 1)
	e.requireAwake()
	e.requireFinished(id, roles.JoinFailed)
}
