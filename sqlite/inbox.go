package sqlite

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlPutNote writes nothing unless the owner ?5 has leased the record ?4 under the claim number
	// ?6. An empty owner is a message from elsewhere.
	sqlPutNote = `INSERT INTO {p:inbox} (consumer, key, delete_at, record) SELECT ?1, ?2, ?3, nullif(?4, '')
	WHERE ?5 = '' OR ` + isLeasedTo + ` ON CONFLICT DO NOTHING`

	sqlIsLeased = `SELECT 1 FROM {p:records} WHERE id = ?1 AND stage = 4 AND owner = ?2 AND claims = ?3`

	isLeasedTo = `EXISTS (SELECT 1 FROM {p:records} WHERE id = ?4 AND stage = 4 AND owner = ?5 AND claims = ?6)`

	sqlHasNote = `SELECT 1 FROM {p:inbox} WHERE consumer = ?1 AND key = ?2`

	// oldNotes are the ?2 oldest notes whose time has come at ?1.
	oldNotes = `(SELECT consumer, key, record FROM {p:inbox} INDEXED BY {p:inbox_delete} WHERE delete_at <= ?1 ORDER BY delete_at LIMIT ?2)`

	// sqlKeepNotes puts off the notes whose records may come again, to ?3.
	sqlKeepNotes = `UPDATE {p:inbox} SET delete_at = ?3 WHERE (consumer, key) IN (SELECT n.consumer, n.key FROM ` + oldNotes + ` AS n
	CROSS JOIN {p:records} AS r ON r.id = n.record WHERE r.status <> 'processed')`

	sqlDeleteNotes = `DELETE FROM {p:inbox} WHERE (consumer, key) IN (SELECT consumer, key FROM ` + oldNotes + `)`
)

// PutNote notes that a consumer handles a message. It never waits for another note, because
// no other transaction is writing. See roles.Inbox.
func (s *Store) PutNote(ctx context.Context, note roles.Note, _ time.Duration) (duplicate bool, err error) {
	const operation = "put a note"
	h, err := s.txOf(ctx)
	if err == nil {
		err = storekit.CheckNote(note)
	}
	if err != nil {
		return false, s.explain(ctx, operation, err)
	}
	checks := note.Own() && h != nil
	put := func(ctx context.Context, t *txn) (err error) {
		duplicate, err = t.putNote(ctx, note, checks)
		return err
	}
	if h == nil {
		err = s.write(ctx, operation, put)
	} else {
		err = s.within(ctx, operation, h, put)
	}
	return duplicate && err == nil, err
}

func (t *txn) putNote(ctx context.Context, note roles.Note, checks bool) (duplicate bool, err error) {
	var id, owner string
	if note.Own() {
		id = note.Lease.ID.String()
	}
	if checks {
		owner = note.Lease.Owner.String()
	}
	n, err := t.exec(ctx, sqlPutNote, note.Consumer, note.Key, t.after(note.Retention), id, owner, note.Lease.Claim)
	if err != nil || n > 0 || !checks {
		return n == 0, err
	}
	// The transaction has the write lock, so the lease is as it was.
	valid, err := t.one(ctx, []any{new(int)}, sqlIsLeased, id, owner, note.Lease.Claim)
	if err == nil && !valid {
		err = outmill.ErrLeaseLost
	}
	return valid, err
}

// HasNote reports whether a message was noted for the consumer. See roles.Inbox.
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

// DeleteNotes deletes notes whose retention has passed and whose record is gone or processed. See
// roles.Inbox.
func (s *Store) DeleteNotes(ctx context.Context, limit int) (int, error) {
	return storekit.DeleteNotes(limit, func(limit int) (deleted, kept int, err error) {
		deleted, err = s.tidy(ctx, "delete notes", limit, func(t *txn, ctx context.Context, limit int) (n int, err error) {
			if kept, err = t.exec(ctx, sqlKeepNotes, t.now, limit, t.after(storekit.NoteKeptFor)); err == nil && kept < limit {
				n, err = t.exec(ctx, sqlDeleteNotes, t.now, limit-kept)
			}
			return n, err
		})
		return deleted, kept, err
	})
}
