package postgres_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// sqlJoins makes a tenth as many joins as there are records, half of them
// pending. Four fifths have no grouping key. The last one is unsealed.
const sqlJoins = `
INSERT INTO outmill.joins (id, grouping_key, status, policy, quorum, expected_steps, complete_at_deadline, created_at, updated_at,
finished_at)
SELECT ('00000000-0000-7000-9000-' || lpad(to_hex(i), 12, '0'))::uuid, CASE WHEN i % 5 = 0 THEN 'c' || i % 1000 ELSE '' END,
	CASE WHEN i <= 0.05 * n OR i > 0.1 * n THEN 'pending' WHEN i % 3 = 0 THEN 'completed' WHEN i % 3 = 1 THEN 'failed' ELSE 'cancelled' END,
	'all', 0, CASE WHEN i <= 0.1 * n THEN 20 END, false, now(), now(),
	CASE WHEN i > 0.05 * n AND i <= 0.1 * n THEN now() - i % 2 * interval '48 hours' END
FROM (SELECT generate_series(1, 1 + $1::integer / 10) AS i, $1::integer AS n) AS g`

// sqlMembers makes each record a step: ten of each join. The last join also gets as many steps
// as there are joins.
const sqlMembers = `
INSERT INTO outmill.join_members (join_id, step, open)
SELECT ('00000000-0000-7000-9000-' || lpad(to_hex(least((i - 1) / 10, n / 10) + 1), 12, '0'))::uuid,
	('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, 1
FROM (SELECT generate_series(1, $1::integer + $1::integer / 10) AS i, $1::integer AS n) AS g`

// joinOf returns the id of the i-th join of sqlJoins.
func joinOf(i int) outmill.JoinID {
	id, err := outmill.ParseJoinID(fmt.Sprintf("00000000-0000-7000-9000-%012x", i))
	if err != nil {
		panic(err)
	}
	return id
}

// joins makes every call of joins.
func (e *exercising) joins(limit int) {
	e.t.Helper()
	ctx, store := e.t.Context(), e.store
	join := &roles.Join{ExpectedSteps: 2 * limit, GroupingKey: "c5", Timeout: time.Hour}
	steps := made("tsteps", "x", limit)
	append1 := func(ctx context.Context) error {
		if err := store.StartJoin(ctx, join); err != nil {
			return err
		}
		for _, r := range steps {
			r.Joins = []outmill.JoinID{join.ID}
		}
		return store.Append(ctx, steps...)
	}
	e.call("start join and append steps", limit, func() error { return append1(ctx) })
	e.settleSteps(limit)
	join.ID = outmill.JoinID{}
	for _, r := range steps {
		r.ID = outmill.WorkItemID{}
	}
	e.call("start join and append steps in a transaction", limit, func() error {
		return store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error { return append1(ctx) })
	})
	wait := &outmill.Record{Topic: "twait", WaitsFor: join.ID}
	e.call("append what waits for a join", 1, func() error { return store.Append(ctx, wait) })
	found := e.claim("claim what waits for a join", claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone, "twait"))
	require.Len(e.t, found, 1)
	e.call("snooze what waits for a join", 1, func() error {
		return store.Snooze(ctx, []outmill.Settlement{{Lease: found[0].Lease(), Delay: time.Hour}})
	})
	e.onSteps(join.ID, steps)
	e.onLargeJoin()
	e.listJoins(limit)
	e.call("delete joins", limit, func() error { _, err := store.DeleteJoins(ctx, limit); return err })
}

// settleSteps settles the steps of the topic tsteps, and requeues and deletes the dead ones.
func (e *exercising) settleSteps(limit int) {
	e.t.Helper()
	ctx := e.t.Context()
	found := e.claim("claim steps", claimOf(outmill.NewOwnerToken(), limit, outmill.OrderNone, "tsteps"))
	require.Len(e.t, found, limit)
	dead := found[:10]
	var failures []outmill.Settlement
	var ids []outmill.WorkItemID
	for _, r := range dead {
		failures, ids = append(failures, outmill.Settlement{Lease: r.Lease()}), append(ids, r.ID)
	}
	e.call("fail steps", limit, func() error { return e.store.Fail(ctx, failures) })
	e.call("requeue steps", limit, func() error { _, err := e.store.Requeue(ctx, ids...); return err })
	e.call("delete steps", limit, func() error { _, err := e.store.Delete(ctx, ids...); return err })
	e.call("ack one step", 1, func() error { return e.store.Ack(ctx, "", leasesOf(found[10:11])) })
	e.call("ack steps", limit, func() error { return e.store.Ack(ctx, "", leasesOf(found[11:])) })
}

// onSteps makes the calls for one step and one join.
func (e *exercising) onSteps(join outmill.JoinID, steps []*outmill.Record) {
	e.t.Helper()
	ctx, store := e.t.Context(), e.store
	other := &roles.Join{Unsealed: true}
	e.call("start join", 1, func() error { return store.StartJoin(ctx, other) })
	late := made("tlate", "x", 1)[0]
	require.NoError(e.t, store.Append(ctx, late))
	e.call("attach a step", 1, func() error { return store.AttachStep(ctx, join, late.ID) })
	e.call("attach a step of another join", 1, func() error { return store.AttachStep(ctx, other.ID, late.ID) })
	e.call("report completed", 1, func() error { return store.ReportCompleted(ctx, join, steps[0].ID) })
	e.call("report failed", 1, func() error { return store.ReportFailed(ctx, join, steps[1].ID) })
	e.call("get join", 1, func() error { _, err := store.GetJoin(ctx, join); return err })
	e.call("list steps", len(steps), func() error {
		_, err := store.ListSteps(ctx, join, outmill.WorkItemID{}, len(steps))
		return err
	})
	e.call("finish join that is not decided", 1, func() error { _, err := store.FinishJoin(ctx, join, roles.FinishRequest{}); return err })
	e.call("cancel join", 1, func() error { return store.CancelJoin(ctx, join, "enough") })
	e.call("seal join", 1, func() error { return store.SealJoin(ctx, other.ID, 1) })
	_, err := store.Delete(ctx, late.ID)
	require.NoError(e.t, err)
	outer := &roles.Join{ExpectedSteps: 1}
	require.NoError(e.t, store.StartJoin(ctx, outer))
	e.call("finish join", 1, func() error {
		_, err := store.FinishJoin(ctx, other.ID, roles.FinishRequest{Then: func(roles.Join) (*outmill.Record, error) {
			return &outmill.Record{Topic: "tnext", Joins: []outmill.JoinID{outer.ID}}, nil
		}})
		return err
	})
}

// onLargeJoin works on a join with many members.
func (e *exercising) onLargeJoin() {
	e.t.Helper()
	ctx, store := e.t.Context(), e.store
	join := joinOf(rows()/10 + 1)
	if _, err := store.GetJoin(ctx, join); err != nil {
		// The tables are empty, or have fewer rows.
		require.ErrorIs(e.t, err, roles.ErrUnknownJoin)
		return
	}
	step := made("tlarge", "x", 1)[0]
	step.Joins = []outmill.JoinID{join}
	e.call("append a step of a large join", 1, func() error { return store.Append(ctx, step) })
	found := e.claim("claim a step of a large join", claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone, "tlarge"))
	require.Len(e.t, found, 1)
	e.call("ack a step of a large join", 1, func() error { return store.Ack(ctx, "", leasesOf(found)) })
	e.call("get a large join", 1, func() error { _, err := store.GetJoin(ctx, join); return err })
	e.call("finish a large join", 1, func() error { _, err := store.FinishJoin(ctx, join, roles.FinishRequest{}); return err })
	e.call("list steps of a large join", 100, func() error {
		_, err := store.ListSteps(ctx, join, outmill.WorkItemID{}, 100)
		return err
	})
}

func (e *exercising) listJoins(limit int) {
	e.t.Helper()
	ctx := e.t.Context()
	for name, grouping := range map[string]string{"any grouping key": "", "a grouping key": "c5"} {
		for _, status := range []roles.JoinStatus{"", roles.JoinPending, roles.JoinCompleted, roles.JoinFailed,
			roles.JoinCancelled} {
			e.call(fmt.Sprintf("list joins of %s, %q", name, status), limit, func() error {
				_, err := e.store.ListJoins(ctx, roles.JoinQuery{GroupingKey: grouping, Status: status, Limit: limit})
				return err
			})
		}
	}
	rare := "c999"
	e.call("list joins of a rare grouping key", limit, func() error {
		_, err := e.store.ListJoins(ctx, roles.JoinQuery{GroupingKey: rare, Status: roles.JoinCancelled, Limit: limit})
		return err
	})
}
