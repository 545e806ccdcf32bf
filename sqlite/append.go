package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const insertColumns = `INSERT INTO {p:records} (id, grp, topic, key, stage, available_at, due_at, next_at, created_at, expires_at, size,
	message_id, correlation_id, causation_id, tenant_id, traceparent, tracestate, dedup_key, metadata, step, joins, waits_for, turn, payload)
	VALUES `

const insertRow = `(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

var (
	insertOne     = insertColumns + insertRow
	insertTen     = insertOne + strings.Repeat(", "+insertRow, 9)
	insertHundred = insertOne + strings.Repeat(", "+insertRow, 99)
)

const (
	// sqlDedup takes dedup keys and returns those that were free.
	sqlDedup = `INSERT INTO {p:dedup} (topic, dedup_key, expires_at, first_id)
SELECT value ->> 0, value ->> 1, ?2, value ->> 2 FROM json_each(?1) WHERE true
ON CONFLICT (topic, dedup_key) DO UPDATE SET expires_at = excluded.expires_at, first_id = excluded.first_id WHERE expires_at <= ?3
RETURNING topic, dedup_key`

	sqlLanesOfKeys = `SELECT l.grp, l.topic, l.key FROM json_each(?1) AS k
CROSS JOIN {p:lanes} AS l ON l.grp = k.value ->> 0 AND l.topic = k.value ->> 1 AND l.key = k.value ->> 2`
)

// Append writes all the records or none. See outmill.Writer.
func (s *Store) Append(ctx context.Context, records ...*outmill.Record) error {
	const operation = "append"
	tx, err := s.txOf(ctx)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	if err := storekit.CheckRecords(records, s.config.MaxPayload); err != nil {
		return s.explain(ctx, operation, err)
	}
	if len(records) == 0 {
		return s.explain(ctx, operation, s.usable(ctx))
	}
	batch := newAppending(records)
	if tx != nil {
		err = s.within(ctx, operation, tx, batch.run)
	} else {
		err = s.write(ctx, operation, batch.run)
	}
	if err != nil {
		return err
	}
	batch.Report()
	s.logger.Appended(tx != nil, records...)
	if batch.last == 0 {
		return nil
	}
	topics := storekit.TopicsOf(records)
	if tx == nil {
		s.waker.notifier.Notify(topics...)
		return nil
	}
	storekit.NoteTopics(ctx, s, topics)
	s.watch(tx, batch.last, topics)
	return nil
}

// appending is the work of one Append. run may be called again after a failure, because only
// Report changes the records.
type appending struct {
	*storekit.Appending
	// last is the place of the last row in the order, 0 if there is none.
	last int64
}

func newAppending(records []*outmill.Record) *appending {
	return &appending{Appending: storekit.NewAppending(records)}
}

// rowLimits are SQLite's limits, minus the size of columns that are written later.
var rowLimits = storekit.RowLimits{Row: 1e9 - 1<<16, Metadata: 1e9 - 1<<16, PayloadTimes: 1}

// topicKey names a key of a topic.
type topicKey struct{ topic, key string }

type laneKey struct{ group, topic, key string }

func (a *appending) run(ctx context.Context, t *txn) error {
	// Refuse invalid steps before anything is written.
	read := func(ids []outmill.JoinID) ([]*storekit.JoinState, error) { return t.JoinsToFill(ctx, ids) }
	if err := storekit.CheckSteps(a.Records, read); err != nil {
		return err
	}
	if err := a.deduplicate(ctx, t); err != nil {
		return err
	}
	routes, err := t.routes(ctx)
	if err != nil {
		return err
	}
	blocked, err := a.blockedLanes(ctx, t, routes)
	if err != nil {
		return err
	}
	a.CreatedAt = timeOf(t.now)
	rows, err := a.rows(t, routes, blocked)
	if err != nil {
		return err
	}
	if a.last, err = insert(ctx, t, rows); err != nil {
		return err
	}
	return t.attach(ctx, a.attachments(routes))
}

func (a *appending) attachments(routes *storekit.RoutingTable) []attachment {
	var list []attachment
	for i, r := range a.Records {
		for _, id := range r.Joins {
			list = append(list, attachment{join: id, step: a.IDs[i], open: max(1, len(routes.Of(r.Topic)))})
		}
	}
	return list
}

func (a *appending) deduplicate(ctx context.Context, t *txn) error {
	wanted := make([][3]string, 0, len(a.First))
	for key, i := range a.First {
		a.Duplicate[i] = true
		wanted = append(wanted, [3]string{key.Topic, key.Key, a.IDs[i].String()})
	}
	if len(wanted) == 0 {
		return nil
	}
	keys, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	free, err := list(ctx, t, func(rows *sql.Rows, k *storekit.DedupKey) error { return rows.Scan(&k.Topic, &k.Key) },
		sqlDedup, string(keys), t.after(t.s.config.DedupWindow), t.now)
	for _, key := range free {
		a.Duplicate[a.First[key]] = false
	}
	return err
}

// blockedLanes returns the keys of the batch that have held records. Records that are appended
// to these keys are held too.
func (a *appending) blockedLanes(ctx context.Context, t *txn, routes *storekit.RoutingTable) (map[laneKey]bool, error) {
	if !t.lanes {
		return nil, nil
	}
	var wanted [][3]string
	asked := map[topicKey]bool{}
	for _, r := range a.Records {
		key := topicKey{r.Topic, r.Key}
		if r.Key == "" || asked[key] {
			continue
		}
		asked[key] = true
		for _, group := range routes.Of(r.Topic) {
			wanted = append(wanted, [3]string{group, r.Topic, r.Key})
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	keys, err := json.Marshal(wanted)
	if err != nil {
		return nil, err
	}
	lanes, err := list(ctx, t, func(rows *sql.Rows, l *laneKey) error { return rows.Scan(&l.group, &l.topic, &l.key) },
		sqlLanesOfKeys, string(keys))
	blocked := map[laneKey]bool{}
	for _, lane := range lanes {
		blocked[lane] = true
	}
	return blocked, err
}

// rows returns the arguments of the rows to insert: one for each group of each record, or one
// without a group.
func (a *appending) rows(t *txn, routes *storekit.RoutingTable, blocked map[laneKey]bool) ([][]any, error) {
	rows := make([][]any, 0, len(a.Records))
	readers := map[string][]string{}
	for i, r := range a.Records {
		if a.Duplicate[i] {
			continue
		}
		metadata, err := storekit.MetadataText(r.Metadata)
		if err != nil {
			return nil, fmt.Errorf("record %d: metadata: %w", i, err)
		}
		if err := rowLimits.Check(i, r, metadata); err != nil {
			return nil, err
		}
		groups, known := readers[r.Topic]
		if !known {
			groups = routes.Of(r.Topic)
			readers[r.Topic] = groups
		}
		if len(groups) == 0 {
			rows = append(rows, insertion(r, a.IDs[i], a.Deliver(i, 0, ""), nil, storekit.StageReady, t, metadata))
			continue
		}
		for n, group := range groups {
			id := a.Deliver(i, n, group)
			stage := storekit.StageReady
			if blocked[laneKey{group, r.Topic, r.Key}] {
				stage = storekit.StageHeld
			}
			rows = append(rows, insertion(r, a.IDs[i], id, group, stage, t, metadata))
		}
	}
	return rows, nil
}

// insertion returns a row's values. first is the id of the record's first row. It is also the
// message id of a record without one.
func insertion(r *outmill.Record, first, id outmill.WorkItemID, group any, stage int, t *txn, metadata string) []any {
	now := t.now
	due := dueOf(r, now)
	var available any
	if due > now {
		stage, available = storekit.StageDelayed, due
	}
	messageID, size := r.MessageID, r.Size()
	if messageID == "" {
		messageID = first.String()
		size += len(messageID)
	}
	var step, joins, waitsFor, turn any
	if t.s.ServesTurns(r.Topic) {
		turn = storekit.Turn(r.TenantID)
	}
	if len(r.Joins) > 0 {
		step, joins = first.String(), storekit.JoinsText(r.Joins)
	}
	if !r.WaitsFor.IsZero() {
		waitsFor = r.WaitsFor.String()
	}
	return []any{
		id.String(), group, r.Topic, r.Key, stage, available, due, due, now, expiryOf(r, now), size,
		messageID, sqlkit.OrNull(r.CorrelationID), sqlkit.OrNull(r.CausationID), sqlkit.OrNull(r.TenantID), sqlkit.OrNull(r.TraceParent),
		sqlkit.OrNull(r.TraceState),
		sqlkit.OrNull(r.DedupKey), sqlkit.OrNull(metadata), step, joins, waitsFor, turn, r.Payload,
	}
}

func dueOf(r *outmill.Record, now int64) int64 {
	switch {
	case r.Delay > 0:
		return now + sqlkit.CeilMicros(r.Delay)
	case r.DueAt.IsZero():
		return now
	default:
		return micros(r.DueAt)
	}
}

func expiryOf(r *outmill.Record, now int64) any {
	switch {
	case r.TimeToLive > 0:
		return now + sqlkit.CeilMicros(r.TimeToLive)
	case r.ExpiresAt.IsZero():
		return nil
	default:
		return micros(r.ExpiresAt)
	}
}

// after returns the time d from now; now if d is not positive.
func (t *txn) after(d time.Duration) int64 { return t.now + sqlkit.CeilMicros(max(d, 0)) }

// insert writes the rows with as few statements as the prepared sizes allow,
// and returns the place in the order of the last one.
func insert(ctx context.Context, t *txn, rows [][]any) (last int64, err error) {
	for len(rows) > 0 {
		template, n := insertOne, 1
		switch {
		case len(rows) >= 100:
			template, n = insertHundred, 100
		case len(rows) >= 10:
			template, n = insertTen, 10
		}
		result, err := t.run(ctx, template, slices.Concat(rows[:n]...)...)
		if err != nil {
			return 0, err
		}
		if last, err = result.LastInsertId(); err != nil {
			return 0, err
		}
		rows = rows[n:]
	}
	return last, nil
}
