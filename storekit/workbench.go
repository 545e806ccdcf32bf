package storekit

import (
	"context"
	"fmt"

	"github.com/outmill/outmill"
)

const (
	// MaxReleased is about how many records one call of Skip brings back.
	MaxReleased = 10_000
	// MaxWaiting is the largest DeadLetter.Waiting.
	MaxWaiting = 1_000
)

// SkippedError is the LastError of a dead record that is being skipped, while the records
// behind it come back in steps.
const SkippedError = "skipped: the records behind it are being released"

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

// WorkbenchEngine is a Workbench, and the Audited of an Audit, over the queries of a store. A
// store embeds it.
type WorkbenchEngine struct {
	store      WorkbenchStore
	maxPayload int
}

// NewWorkbenchEngine makes the WorkbenchEngine of a store. maxPayload is the store's limit of a
// payload in bytes; 0 is none.
func NewWorkbenchEngine(store WorkbenchStore, maxPayload int) WorkbenchEngine {
	return WorkbenchEngine{store, maxPayload}
}

// WorkbenchStore has the queries of a store for a WorkbenchEngine. Each method is one
// transaction, which the store may repeat. Their errors are as the store's methods return them,
// for that operation.
type WorkbenchStore interface {
	// Search and Explain are those of FindStore.
	Search(ctx context.Context, operation string, query outmill.ListQuery) (Searched, error)
	Explain(ctx context.Context, operation string, err error) error

	// Letters returns those of the dead records that no other record has parked, in the order
	// of the ids: each that is not marked as parked, and the first marked one of each key.
	// It counts the marked records behind a marked record, or behind one with SkippedError, up
	// to MaxWaiting, and reads no more of them. See ContentOf.
	Letters(ctx context.Context, operation string, ids []outmill.WorkItemID) ([]DeadLetter, error)

	// EditDead reads the record and locks it, or returns outmill.ErrNotFound, and calls change.
	// If that returns a record, it writes its payload and metadata, and the entry with the
	// count 1.
	EditDead(ctx context.Context, operation string, id outmill.WorkItemID,
		change func(before *outmill.Record) (after *outmill.Record, entry AuditEntry, err error)) error

	// SkipDead reads the record and locks it, or returns outmill.ErrNotFound, and calls check.
	// If the record is marked as parked or has SkippedError, and no earlier record of its key
	// is marked, it requeues the first marked records behind it: as many as BatchSize.Requeue
	// allows for the nth step of the call, from 0 on. All of them become due at one time, that of
	// the first step, which the store keeps with the record. If none is left, it deletes the record; otherwise it removes the record's mark
	// and sets its LastError to SkippedError. A record to which the condition does not apply
	// is deleted. It writes the entry with the count of all that changed, and with
	// AuditDeleted as the status after it if the record is deleted.
	SkipDead(ctx context.Context, operation string, id outmill.WorkItemID, nth int,
		check func(*outmill.Record) (AuditEntry, error)) (Skipped, error)

	// AuditEntries returns up to limit entries with a smaller number, the largest first.
	AuditEntries(ctx context.Context, operation string, before int64, limit int) ([]AuditEntry, error)
}

// lettersAtOnce is how many dead records are compared with the keys at once.
const lettersAtOnce = 1000

// DeadLetters returns a page of dead letters. See Workbench.
func (w WorkbenchEngine) DeadLetters(ctx context.Context, query outmill.ListQuery) (DeadPage, error) {
	const operation = "list dead letters"
	query, err := CheckDeadLetters(query)
	if err != nil {
		return DeadPage{}, w.store.Explain(ctx, operation, err)
	}
	page := DeadPage{Next: query.After}
	atOnce := lettersAtOnce
	if query.Content {
		atOnce = query.Limit
	}
	for limit := query.Limit; ; {
		query.Limit = min(atOnce, MaxExamined-page.Examined)
		query.After = page.Next
		found, err := w.store.Search(ctx, operation, query)
		if err != nil {
			return DeadPage{Next: query.After}, err
		}
		letters, err := w.store.Letters(withContent(ctx, query), operation, found.IDs)
		if err != nil {
			return DeadPage{Next: query.After}, err
		}
		for _, letter := range letters {
			if len(page.Letters) == limit {
				// The rest is for the next page.
				page.Next = page.Letters[limit-1].Record.ID
				return page, nil
			}
			// What has changed since the search may no longer match.
			if Matches(query, letter.Record) {
				page.Letters = append(page.Letters, letter)
			}
		}
		page.Examined, page.Next, page.Done = page.Examined+found.Examined, found.Next, found.Done
		if page.Done || page.Examined >= MaxExamined || len(page.Letters) == limit {
			return page, nil
		}
	}
}

// CheckDeadLetters returns the query of a Workbench's DeadLetters with its defaults, and
// refuses one that makes no sense as an outmill.ErrInvalidConfig.
func CheckDeadLetters(query outmill.ListQuery) (outmill.ListQuery, error) {
	query, err := CheckList(query)
	if err == nil && query.Status != "" && query.Status != outmill.StatusDead {
		err = InvalidConfig("DeadLetters: ListQuery.Status is %q: only dead records are listed", query.Status)
	}
	query.Status = outmill.StatusDead
	return query, err
}

// Edit changes a dead record. See Workbench.
func (w WorkbenchEngine) Edit(ctx context.Context, id outmill.WorkItemID, edit Edit) (*outmill.Record, error) {
	const operation = "edit"
	if err := checkEdit(edit, w.maxPayload); err != nil {
		return nil, w.store.Explain(ctx, operation, err)
	}
	var edited *outmill.Record
	err := w.store.EditDead(ctx, operation, id, func(before *outmill.Record) (*outmill.Record, AuditEntry, error) {
		after, same, err := applyEdit(edit, before)
		if edited = after; err != nil || same {
			return nil, AuditEntry{}, err
		}
		return after, editEntry(ctx, before, after), nil
	})
	if err != nil {
		return nil, err
	}
	return edited, nil
}

func editEntry(ctx context.Context, before, after *outmill.Record) AuditEntry {
	entry := newEntry(ctx, AuditEdit, before.ID)
	entry.Before.Fingerprint, entry.Before.Size = FingerprintOf(before), len(before.Payload)
	entry.After.Fingerprint, entry.After.Size = FingerprintOf(after), len(after.Payload)
	names := changedNames(before.Metadata, after.Metadata)
	entry.Metadata = names[:min(len(names), maxAuditList)]
	for i := range entry.Metadata {
		entry.Metadata[i] = clip(entry.Metadata[i])
	}
	return inCommand(ctx, entry)
}

// Skip removes a dead record, and brings back what waits behind it. See Workbench.
func (w WorkbenchEngine) Skip(ctx context.Context, id outmill.WorkItemID) (Skipped, error) {
	const operation = "skip"
	ctx = OneCommand(ctx)
	var total Skipped
	for nth := 0; !total.Done && total.Released < MaxReleased; nth++ {
		step, err := w.store.SkipDead(ctx, operation, id, nth, func(r *outmill.Record) (AuditEntry, error) {
			if r.Status != outmill.StatusDead {
				return AuditEntry{}, fmt.Errorf("%w; it is %s", ErrNotDead, r.Status)
			}
			entry := newEntry(ctx, AuditSkip, r.ID)
			entry.Before.Fingerprint, entry.Before.Size = FingerprintOf(r), len(r.Payload)
			return inCommand(ctx, entry), nil
		})
		if total.Released += step.Released; err != nil {
			return total, err
		}
		total.Done = step.Done
	}
	return total, nil
}

// Audited returns a page of the audit. See Audit.
func (w WorkbenchEngine) Audited(ctx context.Context, query AuditQuery) (AuditPage, error) {
	const operation = "read the audit"
	before, limit, err := CheckAudited(query)
	if err != nil {
		return AuditPage{}, w.store.Explain(ctx, operation, err)
	}
	entries, err := w.store.AuditEntries(ctx, operation, before, limit)
	if err != nil {
		return AuditPage{Next: query.After}, err
	}
	return AuditPageOf(query, limit, entries), nil
}
