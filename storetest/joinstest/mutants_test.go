package joinstest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// mutant is mutants.Mutant, for a table.
type mutant struct {
	Name    string
	Section string
	Noticed string
	Change  func(mutants.File) outmill.Store
}

// TestBrokenStores_Variant tests stores that retain records, because AttachStep needs retained
// records.
func TestBrokenStores_Variant(t *testing.T) {
	testenv.WithoutRace(t, "stores that break joins")
	if !suite.All() {
		t.Log("skipped: walks until they notice a broken store, but for two of nine; " + suite.EnvAll + "=1 has them run")
	}
	mutants.RequireNoticed(t, sections(), suite.Modes()[1], broken())
}

func broken() []mutant {
	list := []mutant{
		{"attaches nothing", "append", "OBX-083 a record that is appended with Joins is a step of them",
			mutants.Appends(func(r *outmill.Record) { r.Joins = nil })},
		{"tells of no joins", "append", "Claim, Get and List tell of which joins a record is a step, in their order, and which it waits for",
			func(f mutants.File) outmill.Store { return tellsOfNoJoins{f} }},
		{"attaches to one join only", "append", "OBX-096 a message is a step of a hundred joins",
			mutants.Appends(func(r *outmill.Record) { r.Joins = r.Joins[:min(1, len(r.Joins))] })},
		{"attaches where it can", "append", "OBX-097 one step more than a join expects is ErrTooManySteps, and nothing is written",
			func(f mutants.File) outmill.Store { return attachesWhereItCan{f} }},
		{"attaches outside of the transaction", "append",
			"a step that is appended in a transaction is gone when it rolls back, and leaves its place", mutants.Commits},
		{"starts joins outside of the transaction", "start", "a join that is started in a transaction is gone when it rolls back",
			func(f mutants.File) outmill.Store { return startsAlone{f} }},
		{"starts joins again", "start", "an id that another join has is ErrJoinExists, leaves that join and a caller's transaction usable",
			func(f mutants.File) outmill.Store { return startsAgain{f} }},
		{"counts the first group only", "groups", "a step of several groups is completed when the last of them has acked",
			remembers(func(r *remembersJoins) { r.acks = true })},
		{"counts an attempt as a failure", "settle", "Abandon, Release, Snooze, Extend and ReapExpired count nothing",
			remembers(func(r *remembersJoins) { r.abandons = true })},
		{"takes no step back", "settle", "a requeue takes the step back that failed by a failure",
			remembers(func(r *remembersJoins) { r.requeues = true })},
		{"loses reports", "report", "OBX-085 OBX-086 ReportCompleted completes a step, once", func(f mutants.File) outmill.Store {
			return losesReports{f}
		}},
		{"takes failures for success", "report", "OBX-087 OBX-088 ReportFailed fails a step, once", func(f mutants.File) outmill.Store {
			return reportsSuccess{f}
		}},
		{"attaches nothing late", "attach", "AttachStep of a processed record counts at once", func(f mutants.File) outmill.Store {
			return attachesNothingLate{f}
		}},
		{"forgives failed steps", "finish",
			"OBX-090 OBX-092 OBX-094 all, of which one failed where that matters: the join is failed once and for all",
			finishes(func(r *roles.FinishRequest) { r.FailIfAnyStepFailed = false })},
		{"publishes after the end", "finish", "a record of Then that is refused leaves everything as it was", func(f mutants.File) outmill.Store {
			return publishesAfter{f}
		}},
		{"publishes with every call", "finish", "of sixteen callers that finish a join one does, and one record is appended",
			func(f mutants.File) outmill.Store { return publishesAlways{f} }},
		{"seals nothing", "seal", "SealJoin says how many steps a join has, which decides it when they are settled",
			func(f mutants.File) outmill.Store { return sealsNothing{f} }},
		{"cancels what is finished", "cancel", "CancelJoin of a finished join is ErrJoinFinished and leaves it",
			func(f mutants.File) outmill.Store { return cancelsAny{f} }},
		{"ignores grouping keys", "inspect", "OBX-095 ListJoins selects by grouping key, compared exactly", func(f mutants.File) outmill.Store {
			return listsAllJoins{f}
		}},
		{"deletes joins without a limit", "inspect", "DeleteJoins does no more than its limit", func(f mutants.File) outmill.Store {
			return deletesAllJoins{f}
		}},
		{"wakes nothing", "wait", "an ack of the last step makes a record due that waits for the join",
			mutants.Appends(func(r *outmill.Record) { r.WaitsFor = outmill.JoinID{} })},
		{"loses a waiter that commits after the decision of its join", "wait",
			"a record that was appended in a transaction that was open while its join was decided is due at its own time at the latest",
			mutants.Appends(func(r *outmill.Record) {
				if !r.WaitsFor.IsZero() {
					r.WaitsFor, r.Delay = outmill.JoinID{}, 1000*r.Delay
				}
			})},
		{"ignores the contexts of joins", "calls", "every call of Joins with a context that was cancelled is its error, and does nothing",
			func(f mutants.File) outmill.Store { return finishesAnyway{f} }},
	}
	onWalks := []string{"takes no step back", "seals nothing"}
	if suite.All() {
		onWalks = append(onWalks, "counts the first group only", "counts an attempt as a failure", "loses reports",
			"takes failures for success", "attaches nothing late", "forgives failed steps", "wakes nothing")
	}
	for _, m := range list {
		if slices.Contains(onWalks, m.Name) {
			m.Name, m.Section, m.Noticed = m.Name+", on a walk", "model", "random walks leave the joins of the store as the model of them"
			list = append(list, m)
		}
	}
	return list
}

// attachesWhereItCan ignores joins that accept no step.
type attachesWhereItCan struct{ mutants.File }

func (m attachesWhereItCan) Append(ctx context.Context, records ...*outmill.Record) error {
	err := m.File.Append(ctx, records...)
	if !errors.Is(err, roles.ErrTooManySteps) {
		return err
	}
	for _, r := range records {
		r.Joins = nil
	}
	return m.File.Append(ctx, records...)
}

type startsAlone struct{ mutants.File }

func (m startsAlone) StartJoin(_ context.Context, join *roles.Join) error {
	return m.File.StartJoin(context.Background(), join)
}

type startsAgain struct{ mutants.File }

func (m startsAgain) StartJoin(ctx context.Context, join *roles.Join) error {
	err := m.File.StartJoin(ctx, join)
	if errors.Is(err, roles.ErrJoinExists) {
		return nil
	}
	return err
}

// remembersJoins knows the joins of each message, so that mutants can settle steps wrongly.
type remembersJoins struct {
	mutants.File
	acks, abandons, requeues bool

	mu    sync.Mutex
	joins map[outmill.WorkItemID][]outmill.JoinID
}

func remembers(how func(*remembersJoins)) func(mutants.File) outmill.Store {
	return func(f mutants.File) outmill.Store {
		m := &remembersJoins{File: f, joins: map[outmill.WorkItemID][]outmill.JoinID{}}
		how(m)
		return m
	}
}

func (m *remembersJoins) Append(ctx context.Context, records ...*outmill.Record) error {
	err := m.File.Append(ctx, records...)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range records {
		m.joins[r.ID] = r.Joins
	}
	return err
}

// report ignores messages that are not steps, because their transaction was rolled back.
func (m *remembersJoins) report(ctx context.Context, how func(context.Context, outmill.JoinID, outmill.WorkItemID) error,
	step outmill.WorkItemID) {
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
	return m.File.Ack(ctx, by, leases)
}

func (m *remembersJoins) Abandon(ctx context.Context, abandonments []outmill.Settlement) error {
	err := m.File.Abandon(ctx, abandonments)
	for _, a := range abandonments {
		if m.abandons {
			m.report(ctx, m.ReportFailed, a.Lease.ID)
		}
	}
	return err
}

func (m *remembersJoins) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	n, err := m.File.Requeue(ctx, ids...)
	for _, id := range ids {
		if m.requeues {
			m.report(ctx, m.ReportFailed, id)
		}
	}
	return n, err
}

type losesReports struct{ mutants.File }

func (m losesReports) ReportCompleted(ctx context.Context, join outmill.JoinID, _ outmill.WorkItemID) error {
	_, err := m.GetJoin(ctx, join)
	return err
}

type reportsSuccess struct{ mutants.File }

func (m reportsSuccess) ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return m.ReportCompleted(ctx, join, step)
}

type attachesNothingLate struct{ mutants.File }

func (m attachesNothingLate) AttachStep(context.Context, outmill.JoinID, outmill.WorkItemID) error {
	return nil
}

func finishes(change func(*roles.FinishRequest)) func(mutants.File) outmill.Store {
	return func(f mutants.File) outmill.Store { return finishesOtherwise{f, change} }
}

type finishesOtherwise struct {
	mutants.File
	change func(*roles.FinishRequest)
}

func (m finishesOtherwise) FinishJoin(ctx context.Context, join outmill.JoinID, request roles.FinishRequest) (roles.FinishResult,
	error) {
	m.change(&request)
	return m.File.FinishJoin(ctx, join, request)
}

// publishesAfter ends the join in one transaction and appends the message in another.
type publishesAfter struct{ mutants.File }

func (m publishesAfter) FinishJoin(ctx context.Context, join outmill.JoinID, request roles.FinishRequest) (roles.FinishResult,
	error) {
	then := request.Then
	request.Then = nil
	result, err := m.File.FinishJoin(ctx, join, request)
	if err != nil || !result.Finished || then == nil {
		return result, err
	}
	record, err := then(result.Join)
	if err != nil || record == nil {
		return result, err
	}
	return result, m.Append(ctx, record)
}

type publishesAlways struct{ mutants.File }

func (m publishesAlways) FinishJoin(ctx context.Context, join outmill.JoinID, request roles.FinishRequest) (roles.FinishResult,
	error) {
	result, err := m.File.FinishJoin(ctx, join, request)
	if err != nil || result.Finished {
		return result, err
	}
	record, err := request.Then(result.Join)
	if err != nil {
		return result, err
	}
	return result, m.Append(ctx, record)
}

type sealsNothing struct{ mutants.File }

func (m sealsNothing) SealJoin(context.Context, outmill.JoinID, int) error { return nil }

type cancelsAny struct{ mutants.File }

func (m cancelsAny) CancelJoin(ctx context.Context, join outmill.JoinID, reason string) error {
	err := m.File.CancelJoin(ctx, join, reason)
	if errors.Is(err, roles.ErrJoinFinished) {
		return nil
	}
	return err
}

type listsAllJoins struct{ mutants.File }

func (m listsAllJoins) ListJoins(ctx context.Context, query roles.JoinQuery) ([]*roles.Join, error) {
	query.GroupingKey = ""
	return m.File.ListJoins(ctx, query)
}

type deletesAllJoins struct{ mutants.File }

func (m deletesAllJoins) DeleteJoins(ctx context.Context, _ int) (int, error) {
	return m.File.DeleteJoins(ctx, 1000)
}

type finishesAnyway struct{ mutants.File }

func (m finishesAnyway) FinishJoin(ctx context.Context, join outmill.JoinID, request roles.FinishRequest) (roles.FinishResult,
	error) {
	result, err := m.File.FinishJoin(context.WithoutCancel(ctx), join, request)
	return result, errors.Join(err, ctx.Err())
}

// tellsOfNoJoins returns claimed records without their joins.
type tellsOfNoJoins struct{ mutants.File }

func (m tellsOfNoJoins) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	found, err := m.File.Claim(ctx, req)
	for _, r := range found {
		r.Joins = nil
	}
	return found, err
}
