package sqlserver

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ roles.Inbox = (*Store)(nil)

const (
	// sqlHasNote skips a note that is not committed yet.
	sqlHasNote = `SELECT 1 FROM [dbo].[OutboxInbox]` + notLocked + ` WHERE Consumer = CAST(@consumer AS NVARCHAR(255))
		AND [Key] = CAST(@key AS NVARCHAR(255))`
)

// PutNote notes that a consumer handles a message, whatever the isolation level of the
// caller's transaction. See roles.Inbox.
func (s *Store) PutNote(ctx context.Context, note roles.Note, wait time.Duration) (duplicate bool, err error) {
	const operation = "put a note"
	tx, err := s.txOf(ctx)
	if err == nil {
		err = storekit.CheckNote(note)
	}
	if err != nil {
		return false, s.explain(ctx, operation, err)
	}
	args := append([]any{
		named("Within", tx != nil), named("Consumer", note.Consumer), named("Key", note.Key),
		named("Retention", sqlkit.CeilMicros(note.Retention)), named("Wait", milliseconds(wait)),
	}, noted(note.Lease, tx != nil)...)
	put := func(ctx context.Context, on querier) error {
		var became int
		err := s.do(ctx, on, call{template: "[dbo].[Outbox_PutNote]", args: args, sets: []reader{numbers(&became)}})
		duplicate = became == 0
		switch {
		case number(err) == errLockTimeout:
			return fmt.Errorf("%w: %w", roles.ErrNoteBusy, err)
		case err == nil && became == -1:
			return roles.ErrNoteBusy
		case err == nil && became == -2:
			return outmill.ErrLeaseLost
		}
		return err
	}
	if tx != nil {
		err = s.within(ctx, operation, tx, put)
	} else {
		err = s.try(ctx, operation, func(ctx context.Context) error { return put(ctx, s.db) })
	}
	return duplicate && err == nil, err
}

// noted returns the arguments of a note that say which record and lease it is for. checks: the lease
// must be valid.
func noted(lease outmill.Lease, checks bool) []any {
	if lease.ID.IsZero() {
		return nil
	}
	args := []any{named("Record", lease.ID[:])}
	if checks {
		args = append(args, named("Owner", lease.Owner.String()), named("Claim", int64(lease.Claim)))
	}
	return args
}

// milliseconds converts a wait, and rounds up to at least 1, because 0 would never try the lock.
func milliseconds(wait time.Duration) int64 {
	return min(max(wait.Milliseconds(), 1), math.MaxInt32)
}

// HasNote reports whether a message was noted for the consumer. See roles.Inbox.
func (s *Store) HasNote(ctx context.Context, consumer, key string) (found bool, err error) {
	const operation = "look for a note"
	tx, err := s.txOf(ctx)
	if err != nil {
		return false, s.explain(ctx, operation, err)
	}
	look := call{
		template: sqlHasNote, args: []any{named("consumer", consumer), named("key", key)}, looks: true,
		reset: func() { found = false },
		sets: []reader{func(scan func(...any) error) error {
			found = true
			return scan(new(int))
		}},
	}
	if tx != nil {
		err = s.within(ctx, operation, tx, func(ctx context.Context, on querier) error { return s.do(ctx, on, look) })
	} else {
		err = s.run(ctx, operation, look)
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
	all := 0
	for all < limit {
		some := min(limit-all, maxAtOnce)
		n, err := storekit.DeleteNotes(some, func(limit int) (deleted, kept int, err error) {
			err = s.run(ctx, operation, call{
				template: "[dbo].[Outbox_DeleteNotes]", args: []any{named("Limit", limit)}, sets: []reader{numbers(&deleted, &kept)},
			})
			return deleted, kept, err
		})
		if all += n; err != nil || n < some {
			return all, err
		}
	}
	return all, nil
}
