package roles

import (
	"context"

	"github.com/outmill/outmill"
)

// MaxExamined is the most records that a call of an Operator looks at.
const MaxExamined = 10_000

// Operator finds, requeues and deletes records by a filter, for people and their tools. It
// is a role of a store, which outmill.As finds.
//
// No filter has an index of its own, so that publishers write none: only the status leased,
// processed and dead, with group and topic, are found by one. A call therefore looks at
// [MaxExamined] records at most, in the order of their ids, and returns how far it came. Call
// it again, with ListQuery.After set to Page.Next, until Page.Done; a page that has nothing
// says nothing about the next one:
//
//	for {
//		page, err := operator.RequeueWhere(ctx, query)
//		…
//		if query.After = page.Next; page.Done {
//			break
//		}
//	}
type Operator interface {
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
}

// Page is what one call of an Operator did. With an error, it is what was done before; the
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
