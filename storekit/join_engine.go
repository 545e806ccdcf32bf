package storekit

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// JoinStore has the operations of a store that [JoinEngine] needs: reading joins,
// transactions on one join, and making records due.
type JoinStore interface {
	// StartJoin writes a join in the caller's transaction, or in one of its own. The join has
	// been checked, and has an ID and a policy. StartJoin returns ErrJoinExists if the id is
	// taken.
	StartJoin(ctx context.Context, operation string, join *roles.Join) error
	// ListJoins returns the joins of the query without a lock: up to Limit, which is set, of
	// each status of the query.
	ListJoins(ctx context.Context, operation string, query roles.JoinQuery) ([]*JoinState, error)
	// ListSteps returns up to limit steps behind after, in the order of their ids, or
	// ErrUnknownJoin.
	ListSteps(ctx context.Context, operation string, id outmill.JoinID, after outmill.WorkItemID, limit int) ([]roles.JoinStep, error)
	// ReadJoins reads joins without a lock. It ignores ids that no join has.
	ReadJoins(ctx context.Context, operation string, ids []outmill.JoinID) ([]*JoinState, error)
	// OnJoin runs work in its own transaction, which locks the join, and commits. If the join
	// is then decided, it makes the records due that wait for it. It returns ErrUnknownJoin if
	// the join does not exist, and may run work more than once.
	OnJoin(ctx context.Context, operation string, id outmill.JoinID, work func(ctx context.Context, tx JoinTx, join *JoinState) error) error
	// MakeDue makes the records that wait for these joins due, in a transaction that locks no
	// join, and wakes readers.
	MakeDue(ctx context.Context, ids []outmill.JoinID) error
	// Appended logs records that were appended at the end of a join, and wakes readers.
	Appended(records []*outmill.Record)
	// Explain adds the names of the operation and the store to an error.
	Explain(ctx context.Context, operation string, err error) error
}

// JoinTx is a transaction of a store that has locked one join.
type JoinTx interface {
	// JoinsToFill reads joins, with Members if they are sealed.
	JoinsToFill(ctx context.Context, ids []outmill.JoinID) ([]*JoinState, error)
	// CountMembers counts the steps of a join.
	CountMembers(ctx context.Context, id outmill.JoinID) (int, error)
	// Seal writes the number of steps.
	Seal(ctx context.Context, join *JoinState) error
	// End writes Status and Reason, and sets UpdatedAt and FinishedAt.
	End(ctx context.Context, join *JoinState) error
	// Append appends a record that was checked. It does not call Report yet.
	Append(ctx context.Context, record *outmill.Record) (*Appending, error)
	// Report settles the step of the message, unless the step is settled or the join has
	// ended. It reports whether the message is a step of the join.
	Report(ctx context.Context, join *JoinState, message outmill.WorkItemID, as roles.StepStatus) (known bool, err error)
}

// JoinEngine implements [roles.Joins] for a store, except AttachStep and DeleteJoins: it checks,
// decides, seals, finishes and cancels. A store embeds it. It is safe for concurrent use.
type JoinEngine struct {
	store      JoinStore
	maxPayload int
}

// NewJoinEngine makes the engine of a store. maxPayload is the largest payload of a record
// that follows a join, in bytes; 0 is no limit.
func NewJoinEngine(store JoinStore, maxPayload int) JoinEngine { return JoinEngine{store, maxPayload} }

// StartJoin begins a join. See [roles.Joins].
func (e JoinEngine) StartJoin(ctx context.Context, join *roles.Join) error {
	const operation = "start join"
	if err := CheckJoin(join); err != nil {
		return e.store.Explain(ctx, operation, err)
	}
	started := *join
	if started.ID.IsZero() {
		started.ID = outmill.NewJoinID()
	}
	started.Policy = cmp.Or(started.Policy, roles.JoinAll)
	if err := e.store.StartJoin(ctx, operation, &started); err != nil {
		return err
	}
	join.ID = started.ID
	return nil
}

// ReportCompleted settles a step. See [roles.Joins].
func (e JoinEngine) ReportCompleted(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return e.report(ctx, "report completed", join, step, roles.StepCompleted)
}

// ReportFailed settles a step. See [roles.Joins].
func (e JoinEngine) ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return e.report(ctx, "report failed", join, step, roles.StepFailed)
}

func (e JoinEngine) report(
	ctx context.Context, operation string, id outmill.JoinID, message outmill.WorkItemID, as roles.StepStatus,
) error {
	return e.store.OnJoin(ctx, operation, id, func(ctx context.Context, tx JoinTx, join *JoinState) error {
		known, err := tx.Report(ctx, join, message, as)
		if err == nil && !known {
			err = fmt.Errorf("%w: %s of %s", roles.ErrUnknownStep, message, id)
		}
		return err
	})
}

// SealJoin sets the number of steps of the join. See [roles.Joins].
func (e JoinEngine) SealJoin(ctx context.Context, id outmill.JoinID, expectedSteps int) error {
	return e.store.OnJoin(ctx, "seal join", id, func(ctx context.Context, tx JoinTx, join *JoinState) error {
		return sealJoin(ctx, tx, join, expectedSteps)
	})
}

func sealJoin(ctx context.Context, tx JoinTx, join *JoinState, expectedSteps int) error {
	if err := join.checkSeal(expectedSteps); err != nil || !join.Unsealed {
		return err
	}
	members, err := tx.CountMembers(ctx, join.ID)
	if err != nil {
		return err
	}
	if members > expectedSteps {
		return fmt.Errorf("%w: %s has %d steps and cannot be sealed with %d", roles.ErrTooManySteps, join.ID, members, expectedSteps)
	}
	join.ExpectedSteps, join.Unsealed = expectedSteps, false
	return tx.Seal(ctx, join)
}

// FinishJoin ends the join if it is decided. See [roles.Joins].
func (e JoinEngine) FinishJoin(ctx context.Context, id outmill.JoinID, request roles.FinishRequest) (roles.FinishResult, error) {
	const operation = "finish join"
	result, done, err := e.undecided(ctx, operation, id, request)
	if err != nil || done {
		return result, err
	}
	var follow *Appending
	err = e.store.OnJoin(ctx, operation, id, func(ctx context.Context, tx JoinTx, join *JoinState) (err error) {
		result, follow, err = e.finish(ctx, tx, join, request)
		return err
	})
	if err != nil {
		return roles.FinishResult{}, err
	}
	if follow != nil {
		follow.Report()
		e.store.Appended(follow.Records)
	}
	return result, nil
}

// undecided answers without a transaction if the join is not decided, because that is the
// usual case.
func (e JoinEngine) undecided(
	ctx context.Context, operation string, id outmill.JoinID, request roles.FinishRequest,
) (result roles.FinishResult, done bool, err error) {
	join, err := e.read(ctx, operation, id)
	if err != nil {
		return roles.FinishResult{}, false, err
	}
	if join.Status != roles.JoinPending {
		return join.result(), true, nil
	}
	status, _ := join.Decide(request)
	return join.result(), status == roles.JoinPending && (!request.Seal || !join.Unsealed), nil
}

func (e JoinEngine) finish(
	ctx context.Context, tx JoinTx, join *JoinState, request roles.FinishRequest,
) (roles.FinishResult, *Appending, error) {
	if join.Status != roles.JoinPending {
		return join.result(), nil, nil
	}
	if request.Seal && join.Unsealed {
		if err := sealJoin(ctx, tx, join, request.ExpectedSteps); err != nil {
			return roles.FinishResult{}, nil, err
		}
	}
	status, reason := join.Decide(request)
	if status == roles.JoinPending {
		return join.result(), nil, nil
	}
	join.Status, join.Reason = status, reason
	if err := tx.End(ctx, join); err != nil {
		return roles.FinishResult{}, nil, err
	}
	result := roles.FinishResult{Join: join.Join, Finished: true}
	record, err := e.followup(ctx, tx, join.Join, request.Then)
	if err != nil || record == nil {
		return result, nil, err
	}
	follow, err := tx.Append(ctx, record)
	return result, follow, err
}

// followup returns the record to append at the end of the join, or nil: a copy of the
// record that then returns, as a step of those of its joins that still accept one.
func (e JoinEngine) followup(
	ctx context.Context, tx JoinTx, join roles.Join, then func(roles.Join) (*outmill.Record, error),
) (*outmill.Record, error) {
	if then == nil {
		return nil, nil
	}
	record, err := then(join)
	if err != nil || record == nil {
		return nil, err
	}
	if err := CheckRecords([]*outmill.Record{record}, e.maxPayload); err != nil {
		return nil, err
	}
	follow := *record
	if len(follow.Joins) == 0 {
		return &follow, nil
	}
	found, err := tx.JoinsToFill(ctx, follow.Joins)
	if err != nil {
		return nil, err
	}
	follow.Joins = nil
	for _, other := range found {
		if other.takes(1) == nil {
			follow.Joins = append(follow.Joins, other.ID)
		}
	}
	return &follow, nil
}

// CancelJoin ends a pending join. See [roles.Joins].
func (e JoinEngine) CancelJoin(ctx context.Context, id outmill.JoinID, reason string) error {
	return e.store.OnJoin(ctx, "cancel join", id, func(ctx context.Context, tx JoinTx, join *JoinState) error {
		switch join.Status {
		case roles.JoinCancelled:
			return nil
		case roles.JoinPending:
			join.Status, join.Reason = roles.JoinCancelled, CleanError(reason)
			return tx.End(ctx, join)
		case roles.JoinCompleted, roles.JoinFailed:
		}
		return fmt.Errorf("%w: %s is %s", roles.ErrJoinFinished, id, join.Status)
	})
}

// GetJoin returns a join. See [roles.Joins].
func (e JoinEngine) GetJoin(ctx context.Context, id outmill.JoinID) (*roles.Join, error) {
	join, err := e.read(ctx, "get join", id)
	if err != nil {
		return nil, err
	}
	return &join.Join, nil
}

// ListJoins returns joins in the order of their ids. See [roles.Joins].
func (e JoinEngine) ListJoins(ctx context.Context, query roles.JoinQuery) ([]*roles.Join, error) {
	const operation = "list joins"
	if err := CheckJoinQuery(query); err != nil {
		return nil, e.store.Explain(ctx, operation, err)
	}
	query.Limit = cmp.Or(query.Limit, roles.DefaultJoinLimit)
	found, err := e.store.ListJoins(ctx, operation, query)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *JoinState) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	joins := make([]*roles.Join, min(len(found), query.Limit))
	for i := range joins {
		joins[i] = &found[i].Join
	}
	return joins, nil
}

// ListSteps returns steps of a join. See [roles.Joins].
func (e JoinEngine) ListSteps(ctx context.Context, id outmill.JoinID, after outmill.WorkItemID, limit int) ([]roles.JoinStep, error) {
	const operation = "list steps"
	if limit < 0 {
		return nil, e.store.Explain(ctx, operation, InvalidConfig("ListSteps: limit is %d: want 0 (%d) or more", limit, roles.DefaultJoinLimit))
	}
	return e.store.ListSteps(ctx, operation, id, after, cmp.Or(limit, roles.DefaultJoinLimit))
}

func (e JoinEngine) read(ctx context.Context, operation string, id outmill.JoinID) (*JoinState, error) {
	found, err := e.store.ReadJoins(ctx, operation, []outmill.JoinID{id})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, e.store.Explain(ctx, operation, fmt.Errorf("%w: %s", roles.ErrUnknownJoin, id))
	}
	return found[0], nil
}
