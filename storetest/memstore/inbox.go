package memstore

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

type noteKey struct{ consumer, key string }

// noteRow is a note with the end of its retention. record is that of a message of this store.
type noteRow struct {
	until  time.Time
	record outmill.WorkItemID
}

// PutNote notes that a consumer handles a message. See storekit.Inbox.
func (s *Store) PutNote(ctx context.Context, note storekit.Note, wait time.Duration) (duplicate bool, err error) {
	const operation = "put a note"
	if err := note.Validate(); err != nil {
		return false, failed(operation, err)
	}
	key := noteKey{note.Consumer, note.Key}
	bound := time.After(wait)
	// A foreign transaction is refused below.
	carried, _ := s.tx(ctx)
	inTx := carried != nil
	for {
		var other *Tx
		err := s.inTx(ctx, operation, func(t *Tx, now time.Time) error {
			notes := t.db.notes
			if note.Own() && inTx && t.db.valid(note.Lease) == nil {
				return outmill.ErrLeaseLost
			}
			if other = notes.holder(t, key); other != nil {
				return nil
			}
			if duplicate = notes.get(t, key) != nil; !duplicate {
				notes.set(t, key, &noteRow{now.Add(note.Retention), note.Lease.ID})
			}
			return nil
		})
		if err != nil || other == nil {
			return duplicate && err == nil, err
		}
		select {
		case <-other.over:
		case <-bound:
			return false, failed(operation, storekit.ErrNoteBusy)
		case <-ctx.Done():
			return false, failed(operation, ctx.Err())
		}
	}
}

// HasNote reports whether a message was noted. See storekit.Inbox.
func (s *Store) HasNote(ctx context.Context, consumer, key string) (found bool, err error) {
	err = s.inTx(ctx, "look for a note", func(t *Tx, _ time.Time) error {
		found = t.db.notes.get(t, noteKey{consumer, key}) != nil
		return nil
	})
	return found, err
}

// DeleteNotes deletes notes whose retention has passed and whose record is gone or processed. See
// storekit.Inbox.
func (s *Store) DeleteNotes(ctx context.Context, limit int) (int, error) {
	return s.count(ctx, "delete notes", limit, func(d *Database, now time.Time) int {
		return d.notes.deleteUpTo(limit, func(_ noteKey, note noteRow) bool { return d.outlived(note, now) })
	})
}

// outlived reports whether a note is no longer needed.
func (d *Database) outlived(note noteRow, now time.Time) bool {
	r := d.byID[note.record]
	return !note.until.After(now) && (r == nil || r.Status == outmill.StatusProcessed)
}
