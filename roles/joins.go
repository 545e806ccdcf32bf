package roles

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill"
)

var (
	// ErrUnknownJoin says that no join has that id, or that none is visible to
	// this transaction.
	ErrUnknownJoin = errors.New("outmill: no join has this id: start it first, in the same transaction or one that has committed")
	// ErrJoinFinished says that the join is completed, failed or cancelled.
	ErrJoinFinished = errors.New("outmill: the join is finished or cancelled")
	// ErrJoinExists says that a join cannot be started, because another join has its id.
	ErrJoinExists = errors.New("outmill: a join with this id exists")
	// ErrTooManySteps says that a join would have more steps than it expects.
	ErrTooManySteps = errors.New("outmill: the join has all the steps that it expects: start it with a larger number, or unsealed")
	// ErrUnknownMessage says that a record is not in the store, or may be deleted at any time,
	// because the store does not retain processed records.
	ErrUnknownMessage = errors.New("outmill: the store does not keep this message: attach it when you publish it (joins.AddStep), " +
		"or set the store's Retain")
	// ErrUnknownStep says that the message is not a step of the join.
	ErrUnknownStep = errors.New("outmill: the message is not a step of this join")
)

// JoinStatus is the state of a join. The last three are final.
type JoinStatus string

const (
	// JoinPending says that the join waits for steps, or for FinishJoin.
	JoinPending JoinStatus = "pending"
	// JoinCompleted says that the join has succeeded by its policy.
	JoinCompleted JoinStatus = "completed"
	// JoinFailed says that the join has failed by its policy.
	JoinFailed JoinStatus = "failed"
	// JoinCancelled says that CancelJoin has ended the join.
	JoinCancelled JoinStatus = "cancelled"
)

// JoinPolicy says when a join is decided.
type JoinPolicy string

const (
	// JoinAll waits for all steps. It succeeds if no step failed, or if the FinishRequest
	// ignores failed steps. It is the default.
	JoinAll JoinPolicy = "all"
	// JoinAny succeeds with the first completed step, and fails when all have
	// failed.
	JoinAny JoinPolicy = "any"
	// JoinQuorum succeeds with Quorum completed steps, and fails when so many steps have
	// failed that Quorum cannot be reached any more.
	JoinQuorum JoinPolicy = "quorum"
)

// Join waits for its steps, which are messages.
//
// A user fills the first block of fields, and a store the second one.
type Join struct {
	// ID is the id of the join. StartJoin makes one if it is zero. If the caller chooses the
	// id, a repeated start returns ErrJoinExists.
	ID outmill.JoinID
	// GroupingKey relates joins to each other, such as those of one customer; ""
	// is none. At most 255 characters.
	GroupingKey string
	// ExpectedSteps is the number of steps, at least 1; 0 for a join that is Unsealed. Each
	// append of steps counts the existing steps. So if very many steps are appended one by
	// one, start the join unsealed.
	ExpectedSteps int
	// Unsealed says that the number of steps is not known yet. Until SealJoin or a
	// FinishRequest sets it, JoinAll is not decided, and JoinAny and JoinQuorum can only
	// succeed.
	Unsealed bool
	// Policy is JoinAll if it is empty; Quorum is for JoinQuorum.
	Policy JoinPolicy
	Quorum int
	// Deadline decides a join that is still undecided then, by the database's clock: the join
	// fails, or, with CompleteAtDeadline, completes with the steps completed so far. Zero is
	// never.
	Deadline           time.Time
	CompleteAtDeadline bool
	// Timeout sets Deadline, counted by the database's clock from the start. It overrides
	// Deadline.
	Timeout time.Duration
	// Metadata is the user's metadata. It is copied to the message that follows the join.
	// Metadata in which a setter has put an instruction (outmill.SetDelay and so on) is refused.
	Metadata map[string]string

	// Status is the state of the join.
	Status JoinStatus
	// CompletedSteps and FailedSteps count the settled steps, each step once.
	CompletedSteps, FailedSteps int
	// Reason says why a join failed or was cancelled, or that it completed at its deadline.
	Reason string
	// CreatedAt, UpdatedAt and FinishedAt are times of the database's clock. FinishedAt is
	// zero while the join is pending.
	CreatedAt, UpdatedAt, FinishedAt time.Time
}

// Reasons of a join.
const (
	ReasonDeadline   = "deadline passed"
	ReasonStepFailed = "steps failed"
	ReasonNoQuorum   = "too few steps can complete"
)

// MaxJoinSteps is the largest ExpectedSteps.
const MaxJoinSteps = 1_000_000

// StepStatus is the state of a step.
type StepStatus string

const (
	// StepPending says that the message of the step is not settled in each of its groups.
	StepPending StepStatus = "pending"
	// StepCompleted says that the message was acked in each of its groups, or the step was
	// reported as completed.
	StepCompleted StepStatus = "completed"
	// StepFailed says that the message went dead, or was deleted before it was processed, or
	// the step was reported as failed.
	StepFailed StepStatus = "failed"
)

// JoinStep is one step of a join.
type JoinStep struct {
	// ID is the id of the message's record; if it has several records, that of the first.
	ID     outmill.WorkItemID
	Status StepStatus
}

// JoinQuery selects the joins that ListJoins returns.
type JoinQuery struct {
	// GroupingKey limits the list to one grouping key; "" is all of them.
	GroupingKey string
	// Status limits the list; "" is all of them.
	Status JoinStatus
	// After continues a list behind this id; zero is the beginning.
	After outmill.JoinID
	// Limit is the largest number of joins to return; 0 is 100, negative is refused.
	Limit int
}

// DefaultJoinLimit is the largest number of joins or steps in a list if the limit is 0.
const DefaultJoinLimit = 100

// Statuses returns the statuses that the query selects. A store lists each of them by an
// index.
func (q JoinQuery) Statuses() []JoinStatus {
	if q.Status != "" {
		return []JoinStatus{q.Status}
	}
	return []JoinStatus{JoinPending, JoinCompleted, JoinFailed, JoinCancelled}
}

// FinishRequest says how to finish a join.
type FinishRequest struct {
	// FailIfAnyStepFailed is for JoinAll.
	FailIfAnyStepFailed bool
	// Seal sets the number of steps of an unsealed join to ExpectedSteps, 0 or more.
	Seal          bool
	ExpectedSteps int
	// Then returns the record to append at the end of the join, or nil for none. It gets the
	// join with its final state. It may be called more than once, and must neither block nor
	// call the store. If the record names a join that accepts no more steps, it is appended,
	// but not as a step of that join.
	Then func(Join) (*outmill.Record, error)
}

// FinishResult is the state of a join after FinishJoin.
type FinishResult struct {
	Join Join
	// Finished says that this call ended the join.
	Finished bool
	// DeadlineIn is the time until the deadline of a pending join, by the database's clock; 0
	// if it has no deadline.
	DeadlineIn time.Duration
}

// Joins is the store of fan-in: a join waits until its steps are settled.
//
// A step is one appended message, whose records (one for each group that reads its topic)
// carry the join (Record.Joins). It is completed when the last of them is acked, and failed
// when one of them goes dead, or is deleted before it was processed; each step counts once.
// The counters change in the same transaction as the records. While the join is pending, a
// requeue makes a failed step pending again. After DropGroup a step no longer waits for the
// group's records that are deleted; a step without any record left has failed. A record that is
// given back counts for its step when the next group has settled it.
//
// After a join has ended, the outcomes of its steps are no longer counted.
//
// When a join is decided, records that wait for it (Record.WaitsFor) become due at once.
// Only FinishJoin and CancelJoin end a join.
//
// StartJoin and Append take part in the transaction of the context. They take no lock that
// settling needs, so a transaction that stays open delays no ack. A store enforces the
// number of expected steps within one transaction, and against committed steps;
// transactions that are open at the same time can exceed it together. The other methods run
// their own transaction, and ignore a transaction in the context.
type Joins interface {
	// StartJoin begins a join, and fills its ID. Errors: ErrInvalidRecord,
	// ErrJoinExists.
	StartJoin(ctx context.Context, join *Join) error

	// AttachStep makes a record that was appended earlier a step. It returns ErrUnknownMessage
	// if the store does not retain processed records, or if the record does not exist. A
	// record that is already processed or dead counts at once. It is idempotent. Errors:
	// ErrUnknownJoin, ErrJoinFinished, ErrTooManySteps.
	AttachStep(ctx context.Context, join outmill.JoinID, message outmill.WorkItemID) error

	// ReportCompleted and ReportFailed settle a step before its message is settled; the
	// outcome of the message then no longer counts. A settled step does not change. The id may
	// be that of any of the message's records. Errors: ErrUnknownJoin, ErrUnknownStep.
	ReportCompleted(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error
	ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error

	// SealJoin sets the number of steps of an unsealed join, 0 or more. Repeating it with the
	// same number is not an error. Errors: ErrInvalidRecord, ErrTooManySteps (the join has
	// more steps already), ErrUnknownJoin, ErrJoinFinished.
	SealJoin(ctx context.Context, join outmill.JoinID, expectedSteps int) error

	// FinishJoin ends the join if it is decided, and appends the record that Then returns, in
	// one transaction; of several callers exactly one does this. A join that is not pending is
	// not an error. Errors: ErrUnknownJoin, the error of Then, those of Append.
	FinishJoin(ctx context.Context, join outmill.JoinID, request FinishRequest) (FinishResult, error)

	// CancelJoin ends a pending join, and stores the reason. Errors: ErrUnknownJoin,
	// ErrJoinFinished unless it was cancelled before.
	CancelJoin(ctx context.Context, join outmill.JoinID, reason string) error

	// GetJoin returns a join, or ErrUnknownJoin.
	GetJoin(ctx context.Context, join outmill.JoinID) (*Join, error)
	// ListJoins returns joins in the order of their ids.
	ListJoins(ctx context.Context, query JoinQuery) ([]*Join, error)
	// ListSteps returns up to limit steps of a join behind after, in the order of their ids. A
	// limit of 0 is 100.
	ListSteps(ctx context.Context, join outmill.JoinID, after outmill.WorkItemID, limit int) ([]JoinStep, error)
	// DeleteJoins deletes up to limit joins that ended longer ago than the store
	// retains them, with their steps.
	DeleteJoins(ctx context.Context, limit int) (int, error)
}
