package joinstest

import (
	"context"
	"errors"
	"slices"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func appendSentences() []sentence {
	list := []sentence{
		{"OBX-083 a record that is appended with Joins is a step of them", appendAttaches},
		{"OBX-083 a step that is appended in a transaction is there when it commits, and not before", stepCommits},
		{"a step that is appended in a transaction is gone when it rolls back, and leaves its place", stepRollsBack},
		{"a join and its steps begin in one transaction", joinAndSteps},
		{"OBX-096 a message is a step of a hundred joins", hundredJoins},
		{"one call appends thousands of steps", thousandsOfSteps},
		{"joins take as many steps as they expect, over several calls and transactions", joinsFill},
		{"appends at once fill joins to their last step", appendsFill},
		{"an unsealed join takes steps without end", unsealedTakes},
		{"a join of which enough steps are completed takes steps until it is finished", decidedTakes},
		{"Claim, Get and List tell of which joins a record is a step, in their order, and which it waits for", joinsToldByAll},
		{"the records of several groups tell of the same joins", joinsToldByGroups},
		{"OBX-083 AttachStep in a store that retains nothing is ErrUnknownMessage", attachNeedsRetain},
	}
	for _, refused := range refusedSteps() {
		list = append(list,
			sentence{"OBX-097 " + refused.name + " is " + refused.said + ", and nothing is written", refused.alone},
			sentence{refused.name + " is " + refused.said + ", and leaves a caller's transaction usable", refused.inTransaction})
	}
	return list
}

// refusedStep is a record that cannot be a step of its joins.
type refusedStep struct {
	name string
	want error
	said string
	// records returns the records of a call, some of which are valid.
	records func(e *env, good outmill.JoinID) []*outmill.Record
}

func refusedSteps() []refusedStep {
	const invalid = "ErrInvalidRecord"
	step := func(name string, ids ...outmill.JoinID) *outmill.Record {
		return suite.Rec(orders, name, withJoins(ids...))
	}
	ended := func(status string) func(e *env, good outmill.JoinID) []*outmill.Record {
		return func(e *env, good outmill.JoinID) []*outmill.Record {
			return []*outmill.Record{step("good", good), step("bad", good, e.ended()[status])}
		}
	}
	return []refusedStep{
		{"a step of a join that nobody started", roles.ErrUnknownJoin, "ErrUnknownJoin", func(_ *env, good outmill.JoinID) []*outmill.Record {
			return []*outmill.Record{step("good", good), step("bad", good, outmill.NewJoinID())}
		}},
		{"a step of a completed join", roles.ErrJoinFinished, "ErrJoinFinished", ended("completed")},
		{"a step of a failed join", roles.ErrJoinFinished, "ErrJoinFinished", ended("failed")},
		{"a step of a cancelled join", roles.ErrJoinFinished, "ErrJoinFinished", ended("cancelled")},
		{"one step more than a join expects", roles.ErrTooManySteps, "ErrTooManySteps", func(e *env, good outmill.JoinID) []*outmill.Record {
			full := e.startJoin(2)
			e.Append(step("first", full))
			return []*outmill.Record{step("second", full), step("third", full, good)}
		}},
		{"a step of a join that is zero", outmill.ErrInvalidRecord, invalid, func(_ *env, good outmill.JoinID) []*outmill.Record {
			return []*outmill.Record{step("good", good), step("bad", good, outmill.JoinID{})}
		}},
		{"a step twice of one join", outmill.ErrInvalidRecord, invalid, func(_ *env, good outmill.JoinID) []*outmill.Record {
			return []*outmill.Record{step("good", good), step("bad", good, good)}
		}},
		{"a step of more than a hundred joins", outmill.ErrInvalidRecord, invalid, func(e *env, good outmill.JoinID) []*outmill.Record {
			return []*outmill.Record{step("good", good), step("bad", numberedJoins(e, 101)...)}
		}},
		{"a step with a dedup key", outmill.ErrInvalidRecord, invalid, func(_ *env, good outmill.JoinID) []*outmill.Record {
			bad := step("bad", good)
			bad.DedupKey = "k"
			return []*outmill.Record{step("good", good), bad}
		}},
		{"a step that waits for a join", outmill.ErrInvalidRecord, invalid, func(e *env, good outmill.JoinID) []*outmill.Record {
			bad := step("bad", good)
			bad.WaitsFor = e.startJoin(1)
			return []*outmill.Record{step("good", good), bad}
		}},
	}
}

func (r refusedStep) alone(e *env) {
	good := e.startJoin(3)
	records := r.records(e, good)
	before := e.seen()
	r.refused(e.Ctx, e, records)
	require.Equal(e.T, before, e.seen(), "something was written")
}

func (r refusedStep) inTransaction(e *env) {
	good := e.startJoin(3)
	records := r.records(e, good)
	before := e.seen()
	ctx, commit, _ := e.Begin()
	first, last := suite.Rec(orders, "before", withJoins(good)), suite.Rec(orders, "after", withJoins(good))
	require.NoError(e.T, e.Store.Append(ctx, first))
	r.refused(ctx, e, records)
	require.NoError(e.T, e.Store.Append(ctx, last), "the transaction is not usable")
	commit()
	require.Len(e.T, e.List(outmill.ListQuery{}), before.records+2)
	require.Equal(e.T, pendingSteps(first, last), e.steps(good))
}

func (r refusedStep) refused(ctx context.Context, e *env, records []*outmill.Record) {
	e.T.Helper()
	err := e.Store.Append(ctx, records...)
	require.ErrorIs(e.T, err, r.want)
	var invalid *outmill.InvalidRecordError
	if errors.As(err, &invalid) {
		require.Equal(e.T, "joins", invalid.Field)
		require.Equal(e.T, 1, invalid.Index)
	}
}

// inventory has the counts that an append would change.
type inventory struct {
	records int
	joins   []*roles.Join
	steps   []map[outmill.WorkItemID]roles.StepStatus
}

func (e *env) seen() inventory {
	e.T.Helper()
	found := inventory{records: len(e.List(outmill.ListQuery{})), joins: e.allJoins()}
	for _, join := range found.joins {
		found.steps = append(found.steps, e.steps(join.ID))
	}
	return found
}

func pendingSteps(records ...*outmill.Record) map[outmill.WorkItemID]roles.StepStatus {
	all := map[outmill.WorkItemID]roles.StepStatus{}
	for _, r := range records {
		all[r.ID] = roles.StepPending
	}
	return all
}

func appendAttaches(e *env) {
	first, second := e.startJoin(2), e.startJoin(2)
	both, one := suite.Rec(orders, "both", withJoins(second, first)), suite.Rec(orders, "one", withJoins(first))
	e.Append(both, one, suite.Rec(orders, "none"))
	require.Equal(e.T, pendingSteps(both, one), e.steps(first))
	require.Equal(e.T, pendingSteps(both), e.steps(second))
	for _, id := range []outmill.JoinID{first, second} {
		e.requireCounts(id, 0, 0)
		e.requireJoin(id, roles.JoinPending)
	}
}

func stepCommits(e *env) {
	id := e.startJoin(2)
	ctx, commit, _ := e.Begin()
	r := suite.Rec(orders, "m1", withJoins(id))
	require.NoError(e.T, e.Store.Append(ctx, r))
	require.Empty(e.T, e.steps(id), "before the commit")
	commit()
	require.Equal(e.T, pendingSteps(r), e.steps(id))
}

func stepRollsBack(e *env) {
	id := e.startJoin(2)
	ctx, _, rollback := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Recs(orders, withJoins(id), "m1", "m2")...))
	rollback()
	require.Empty(e.T, e.steps(id))
	require.Equal(e.T, 2, len(e.members(id, "m3", "m4")))
	require.Len(e.T, e.steps(id), 2)
}

func joinAndSteps(e *env) {
	ctx, commit, _ := e.Begin()
	join := newJoin(2)
	require.NoError(e.T, e.joins().StartJoin(ctx, join))
	records := suite.Recs(orders, withJoins(join.ID), "m1", "m2")
	require.NoError(e.T, e.Store.Append(ctx, records[0]))
	require.NoError(e.T, e.Store.Append(ctx, records[1]))
	require.ErrorIs(e.T, e.Store.Append(ctx, suite.Rec(orders, "m3", withJoins(join.ID))), roles.ErrTooManySteps)
	require.NoError(e.T, e.Store.Append(ctx, waiter(join.ID)))
	commit()
	require.Equal(e.T, pendingSteps(records...), e.steps(join.ID))
	require.Len(e.T, e.List(outmill.ListQuery{}), 3)
}

func hundredJoins(e *env) {
	all := numberedJoins(e, 100)
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	r := suite.Rec(orders, "m1", withJoins(reversed...))
	e.Filled(r)
	e.completeSteps(r)
	for _, id := range all {
		e.requireCounts(id, 1, 0)
		e.requireStep(id, r, roles.StepCompleted)
	}
}

func thousandsOfSteps(e *env) {
	n := suite.Large(3000)
	id := e.startJoin(n)
	e.members(id, suite.Numbered(n)...)
	require.Len(e.T, e.steps(id), n)
	require.ErrorIs(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "more", withJoins(id))), roles.ErrTooManySteps)
}

func joinsFill(e *env) {
	id := e.startJoin(4)
	e.members(id, "m1")
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m2", withJoins(id))))
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m3", withJoins(id))))
	commit()
	require.ErrorIs(e.T, e.Store.Append(e.Ctx, suite.Recs(orders, withJoins(id), "m4", "m5")...), roles.ErrTooManySteps)
	e.members(id, "m4")
	require.ErrorIs(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "m5", withJoins(id))), roles.ErrTooManySteps)
	e.completeSteps(e.List(outmill.ListQuery{})...)
	require.ErrorIs(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "m5", withJoins(id))), roles.ErrTooManySteps,
		"steps that are settled count too")
	require.Len(e.T, e.steps(id), 4)
}

func appendsFill(e *env) {
	const writers, each = 8, 5
	ids := []outmill.JoinID{e.startJoin(writers * each), e.startJoin(writers * each)}
	var work errgroup.Group
	for i := range writers {
		work.Go(func() error {
			joins := slices.Clone(ids)
			if i%2 > 0 {
				slices.Reverse(joins)
			}
			return e.Store.Append(e.Ctx, suite.Recs(orders, withJoins(joins...), suite.Numbered(each)...)...)
		})
	}
	require.NoError(e.T, work.Wait())
	for _, id := range ids {
		require.Len(e.T, e.steps(id), writers*each)
		require.ErrorIs(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "more", withJoins(id))), roles.ErrTooManySteps)
	}
}

func unsealedTakes(e *env) {
	id := e.startJoin(0, unsealed)
	for range 3 {
		e.members(id, suite.Numbered(40)...)
	}
	require.Len(e.T, e.steps(id), 120)
}

func decidedTakes(e *env) {
	id := e.startJoin(3, anyStep)
	e.completeSteps(e.members(id, "m1")...)
	e.members(id, "m2")
	require.Len(e.T, e.steps(id), 2)
	e.requireFinished(id, roles.JoinCompleted)
	require.ErrorIs(e.T, e.Store.Append(e.Ctx, suite.Rec(orders, "m3", withJoins(id))), roles.ErrJoinFinished)
}

func attachNeedsRetain(e *env) {
	id := e.startJoin(5)
	e.Filled(suite.Recs(orders, suite.Plain, "pending", "leased", "dead")...)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Release(found["pending"])
	e.Fail(found["dead"])
	for _, r := range found {
		require.ErrorIs(e.T, e.joins().AttachStep(e.Ctx, id, r.ID), roles.ErrUnknownMessage, r.MessageID)
	}
	require.Empty(e.T, e.steps(id))
}
