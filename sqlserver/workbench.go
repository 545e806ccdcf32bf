package sqlserver

import (
	"context"
	"database/sql"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// sqlLetters returns those of the dead records that no other record has parked, each with the
// number of records that are parked behind it.
const sqlLetters = `SELECT o.IdBytes, CASE WHEN o.Parked = 1
    OR o.Keyed = 1 AND o.LastError COLLATE Latin1_General_100_BIN2 = CAST(@skipped AS NVARCHAR(255))
    THEN (SELECT COUNT(*) FROM (SELECT TOP (@most) 1 AS one FROM [dbo].[Outbox] AS w` + notLocked + `
        WHERE w.GroupName = o.GroupName AND w.Topic = o.Topic AND w.[Key] = o.[Key] AND w.Parked = 1 AND w.Seq > o.Seq) AS n)
    ELSE 0 END AS Waiting
FROM (SELECT CONVERT(BINARY(16), [value], 1) AS IdBytes FROM OPENJSON(@ids)) AS i
JOIN [dbo].[Outbox] AS o` + notLocked + ` ON o.IdBytes = i.IdBytes
WHERE o.Stage = 7 AND (o.Parked = 0 OR o.Seq = (SELECT MIN(a.Seq) FROM [dbo].[Outbox] AS a` + notLocked + `
    WHERE a.GroupName = o.GroupName AND a.Topic = o.Topic AND a.[Key] = o.[Key] AND a.Parked = 1)) ORDER BY o.IdBytes`

// workbench provides the DeadLetters, Edit, Skip and Audited of roles.Repairs.
type workbench = storekit.WorkbenchEngine

// bench is the store as seen by the workbench.
type bench struct{ finding }

// Letters returns the dead records that no other record has parked.
func (b bench) Letters(ctx context.Context, operation string, ids []outmill.WorkItemID) ([]roles.DeadLetter, error) {
	var heads []outmill.WorkItemID
	waiting := map[outmill.WorkItemID]int{}
	err := b.run(ctx, operation, call{
		template: sqlLetters, looks: true, reset: func() { heads = nil },
		args: []any{named("ids", jsonOf(hexes(ids))), named("skipped", storekit.SkippedError), named("most", roles.MaxWaiting)},
		sets: []reader{func(scan func(...any) error) error {
			var bytes []byte
			var n int
			var id outmill.WorkItemID
			if err := scan(&bytes, &n); err != nil {
				return err
			}
			err := uuidFrom(bytes, (*[16]byte)(&id))
			heads, waiting[id] = append(heads, id), n
			return err
		}},
	})
	if err != nil || len(heads) == 0 {
		return nil, err
	}
	records, err := b.Records(ctx, operation, heads)
	letters := make([]roles.DeadLetter, len(records))
	for i, r := range records {
		letters[i] = roles.DeadLetter{Record: r, Waiting: waiting[r.ID]}
	}
	return letters, err
}

// holdDead locks the record and returns it, or outmill.ErrNotFound. With line it first locks the
// record's line.
func (s *Store) holdDead(ctx context.Context, tx *sql.Tx, id outmill.WorkItemID, line bool) (*outmill.Record, error) {
	var found []placed
	err := s.do(ctx, tx, call{
		template: "[dbo].[Outbox_HoldDead]", args: []any{named("IdBytes", id[:]), named("Line", line)}, sets: []reader{collect(&found)},
	})
	if err == nil && len(found) == 0 {
		err = outmill.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return found[0].record, nil
}

// EditDead changes a dead record.
func (b bench) EditDead(ctx context.Context, operation string, id outmill.WorkItemID,
	change func(before *outmill.Record) (*outmill.Record, roles.AuditEntry, error)) error {
	return b.write(ctx, operation, func(ctx context.Context, tx *sql.Tx) error {
		before, err := b.holdDead(ctx, tx, id, false)
		if err != nil {
			return err
		}
		after, entry, err := change(before)
		if err != nil || after == nil {
			return err
		}
		if err := b.edit(ctx, tx, after); err != nil {
			return err
		}
		return b.do(ctx, tx, note(entry, 1))
	})
}

func (s *Store) edit(ctx context.Context, tx *sql.Tx, r *outmill.Record) error {
	metadata := ""
	if len(r.Metadata) > 0 {
		metadata = jsonOf(r.Metadata)
	}
	if err := rowLimits.Check(-1, r, metadata); err != nil {
		return err
	}
	return s.do(ctx, tx, call{template: "[dbo].[Outbox_Edit]", args: []any{
		named("IdBytes", r.ID[:]), named("Payload", r.Payload), named("Metadata", some(metadata)), named("Size", r.Size()),
	}})
}

// SkipDead removes a dead record, or does a step of the release of what it has parked.
func (b bench) SkipDead(ctx context.Context, operation string, id outmill.WorkItemID, nth int,
	check func(*outmill.Record) (roles.AuditEntry, error)) (skipped roles.Skipped, err error) {
	limit := storekit.BatchSize(maxAtOnce).Requeue(nth)
	var counted []outmill.JoinID
	err = b.write(ctx, operation, func(ctx context.Context, tx *sql.Tx) error {
		r, err := b.holdDead(ctx, tx, id, true)
		if err != nil {
			return err
		}
		entry, err := check(r)
		if err != nil {
			return err
		}
		counted = nil
		err = b.do(ctx, tx, call{
			template: "[dbo].[Outbox_Skip]",
			args:     []any{named("IdBytes", id[:]), named("Limit", limit), named("Begun", storekit.SkippedError)},
			sets:     []reader{numbers(&skipped.Released, &skipped.Done), joinIDs(&counted)},
		})
		if err != nil {
			return err
		}
		changed := skipped.Released
		if skipped.Done {
			entry.After.Status = roles.AuditDeleted
			changed++
		}
		return b.do(ctx, tx, note(entry, changed))
	})
	if err != nil {
		return roles.Skipped{}, err
	}
	b.hurry(ctx, counted)
	if skipped.Released > 0 {
		b.notifier.Notify()
	}
	return skipped, nil
}
