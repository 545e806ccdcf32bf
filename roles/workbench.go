package roles

import (
	"context"

	"github.com/outmill/outmill"
)

const (
	// MaxReleased is about how many records one call of Skip brings back.
	MaxReleased = 10_000
	// MaxWaiting is the largest DeadLetter.Waiting.
	MaxWaiting = 1_000
)

// Workbench repairs dead records. It is a role of a store, which outmill.As finds. A store that
// has it also has the role Audit, which notes each change.
//
// A key is parked when a record of it failed with outmill.Settlement.Park (subscribers and
// forwarders do so with outmill.KeyPark): the later records of the key are dead with it and
// wait behind it. An operator requeues the first of them, its head, as it is or edited, or skips
// it; each brings the others back in their order.
//
// Like other methods, these ignore a transaction in the context.
type Workbench interface {
	// DeadLetters returns the dead records that match the query and that no other record has
	// parked: the heads of parked keys, and dead records that nobody waits for. They come in
	// the order of their ids, up to query.Limit (0 is 100). The status of the query is dead,
	// or "". A call looks at MaxExamined records at most: call it again, with query.After set
	// to DeadPage.Next, until DeadPage.Done.
	DeadLetters(ctx context.Context, query outmill.ListQuery) (DeadPage, error)

	// Edit replaces the payload or the metadata of a dead record, and returns the record as it
	// is then. The record stays dead: requeue it next. Everything else stays, such as its
	// message id, by which consumers know messages that they have handled.
	//
	// Edit refuses a record that has changed since the caller saw it (ErrRecordChanged), one that
	// is not dead (ErrNotDead) or unknown (outmill.ErrNotFound), a payload or metadata that
	// Append would refuse (outmill.ErrInvalidRecord), and metadata that would change a field of
	// the record, such as its key or its tenant (outmill.ErrInvalidRecord). An edit that is
	// repeated changes nothing and is no error.
	Edit(ctx context.Context, id outmill.WorkItemID, edit Edit) (*outmill.Record, error)

	// Skip removes a dead record without handling it. If the record is the head of a parked
	// key, the records that wait behind it become pending as with outmill.Inspector.Requeue,
	// in their order. Other records of the key stay as they are: the record that another one
	// has parked is only removed, and its key stays parked. A step of a join stays failed.
	//
	// One call brings back about MaxReleased records, in bounded steps. If more are left, or
	// the call fails, the head stays dead until a later Skip of it has brought back all of
	// them: repeat the call until Skipped.Done. The error is ErrNotDead for a record that is
	// not dead, and outmill.ErrNotFound for one that does not exist or has been skipped.
	Skip(ctx context.Context, id outmill.WorkItemID) (Skipped, error)
}

// Skipped is what a call of Skip did, also if it returns an error.
type Skipped struct {
	// Released is how many records became pending.
	Released int
	// Done says that the record is removed, and no record waits behind it.
	Done bool
}

// DeadLetter is a dead record that no other record has parked.
type DeadLetter struct {
	Record *outmill.Record
	// Waiting is how many records are parked behind it; MaxWaiting means that many or more. A
	// record that is appended later counts once a claim has met it.
	Waiting int
}

// DeadPage is what one call of DeadLetters returns.
type DeadPage struct {
	Letters []DeadLetter
	// Examined is how many dead records the call has behind it; Next is what to set
	// outmill.ListQuery.After to for the next call; Done says that nothing is left.
	Examined int
	Next     outmill.WorkItemID
	Done     bool
}
