package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	// logColumns leaves out the columns that have a default: xid and pos.
	logColumns = `line, id, created_at, size, segment, grp, topic, key, message_id, correlation_id, causation_id, tenant_id,
	traceparent, tracestate, dedup_key, step, joins, metadata, payload`

	// logNames are the arguments of a single row. Records of the log have no time and do not
	// wait for a join.
	logNames = `id, topic, key, size, message_id, correlation_id, causation_id, tenant_id, traceparent, tracestate,
	dedup_key, metadata, payload, grp, step, line`

	// sqlFitsLog also gives the transaction its number, if it has none, before its rows get
	// their places.
	sqlFitsLog = sqlFits + ` AND lane = 'log' AND pg_current_xact_id() >= '3'::xid8`

	sqlCopyLogHeader = `SELECT EXISTS (SELECT 1 FROM {p:meta} WHERE ` + sqlFitsLog + `), clock_timestamp(), (SELECT segment FROM {p:meta})`
)

var (
	sqlLogInsert      = logInsertAll(`$21::bigint[]`) + returningTime
	sqlLogInsertOne   = single(logNames, logInsertFrom(`{p:meta}`, `segment`, sqlFitsLog)+returningTime)
	sqlLogInsertSteps = insertSteps(logInsertAll(`$21::bigint[]`), 22)

	sqlLogNew            = logInsertAll(`$25::bigint[]`)
	sqlLogInsertNew      = insertNew(sqlLogNew, "", "")
	sqlLogInsertNewSteps = insertNew(sqlLogNew, returningID, attached(26))
)

func logInsertAll(lines string) string {
	return logInsertFrom(`unnest(`+insertArrays+`, `+lines+`) AS r (`+insertNames+`, line)`,
		`(SELECT segment FROM {p:meta})`, `EXISTS (SELECT 1 FROM {p:meta} WHERE `+sqlFitsLog+`)`)
}

// logInsertFrom inserts the rows of r.
func logInsertFrom(from, segment, where string) string {
	return `INSERT INTO {p:log} (` + logColumns + `)
SELECT r.line, r.id::uuid, statement_timestamp(), r.size, ` + segment + `, r.grp, r.topic, r.key,
	r.message_id, ` + optionalTexts + `,
	` + stepAndJoins + `, ` + storedMetadata + `::json, ` + storedPayload + `
FROM ` + from + `
WHERE ` + where
}

var sqlInLog = `SELECT count(*) FROM (` + fmt.Sprintf(logAsRecords, `(`+passedOfLog+`WHERE l.id = ANY ($1::text[]::uuid[]))`, ``) + `) AS r`

var errIDTaken = errors.New("a record has this id already")

// checkNames refuses ids that records of the log have. A unique index has the ids of all other
// records. The log has no unique index over all segments, so appends with ids of their own go
// to the records.
func (a *appending) checkNames(ctx context.Context, r runner) error {
	if len(a.named) == 0 || !a.s.readsLog() {
		return nil
	}
	var taken int
	err := r.run(ctx, step{template: sqlInLog, args: []any{a.named}, row: func(scan func(...any) error) error { return scan(&taken) }})
	if err == nil && taken > 0 {
		return errIDTaken
	}
	return err
}

// freshFor is the age up to which an id is not searched for in the whole log: the index of the
// current segment finds it.
const freshFor = time.Minute

// fresh reports whether an id was made just now, as NewWorkItemID makes it.
func fresh(id outmill.WorkItemID) bool {
	if id[6]>>4 != 7 {
		return false
	}
	made := int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 | int64(id[5])
	age := time.Since(time.UnixMilli(made))
	return age > -freshFor && age < freshFor
}

// logged reports whether the rows go to the log. The log takes records that are due at once,
// never expire, finish no join and have a group. If one record of an append does not fit, all
// of them go to the records, so that they keep their order.
func (s *Store) logged(list []row) bool {
	if s.lane() != LaneLog || s.config.Lane == LaneRows {
		return false
	}
	for i := range list {
		of := list[i].of
		if list[i].group == "" || of.Delay > 0 || !of.DueAt.IsZero() || of.TimeToLive > 0 || !of.ExpiresAt.IsZero() || !of.WaitsFor.IsZero() {
			return false
		}
	}
	return true
}

func (r *row) line() int64 { return lineOf(r.group, r.of.Topic) }

func (r rows) lines() []int64 { return column(r.list, (*row).line) }

// copyLog is copy for the log.
func (a *appending) copyLog(ctx context.Context, table *storekit.RoutingTable, list []row, r runner, to copier) (fits bool, err error) {
	source := &logSource{list: list, lines: map[[2]string]int64{}}
	err = r.run(ctx, step{
		template: sqlCopyLogHeader, args: []any{table.Generation, schemaVersion},
		row: func(scan func(...any) error) error { return scan(&fits, &source.now, &source.segment) },
	})
	if err != nil || !fits {
		return false, err
	}
	a.CreatedAt = source.now
	_, err = to.CopyFrom(ctx, pgx.Identifier{a.s.config.Schema, a.s.config.TablePrefix + "log"}, copyLogColumns, source)
	return err == nil, err
}

var copyLogColumns = []string{
	"line", "id", "created_at", "size", "segment", "grp", "topic", "key", "message_id", "correlation_id", "causation_id", "tenant_id",
	"traceparent", "tracestate", "dedup_key", "step", "joins", "metadata", "payload",
}

// logSource returns the rows one by one.
type logSource struct {
	list    []row
	now     time.Time
	segment int16
	lines   map[[2]string]int64
	next    int
	values  [19]any
}

func (c *logSource) Next() bool {
	c.next++
	return c.next <= len(c.list)
}

func (c *logSource) Err() error { return nil }

func (c *logSource) Values() ([]any, error) {
	r := &c.list[c.next-1]
	of := r.of
	var metadata, step, joins any
	if r.metadata != "" {
		metadata = r.metadata
	}
	if r.step != "" {
		step, joins = r.step, r.joins()
	}
	name := [2]string{r.group, of.Topic}
	line, known := c.lines[name]
	if !known {
		line = r.line()
		c.lines[name] = line
	}
	c.values = [...]any{
		line, [16]byte(r.id), c.now, r.size, c.segment, r.group, of.Topic, of.Key, r.messageID, sqlkit.OrNull(of.CorrelationID),
		sqlkit.OrNull(of.CausationID), sqlkit.OrNull(of.TenantID),
		sqlkit.OrNull(of.TraceParent), sqlkit.OrNull(of.TraceState), sqlkit.OrNull(of.DedupKey), step, joins, metadata, of.Payload,
	}
	return c.values[:], nil
}
