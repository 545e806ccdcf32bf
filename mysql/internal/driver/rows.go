package driver

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// rowColumns are the columns that sqlkit.ReadRow reads.
const rowColumns = `r.seq, r.id, r.grp, r.topic, r.rec_key, r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at,
	r.attempts, r.claims, r.expiries, r.owner, r.worker, r.under, r.step, r.waits_for, r.parked, r.processed_at, r.processed_by`

const (
	// blocked says that a row is held under the note of its key, and that this note is not open.
	blocked = `r.slot = 1 AND EXISTS (SELECT 1 FROM {p:notes} AS n WHERE n.grp = r.grp AND n.topic = r.topic AND n.name = r.under
	AND n.blocker <> x'')`

	sqlFind  = `SELECT ` + rowColumns + `, ` + blocked + ` FROM {p:records} AS r FORCE INDEX (ids) WHERE r.id IN (?)`
	sqlLock  = sqlFind + ` FOR UPDATE`
	sqlAfter = `SELECT ` + rowColumns + `, ` + blocked + ` FROM {p:records} AS r FORCE INDEX (ids) WHERE r.id > ? ORDER BY r.id LIMIT ?`

	// sqlFree locks rows that a search has found, and reads them again.
	sqlFree = `SELECT ` + rowColumns + ` FROM {p:records} AS r FORCE INDEX (PRIMARY) WHERE r.seq IN (?) ORDER BY r.seq FOR UPDATE SKIP LOCKED`
)

// Find returns the rows with these ids.
func (t *tx) Find(ctx context.Context, ids []outmill.WorkItemID) ([]driver.Row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return list(ctx, t, sqlkit.ReadBlocked, sqlFind, ids)
}

// Lock returns a row and locks it.
func (t *tx) Lock(ctx context.Context, id outmill.WorkItemID) (r driver.Row, found bool, err error) {
	rows, err := list(ctx, t, sqlkit.ReadBlocked, sqlLock, []outmill.WorkItemID{id})
	return append(rows, r)[0], len(rows) > 0, err
}

// After returns the rows behind an id.
func (t *tx) After(ctx context.Context, id outmill.WorkItemID, limit int, _ driver.Like) ([]outmill.WorkItemID, []driver.Row, error) {
	return driver.Looked(list(ctx, t, sqlkit.ReadBlocked, sqlAfter, id, limit))
}

// free locks rows, and returns those, in their order, that nobody else has locked or changed since they were read.
func (t *tx) free(ctx context.Context, rows []driver.Row) ([]driver.Row, error) {
	if len(rows) == 0 || !t.locks {
		return rows, nil
	}
	locked, err := list(ctx, t, sqlkit.ReadRow, sqlFree, seqsOf(rows))
	if err != nil {
		return nil, err
	}
	bySeq := make(map[int64]driver.Row, len(locked))
	for _, r := range locked {
		bySeq[r.Seq] = r
	}
	var free []driver.Row
	for _, r := range rows {
		if bySeq[r.Seq] == r {
			free = append(free, r)
		}
	}
	return free, nil
}

func seqsOf(rows []driver.Row) []int64 {
	return sqlkit.Mapped(rows, func(r *driver.Row) int64 { return r.Seq })
}
