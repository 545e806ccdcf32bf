package engine

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// StartJoin begins a join. See roles.Joins.
func (e *Engine) StartJoin(ctx context.Context, join *roles.Join) error {
	const operation = "start join"
	if err := storekit.CheckJoin(join); err != nil {
		return e.explain(ctx, operation, err)
	}
	started := *join
	if started.ID.IsZero() {
		started.ID = outmill.NewJoinID()
	}
	started.Policy = cmp.Or(started.Policy, roles.JoinAll)
	if err := e.startJoin(ctx, operation, &started); err != nil {
		return err
	}
	join.ID = started.ID
	return nil
}

// ReportCompleted settles a step. See roles.Joins.
func (e *Engine) ReportCompleted(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return e.reportStep(ctx, "report completed", join, step, roles.StepCompleted)
}

// ReportFailed settles a step. See roles.Joins.
func (e *Engine) ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return e.reportStep(ctx, "report failed", join, step, roles.StepFailed)
}

func (e *Engine) reportStep(
	ctx context.Context, operation string, id outmill.JoinID, message outmill.WorkItemID, as roles.StepStatus,
) error {
	return e.update(ctx, operation, func(ctx context.Context, t *tx) error {
		step, err := t.lockStepOf(ctx, message)
		if err != nil {
			return err
		}
		join, err := t.lockJoin(ctx, id)
		if err != nil {
			return err
		}
		known, err := t.reportStep(ctx, join, step, as)
		if err == nil && !known {
			err = fmt.Errorf("%w: %s of %s", roles.ErrUnknownStep, message, id)
		}
		return err
	})
}

// SealJoin sets the number of steps of the join. See roles.Joins.
func (e *Engine) SealJoin(ctx context.Context, id outmill.JoinID, expectedSteps int) error {
	return e.onJoin(ctx, "seal join", id, func(ctx context.Context, t *tx, join *storekit.JoinState) error {
		return t.sealJoin(ctx, join, expectedSteps)
	})
}

func (t *tx) sealJoin(ctx context.Context, join *storekit.JoinState, expectedSteps int) error {
	if err := checkSeal(join, expectedSteps); err != nil || !join.Unsealed {
		return err
	}
	members, err := t.CountEntries(ctx, stepsOf(join.ID))
	if err != nil {
		return err
	}
	if members[0] > expectedSteps {
		return fmt.Errorf("%w: %s has %d steps and cannot be sealed with %d", roles.ErrTooManySteps, join.ID, members[0], expectedSteps)
	}
	join.ExpectedSteps, join.Unsealed = expectedSteps, false
	return t.writeJoin(ctx, join)
}

// FinishJoin ends the join if it is decided. See roles.Joins.
func (e *Engine) FinishJoin(ctx context.Context, id outmill.JoinID, request roles.FinishRequest) (roles.FinishResult, error) {
	const operation = "finish join"
	result, done, err := e.undecided(ctx, operation, id, request)
	if err != nil || done {
		return result, err
	}
	var follow *appending
	err = e.onJoin(ctx, operation, id, func(ctx context.Context, t *tx, join *storekit.JoinState) (err error) {
		result, follow, err = e.finishJoin(ctx, t, join, request)
		return err
	})
	if err != nil {
		return roles.FinishResult{}, err
	}
	if follow != nil {
		follow.Report()
		e.log.Appended(false, follow.Records...)
		e.wake()
	}
	return result, nil
}

// undecided answers without a transaction if the join is not decided, because that is the
// usual case.
func (e *Engine) undecided(
	ctx context.Context, operation string, id outmill.JoinID, request roles.FinishRequest,
) (result roles.FinishResult, done bool, err error) {
	join, err := e.readJoin(ctx, operation, id)
	if err != nil {
		return roles.FinishResult{}, false, err
	}
	if join.Status != roles.JoinPending {
		return resultOf(join), true, nil
	}
	status, _ := join.Decide(request)
	return resultOf(join), status == roles.JoinPending && (!request.Seal || !join.Unsealed), nil
}

func (e *Engine) finishJoin(
	ctx context.Context, t *tx, join *storekit.JoinState, request roles.FinishRequest,
) (roles.FinishResult, *appending, error) {
	if join.Status != roles.JoinPending {
		return resultOf(join), nil, nil
	}
	if request.Seal && join.Unsealed {
		if err := t.sealJoin(ctx, join, request.ExpectedSteps); err != nil {
			return roles.FinishResult{}, nil, err
		}
	}
	status, reason := join.Decide(request)
	if status == roles.JoinPending {
		return resultOf(join), nil, nil
	}
	join.Status, join.Reason = status, reason
	if err := t.endJoin(ctx, join); err != nil {
		return roles.FinishResult{}, nil, err
	}
	result := roles.FinishResult{Join: join.Join, Finished: true}
	record, err := e.followup(ctx, t, join.Join, request.Then)
	if err != nil || record == nil {
		return result, nil, err
	}
	follow := &appending{Appending: storekit.NewAppending([]*outmill.Record{record})}
	return result, follow, follow.run(ctx, t)
}

// followup returns the record to append at the end of the join, or nil: a copy of the
// record that then returns, as a step of those of its joins that still accept one.
func (e *Engine) followup(
	ctx context.Context, t *tx, join roles.Join, then func(roles.Join) (*outmill.Record, error),
) (*outmill.Record, error) {
	if then == nil {
		return nil, nil
	}
	record, err := then(join)
	if err != nil || record == nil {
		return nil, err
	}
	if err := storekit.CheckRecords([]*outmill.Record{record}, e.config.MaxPayload); err != nil {
		return nil, err
	}
	follow := *record
	if len(follow.Joins) == 0 {
		return &follow, nil
	}
	found, err := t.joinsToFill(ctx, follow.Joins)
	if err != nil {
		return nil, err
	}
	follow.Joins = nil
	for _, other := range found {
		if takes(other, 1) == nil {
			follow.Joins = append(follow.Joins, other.ID)
		}
	}
	return &follow, nil
}

// CancelJoin ends a pending join. See roles.Joins.
func (e *Engine) CancelJoin(ctx context.Context, id outmill.JoinID, reason string) error {
	return e.onJoin(ctx, "cancel join", id, func(ctx context.Context, t *tx, join *storekit.JoinState) error {
		switch join.Status {
		case roles.JoinCancelled:
			return nil
		case roles.JoinPending:
			join.Status, join.Reason = roles.JoinCancelled, storekit.CleanError(reason)
			return t.endJoin(ctx, join)
		case roles.JoinCompleted, roles.JoinFailed:
		}
		return fmt.Errorf("%w: %s is %s", roles.ErrJoinFinished, id, join.Status)
	})
}

// GetJoin returns a join. See roles.Joins.
func (e *Engine) GetJoin(ctx context.Context, id outmill.JoinID) (*roles.Join, error) {
	join, err := e.readJoin(ctx, "get join", id)
	if err != nil {
		return nil, err
	}
	return &join.Join, nil
}

// ListJoins returns joins in the order of their ids. See roles.Joins.
func (e *Engine) ListJoins(ctx context.Context, query roles.JoinQuery) ([]*roles.Join, error) {
	const operation = "list joins"
	if err := storekit.CheckJoinQuery(query); err != nil {
		return nil, e.explain(ctx, operation, err)
	}
	query.Limit = cmp.Or(query.Limit, roles.DefaultJoinLimit)
	found, err := e.listJoins(ctx, operation, query)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *storekit.JoinState) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	joins := make([]*roles.Join, min(len(found), query.Limit))
	for i := range joins {
		joins[i] = &found[i].Join
	}
	return joins, nil
}

// ListSteps returns steps of a join. See roles.Joins.
func (e *Engine) ListSteps(ctx context.Context, id outmill.JoinID, after outmill.WorkItemID, limit int) ([]roles.JoinStep, error) {
	const operation = "list steps"
	if limit < 0 {
		return nil, e.explain(ctx, operation,
			storekit.InvalidConfig("ListSteps: limit is %d: want 0 (%d) or more", limit, roles.DefaultJoinLimit))
	}
	return e.listSteps(ctx, operation, id, after, cmp.Or(limit, roles.DefaultJoinLimit))
}

func (e *Engine) readJoin(ctx context.Context, operation string, id outmill.JoinID) (*storekit.JoinState, error) {
	found, err := e.readJoins(ctx, operation, []outmill.JoinID{id})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, e.explain(ctx, operation, fmt.Errorf("%w: %s", roles.ErrUnknownJoin, id))
	}
	return found[0], nil
}
