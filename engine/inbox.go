package engine

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// The note is what keeps a message from being handled twice: the ack follows after the commit, and may be prevented.
// So a note must outlive every way in which its record can come again. While the record exists and is not processed,
// it can: from a lease that ends, from the dead, from a pause, or when its group is read again.

// noteKind is the kind of the entries of handled messages. At is the end of the retention, or when DeleteNotes
// looks at the note again, and the key that of the consumer and the message. Value is the id of the record, if
// the message is one of this store.
const noteKind = "note"

// PutNote notes that a consumer handles a message. See roles.Inbox.
func (e *Engine) PutNote(ctx context.Context, note roles.Note, wait time.Duration) (duplicate bool, err error) {
	const operation = "put a note"
	if err := storekit.CheckNote(note); err != nil {
		return false, e.explain(ctx, operation, err)
	}
	entry := driver.Entry{Kind: noteKind, Key: joined(note.Consumer, note.Key), Passes: !note.Own()}
	if note.Own() {
		entry.Value = note.Lease.ID.String()
	}
	wait = max(wait, 1)
	noter, can := e.db.(driver.Noter)
	if caller, err := e.db.TxOf(ctx); can && err == nil && caller != nil {
		added := false
		if err = e.life.Usable(ctx); err == nil {
			added, err = noter.Note(ctx, caller, entry, note.Retention, wait, note.Lease)
		}
		return err == nil && !added, e.explain(ctx, operation, busyAs(err, roles.ErrNoteBusy))
	}
	return valueOf(ctx, e.inTx, operation, func(ctx context.Context, t *tx) (bool, error) {
		entry.At, entry.Made = t.after(note.Retention), t.now
		if err := t.checkLease(ctx, note.Lease); err != nil {
			return false, err
		}
		// A driver may wait in Add, and the lease may end until then.
		added, err := t.Add(ctx, wait, entry)
		if err != nil {
			return false, busyAs(err, roles.ErrNoteBusy)
		}
		return !added, t.checkLease(ctx, note.Lease)
	})
}

// checkLease returns ErrLeaseLost if the lease is not valid. The zero lease is that of a message from elsewhere,
// and a call without a transaction comes after the handler has done its work.
func (t *tx) checkLease(ctx context.Context, lease outmill.Lease) error {
	if lease.ID.IsZero() || !t.callers {
		return nil
	}
	rows, err := t.Find(ctx, []outmill.WorkItemID{lease.ID})
	if err == nil && (len(rows) == 0 || !holds(rows[0], lease)) {
		err = outmill.ErrLeaseLost
	}
	return err
}

// HasNote reports whether a message was noted. See roles.Inbox.
func (e *Engine) HasNote(ctx context.Context, consumer, key string) (bool, error) {
	return valueOf(ctx, e.viewTx, "look for a note", func(ctx context.Context, t *tx) (bool, error) {
		note, err := t.entry(ctx, false, noteKind, joined(consumer, key))
		return note != nil, err
	})
}

// DeleteNotes deletes notes whose retention has passed. See roles.Inbox. It puts the next look at those off
// whose records are not processed yet.
func (e *Engine) DeleteNotes(ctx context.Context, limit int) (int, error) {
	return storekit.DeleteNotes(limit, func(limit int) (deleted, kept int, err error) {
		deleted, err = e.count(ctx, "delete notes", limit, func(ctx context.Context, t *tx) (int, error) {
			old, err := t.Old(ctx, noteKind, t.now, limit)
			if err != nil {
				return 0, err
			}
			stay, gone, err := t.stillNeeded(ctx, old)
			if err == nil {
				err = t.Put(ctx, stay...)
			}
			if err == nil {
				err = t.Delete(ctx, gone...)
			}
			kept = len(stay)
			return len(gone), err
		})
		return deleted, kept, err
	})
}

// stillNeeded parts notes in those whose records are not processed, with a later At, and the others.
func (t *tx) stillNeeded(ctx context.Context, notes []driver.Entry) (stay, gone []driver.Entry, err error) {
	ids := make([]outmill.WorkItemID, 0, len(notes))
	for _, n := range notes {
		if id, err := outmill.ParseWorkItemID(n.Value); err == nil {
			ids = append(ids, id)
		}
	}
	rows, err := t.Find(ctx, ids)
	open := map[string]bool{}
	for _, r := range rows {
		open[r.ID.String()] = r.Stage != driver.Processed
	}
	for _, n := range notes {
		if !open[n.Value] {
			gone = append(gone, n)
			continue
		}
		n.At = t.after(storekit.NoteKeptFor)
		stay = append(stay, n)
	}
	return stay, gone, err
}
