package sqlserver

import (
	"context"
	"database/sql"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlGet skips a record that another transaction has locked, because its insert may not be
	// committed yet.
	sqlGet = `SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM [dbo].[Outbox] AS o` + notLocked +
		` WHERE o.IdBytes = CONVERT(BINARY(16), @id, 1)`

	// sqlGetLocked waits for a session that is settling the record, but not for as long as a
	// caller's transaction may be open.
	sqlGetLocked = atReadCommitted + `SET LOCK_TIMEOUT 250;
SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM [dbo].[Outbox] AS o WHERE o.IdBytes = CONVERT(BINARY(16), @id, 1)`
)

// Get returns one record. If the database keeps no versions, and another transaction keeps the
// record locked for more than a quarter of a second, Get does not find it. See outmill.Inspector.
func (s *Store) Get(ctx context.Context, id outmill.WorkItemID) (*outmill.Record, error) {
	const operation = "get"
	var found []placed
	c := call{
		template: sqlGet, args: []any{named("id", hex(id))}, looks: true,
		reset: func() { found = nil }, sets: []reader{collect(&found)},
	}
	if err := s.run(ctx, operation, c); err != nil {
		return nil, err
	}
	if len(found) == 0 && !s.versioned.Load() {
		c.template, c.looks = sqlGetLocked, false
		if err := s.do(ctx, s.db, c); err != nil && number(err) != errLockTimeout {
			return nil, s.explain(ctx, operation, err)
		}
	}
	if len(found) == 0 {
		return nil, s.explain(ctx, operation, outmill.ErrNotFound)
	}
	return found[0].record, nil
}

// Delete removes records, whatever their status. See outmill.Inspector.
func (s *Store) Delete(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	return s.delete(ctx, "", ids)
}

// delete deletes the records that have the status; "" is any.
func (s *Store) delete(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (int, error) {
	return s.each(ctx, "delete", "[dbo].[Outbox_Delete]", storekit.NewAuditEntry(ctx, roles.AuditDelete, ids...), ids,
		named("Status", string(status)))
}

// Requeue makes dead records pending again. See outmill.Inspector. For a parked key, it waits for
// a claim that runs on the topic, because that claim would park the records again.
func (s *Store) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	requeued, err := s.each(ctx, "requeue", "[dbo].[Outbox_Requeue]", storekit.NewAuditEntry(ctx, roles.AuditRequeue, ids...), ids)
	if requeued > 0 {
		s.notifier.Notify()
	}
	return requeued, err
}

// each calls a procedure on the records, in one transaction, notes the entry in the audit, and
// returns how many records it changed.
func (s *Store) each(
	ctx context.Context, operation, procedure string, entry roles.AuditEntry, ids []outmill.WorkItemID, more ...any,
) (int, error) {
	if len(ids) == 0 {
		return 0, s.runAll(ctx, operation, nil)
	}
	var all int
	var counted []outmill.JoinID
	var calls []call
	for some := range slices.Chunk(ids, maxAtOnce) {
		rows := make([]idRow, len(some))
		for i, id := range some {
			rows[i] = idRow{id[:]}
		}
		calls = append(calls, call{
			template: procedure, args: append([]any{set(s, "Ids", "Id", rows)}, more...),
			sets: []reader{func(scan func(...any) error) error {
				var n int
				err := scan(&n)
				all += n
				return err
			}, joinIDs(&counted)},
		})
	}
	calls[0].reset = func() { all, counted = 0, nil }
	err := s.write(ctx, operation, func(ctx context.Context, tx *sql.Tx) error {
		for _, c := range calls {
			if err := s.do(ctx, tx, c); err != nil {
				return err
			}
		}
		if all == 0 {
			return nil
		}
		return s.do(ctx, tx, note(entry, all))
	})
	if err != nil {
		return 0, err
	}
	s.hurry(ctx, counted)
	return all, nil
}
