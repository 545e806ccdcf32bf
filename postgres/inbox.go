package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	// sqlPutNote calls a function, which limits its wait by its own lock_timeout.
	sqlPutNote = `SELECT {p:put_note}($1, $2, $3, $4, $5::pg_catalog.text::pg_catalog.uuid, $6::pg_catalog.text::pg_catalog.uuid,
	$7, $8, $9, $10, $11, $12)`

	sqlHasNote = `SELECT 1 FROM {p:inbox} WHERE consumer OPERATOR(pg_catalog.=) $1::pg_catalog.text
		AND key OPERATOR(pg_catalog.=) $2::pg_catalog.text`

	// sqlDeleteNotes puts off the notes whose records may come again, by $2 microseconds.
	sqlDeleteNotes = `WITH old AS MATERIALIZED (SELECT ctid, record IS NOT NULL AND {p:may_come}(record) AS keep FROM {p:inbox}
	WHERE delete_at <= statement_timestamp() ORDER BY delete_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED),
kept AS (UPDATE {p:inbox} SET delete_at = statement_timestamp() + $2::bigint * interval '1 microsecond'
	WHERE ctid = ANY (ARRAY(SELECT ctid FROM old WHERE keep)) RETURNING 1),
gone AS (DELETE FROM {p:inbox} WHERE ctid = ANY (ARRAY(SELECT ctid FROM old WHERE NOT keep)) RETURNING 1)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM kept)`
)

// PutNote notes that a consumer handles a message. If the caller's transaction is REPEATABLE
// READ or SERIALIZABLE, a note that was committed after its start is a serialization failure,
// and the caller begins again; the lease is then read as of the transaction's snapshot. See
// roles.Inbox.
func (s *Store) PutNote(ctx context.Context, note roles.Note, wait time.Duration) (duplicate bool, err error) {
	const operation = "put a note"
	tx, err := s.TxOf(ctx)
	if err == nil {
		err = storekit.CheckNote(note)
	}
	if err != nil {
		return false, s.explain(ctx, operation, err)
	}
	answer := 0
	put := step{
		template: sqlPutNote,
		// A lock_timeout of 0 would wait for ever.
		args: append([]any{note.Consumer, note.Key, sqlkit.CeilMicros(note.Retention), max(wait.Milliseconds(), 1)},
			append(s.noted(note.Lease, tx != nil), nil)...),
		row: func(scan func(...any) error) error { return scan(&answer) },
	}
	if tx == nil {
		err = s.durably(ctx, operation, func(ctx context.Context, t *txn) error { return t.finish(ctx, put) })
	} else {
		err = s.within(ctx, operation, tx, func(ctx context.Context, r runner) error {
			if own, ok := r.(*openTx); ok && own.isFresh() {
				put.limitsIdle(s.idle(ctx))
			}
			if err := r.run(ctx, put); err != nil || answer >= 0 {
				return err
			}
			return outmill.ErrLeaseLost
		})
	}
	if code(err) == codeLockTimeout {
		err = fmt.Errorf("%w: %w", roles.ErrNoteBusy, err)
	}
	return err == nil && answer == 0, err
}

// limitsIdle makes a note set the limit of a transaction that begins with it.
func (s *step) limitsIdle(limit time.Duration) {
	if limit > 0 {
		s.args[len(s.args)-1], s.idles = milliseconds(limit), true
	}
}

// noted returns the arguments of a note that say which record and lease it is for. checks: the lease
// must be valid.
func (s *Store) noted(lease outmill.Lease, checks bool) []any {
	args := make([]any, 7)
	if lease.ID.IsZero() {
		return args
	}
	args[0] = lease.ID.String()
	if !checks {
		return args
	}
	args[1], args[2] = lease.Owner.String(), int64(lease.Claim)
	if place, known := s.refs.places([]outmill.Lease{lease}, false)[lease.ID]; known && place.of(lease) {
		args[3], args[4], args[5], args[6] = place.line, place.n, place.token, int64(place.ordinal)
	}
	return args
}

// HasNote reports whether a message was noted for the consumer. See roles.Inbox.
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

// DeleteNotes deletes notes whose retention has passed and whose record is gone or processed. See
// roles.Inbox.
func (s *Store) DeleteNotes(ctx context.Context, limit int) (int, error) {
	const operation = "delete notes"
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, s.explain(ctx, operation, err)
	}
	return storekit.DeleteNotes(limit, func(limit int) (deleted, kept int, err error) {
		err = s.writeAll(ctx, operation, step{
			template: sqlDeleteNotes, args: []any{limit, storekit.NoteKeptFor.Microseconds()},
			row: func(scan func(...any) error) error { return scan(&deleted, &kept) },
		})
		return deleted, kept, err
	})
}
