package sqlserver

import (
	"context"
	"slices"

	"github.com/outmill/outmill"
)

// sqlGet waits for nobody: a record that another transaction has not committed
// yet is none. A record that is being settled is looked at again without its
// lock, which shows the state before or after.
const sqlGet = `SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM [dbo].[Outbox] AS o WITH (READCOMMITTEDLOCK, READPAST) WHERE o.IdBytes = CONVERT(BINARY(16), @id, 1)`

// Get returns one record. See outmill.Inspector.
func (s *Store) Get(ctx context.Context, id outmill.WorkItemID) (*outmill.Record, error) {
	var found []placed
	err := s.run(ctx, "get", call{
		template: sqlGet, args: []any{named("id", hex(id))},
		reset: func() { found = nil }, sets: []reader{collect(&found)},
	})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, s.explain(ctx, "get", outmill.ErrNotFound)
	}
	return found[0].record, nil
}

// Delete removes records, whatever their status. See outmill.Inspector.
func (s *Store) Delete(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	return s.each(ctx, "delete", "[dbo].[Outbox_Delete]", ids)
}

// Requeue makes dead records pending again. See outmill.Inspector. Where a
// parked key comes back it waits for a claim that is under way, which would
// else park what it meets next.
func (s *Store) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	requeued, err := s.each(ctx, "requeue", "[dbo].[Outbox_Requeue]", ids)
	if requeued > 0 {
		s.bell.Ring()
	}
	return requeued, err
}

// each calls a procedure on the records, as one transaction, and returns how
// many it did.
func (s *Store) each(ctx context.Context, operation, procedure string, ids []outmill.WorkItemID) (int, error) {
	var all int
	var counted []outmill.JoinID
	var calls []call
	for some := range slices.Chunk(ids, maxAtOnce) {
		rows := make([]idRow, len(some))
		for i, id := range some {
			rows[i] = idRow{id[:]}
		}
		calls = append(calls, call{
			template: procedure, args: []any{set(s, "Ids", "Id", rows)},
			sets: []reader{func(scan func(...any) error) error {
				var n int
				err := scan(&n)
				all += n
				return err
			}, joinIDs(&counted)},
		})
	}
	if len(calls) > 0 {
		calls[0].reset = func() { all, counted = 0, nil }
	}
	if err := s.runAll(ctx, operation, calls); err != nil {
		return 0, err
	}
	s.hurry(ctx, counted)
	return all, nil
}
