package roles

import (
	"context"

	"github.com/outmill/outmill"
)

const (
	// MaxExamined is the most records that a call of Repairs looks at.
	MaxExamined = 10_000
	// MaxReleased is about how many records one call of Skip brings back.
	MaxReleased = 10_000
	// MaxWaiting is the largest DeadLetter.Waiting.
	MaxWaiting = 1_000
)

// Repairs finds, requeues, deletes, edits and skips records, for people and their tools, and notes who
// did what. It is a role of a store, which outmill.As finds. Like other methods, these ignore a
// transaction in the context.
//
// # By a filter
//
// Find, RequeueWhere and DeleteWhere work by a filter. No filter has an index of its own, so that
// publishers write none: only the status leased, processed and dead, with group and topic, are found
// by one. A call therefore looks at [MaxExamined] records at most, in the order of their ids, and
// returns how far it came. Call it again, with ListQuery.After set to Page.Next, until Page.Done; a
// page that has nothing says nothing about the next one:
//
//	for {
//		page, err := repairs.RequeueWhere(ctx, query)
//		…
//		if query.After = page.Next; page.Done {
//			break
//		}
//	}
//
// # Dead letters
//
// A key is parked when a record of it failed with outmill.Settlement.Park (subscribers and
// forwarders do so with outmill.KeyPark): the later records of the key are dead with it and
// wait behind it. An operator requeues the first of them, its head, as it is or edited, or skips
// it; each brings the others back in their order.
//
// # The audit
//
// Each call of Requeue, Delete, RequeueWhere, DeleteWhere, Edit and Skip that changes a record leaves
// one entry, in the transaction of the change, and so do the calls of one command
// (storekit.OneCommand). A call in several transactions writes the entry in the first of them, and
// brings it up to date in the others. A worker that settles a record leaves none.
//
// The audit is a table of its own, without an index that publishers or workers write. It
// contains no payload and no value of the metadata: an edit leaves fingerprints, sizes and the
// names of the metadata that changed.
type Repairs interface {
	// Find returns records that match, up to query.Limit (0 is 100).
	Find(ctx context.Context, query outmill.ListQuery) (Page, error)

	// RequeueWhere requeues dead records that match, up to query.Limit (0 is 1,000), as
	// outmill.Inspector.Requeue does, and counts them in Page.Changed; those that were
	// parked with a key come along and count, too. The status of the query is dead, or "".
	RequeueWhere(ctx context.Context, query outmill.ListQuery) (Page, error)

	// DeleteWhere deletes records that match, up to query.Limit (0 is 1,000), and counts them
	// in Page.Changed. A query that would match every record is refused, as an
	// outmill.ErrInvalidConfig. Where the query has a status, a record that has got another
	// one since the call looked is left alone. Without one, it also deletes records that a
	// worker is handling.
	DeleteWhere(ctx context.Context, query outmill.ListQuery) (Page, error)

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

	// Audited returns entries, the newest first. Call it again, with AuditQuery.After set to
	// AuditPage.Next, until AuditPage.Done. It returns an outmill.ErrInvalidConfig for a
	// negative limit and for an After that is not from a page of this store.
	Audited(ctx context.Context, query AuditQuery) (AuditPage, error)

	// DeleteOldAudit deletes up to limit entries that are older than the store's retention,
	// and returns how many. A number below limit means that none is left. A janitor calls it.
	DeleteOldAudit(ctx context.Context, limit int) (int, error)
}

// Page is what one call of Repairs did. With an error, it is what was done before; the
// same call may be repeated, because what it has changed no longer matches.
type Page struct {
	// Records are those that Find found, in the order of their ids.
	Records []*outmill.Record
	// Changed is how many records RequeueWhere or DeleteWhere changed.
	Changed int
	// Examined is how many records the call has behind it: those between query.After and
	// Next, whether or not they match. Where an index serves the query, it counts what the
	// index led to.
	Examined int
	// Next is what to set query.After to for the next call.
	Next outmill.WorkItemID
	// Done says that nothing is left. A later call, from Next, finds what has been appended
	// since then.
	Done bool
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
