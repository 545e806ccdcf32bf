package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	// sqlPutNote calls a function, which limits its wait by its own lock_timeout.
	sqlPutNote = `SELECT {p:put_note}($1, $2, $3, $4)`

	sqlHasNote = `SELECT 1 FROM {p:inbox} WHERE consumer OPERATOR(pg_catalog.=) $1::pg_catalog.text
		AND key OPERATOR(pg_catalog.=) $2::pg_catalog.text`

	sqlDeleteNotes = `WITH gone AS (DELETE FROM {p:inbox} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {p:inbox}
	WHERE delete_at <= statement_timestamp() ORDER BY delete_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED)) RETURNING 1)
SELECT count(*) FROM gone`
)

// PutNote notes that a consumer handles a message. If the caller's transaction is REPEATABLE
// READ or SERIALIZABLE, a note that was committed after its start is a serialization failure,
// and the caller begins again. See storekit.Inbox.
func (s *Store) PutNote(ctx context.Context, note storekit.Note, wait time.Duration) (duplicate bool, err error) {
	const operation = "put a note"
	tx, err := s.TxOf(ctx)
	if err == nil {
		err = note.Validate()
	}
	if err != nil {
		return false, s.explain(ctx, operation, err)
	}
	put := step{
		template: sqlPutNote,
		// A lock_timeout of 0 would wait for ever.
		args: []any{note.Consumer, note.Key, sqlkit.CeilMicros(note.Retention), max(wait.Milliseconds(), 1)},
		row: func(scan func(...any) error) error {
			put := false
			err := scan(&put)
			duplicate = !put
			return err
		},
	}
	if tx == nil {
		err = s.durably(ctx, operation, func(ctx context.Context, t *txn) error { return t.finish(ctx, put) })
	} else {
		err = s.within(ctx, operation, tx, func(ctx context.Context, r runner) error { return r.run(ctx, put) })
	}
	if code(err) == codeLockTimeout {
		err = fmt.Errorf("%w: %w", storekit.ErrNoteBusy, err)
	}
	return duplicate && err == nil, err
}

// HasNote reports whether a message was noted for the consumer. See storekit.Inbox.
func (s *Store) HasNote(ctx context.Context, consumer, key string) (found bool, err error) {
	const operation = "look for a note"
	tx, err := s.TxOf(ctx)
	if err != nil {
		return false, s.explain(ctx, operation, err)
	}
	look := step{template: sqlHasNote, args: []any{consumer, key}, row: func(scan func(...any) error) error {
		found = true
		return scan(new(int))
	}}
	if tx == nil {
		err = s.writeAll(ctx, operation, look)
	} else {
		err = s.within(ctx, operation, tx, func(ctx context.Context, r runner) error { return r.run(ctx, look) })
	}
	return found, err
}

// DeleteNotes deletes notes whose retention has passed. See storekit.Inbox.
func (s *Store) DeleteNotes(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete notes", sqlDeleteNotes, limit)
}
