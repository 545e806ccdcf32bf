package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sqlite "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	sqlInsert = `INSERT INTO {p:records} (seq, id, grp, topic, key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at, step,
	waits_for, due_at, message_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, joins, metadata, payload) VALUES `
	insertRow     = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	insertColumns = 24

	// sqlLoad reads no more of a record than what ?2, a driver.Want, asks for: SQLite leaves the pages of a payload alone
	// that it need not return.
	sqlLoad = `SELECT r.seq, r.due_at, +r.message_id, +r.correlation_id, +r.causation_id, +r.traceparent, +r.tracestate, +r.dedup_key,
	+r.joins, +r.last_error, iif(?2 & 1, r.metadata, NULL) AS metadata,
	iif(?2 & 2, coalesce(r.payload, (SELECT p.payload FROM {p:payloads} AS p WHERE p.seq = r.seq)), NULL) AS payload,
	iif(?2 & 4, r.history, NULL) AS history, +r.id
FROM json_each(?1) AS j LEFT JOIN {p:records} AS r ON r.seq = j.value ORDER BY j.rowid`

	// sqlPutApart writes a large payload. See isApart.
	sqlPutApart = `INSERT INTO {p:payloads} (seq, payload) SELECT r.seq, ?2 FROM {p:records} AS r WHERE r.id = ?1`

	// sqlReplace is the edit of an operator.
	sqlReplace = `UPDATE {p:records} SET size = ?2, metadata = ?3, payload = ?4 WHERE seq = ?1`
	sqlNoApart = `DELETE FROM {p:payloads} WHERE seq = ?1`

	// sqlAttach makes records a step of a join.
	sqlAttach = `UPDATE {p:records} SET step = ?2, joins = coalesce(joins || ',', '') || ?3
WHERE seq IN (SELECT value FROM json_each(?1))`
)

var (
	insertOne     = sqlInsert + insertRow
	insertTen     = insertOne + strings.Repeat(", "+insertRow, 9)
	insertHundred = insertOne + strings.Repeat(", "+insertRow, 99)
)

// sqlPlaces takes places from the counter of SQLite for AUTOINCREMENT.
const (
	sqlPlaces     = `UPDATE sqlite_sequence SET seq = seq + ?2 WHERE name = ?1 RETURNING seq`
	sqlFirstPlace = `INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)`
)

// places takes a place for each row of a part, and returns the one before the first. SQLite keeps rows together whose
// Seqs are near, so those of a part are: a claim writes some pages for each part, and not a page for each row.
func (t *tx) places(ctx context.Context, rows []driver.NewRow) (before int64, err error) {
	n := int64(0)
	for i := range rows {
		n += int64(min(rows[i].Part, 1))
	}
	if n == 0 {
		return 0, nil
	}
	name := t.d.config.Prefix + "records"
	if t.last, err = t.number(ctx, sqlPlaces, name, n); err == nil && t.last == 0 {
		t.last, err = n, t.exec(ctx, sqlFirstPlace, name, n)
	}
	return t.last - n, err
}

// placeBits are those of a place in a part. Places in parts are negative, because SQLite goes on behind the largest one.
const placeBits = 55

// Insert inserts rows with as few statements as there are prepared sizes.
func (t *tx) Insert(ctx context.Context, rows []driver.NewRow) error {
	place, err := t.places(ctx, rows)
	if err != nil {
		return err
	}
	for len(rows) > 0 {
		template, n := insertOne, 1
		switch {
		case len(rows) >= 100:
			template, n = insertHundred, 100
		case len(rows) >= 10:
			template, n = insertTen, 10
		}
		args := make([]any, 0, insertColumns*n)
		for i := range rows[:n] {
			var seq any
			if part := rows[i].Part; part > 0 {
				place++
				seq = int64(part-storekit.FairParts)<<placeBits + place
			}
			args = appendRow(args, seq, &rows[i])
			t.state.Unrouted = t.state.Unrouted || rows[i].Group == ""
		}
		result, err := t.run(ctx, template, args...)
		if err != nil {
			return t.taken(ctx, rows[:n], err)
		}
		inserted, err := result.LastInsertId()
		if err != nil {
			return err
		}
		t.last = max(t.last, inserted)
		if err := t.putApart(ctx, rows[:n]...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

func appendRow(args []any, seq any, r *driver.NewRow) []any {
	c := r.Record
	return append(args, seq, r.ID.String(), r.Group, r.Name(), r.Key, r.Tenant, int64(r.Created), r.Size, int64(r.Stage), int64(r.Wake),
		int64(r.Next), int64(r.Expires), idOf(r.Step), idOf(r.WaitsFor), int64(max(r.Next, r.Created)), r.Message, orNull(c.CorrelationID),
		orNull(c.CausationID), orNull(c.TraceParent), orNull(c.TraceState), orNull(c.DedupKey), orNull(storekit.JoinsText(c.Joins)),
		orNull(r.Metadata), inRow(c.Payload))
}

// isApart reports whether a payload has a row of its own. SQLite writes a whole row again when something in it changes,
// so that a claim would need memory for the payloads of all records that it leases.
func isApart(payload []byte) bool { return len(payload) > 64<<10 }

func (t *tx) putApart(ctx context.Context, rows ...driver.NewRow) error {
	for i := range rows {
		if payload := rows[i].Record.Payload; isApart(payload) {
			if err := t.exec(ctx, sqlPutApart, rows[i].ID.String(), payload); err != nil {
				return err
			}
		}
	}
	return nil
}

// inRow is what a record's own row has of its payload.
func inRow(payload []byte) any { return nullIf(payload == nil || isApart(payload), payload) }

// idOf is NULL for none, so that its index has no entry.
func idOf[T interface {
	IsZero() bool
	String() string
}](id T) any {
	return nullIf(id.IsZero(), id.String())
}

// orNull is NULL for none: SQLite and its driver pass it on faster than an empty text.
func orNull(text string) any { return nullIf(text == "", text) }

func nullIf(is bool, value any) any {
	if is {
		return nil
	}
	return value
}

// taken explains that one of the ids exists.
func (t *tx) taken(ctx context.Context, rows []driver.NewRow, err error) error {
	var e *sqlite.Error
	if errors.As(err, &e) && e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE {
		for i := range rows {
			if r, found, _ := t.Lock(ctx, rows[i].ID); found {
				return fmt.Errorf("a record with id %s exists: leave the id empty, and Append makes one (%w)", r.ID, err)
			}
		}
	}
	return err
}

func (t *tx) Replace(ctx context.Context, r driver.NewRow) error {
	if err := t.exec(ctx, sqlNoApart, r.Seq); err != nil {
		return err
	}
	if err := t.exec(ctx, sqlReplace, r.Seq, r.Size, orNull(r.Metadata), inRow(r.Record.Payload)); err != nil {
		return err
	}
	return t.putApart(ctx, r)
}

func (t *tx) Attach(ctx context.Context, step outmill.WorkItemID, join outmill.JoinID, rows []driver.Row) error {
	return t.exec(ctx, sqlAttach, seqsOf(rows), step.String(), join.String())
}

func readContent(v *values, c *driver.Content) {
	r := &outmill.Record{}
	c.Record = r
	r.MessageID, r.CorrelationID, r.CausationID = v.text(2), v.text(3), v.text(4)
	r.TraceParent, r.TraceState, r.DedupKey = v.text(5), v.text(6), v.text(7)
	r.LastError = v.text(9)
	columns := map[string]int{"due_at": 1, "joins": 8, "metadata": 10}
	sqlkit.SetContent(r, v.time(1), v.text(8), v.text(10), func(column, want string) { v.refuse(columns[column], want) })
	r.Payload, c.History = v.bytes(11), string(v.bytes(12))
	c.Broken = v.broken()
}

func (t *tx) Load(ctx context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	next := 0
	return list(ctx, t, func(v *values, c *driver.Content) {
		r := &rows[next]
		next++
		// A Seq of a transaction that was rolled back may be another row's.
		if v.got[0] != nil && (r.Broken != "" || v.got[13] == r.ID.String()) {
			readContent(v, c)
		}
	}, sqlLoad, seqsOf(rows), int(want))
}

// Read is Load in one statement without a transaction around it.
func (d *Driver) Read(ctx context.Context, rows []driver.Row, want driver.Want) (found []driver.Content, err error) {
	err = d.whileBusy(ctx, func() (err error) {
		found, err = (&tx{d: d, h: d.db, patient: true}).Load(ctx, rows, want)
		return err
	})
	return found, err
}
