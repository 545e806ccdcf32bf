package driver

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// rowColumns are the columns that readRow reads. The sign before a text hides its declared type: modernc's driver
// would read the type again for each value.
const rowColumns = `r.seq, +r.id, +r.grp, +r.topic, +r.key, +r.tenant_id, r.created_at, r.size, r.stage, r.wake_at, r.next_at, r.expires_at,
	r.attempts, r.claims, r.expiries, +r.owner, +r.worker, +r.under, +r.step, +r.waits_for, r.parked, r.processed_at, +r.processed_by`

// rowWidth is the number of rowColumns.
const rowWidth = 23

func readRow(v *values, r *driver.Row) {
	r.Seq, r.ID, r.Line = v.number(0), outmill.WorkItemID(v.id(1)), driver.LineOf(v.text(2), v.text(3))
	r.Key, r.Tenant, r.Created, r.Size = v.text(4), v.text(5), v.time(6), v.count(7)
	r.Stage, r.Wake, r.Next, r.Expires = driver.Stage(v.number(8)), v.time(9), v.time(10), v.time(11)
	r.Attempts, r.Claims, r.Expiries = v.count(12), v.count(13), v.count(14)
	r.Owner, r.Worker, r.Under = v.text(15), v.text(16), v.text(17)
	r.Step, r.WaitsFor = outmill.WorkItemID(v.id(18)), outmill.JoinID(v.id(19))
	r.Parked, r.Processed, r.By = v.truth(20), v.time(21), v.text(22)
	r.Broken = v.broken()
	r.Refuse()
}

// blocked says that a row is held under the note of its key, and that this note is not open.
const blocked = `r.stage = 1 AND r.under >= 'k' AND r.under < 'l' AND EXISTS (SELECT 1 FROM {p:notes} AS n
	WHERE n.grp = r.grp AND n.topic = r.topic AND n.name = r.under AND n.blocker <> '')`

func readBlocked(v *values, r *driver.Row) {
	r.Blocked = v.truth(rowWidth)
	readRow(v, r)
}

const (
	sqlFind = `SELECT ` + rowColumns + `, ` + blocked + ` FROM {p:records} AS r WHERE r.id IN (SELECT value FROM json_each(?1))`
	// The ids are one text: to step from row to row takes several times as long. An id that somebody has written by hand may have blanks.
	sqlAfter = `SELECT group_concat(replace(id, ' ', '_'), ' '), max(id) FROM (SELECT id FROM {p:records} WHERE id > ?1 ORDER BY id LIMIT ?2)`
	// A topic that begins with a blank is that of a part. A stage that no row has is broken, and the engine takes it for the first.
	sqlLike = `SELECT ` + rowColumns + `, ` + blocked + ` FROM {p:records} AS r WHERE r.id > ?1 AND r.id <= ?2
	AND ?3 IN ('', r.grp) AND (?4 IN ('', r.topic) OR r.topic < '!') AND ?5 IN ('', r.key) AND ?6 IN ('', r.tenant_id)
	AND ?7 IN ('', r.message_id) AND ?8 IN ('', r.correlation_id) AND (r.stage BETWEEN ?9 AND ?10 OR r.stage NOT BETWEEN 0 AND 6)`
)

func (t *tx) Find(ctx context.Context, ids []outmill.WorkItemID) ([]driver.Row, error) {
	return list(ctx, t, readBlocked, sqlFind, jsonOf(ids))
}

// Lock is Find: nobody else writes before the transaction ends.
func (t *tx) Lock(ctx context.Context, id outmill.WorkItemID) (r driver.Row, found bool, err error) {
	rows, err := t.Find(ctx, []outmill.WorkItemID{id})
	return append(rows, r)[0], len(rows) > 0, err
}

// foundIDs are ids in their order, with blanks between them, and the last one; last is nil if no row was found.
type foundIDs struct {
	texts string
	last  any
}

// ids parses the texts. A text that is no id becomes the zero id, and readRow names the fault in Broken.
func (f foundIDs) ids() []outmill.WorkItemID {
	texts := strings.Split(f.texts, " ")
	ids := make([]outmill.WorkItemID, len(texts))
	for i, text := range texts {
		if id, err := uuid.Parse(text); err == nil {
			ids[i] = outmill.WorkItemID(id)
		}
	}
	return ids
}

// After finds the ids first, and then those rows that are like the given one.
func (t *tx) After(ctx context.Context, id outmill.WorkItemID, limit int, like driver.Like) ([]outmill.WorkItemID, []driver.Row, error) {
	read := func(v *values, found *foundIDs) { found.texts, found.last = v.text(0), v.got[1] }
	found, err := list(ctx, t, read, sqlAfter, id.String(), limit)
	if err != nil || found[0].last == nil {
		return nil, nil, err
	}
	ids, last := found[0].ids(), found[0].last
	rows, err := list(ctx, t, readBlocked, sqlLike, id.String(), last, like.Group, like.Topic, like.Key, like.Tenant, like.MessageID,
		like.CorrelationID, int(like.First), int(like.Last))
	return ids, rows, err
}
