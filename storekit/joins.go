package storekit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

var (
	// ErrUnknownJoin says that no join has that id, or that none is visible to
	// this transaction.
	ErrUnknownJoin = errors.New("outmill: no join has this id: start it first, in the same transaction or one that has committed")
	// ErrJoinFinished says that the join is completed, failed or cancelled.
	ErrJoinFinished = errors.New("outmill: the join is finished or cancelled")
	// ErrJoinExists says that a join was to be started with an id that another one
	// has.
	ErrJoinExists = errors.New("outmill: a join with this id exists")
	// ErrTooManySteps says that a join would have more steps than it expects.
	ErrTooManySteps = errors.New("outmill: the join expects no more steps: start it with a larger number, or unsealed")
	// ErrUnknownMessage says that a record is not in the store, or may be gone by
	// the time that the answer arrives, because the store does not retain what is
	// processed.
	ErrUnknownMessage = errors.New("outmill: no such message: attach it with the publish (joins.AddStep), or set the store's Retain")
	// ErrUnknownStep says that the message is no step of the join.
	ErrUnknownStep = errors.New("outmill: the message is no step of this join")
)

// JoinStatus is where a join is in its life. Nothing leaves the last three.
type JoinStatus string

const (
	// JoinPending waits for steps, or for somebody to finish it.
	JoinPending JoinStatus = "pending"
	// JoinCompleted has succeeded by its policy.
	JoinCompleted JoinStatus = "completed"
	// JoinFailed has not.
	JoinFailed JoinStatus = "failed"
	// JoinCancelled was ended by CancelJoin.
	JoinCancelled JoinStatus = "cancelled"
)

// JoinPolicy says when a join is decided.
type JoinPolicy string

const (
	// JoinAll waits for all steps. It succeeds when none failed, or when the
	// FinishRequest ignores failed steps. It is the default.
	JoinAll JoinPolicy = "all"
	// JoinAny succeeds with the first completed step, and fails when all have
	// failed.
	JoinAny JoinPolicy = "any"
	// JoinQuorum succeeds with Quorum completed steps, and fails when so many have
	// failed that these cannot be had any more.
	JoinQuorum JoinPolicy = "quorum"
)

// Join waits for steps: messages that are appended as its members.
//
// A user fills the first block and a store the second one.
type Join struct {
	// ID is made by StartJoin where it is zero. With one of the caller's own a
	// start that is repeated is told by ErrJoinExists.
	ID outmill.JoinID
	// GroupingKey relates joins to each other, such as those of one customer; ""
	// is none. At most 255 characters.
	GroupingKey string
	// ExpectedSteps is how many steps there will be, at least 1; 0 for a join that
	// is Unsealed. Each append of steps counts those that there are, so begin a
	// join of very many unsealed where they come one by one.
	ExpectedSteps int
	// Unsealed: nobody knows yet how many steps there will be. Until SealJoin or a
	// FinishRequest says so, JoinAll is not decided, and JoinAny and JoinQuorum can
	// only succeed.
	Unsealed bool
	// Policy is JoinAll where it is empty; Quorum is for JoinQuorum.
	Policy JoinPolicy
	Quorum int
	// Deadline decides a join that was not before, by the database's clock: it
	// fails, or, with CompleteAtDeadline, completes with the steps that there are.
	// Zero is never.
	Deadline           time.Time
	CompleteAtDeadline bool
	// Timeout sets Deadline, counted by the database's clock from the start. It
	// wins over Deadline.
	Timeout time.Duration
	// Metadata is the user's; it goes to the metadata of what is published when
	// the join ends. What instructs an append (outmill_delay and so on) is refused.
	Metadata map[string]string

	// Status is where the join is in its life.
	Status JoinStatus
	// CompletedSteps and FailedSteps count steps, each once.
	CompletedSteps, FailedSteps int
	// Reason says why a join ended that did not complete, or completed at its
	// deadline.
	Reason string
	// CreatedAt, UpdatedAt and FinishedAt are the database's; the last one is
	// zero while the join is pending.
	CreatedAt, UpdatedAt, FinishedAt time.Time
}

// Reasons of a join.
const (
	ReasonDeadline   = "deadline passed"
	ReasonStepFailed = "steps failed"
	ReasonNoQuorum   = "too few steps can complete"
)

// Validate reports every value that makes no sense, as ErrInvalidRecord. Stores
// call it.
func (j *Join) Validate() error {
	var errs []error
	invalid := func(bad bool, field, reason string, args ...any) {
		if bad {
			errs = append(errs, &outmill.InvalidRecordError{Index: -1, Field: field, Reason: fmt.Sprintf(reason, args...)})
		}
	}
	named := func(field, reason string) { invalid(reason != "", field, "%s", reason) }
	named("grouping key", checkName(j.GroupingKey))
	named("deadline", checkTime(j.Deadline))
	invalid(j.ExpectedSteps < 1 && !j.Unsealed, "expected steps", "is %d: want 1 or more, or an unsealed join", j.ExpectedSteps)
	invalid(j.ExpectedSteps != 0 && j.Unsealed, "expected steps", "is %d: want 0 for an unsealed join", j.ExpectedSteps)
	invalid(j.ExpectedSteps > MaxJoinSteps, "expected steps", "is %d: want at most %d", j.ExpectedSteps, MaxJoinSteps)
	invalid(j.Timeout < 0, "timeout", "is %s: want 0 (none) or more", j.Timeout)
	invalid(j.Quorum > MaxJoinSteps, "quorum", "is %d: want at most %d", j.Quorum, MaxJoinSteps)
	switch j.Policy {
	case "", JoinAll, JoinAny:
		invalid(j.Quorum != 0, "quorum", "is %d: want 0 without JoinQuorum", j.Quorum)
	case JoinQuorum:
		invalid(j.Quorum < 1 || !j.Unsealed && j.Quorum > j.ExpectedSteps, "quorum", "is %d: want 1 to the number of expected steps", j.Quorum)
	default:
		invalid(true, "policy", "is %q: want all, any or quorum", clip(string(j.Policy)))
	}
	for name, value := range j.Metadata {
		named(fmt.Sprintf("metadata name %q", clip(name)), checkText(name, 0))
		named(fmt.Sprintf("metadata %q", clip(name)), checkText(value, 0))
	}
	return errors.Join(append(errs, j.checkFollower())...)
}

// checkFollower refuses metadata that no message could have, which would be
// found only as the join ends, and what would instruct the append of that
// message.
func (j *Join) checkFollower() error {
	for name := range j.Metadata {
		if instructs(name) {
			return &outmill.InvalidRecordError{Index: -1, Field: fmt.Sprintf("metadata %q", name),
				Reason: "instructs an append: set it on the message that follows the join"}
		}
	}
	rec, err := RecordOf("join", &message.Message{Metadata: j.Metadata})
	if err != nil {
		return err
	}
	return CheckRecords([]*outmill.Record{rec}, 0)
}

// MaxJoinSteps bounds ExpectedSteps.
const MaxJoinSteps = 1_000_000

// JoinWaitTopic is the topic of the messages that finish joins, which package
// joins publishes and handles. A forwarder leaves it out unless it is named.
const JoinWaitTopic = "join.wait"

// StepStatus is where a step is in its life.
type StepStatus string

const (
	// StepPending is a step whose message is not settled in each of its groups.
	StepPending StepStatus = "pending"
	// StepCompleted is a step whose message was acked in each of its groups, or
	// that was reported.
	StepCompleted StepStatus = "completed"
	// StepFailed is a step whose message went dead, or was deleted before it was
	// processed, or that was reported.
	StepFailed StepStatus = "failed"
)

// JoinStep is one step of a join.
type JoinStep struct {
	// ID is that of the message's record, where it has several that of the first.
	ID     outmill.WorkItemID
	Status StepStatus
}

// JoinQuery selects joins to look at.
type JoinQuery struct {
	// GroupingKey limits the list to one grouping key; "" is all of them.
	GroupingKey string
	// Status limits the list; "" is all of them.
	Status JoinStatus
	// After continues a list behind that id; zero is the beginning.
	After outmill.JoinID
	// Limit is the most joins to return; 0 is 100, negative is refused.
	Limit int
}

// DefaultJoinLimit is how many joins or steps a list has where the limit is 0.
const DefaultJoinLimit = 100

// Statuses are the statuses that the query selects. A store lists each by an index.
func (q JoinQuery) Statuses() []JoinStatus {
	if q.Status != "" {
		return []JoinStatus{q.Status}
	}
	return []JoinStatus{JoinPending, JoinCompleted, JoinFailed, JoinCancelled}
}

// Validate reports every value that makes no sense, as ErrInvalidConfig. Stores
// call it.
func (q JoinQuery) Validate() error {
	switch q.Status {
	case "", JoinPending, JoinCompleted, JoinFailed, JoinCancelled:
	default:
		return fmt.Errorf("%w: JoinQuery.Status is %q: want pending, completed, failed or cancelled", outmill.ErrInvalidConfig,
			clip(string(q.Status)))
	}
	if q.Limit < 0 {
		return fmt.Errorf("%w: JoinQuery.Limit is %d: want 0 (100) or more", outmill.ErrInvalidConfig, q.Limit)
	}
	return nil
}

// FinishRequest says how to finish a join.
type FinishRequest struct {
	// FailIfAnyStepFailed is for JoinAll.
	FailIfAnyStepFailed bool
	// Seal says that the join has ExpectedSteps steps, 0 or more, if it is unsealed.
	Seal          bool
	ExpectedSteps int
	// Then returns the record to append as the join ends, nil for none. It sees
	// the join as it ends, and may be called more than once; it must not block, nor
	// call the store. Where the record is to be a step of a join that takes none any
	// more, it is appended all the same, and is none.
	Then func(Join) (*outmill.Record, error)
}

// FinishResult is what became of a join.
type FinishResult struct {
	Join Join
	// Finished: this call ended it.
	Finished bool
	// DeadlineIn is how long it is until the deadline of a join that is still
	// pending, by the database's clock; 0 where it has none.
	DeadlineIn time.Duration
}

// Joins is the store of fan-in: a join waits until its steps are settled.
//
// A step is one appended message, whose records (one for each group that reads
// its topic) carry the join (Record.Joins). It is completed when the last of
// them is acked, and failed when one of them goes dead, or is deleted before it
// was processed; each step counts once. Counters move in the same transaction
// as the records. A requeue takes a failed step back while the join is pending.
// DropGroup takes the group's records out of what a step waits for; a step of
// which none is left has failed.
//
// What became of the steps of a join that has ended is not noted any more.
//
// When a join is decided, records that wait for it (Record.WaitsFor) become due
// at once. It ends by FinishJoin or CancelJoin only.
//
// StartJoin and Append take part in the transaction of the context, and lock
// nothing that settling needs: a transaction that stays open stalls no ack. That
// a join has no more steps than it expects is told within one transaction and
// of what has committed; transactions that are open at the same time can go
// beyond it together. The other methods run a transaction of their own, and take
// no notice of one in the context.
type Joins interface {
	// StartJoin begins a join, and fills its ID. Errors: ErrInvalidRecord,
	// ErrJoinExists.
	StartJoin(ctx context.Context, join *Join) error

	// AttachStep makes a record that was appended before a step. It needs a store
	// that retains what is processed, and a record that is there, else it is
	// ErrUnknownMessage; a record that was processed or is dead by now counts at
	// once. It is idempotent. Errors: ErrUnknownJoin, ErrJoinFinished,
	// ErrTooManySteps.
	AttachStep(ctx context.Context, join outmill.JoinID, message outmill.WorkItemID) error

	// ReportCompleted and ReportFailed settle a step before its message is; what
	// becomes of the message then no longer matters. A step that is settled stays
	// as it is. The id may be that of any of the message's records. Errors:
	// ErrUnknownJoin, ErrUnknownStep.
	ReportCompleted(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error
	ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error

	// SealJoin says how many steps an unsealed join has, 0 or more. To say the same
	// again is no error. Errors: ErrInvalidRecord, ErrTooManySteps (it has more already),
	// ErrUnknownJoin, ErrJoinFinished.
	SealJoin(ctx context.Context, join outmill.JoinID, expectedSteps int) error

	// FinishJoin ends the join if it is decided, and appends what Then returns, in
	// one transaction; of many callers one does. A join that is not pending is no
	// error. Errors: ErrUnknownJoin, that of Then, those of Append.
	FinishJoin(ctx context.Context, join outmill.JoinID, request FinishRequest) (FinishResult, error)

	// CancelJoin ends a pending join; reason is kept. Errors: ErrUnknownJoin,
	// ErrJoinFinished unless it was cancelled before.
	CancelJoin(ctx context.Context, join outmill.JoinID, reason string) error

	// GetJoin returns a join, ErrUnknownJoin where there is none.
	GetJoin(ctx context.Context, join outmill.JoinID) (*Join, error)
	// ListJoins returns joins in the order of their ids.
	ListJoins(ctx context.Context, query JoinQuery) ([]*Join, error)
	// ListSteps returns up to limit steps of a join behind the given one, in the
	// order of their ids. 0 is 100.
	ListSteps(ctx context.Context, join outmill.JoinID, after outmill.WorkItemID, limit int) ([]JoinStep, error)
	// DeleteJoins deletes up to limit joins that ended longer ago than the store
	// retains them, with their steps.
	DeleteJoins(ctx context.Context, limit int) (int, error)
}
