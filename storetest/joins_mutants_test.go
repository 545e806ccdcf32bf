package storetest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// inJoinMutation is inMutation for the mutants of joins.
const inJoinMutation = "OUTMILL_STORETEST_JOIN_MUTANTS"

// Test_every_store_with_broken_joins_is_noticed is
// Test_every_broken_store_is_noticed for joins.
func Test_every_store_with_broken_joins_is_noticed(t *testing.T) {
	if os.Getenv(inJoinMutation) != "" {
		for _, m := range joinMutants() {
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				// What is retained can be attached later.
				section{sentences: []sentence{findSentence(t, m.section, m.noticed)}}.run(t, sqliteHarness(m.change), modes()[1].options)
			})
		}
		return
	}
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.parallel=4",
		"-rapid.nofailfile", "-rapid.shrinktime=1ms", "-rapid.checks=300")
	child.Env = append(os.Environ(), inJoinMutation+"=1")
	var output bytes.Buffer
	child.Stdout, child.Stderr = &output, &output
	require.Error(t, child.Run(), "the child passed")
	require.NotContains(t, strings.ToLower(output.String()), "panic", "a mutant failed for a reason of its own")
	for _, m := range joinMutants() {
		t.Run("a store that "+m.name, func(t *testing.T) {
			t.Parallel()
			verdict := "--- FAIL: " + strings.ReplaceAll("Test_every_store_with_broken_joins_is_noticed/"+m.name+"/"+m.noticed, " ", "_") + " ("
			require.True(t, strings.Contains(output.String(), verdict), "not noticed by %q", m.noticed)
		})
	}
}

func joinMutants() []mutant {
	list := []mutant{
		{"attaches nothing", "join append", "OBX-083 a record that is appended with Joins is a step of them", appends(func(r *outmill.Record) { r.Joins = nil })},
		{"tells of no joins", "join append", "Claim, Get and List tell of which joins a record is a step, in their order, and which it waits for", func(f file) outmill.Store { return tellsOfNoJoins{f} }},
		// It is here because it takes a store that retains.
		{"names no worker", "settle", "OBX-029 a processed record keeps the name of the worker that acked it, up to 255 UTF-16 units", func(f file) outmill.Store { return namesNoWorker{f} }},
		{"attaches to one join only", "join append", "OBX-096 a message is a step of a hundred joins", appends(func(r *outmill.Record) { r.Joins = r.Joins[:min(1, len(r.Joins))] })},
		{"attaches where it can", "join append", "one step more than a join expects is ErrTooManySteps, and nothing is written", func(f file) outmill.Store { return attachesWhereItCan{f} }},
		{"attaches outside of the transaction", "join append", "a step that is appended in a transaction is gone when it rolls back, and leaves its place", func(f file) outmill.Store { return commits{f} }},
		{"starts joins outside of the transaction", "join start", "a join that is started in a transaction is gone when it rolls back", func(f file) outmill.Store { return startsAlone{f} }},
		{"starts joins again", "join start", "an id that another join has is ErrJoinExists, leaves that join and a caller's transaction usable", func(f file) outmill.Store { return startsAgain{f} }},
		{"counts the first group only", "join groups", "a step of several groups is completed when the last of them has acked", remembers(func(r *remembersJoins) { r.acks = true })},
		{"counts an attempt as a failure", "join settle", "Abandon, Release, Snooze, Extend and ReapExpired count nothing", remembers(func(r *remembersJoins) { r.abandons = true })},
		{"takes no step back", "join settle", "a requeue takes the step back that failed by a failure", remembers(func(r *remembersJoins) { r.requeues = true })},
		{"loses reports", "join report", "OBX-085 OBX-086 ReportCompleted completes a step, once", func(f file) outmill.Store { return losesReports{f} }},
		{"takes failures for success", "join report", "OBX-087 OBX-088 ReportFailed fails a step, once", func(f file) outmill.Store { return reportsSuccess{f} }},
		{"attaches nothing late", "join attach", "AttachStep of a processed record counts at once", func(f file) outmill.Store { return attachesNothingLate{f} }},
		{"forgives failed steps", "join finish", "OBX-092 OBX-094 all, of which one failed where that matters: the join is failed once and for all", finishes(func(r *storekit.FinishRequest) { r.FailIfAnyStepFailed = false })},
		{"publishes after the end", "join finish", "a record of Then that is refused leaves everything as it was", func(f file) outmill.Store { return publishesAfter{f} }},
		{"publishes with every call", "join finish", "of sixteen callers that finish a join one does, and one record is appended", func(f file) outmill.Store { return publishesAlways{f} }},
		{"seals nothing", "join seal", "SealJoin says how many steps a join has, which decides it when they are settled", func(f file) outmill.Store { return sealsNothing{f} }},
		{"cancels what is finished", "join cancel", "CancelJoin of a finished join is ErrJoinFinished and leaves it", func(f file) outmill.Store { return cancelsAny{f} }},
		{"ignores grouping keys", "join inspect", "OBX-095 ListJoins selects by grouping key, compared exactly", func(f file) outmill.Store { return listsAllJoins{f} }},
		{"deletes joins without a limit", "join inspect", "DeleteJoins does no more than its limit", func(f file) outmill.Store { return deletesAllJoins{f} }},
		{"wakes nothing", "join wait", "an ack of the last step makes a record due that waits for the join", appends(func(r *outmill.Record) { r.WaitsFor = outmill.JoinID{} })},
		{"ignores the contexts of joins", "join calls", "every call of Joins with a context that was cancelled is its error, and does nothing", func(f file) outmill.Store { return finishesAnyway{f} }},
	}
	for _, m := range list {
		switch m.name {
		case "counts the first group only", "counts an attempt as a failure", "takes no step back", "loses reports", "takes failures for success",
			"attaches nothing late", "forgives failed steps", "seals nothing", "wakes nothing":
			m.name, m.section, m.noticed = m.name+", on a walk", "join model", "random walks leave the joins of the store as the model of them"
			list = append(list, m)
		}
	}
	return list
}

// attachesWhereItCan leaves joins out that take no step.
type attachesWhereItCan struct{ file }

func (m attachesWhereItCan) Append(ctx context.Context, records ...*outmill.Record) error {
	err := m.file.Append(ctx, records...)
	if !errors.Is(err, storekit.ErrTooManySteps) {
		return err
	}
	for _, r := range records {
		r.Joins = nil
	}
	return m.file.Append(ctx, records...)
}

type startsAlone struct{ file }

func (m startsAlone) StartJoin(_ context.Context, join *storekit.Join) error {
	return m.file.StartJoin(context.Background(), join)
}

type startsAgain struct{ file }

func (m startsAgain) StartJoin(ctx context.Context, join *storekit.Join) error {
	err := m.file.StartJoin(ctx, join)
	if errors.Is(err, storekit.ErrJoinExists) {
		return nil
	}
	return err
}

// remembersJoins knows of what messages are steps, to do with them as a store
// must not.
type remembersJoins struct {
	file
	acks, abandons, requeues bool

	mu    sync.Mutex
	joins map[outmill.WorkItemID][]outmill.JoinID
}

func remembers(how func(*remembersJoins)) func(file) outmill.Store {
	return func(f file) outmill.Store {
		m := &remembersJoins{file: f, joins: map[outmill.WorkItemID][]outmill.JoinID{}}
		how(m)
		return m
	}
}

func (m *remembersJoins) Append(ctx context.Context, records ...*outmill.Record) error {
	err := m.file.Append(ctx, records...)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		m.joins[r.ID] = r.Joins
	}
	return err
}

// report passes over what is no step, because a transaction was rolled back.
func (m *remembersJoins) report(ctx context.Context, how func(context.Context, outmill.JoinID, outmill.WorkItemID) error, step outmill.WorkItemID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, join := range m.joins[step] {
		_ = how(ctx, join, step)
	}
}

func (m *remembersJoins) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	for _, l := range leases {
		if m.acks {
			if held, err := m.Extend(ctx, leaseOf, []outmill.Lease{l}); err == nil && len(held) > 0 {
				m.report(ctx, m.ReportCompleted, l.ID)
			}
		}
	}
	return m.file.Ack(ctx, by, leases)
}

func (m *remembersJoins) Abandon(ctx context.Context, abandonments []outmill.Settlement) error {
	err := m.file.Abandon(ctx, abandonments)
	for _, a := range abandonments {
		if m.abandons {
			m.report(ctx, m.ReportFailed, a.Lease.ID)
		}
	}
	return err
}

func (m *remembersJoins) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	n, err := m.file.Requeue(ctx, ids...)
	for _, id := range ids {
		if m.requeues {
			m.report(ctx, m.ReportFailed, id)
		}
	}
	return n, err
}

type losesReports struct{ file }

func (m losesReports) ReportCompleted(ctx context.Context, join outmill.JoinID, _ outmill.WorkItemID) error {
	_, err := m.GetJoin(ctx, join)
	return err
}

type reportsSuccess struct{ file }

func (m reportsSuccess) ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return m.ReportCompleted(ctx, join, step)
}

type attachesNothingLate struct{ file }

func (m attachesNothingLate) AttachStep(context.Context, outmill.JoinID, outmill.WorkItemID) error {
	return nil
}

func finishes(change func(*storekit.FinishRequest)) func(file) outmill.Store {
	return func(f file) outmill.Store { return finishesOtherwise{f, change} }
}

type finishesOtherwise struct {
	file
	change func(*storekit.FinishRequest)
}

func (m finishesOtherwise) FinishJoin(ctx context.Context, join outmill.JoinID, request storekit.FinishRequest) (storekit.FinishResult, error) {
	m.change(&request)
	return m.file.FinishJoin(ctx, join, request)
}

// publishesAfter appends in another transaction than that which ends the join.
type publishesAfter struct{ file }

func (m publishesAfter) FinishJoin(ctx context.Context, join outmill.JoinID, request storekit.FinishRequest) (storekit.FinishResult, error) {
	then := request.Then
	request.Then = nil
	result, err := m.file.FinishJoin(ctx, join, request)
	if err != nil || !result.Finished || then == nil {
		return result, err
	}
	record, err := then(result.Join)
	if err != nil || record == nil {
		return result, err
	}
	return result, m.Append(ctx, record)
}

type publishesAlways struct{ file }

func (m publishesAlways) FinishJoin(ctx context.Context, join outmill.JoinID, request storekit.FinishRequest) (storekit.FinishResult, error) {
	result, err := m.file.FinishJoin(ctx, join, request)
	if err != nil || result.Finished {
		return result, err
	}
	record, err := request.Then(result.Join)
	if err != nil {
		return result, err
	}
	return result, m.Append(ctx, record)
}

type sealsNothing struct{ file }

func (m sealsNothing) SealJoin(context.Context, outmill.JoinID, int) error { return nil }

type cancelsAny struct{ file }

func (m cancelsAny) CancelJoin(ctx context.Context, join outmill.JoinID, reason string) error {
	err := m.file.CancelJoin(ctx, join, reason)
	if errors.Is(err, storekit.ErrJoinFinished) {
		return nil
	}
	return err
}

type listsAllJoins struct{ file }

func (m listsAllJoins) ListJoins(ctx context.Context, query storekit.JoinQuery) ([]*storekit.Join, error) {
	query.GroupingKey = ""
	return m.file.ListJoins(ctx, query)
}

type deletesAllJoins struct{ file }

func (m deletesAllJoins) DeleteJoins(ctx context.Context, _ int) (int, error) {
	return m.file.DeleteJoins(ctx, 1000)
}

type finishesAnyway struct{ file }

func (m finishesAnyway) FinishJoin(ctx context.Context, join outmill.JoinID, request storekit.FinishRequest) (storekit.FinishResult, error) {
	result, err := m.file.FinishJoin(context.WithoutCancel(ctx), join, request)
	return result, errors.Join(err, ctx.Err())
}

// tellsOfNoJoins claims records without their joins.
type tellsOfNoJoins struct{ file }

func (m tellsOfNoJoins) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := m.file.Claim(ctx, req)
	for _, r := range found {
		r.Joins = nil
	}
	return found, err
}

type namesNoWorker struct{ file }

func (m namesNoWorker) Ack(ctx context.Context, _ string, leases []outmill.Lease) error {
	return m.file.Ack(ctx, "", leases)
}
