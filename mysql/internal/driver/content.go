package driver

import (
	"context"
	"fmt"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	sqlInsert = `INSERT INTO {p:records} (id, grp, topic, rec_key, tenant_id, created_at, size, stage, wake_at, next_at, expires_at,
	step, waits_for, due_at, message_id, correlation_id, causation_id, traceparent, tracestate, dedup_key, joins, metadata, payload) VALUES `
	insertRow = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	// sqlLoad reads the metadata, the payload and the history of a record only if the call asks for them.
	sqlLoad = `SELECT r.id, r.due_at, r.message_id, r.correlation_id, r.causation_id, r.traceparent, r.tracestate, r.dedup_key, r.joins,
	r.last_error, ?, ?, ? FROM {p:records} AS r WHERE r.seq IN (?)`

	// sqlReplace is the edit of an operator.
	sqlReplace = `UPDATE {p:records} SET size = ?, metadata = ?, payload = ? WHERE seq = ?`

	// sqlAttach makes records a step of a join.
	sqlAttach = `UPDATE {p:records} SET step = ?, joins = IF(joins IS NULL, ?, CONCAT(joins, x'2C', ?)) WHERE seq IN (?)`
)

const (
	// inText is the size of a payload up to which it stands in a statement. A larger one is a parameter, for which the server prepares the
	// statement.
	inText = 16 << 10
	// insertBytes and insertRows bound one statement.
	insertBytes = 512 << 10
	insertRows  = 500
)

// payloadOf is a payload in a statement: nil stays nil, and empty stays empty.
func payloadOf(payload []byte) any {
	if len(payload) > inText {
		return large(payload)
	}
	return payload
}

// insertion is an INSERT of some rows.
type insertion struct {
	text       string
	parameters []any
	rows       int
	// bytes is the size of the parameters.
	bytes int
}

// Insert inserts rows in their order, by as few statements as packets allow.
func (t *tx) Insert(ctx context.Context, rows []driver.NewRow) error {
	if t.caller != nil && slices.ContainsFunc(rows, func(r driver.NewRow) bool { return hasFixedTime(&r) }) {
		return errGuess
	}
	var next insertion
	for i := range rows {
		r := &rows[i]
		t.state.Unrouted = t.state.Unrouted || r.Group == ""
		text, parameters := t.d.text(insertRow, t.valuesOf(r)...)
		bytes := sizeOf(parameters)
		if next.rows == insertRows || next.rows > 0 && len(next.text)+next.bytes+len(text)+bytes > insertBytes {
			if err := t.insert(ctx, &next, rows); err != nil {
				return err
			}
			next = insertion{}
		}
		if next.text += ", " + text; next.rows == 0 {
			next.text = t.d.names(sqlInsert) + text
		}
		next.parameters, next.rows, next.bytes = append(next.parameters, parameters...), next.rows+1, next.bytes+bytes
	}
	return t.insert(ctx, &next, rows)
}

// insert runs an INSERT of some of the rows.
func (t *tx) insert(ctx context.Context, some *insertion, rows []driver.NewRow) error {
	switch {
	case some.rows == 0:
		return nil
	case t.caller != nil && some.rows < len(rows):
		return errGuess
	case t.caller != nil:
		return t.insertWithin(ctx, some, rows)
	}
	if err := t.fits(len(some.text) + some.bytes); err != nil {
		return err
	}
	_, err := t.on.ExecContext(ctx, some.text, some.parameters...)
	return explainTaken(err)
}

func (t *tx) valuesOf(r *driver.NewRow) []any {
	c, orNull := r.Record, sqlkit.OrNull
	return []any{
		r.ID, r.Group, r.Name(), r.Key, r.Tenant, t.created(r.Created), r.Size, r.Stage, t.moment(r.Wake), t.moment(r.Next),
		t.moment(r.Expires), idOf(r.Step), idOf(r.WaitsFor), t.moment(max(r.Next, r.Created)), r.Message, orNull(c.CorrelationID),
		orNull(c.CausationID), orNull(c.TraceParent), orNull(c.TraceState), orNull(c.DedupKey), orNull(storekit.JoinsText(c.Joins)),
		orNull(r.Metadata), payloadOf(c.Payload),
	}
}

// explainTaken explains that one of the ids exists.
func explainTaken(err error) error {
	if number(err) == errDuplicate {
		return fmt.Errorf("a record with one of these ids exists: leave the id empty, and Append makes one (%w)", err)
	}
	return err
}

// Replace writes another payload and metadata.
func (t *tx) Replace(ctx context.Context, r driver.NewRow) error {
	return t.run(ctx, sqlReplace, r.Size, sqlkit.OrNull(r.Metadata), payloadOf(r.Record.Payload), r.Seq)
}

// Attach makes rows records of a step.
func (t *tx) Attach(ctx context.Context, step outmill.WorkItemID, join outmill.JoinID, rows []driver.Row) error {
	return t.run(ctx, sqlAttach, step, join.String(), join.String(), seqsOf(rows))
}

// Load returns the content of rows.
func (t *tx) Load(ctx context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	column := func(part driver.Want, name fragment) fragment {
		if want&part == 0 {
			return "NULL"
		}
		return name
	}
	found, err := list(ctx, t, sqlkit.ReadContent, sqlLoad, column(driver.Metadata, "r.metadata"), column(driver.Payload, "r.payload"),
		column(driver.History, "r.history"), seqsOf(rows))
	return sqlkit.Contents(rows, found), err
}
