package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
)

// publishAtOnce are the sizes of calls at which COPY and INSERT are compared.
var publishAtOnce = []int{50, 100, 200, 500, 1000}

// sizes writes the rows of the store by hand, with COPY and with INSERT, because the threshold of
// the store is fixed.
func (p *publishing) sizes(ctx context.Context) error {
	table := &publishOurs{lane: p.b.lane, pool: p.quick}
	defer func() { _ = table.close() }()
	to, err := p.laneTable(ctx, table)
	if err != nil {
		return err
	}
	var sides []side
	for _, size := range publishAtOnce {
		calls := max(1, p.b.n/5/size)
		s := &sized{p: p, list: records(publishTopic, 0, size, p.b.size, true), to: to}
		sides = append(sides,
			side{field: fmt.Sprintf("size_insert_%d_per_s", size), title: fmt.Sprintf("INSERT of %d", size), n: calls * size,
				prepare: p.empty(table.prepare), run: times(calls, s.insert)},
			side{field: fmt.Sprintf("size_copy_%d_per_s", size), title: fmt.Sprintf("COPY of %d", size), n: calls * size,
				prepare: p.empty(table.prepare), run: times(calls, s.copy)})
	}
	return p.b.compare(ctx, sides...)
}

// laneTable returns the table of the measured lane.
func (p *publishing) laneTable(ctx context.Context, store *publishOurs) (*laneTable, error) {
	if err := store.prepare(ctx); err != nil {
		return nil, err
	}
	logged, err := writesLog(ctx, p.quick, p.b.lane)
	if logged {
		return &logTable, err
	}
	return &recordsTable, err
}

func copyWinsFrom(r *results) float64 {
	from := 0
	for i := len(publishAtOnce) - 1; i >= 0; i-- {
		size := publishAtOnce[i]
		if r.median(fmt.Sprintf("size_copy_%d_per_s", size)) <= r.median(fmt.Sprintf("size_insert_%d_per_s", size)) {
			break
		}
		from = size
	}
	return float64(from)
}

// sized writes into the table of a lane.
type sized struct {
	p    *publishing
	list []*outmill.Record
	to   *laneTable
}

// laneTable describes how the store writes to a lane.
type laneTable struct {
	name pgx.Identifier
	// fits is a query of the store before it copies: whether the groups and the schema have not
	// changed since the rows were made.
	fits    string
	columns []string
	row     func(*outmill.Record, time.Time) ([]any, error)
	insert  string
	// lined says that a row also has a number for its group and topic.
	lined bool
}

const (
	sizedFits = `EXISTS (SELECT 1 FROM outmill.meta WHERE only_row AND version > 0)`

	// sizedFitsLog also gives the transaction its number before its rows have
	// their places.
	sizedFitsLog = `EXISTS (SELECT 1 FROM outmill.meta WHERE only_row AND version > 0 AND pg_current_xact_id() >= '3'::xid8)`

	sizedArrays = `$1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::bytea[], $9::text[], $10::text[],
	$11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[]`

	sizedNames = `id, grp, topic, key, size, message_id, metadata, payload, correlation, causation, tenant, traceparent, tracestate, dedup, due, expires`
)

var recordsTable = laneTable{
	name: pgx.Identifier{"outmill", "records"}, columns: bareColumns, row: bareRow,
	fits: `SELECT ` + sizedFits + `, clock_timestamp()`,
	insert: `INSERT INTO outmill.records (id, grp, topic, key, stage, due_at, next_at, created_at, size, message_id, metadata, payload)
SELECT r.id::uuid, substr(r.grp, 2), r.topic, r.key, 0, now(), now(), now(), r.size, r.message_id, nullif(r.metadata, '')::jsonb, r.payload
FROM unnest(` + sizedArrays + `) AS r (` + sizedNames + `) WHERE ` + sizedFits,
}

var logTable = laneTable{
	name: pgx.Identifier{"outmill", "log"}, row: logRow, lined: true,
	columns: []string{
		"line", "id", "created_at", "size", "segment", "grp", "topic", "key", "message_id", "correlation_id", "causation_id", "tenant_id",
		"traceparent", "tracestate", "dedup_key", "step", "metadata", "payload",
	},
	fits: `SELECT ` + sizedFitsLog + `, clock_timestamp(), (SELECT segment FROM outmill.meta)`,
	insert: `INSERT INTO outmill.log (line, id, created_at, size, segment, grp, topic, key, message_id, correlation_id, causation_id,
		tenant_id,
	traceparent, tracestate, dedup_key, metadata, payload)
SELECT r.line, r.id::uuid, now(), r.size, (SELECT segment
FROM outmill.meta), substr(r.grp, 2), r.topic, r.key, r.message_id, nullif(r.correlation, ''), nullif(r.causation, ''), nullif(r.tenant,
''),
	nullif(r.traceparent, ''), nullif(r.tracestate, ''), nullif(r.dedup, ''), nullif(r.metadata, '')::jsonb, r.payload
FROM unnest(` + sizedArrays + `, $17::bigint[]) AS r (` + sizedNames + `, line) WHERE ` + sizedFitsLog,
}

const (
	// sizedLine is the number of the group and the topic.
	sizedLine = int64(1)
	// firstSegment gets all rows until the first claim.
	firstSegment = int16(0)
)

// logRow is bareRow for the log.
func logRow(r *outmill.Record, now time.Time) ([]any, error) {
	metadata, err := json.Marshal(r.Metadata)
	if err != nil {
		return nil, err
	}
	return []any{
		sizedLine, [16]byte(outmill.NewWorkItemID()), now, r.Size(), firstSegment, "", r.Topic, r.Key, r.MessageID, nil, nil, nil,
		nil, nil, nil, nil, metadata, r.Payload,
	}, nil
}

func (s *sized) insert(ctx context.Context) error {
	n := len(s.list)
	ids, groups, topics, keys, messageIDs, metadata := make([]string, n), make([]string, n), make([]string, n), make([]string, n),
		make([]string, n), make([]string, n)
	sizes, payloads, none := make([]int64, n), make([][]byte, n), make([]string, n)
	for i, r := range s.list {
		text, err := json.Marshal(r.Metadata)
		if err != nil {
			return err
		}
		ids[i], groups[i], topics[i], keys[i], messageIDs[i] = outmill.NewWorkItemID().String(), "g", r.Topic, r.Key, r.MessageID
		metadata[i], sizes[i], payloads[i] = string(text), int64(r.Size()), r.Payload
	}
	args := []any{ids, groups, topics, keys, sizes, messageIDs, metadata, payloads, none, none, none, none, none, none, none, none}
	if s.to.lined {
		args = append(args, slices.Repeat([]int64{sizedLine}, n))
	}
	return pgx.BeginFunc(ctx, s.p.quick, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.to.insert, args...)
		return err
	})
}

func (s *sized) copy(ctx context.Context) error {
	return pgx.BeginFunc(ctx, s.p.quick, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.to.fits); err != nil {
			return err
		}
		return copyRows(ctx, tx, s.to.name, s.to.columns, s.list, s.to.row)
	})
}
