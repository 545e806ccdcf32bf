package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var (
	// sqlInsert writes nothing if the registered groups or the schema's version have changed
	// since the rows were made.
	sqlInsert = insertAll + returningTime

	insertAll = insertFrom(`unnest(`+insertArrays+`) AS r (`+insertNames+`)`, `EXISTS (SELECT 1 FROM {p:meta} WHERE `+sqlFits+`)`)

	// sqlInsertOne is sqlInsert for a single row. It avoids the lists, and PostgreSQL makes no
	// separate plans for the condition and for a list of one row.
	sqlInsertOne = single(insertNames, insertFrom(`{p:meta}`, sqlFits)+returningTime)

	// sqlInsertSteps also makes the rows steps of joins. It does so in the same statement,
	// because the groups may change between two statements.
	sqlInsertSteps = insertSteps(insertAll, 21)

	// sqlInsertNew takes the dedup keys that are free, and skips the rows whose key is taken.
	sqlInsertNew      = insertNew(insertAll, "", "")
	sqlInsertNewSteps = insertNew(insertAll, returningID, attached(25))
)

const (
	sqlFits = `only_row AND generation = $1::bigint AND version >= $2::integer AND compatible <= $2::integer`

	insertColumns = `id, grp, topic, key, stage, available_at, due_at, next_at, created_at, expires_at, size,
	message_id, correlation_id, causation_id, tenant_id, traceparent, tracestate, dedup_key, step, joins, waits_for, turn, metadata, payload`

	insertNames = `id, topic, key, size, message_id, correlation_id, causation_id, tenant_id, traceparent, tracestate,
	dedup_key, metadata, payload, due, expires, grp, step, waits_for`

	insertArrays = `$3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
		$12::text[],
	$13::text[], $14::text[], $15::bytea[], $16::text[], $17::text[], $18::text[], $19::text[], $20::text[]`

	// A group has a mark before its name, since "" is a group too.
	insertValues = `r.id::uuid, nullif(r.grp, ''), r.topic, r.key,
	CASE WHEN d.due > now.at THEN 3 ELSE 0 END, CASE WHEN d.due > now.at THEN d.due END, d.due, d.due, now.at,
	CASE WHEN r.expires LIKE '+%' THEN now.at + r.expires::interval ELSE nullif(r.expires, '')::timestamptz END, r.size,
	r.message_id, ` + optionalTexts + `,
	` + stepAndJoins + `, ` + waitsForAndTurn + `, ` + storedMetadata + `::jsonb, ` + storedPayload

	// optionalTexts are the columns from correlation_id to dedup_key.
	optionalTexts = `nullif(r.correlation_id, ''), nullif(r.causation_id, ''), nullif(r.tenant_id, ''),
	nullif(r.traceparent, ''), nullif(r.tracestate, ''), nullif(r.dedup_key, '')`

	// stepAndJoins reads a text that has the joins after the step, so records without joins
	// pass no list.
	stepAndJoins = `nullif(left(r.step, 36), '')::uuid, nullif(substr(r.step, 37), '')::uuid[]`

	// waitsForAndTurn reads a text that begins with a point if the record has a turn, so records
	// without one pass nothing.
	waitsForAndTurn = `nullif(ltrim(r.waits_for, '.'), '')::uuid, CASE WHEN r.waits_for LIKE '.%' THEN '.' || r.tenant_id END`

	// storedMetadata and storedPayload read a text of metadata that begins with a minus sign if the payload is nil. In the
	// text of a list NULL is a word if array_nulls of the session is off.
	storedMetadata = `nullif(ltrim(r.metadata, '-'), '')`
	storedPayload  = `CASE WHEN r.metadata LIKE '-%' THEN NULL ELSE r.payload END`

	returningID = ` RETURNING id`

	// returningTime returns the created_at of each row. It does not read the column, because a
	// publisher may lack the right to.
	returningTime = ` RETURNING statement_timestamp()`

	// A time is empty, a complete time, or a + and an interval after the server's now.
	dueValue = `CASE WHEN r.due = '' THEN now.at WHEN r.due LIKE '+%' THEN now.at + r.due::interval ELSE r.due::timestamptz END`
)

// single replaces the columns of r by the arguments from the third on, in the order of names.
func single(names, query string) string {
	var arguments []string
	for i, name := range strings.Split(strings.Join(strings.Fields(names), " "), ", ") {
		kind := "text"
		switch name {
		case "size", "line":
			kind = "bigint"
		case "payload":
			kind = "bytea"
		}
		arguments = append(arguments, "r."+name, fmt.Sprintf("$%d::%s", i+3, kind))
	}
	return strings.NewReplacer(arguments...).Replace(query)
}

func insertSteps(insert string, attach int) string {
	return `WITH inserted AS (` + insert + returningID + `)` + attached(attach) + ` SELECT statement_timestamp() FROM inserted`
}

// attached makes the inserted rows steps of joins. The lists of the steps start at the argument
// from.
func attached(from int) string {
	return `, attached AS (` + attachSteps(from) + ` WHERE m.step::uuid IN (SELECT id FROM inserted) ON CONFLICT (join_id, step) DO NOTHING)`
}

// insertNew inserts rows with dedup keys. The insert may return columns, for further queries
// (more) of the statement.
func insertNew(insert, returning, more string) string {
	return `WITH free AS (
	INSERT INTO {p:dedup} AS d (topic, dedup_key, expires_at, first_id)
	SELECT k.topic, k.dedup_key, statement_timestamp() + $21::bigint::float8 * interval '1 microsecond', k.first_id::uuid
	FROM unnest($22::text[], $23::text[], $24::text[]) AS k (topic, dedup_key, first_id)
	WHERE EXISTS (SELECT 1 FROM {p:meta} WHERE ` + sqlFits + `)
	ORDER BY 1, 2
	ON CONFLICT (topic, dedup_key) DO UPDATE SET expires_at = excluded.expires_at, first_id = excluded.first_id
		WHERE d.expires_at <= statement_timestamp()
	RETURNING topic, dedup_key),
inserted AS (` + insert + `
	AND (r.dedup_key = '' OR (r.topic, r.dedup_key) IN (SELECT topic, dedup_key FROM free))` + returning + `)` + more + `
SELECT EXISTS (SELECT 1 FROM {p:meta} WHERE ` + sqlFits + `), statement_timestamp(), '', ''
UNION ALL SELECT true, statement_timestamp(), topic, dedup_key FROM free`
}

// insertFrom inserts the rows of r.
func insertFrom(from, where string) string {
	return `INSERT INTO {p:records} (` + insertColumns + `)
SELECT ` + insertValues + `
FROM ` + from + `
CROSS JOIN LATERAL (SELECT statement_timestamp() AS at) AS now
CROSS JOIN LATERAL (SELECT ` + dueValue + ` AS due) AS d
WHERE ` + where
}

// Append writes all the records or none. See outmill.Writer.
func (s *Store) Append(ctx context.Context, records ...*outmill.Record) error {
	const operation = "append"
	tx, err := s.TxOf(ctx)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	if err := storekit.CheckRecords(records, s.config.MaxPayload); err != nil {
		return s.explain(ctx, operation, err)
	}
	if len(records) == 0 {
		return s.explain(ctx, operation, s.usable(ctx))
	}
	a, err := newAppending(s, records)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	if tx != nil {
		err = s.within(ctx, operation, tx, func(ctx context.Context, r runner) error { return a.explained(a.write(ctx, r)) })
	} else {
		err = s.explain(ctx, operation, a.explained(s.try(ctx, a.settings(), a.writeOwn)))
	}
	if err != nil {
		return err
	}
	a.Finish(ctx, s, tx != nil, s.logger, &s.notifier)
	return nil
}

// appending is the work of one Append. It may run more than once, and changes no record before
// Report.
type appending struct {
	*storekit.Appending
	s        *Store
	metadata []string
	// named are the ids that an earlier record may have.
	named []string
	// toRecords: the caller's snapshot is older than the log's activation.
	toRecords bool
	// missed counts the attempts at which the groups differed from the known ones.
	missed int
}

// missedBefore is how many attempts may find other groups than the known ones. The next load
// then keeps the groups from changing until the insert. Otherwise an append to a distant server
// would never succeed while many groups register each second.
const missedBefore = 3

// load reads the registered groups.
func (a *appending) load(ctx context.Context, r runner) (*storekit.RoutingTable, error) {
	if a.missed < missedBefore {
		return a.s.loadRoutes(ctx, r)
	}
	return a.s.loadRoutes(ctx, r, a.s.keepRoutes())
}

func newAppending(s *Store, records []*outmill.Record) (*appending, error) {
	a := &appending{Appending: storekit.NewAppending(records), s: s}
	for _, r := range records {
		if !r.ID.IsZero() && !fresh(r.ID) {
			a.named = append(a.named, r.ID.String())
		}
	}
	var err error
	if a.metadata, err = a.Metadata(rowLimits.Check); err != nil {
		return nil, err
	}
	return a, nil
}

// rowLimits are PostgreSQL's: see MostMaxPayload. The elements of a jsonb have 28
// bits for their size.
var rowLimits = storekit.RowLimits{Row: maxMessage, Metadata: 1<<28 - 1, PayloadTimes: 2}

const (
	// maxMessage is the largest size of a statement with its arguments. PostgreSQL's limit is 1
	// GiB.
	maxMessage = 1<<30 - 1<<20

	// copyBytes is the weight from which rows are streamed by COPY, which has no such limit.
	copyBytes = 64 << 20
)

// weight returns the size of the rows as arguments in text form.
func (r rows) weight() (sum int64) {
	for i := range r.list {
		sum += rowLimits.Weight(r.list[i].of, r.list[i].metadata)
	}
	return sum
}

// tooLarge refuses rows that are too large for one statement.
func tooLarge(weight int64) error {
	return &outmill.InvalidRecordError{Index: -1, Field: "payload", Reason: fmt.Sprintf(
		"of all records of the call, for all groups, makes a statement of %d bytes: PostgreSQL takes at most %d; append them in several "+
			"calls, or, without dedup keys, in a transaction of pgx", weight, maxMessage)}
}

// explained names the payload if PostgreSQL reports that a statement is too large. The limit
// cannot be checked beforehand, because it depends on how the driver sends the statement.
func (a *appending) explained(err error) error {
	if c := code(err); !a.large() || c != codeProgramLimit && c != codeInternal {
		return err
	}
	return fmt.Errorf("%w (%w)",
		&outmill.InvalidRecordError{Index: -1, Field: "payload",
			Reason: "makes the statement too large for this pool or transaction: use a smaller payload, or a pool that does not send " +
				"statements as text"}, err)
}

// large reports whether the payloads make a statement that is near a limit.
func (a *appending) large() bool {
	size := 0
	for _, r := range a.Records {
		size += len(r.Payload)
	}
	return size >= copyBytes
}

// settings returns the settings of a transaction that the store itself begins.
func (a *appending) settings() string {
	if a.large() {
		return sqlPatient
	}
	return sqlSettings
}

// writeOwn writes in a transaction that the store itself begins.
func (a *appending) writeOwn(ctx context.Context, t *txn) error {
	table := a.s.routes.Load()
	if table == nil || a.missed >= missedBefore {
		var err error
		if table, err = a.load(ctx, t); err != nil {
			return err
		}
	}
	if err := a.checkSteps(ctx, t); err != nil {
		return err
	}
	fits, err := a.put(ctx, table, t, t.finish)
	if err != nil || fits {
		return err
	}
	// Nothing was written: the groups have changed.
	a.s.routes.Forget(table)
	a.missed++
	return errRoutesChanged
}

// write writes in the caller's transaction.
func (a *appending) write(ctx context.Context, r runner) error {
	if err := a.checkSteps(ctx, r); err != nil {
		return err
	}
	return a.writeUnchecked(ctx, r)
}

// writeUnchecked is write for steps that are already checked.
func (a *appending) writeUnchecked(ctx context.Context, r runner) error {
	table := a.s.routes.Load()
	for range attempts {
		loaded := table == nil
		if loaded {
			var err error
			if table, err = a.load(ctx, r); err != nil {
				return err
			}
		}
		fits, err := a.put(ctx, table, r, r.run)
		if err != nil || fits {
			return err
		}
		// The old groups are of no use to other appends either, even if their generation is
		// higher.
		a.s.routes.Forget(table)
		table, a.toRecords = nil, loaded
		a.missed++
	}
	return errRoutesChanged
}

// send sends the last steps.
type send func(context.Context, ...step) error

// put writes the rows. It reports whether table has the groups that the transaction sees; if
// not, it has written nothing.
func (a *appending) put(ctx context.Context, table *storekit.RoutingTable, r runner, last send) (fits bool, err error) {
	rows := a.rows(table)
	var steps []step
	if payload, due := a.s.notices.Due(storekit.TopicsOf(a.Records)); due {
		steps = append(steps, a.s.notice(payload))
	}
	logged := a.s.logged(rows.list) && len(a.named) == 0 && !a.toRecords
	if err := a.checkNames(ctx, r); err != nil {
		return false, err
	}
	weight := rows.weight()
	if to := r.copier(); to != nil && len(a.First) == 0 && (len(rows.list) >= copyFrom || len(rows.list) > 1 && weight >= copyBytes) {
		if logged {
			fits, err = a.copyLog(ctx, table, rows.list, r, to)
		} else {
			fits, err = a.copy(ctx, rows, r, to)
		}
		if err != nil || !fits {
			return false, err
		}
		return true, last(ctx, append(a.attach(table), steps...)...)
	}
	if weight > maxMessage {
		return false, tooLarge(weight)
	}
	return a.insert(ctx, rows, logged, a.stepsOfJoins(table), steps, last)
}

func (a *appending) insert(ctx context.Context, rows rows, logged bool, joining joinSteps, steps []step, last send) (fits bool, err error) {
	if len(a.First) > 0 {
		err = last(ctx, append([]step{a.insertNew(rows, logged, joining, &fits)}, steps...)...)
		return fits, err
	}
	var written int
	write := step{row: func(scan func(...any) error) error {
		written++
		return scan(&a.CreatedAt)
	}}
	switch one, joins := len(rows.list) == 1, len(joining.joins) > 0; {
	case joins && logged:
		write.template, write.args = sqlLogInsertSteps, append(append(rows.columns(), rows.lines()), joining.args()...)
	case joins:
		write.template, write.args = sqlInsertSteps, append(rows.columns(), joining.args()...)
	case one && logged:
		write.template, write.args = sqlLogInsertOne, rows.onlyLogged()
	case one:
		write.template, write.args = sqlInsertOne, rows.only()
	case logged:
		write.template, write.args = sqlLogInsert, append(rows.columns(), rows.lines())
	default:
		write.template, write.args = sqlInsert, rows.columns()
	}
	err = last(ctx, append([]step{write}, steps...)...)
	return written == len(rows.list), err
}

func (a *appending) insertNew(rows rows, logged bool, joining joinSteps, fits *bool) step {
	var topics, keys, ids []string
	for key, i := range a.First {
		a.Duplicate[i] = true
		topics, keys, ids = append(topics, key.Topic), append(keys, key.Key), append(ids, a.IDs[i].String())
	}
	template, args := sqlInsertNew, append(rows.columns(), a.s.config.DedupWindow.Microseconds(), topics, keys, ids)
	withSteps := sqlInsertNewSteps
	if logged {
		template, withSteps, args = sqlLogInsertNew, sqlLogInsertNewSteps, append(args, rows.lines())
	}
	if len(joining.joins) > 0 {
		template, args = withSteps, append(args, joining.args()...)
	}
	return step{
		template: template,
		args:     args,
		row: func(scan func(...any) error) error {
			var free storekit.DedupKey
			if err := scan(fits, &a.CreatedAt, &free.Topic, &free.Key); err != nil || free.Topic == "" {
				return err
			}
			a.Duplicate[a.First[free]] = false
			return nil
		},
	}
}
