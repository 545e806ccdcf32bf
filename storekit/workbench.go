package storekit

import (
	"context"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// SkippedError is the LastError of a dead record that is being skipped, while the records
// behind it come back in steps.
const SkippedError = "skipped: the records behind it are being released"

// WorkbenchEngine has the DeadLetters, Edit, Skip and Audited of roles.Repairs, over the queries of a store. A
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
	Letters(ctx context.Context, operation string, ids []outmill.WorkItemID) ([]roles.DeadLetter, error)

	// EditDead reads the record and locks it, or returns outmill.ErrNotFound, and calls change.
	// If that returns a record, it writes its payload and metadata, and the entry with the
	// count 1.
	EditDead(ctx context.Context, operation string, id outmill.WorkItemID,
		change func(before *outmill.Record) (after *outmill.Record, entry roles.AuditEntry, err error)) error

	// SkipDead reads the record and locks it, or returns outmill.ErrNotFound, and calls check.
	// If the record is marked as parked or has SkippedError, and no earlier record of its key
	// is marked, it requeues the first marked records behind it: as many as BatchSize.Requeue
	// allows for the nth step of the call, from 0 on. All of them become due at one time, that of
	// the first step, which the store keeps with the record. If they are fewer than that, it deletes
	// the record; otherwise it removes the record's mark and sets its LastError to SkippedError. No
	// claim of the topic marks a record in the middle of it. A record to which the condition does not apply
	// is deleted. It writes the entry with the count of all that changed, and with
	// AuditDeleted as the status after it if the record is deleted.
	SkipDead(ctx context.Context, operation string, id outmill.WorkItemID, nth int,
		check func(*outmill.Record) (roles.AuditEntry, error)) (roles.Skipped, error)

	// AuditEntries returns up to limit entries with a smaller number, the largest first.
	AuditEntries(ctx context.Context, operation string, before int64, limit int) ([]roles.AuditEntry, error)
}

// lettersAtOnce is how many dead records are compared with the keys at once.
const lettersAtOnce = 1000

// DeadLetters returns a page of dead letters. See roles.Repairs.
func (w WorkbenchEngine) DeadLetters(ctx context.Context, query outmill.ListQuery) (roles.DeadPage, error) {
	const operation = "list dead letters"
	query, err := CheckDeadLetters(query)
	if err != nil {
		return roles.DeadPage{}, w.store.Explain(ctx, operation, err)
	}
	page := roles.DeadPage{Next: query.After}
	atOnce := lettersAtOnce
	if query.Content {
		atOnce = query.Limit
	}
	for limit := query.Limit; ; {
		query.Limit = min(atOnce, roles.MaxExamined-page.Examined)
		query.After = page.Next
		found, err := w.store.Search(ctx, operation, query)
		if err != nil {
			return roles.DeadPage{Next: query.After}, err
		}
		letters, err := w.store.Letters(withContent(ctx, query), operation, found.IDs)
		if err != nil {
			return roles.DeadPage{Next: query.After}, err
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
		if page.Done || page.Examined >= roles.MaxExamined || len(page.Letters) == limit {
			return page, nil
		}
	}
}

// CheckDeadLetters returns the query of a DeadLetters with its defaults, and
// refuses one that makes no sense as an outmill.ErrInvalidConfig.
func CheckDeadLetters(query outmill.ListQuery) (outmill.ListQuery, error) {
	query, err := CheckList(query)
	if err == nil && query.Status != "" && query.Status != outmill.StatusDead {
		err = InvalidConfig("DeadLetters: ListQuery.Status is %q: only dead records are listed", query.Status)
	}
	query.Status = outmill.StatusDead
	return query, err
}

// Edit changes a dead record. See roles.Repairs.
func (w WorkbenchEngine) Edit(ctx context.Context, id outmill.WorkItemID, edit roles.Edit) (*outmill.Record, error) {
	const operation = "edit"
	if err := checkEdit(edit, w.maxPayload); err != nil {
		return nil, w.store.Explain(ctx, operation, err)
	}
	var edited *outmill.Record
	err := w.store.EditDead(ctx, operation, id, func(before *outmill.Record) (*outmill.Record, roles.AuditEntry, error) {
		after, same, err := applyEdit(edit, before)
		if edited = after; err != nil || same {
			return nil, roles.AuditEntry{}, err
		}
		return after, editEntry(ctx, before, after), nil
	})
	if err != nil {
		return nil, err
	}
	return edited, nil
}

func editEntry(ctx context.Context, before, after *outmill.Record) roles.AuditEntry {
	entry := newEntry(ctx, roles.AuditEdit, before.ID)
	entry.Before.Fingerprint, entry.Before.Size = FingerprintOf(before), len(before.Payload)
	entry.After.Fingerprint, entry.After.Size = FingerprintOf(after), len(after.Payload)
	names := changedNames(before.Metadata, after.Metadata)
	entry.Metadata = names[:min(len(names), maxAuditList)]
	for i := range entry.Metadata {
		entry.Metadata[i] = clip(entry.Metadata[i])
	}
	return inCommand(ctx, entry)
}

// Skip removes a dead record, and brings back what waits behind it. See roles.Repairs.
func (w WorkbenchEngine) Skip(ctx context.Context, id outmill.WorkItemID) (roles.Skipped, error) {
	const operation = "skip"
	ctx = OneCommand(ctx)
	var total roles.Skipped
	for nth := 0; !total.Done && total.Released < roles.MaxReleased; nth++ {
		step, err := w.store.SkipDead(ctx, operation, id, nth, func(r *outmill.Record) (roles.AuditEntry, error) {
			if r.Status != outmill.StatusDead {
				return roles.AuditEntry{}, fmt.Errorf("%w; it is %s", roles.ErrNotDead, r.Status)
			}
			entry := newEntry(ctx, roles.AuditSkip, r.ID)
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
func (w WorkbenchEngine) Audited(ctx context.Context, query roles.AuditQuery) (roles.AuditPage, error) {
	const operation = "read the audit"
	before, limit, err := CheckAudited(query)
	if err != nil {
		return roles.AuditPage{}, w.store.Explain(ctx, operation, err)
	}
	entries, err := w.store.AuditEntries(ctx, operation, before, limit)
	if err != nil {
		return roles.AuditPage{Next: query.After}, err
	}
	return AuditPageOf(query, limit, entries), nil
}
