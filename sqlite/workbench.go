package sqlite

import (
	"context"
	"database/sql"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	// sqlLetters returns those of the dead records that no other record has parked, each with
	// the number of records that are parked behind it.
	sqlLetters = `SELECT r.id, CASE WHEN r.parked > 0 OR r.key <> '' AND r.last_error = ?2 THEN
	(SELECT count(*) FROM (SELECT 1 FROM {p:records} AS w INDEXED BY {p:parked}
		WHERE w.grp = r.grp AND w.topic = r.topic AND w.key = r.key AND w.parked > 0 AND w.seq > r.seq LIMIT ?3)) ELSE 0 END
FROM json_each(?1) AS j CROSS JOIN {p:records} AS r ON r.id = j.value
WHERE r.status = 'dead' AND (r.parked = 0 OR r.seq = (SELECT min(above.seq) FROM {p:records} AS above INDEXED BY {p:parked}
	WHERE above.grp = r.grp AND above.topic = r.topic AND above.key = r.key AND above.parked > 0))`

	sqlEdit = `UPDATE {p:records} SET payload = ?2, metadata = ?3, size = ?4 WHERE id = ?1 AND status = 'dead'`

	// sqlHead returns whether a record parks its key, whether a skip of it has begun, when what it
	// releases is due, and the first record that parks the key.
	sqlHead = `SELECT r.seq, r.parked > 0, r.key <> '' AND coalesce(r.last_error, '') = ?2, r.next_at,
	(SELECT min(above.seq) FROM {p:records} AS above INDEXED BY {p:parked}
		WHERE above.grp = r.grp AND above.topic = r.topic AND above.key = r.key AND above.parked > 0)
FROM {p:records} AS r WHERE r.id = ?1`

	sqlParkedBehind = `SELECT seq FROM {p:records} INDEXED BY {p:parked} WHERE grp = ?1 AND topic = ?2 AND key = ?3 AND parked > 0 AND seq > ?4
		ORDER BY seq LIMIT ?5`

	sqlBeginSkip = `UPDATE {p:records} SET parked = 0, last_error = ?2, next_at = ?3 WHERE seq = ?1`
)

// workbench provides the DeadLetters, Edit, Skip and Audited of roles.Repairs.
type workbench = storekit.WorkbenchEngine

// bench is the store as seen by the workbench.
type bench struct{ finding }

// Letters returns the dead records that no other record has parked.
func (b bench) Letters(ctx context.Context, operation string, ids []outmill.WorkItemID) (letters []roles.DeadLetter, err error) {
	err = b.read(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		letters, err = t.letters(ctx, ids)
		return err
	})
	return letters, err
}

func (t *txn) letters(ctx context.Context, ids []outmill.WorkItemID) ([]roles.DeadLetter, error) {
	type head struct {
		id      outmill.WorkItemID
		waiting int
	}
	heads, err := list(ctx, t, func(rows *sql.Rows, h *head) error { return rows.Scan(&h.id, &h.waiting) },
		sqlLetters, idList(ids), storekit.SkippedError, roles.MaxWaiting)
	if err != nil || len(heads) == 0 {
		return nil, err
	}
	ids = make([]outmill.WorkItemID, len(heads))
	for i, h := range heads {
		ids[i] = h.id
	}
	records, err := t.records(ctx, sqlRecordsOf, idList(ids))
	if err != nil {
		return nil, err
	}
	letters := make([]roles.DeadLetter, len(records))
	for i, r := range records {
		letters[i] = roles.DeadLetter{Record: r, Waiting: heads[i].waiting}
	}
	return letters, nil
}

// recordOf returns the record, or outmill.ErrNotFound.
func (t *txn) recordOf(ctx context.Context, id outmill.WorkItemID) (*outmill.Record, error) {
	found, err := t.records(ctx, sqlGet, id.String())
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, outmill.ErrNotFound
	}
	return found[0], nil
}

// EditDead changes a dead record.
func (b bench) EditDead(ctx context.Context, operation string, id outmill.WorkItemID,
	change func(before *outmill.Record) (*outmill.Record, roles.AuditEntry, error)) error {
	return b.write(ctx, operation, func(ctx context.Context, t *txn) error {
		before, err := t.recordOf(ctx, id)
		if err != nil {
			return err
		}
		after, entry, err := change(before)
		if err != nil || after == nil {
			return err
		}
		if err := t.edit(ctx, after); err != nil {
			return err
		}
		return t.audit(ctx, entry, 1)
	})
}

func (t *txn) edit(ctx context.Context, r *outmill.Record) error {
	metadata, err := storekit.MetadataText(r.Metadata)
	if err != nil {
		return err
	}
	if err := rowLimits.Check(-1, r, metadata); err != nil {
		return err
	}
	_, err = t.exec(ctx, sqlEdit, r.ID.String(), r.Payload, sqlkit.OrNull(metadata), r.Size())
	return err
}

// SkipDead removes a dead record, or does a step of the release of what it has parked.
func (b bench) SkipDead(ctx context.Context, operation string, id outmill.WorkItemID, nth int,
	check func(*outmill.Record) (roles.AuditEntry, error)) (skipped roles.Skipped, err error) {
	err = b.write(ctx, operation, func(ctx context.Context, t *txn) error {
		r, err := t.recordOf(ctx, id)
		if err != nil {
			return err
		}
		entry, err := check(r)
		if err != nil {
			return err
		}
		skipped, err = t.skip(ctx, r, b.atOnce.Requeue(nth))
		if err != nil {
			return err
		}
		changed := skipped.Released
		if skipped.Done {
			entry.After.Status = roles.AuditDeleted
			changed++
		}
		return t.audit(ctx, entry, changed)
	})
	if err != nil {
		return roles.Skipped{}, err
	}
	if skipped.Released > 0 {
		b.waker.notifier.Notify()
	}
	return skipped, nil
}

// skip requeues up to limit records that are parked behind the record. If these were the last,
// it deletes the record. All of them become due at one time, which the record keeps, so that
// they become ready in the order of their places: claims between two steps may park the first
// ones again.
func (t *txn) skip(ctx context.Context, r *outmill.Record, limit int) (skipped roles.Skipped, err error) {
	var seq int64
	var parked, begun bool
	var due int64
	var first sql.NullInt64
	if _, err := t.one(ctx, []any{&seq, &parked, &begun, &due, &first}, sqlHead, r.ID.String(), storekit.SkippedError); err != nil {
		return skipped, err
	}
	if !begun {
		due = t.now
	}
	if (parked || begun) && first.Valid && first.Int64 >= seq {
		behind, err := t.seqs(ctx, sqlParkedBehind, r.Group, r.Topic, r.Key, seq, limit)
		if err != nil {
			return skipped, err
		}
		if skipped.Released, err = t.requeue(ctx, behind, due); err != nil {
			return skipped, err
		}
		if len(behind) == limit {
			_, err := t.exec(ctx, sqlBeginSkip, seq, storekit.SkippedError, due)
			return skipped, err
		}
	}
	skipped.Done = true
	_, err = t.remove(ctx, []int64{seq})
	return skipped, err
}
