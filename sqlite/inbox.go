package sqlite

import (
	"context"
	"time"

	"github.com/outmill/outmill/storekit"
)

const (
	sqlPutNote = `INSERT INTO {p:inbox} (consumer, key, delete_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING`

	sqlHasNote = `SELECT 1 FROM {p:inbox} WHERE consumer = ?1 AND key = ?2`

	sqlDeleteNotes = `DELETE FROM {p:inbox} WHERE (consumer, key) IN (
	SELECT consumer, key FROM {p:inbox} INDEXED BY {p:inbox_delete} WHERE delete_at <= ?1 ORDER BY delete_at LIMIT ?2)`
)

// PutNote notes that a consumer handles a message. It never waits for another note, because
// no other transaction is writing. See storekit.Inbox.
func (s *Store) PutNote(ctx context.Context, note storekit.Note, _ time.Duration) (duplicate bool, err error) {
	const operation = "put a note"
	h, err := s.txOf(ctx)
	if err == nil {
		err = note.Validate()
	}
	if err != nil {
		return false, s.explain(ctx, operation, err)
	}
	put := func(ctx context.Context, t *txn) error {
		n, err := t.exec(ctx, sqlPutNote, note.Consumer, note.Key, t.after(note.Retention))
		duplicate = n == 0
		return err
	}
	if h == nil {
		err = s.write(ctx, operation, put)
	} else {
		err = s.within(ctx, operation, h, put)
	}
	return duplicate && err == nil, err
}

// HasNote reports whether a message was noted for the consumer. See storekit.Inbox.
func (s *Store) HasNote(ctx context.Context, consumer, key string) (found bool, err error) {
	const operation = "look for a note"
	h, err := s.txOf(ctx)
	if err != nil {
		return false, s.explain(ctx, operation, err)
	}
	look := func(ctx context.Context, t *txn) error {
		found, err = t.one(ctx, []any{new(int)}, sqlHasNote, consumer, key)
		return err
	}
	if h == nil {
		return found, s.read(ctx, operation, look)
	}
	return found, s.within(ctx, operation, h, look)
}

// DeleteNotes deletes notes whose retention has passed. See storekit.Inbox.
func (s *Store) DeleteNotes(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete notes", limit, func(t *txn, ctx context.Context, limit int) (int, error) {
		return t.exec(ctx, sqlDeleteNotes, t.now, limit)
	})
}
