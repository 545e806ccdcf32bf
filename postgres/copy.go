package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// copyFrom is the number of rows from which COPY is used instead of an INSERT. It was measured
// with the scenario publish of the bench: COPY takes more round trips and less work for each
// row.
const copyFrom = 50

const sqlCopyHeader = `SELECT EXISTS (SELECT 1 FROM {p:meta} WHERE ` + sqlFits + `), clock_timestamp()`

// copier is a connection or a transaction of pgx.
type copier interface {
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error)
}

var copyColumns = []string{
	"id", "grp", "topic", "key", "stage", "available_at", "due_at", "next_at", "created_at", "expires_at", "size",
	"message_id", "correlation_id", "causation_id", "tenant_id", "traceparent", "tracestate", "dedup_key", "step", "joins", "waits_for",
	"turn", "metadata", "payload",
}

// copy writes the rows by COPY. It reports whether the groups and the schema that the
// transaction sees are those that the rows were made for; if not, it has written nothing.
func (a *appending) copy(ctx context.Context, rows rows, r runner, to copier) (fits bool, err error) {
	var now time.Time
	err = r.run(ctx, step{
		template: sqlCopyHeader, args: []any{rows.generation, schemaVersion},
		row: func(scan func(...any) error) error { return scan(&fits, &now) },
	})
	if err != nil || !fits {
		return false, err
	}
	a.CreatedAt = now
	source := &copySource{list: rows.list, now: now}
	_, err = to.CopyFrom(ctx, pgx.Identifier{a.s.config.Schema, a.s.config.TablePrefix + "records"}, copyColumns, source)
	return err == nil, err
}

// copySource returns the rows one by one.
type copySource struct {
	list   []row
	now    time.Time
	next   int
	values [24]any
}

func (c *copySource) Next() bool {
	c.next++
	return c.next <= len(c.list)
}

func (c *copySource) Err() error { return nil }

func (c *copySource) Values() ([]any, error) {
	r := &c.list[c.next-1]
	of := r.of
	var group, metadata, available, expires, step, joins, waitsFor, turn any
	if r.group != "" {
		group = r.group
	}
	if r.metadata != "" {
		metadata = r.metadata
	}
	stage, due := storekit.StageReady, r.due(c.now)
	if due.After(c.now) {
		stage, available = storekit.StageDelayed, due
	}
	if at, ok := r.expiry(c.now); ok {
		expires = at
	}
	if r.step != "" {
		step, joins = r.step, r.joins()
	}
	if !of.WaitsFor.IsZero() {
		waitsFor = [16]byte(of.WaitsFor)
	}
	if r.turn {
		turn = storekit.Turn(of.TenantID)
	}
	c.values = [...]any{
		[16]byte(r.id), group, of.Topic, of.Key, stage, available, due, due, c.now, expires, r.size,
		r.messageID, sqlkit.OrNull(of.CorrelationID), sqlkit.OrNull(of.CausationID), sqlkit.OrNull(of.TenantID), sqlkit.OrNull(of.TraceParent),
		sqlkit.OrNull(of.TraceState),
		sqlkit.OrNull(of.DedupKey), step, joins, waitsFor, turn, metadata, of.Payload,
	}
	return c.values[:], nil
}
