package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
)

// publishAtOnce are the sizes of calls that COPY and INSERT are compared at.
var publishAtOnce = []int{50, 100, 200, 500, 1000}

// sizes writes by hand what the store could write either way, since its
// own threshold is fixed.
func (p *publishing) sizes(ctx context.Context) error {
	table := &publishOurs{lane: p.b.lane, pool: p.quick}
	defer func() { _ = table.close() }()
	var sides []side
	for _, size := range publishAtOnce {
		calls := max(1, p.b.n/5/size)
		s := &sized{p: p, list: records(publishTopic, 0, size, p.b.size, true)}
		sides = append(sides,
			side{field: fmt.Sprintf("size_insert_%d_per_s", size), title: fmt.Sprintf("INSERT of %d", size), n: calls * size, prepare: p.empty(table.prepare), run: times(calls, s.insert)},
			side{field: fmt.Sprintf("size_copy_%d_per_s", size), title: fmt.Sprintf("COPY of %d", size), n: calls * size, prepare: p.empty(table.prepare), run: times(calls, s.copy)})
	}
	return p.b.compare(ctx, sides...)
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

type sized struct {
	p    *publishing
	list []*outmill.Record
}

const (
	// sizedFits is what the store must know before it writes: whether the groups
	// and the schema are those that the rows were made for.
	sizedFits = `SELECT EXISTS (SELECT 1 FROM outmill.meta WHERE only_row AND version > 0), clock_timestamp()`

	sizedInsert = `INSERT INTO outmill.records (id, grp, topic, key, stage, due_at, next_at, created_at, size, message_id, metadata, payload)
SELECT r.id::uuid, substr(r.grp, 2), r.topic, r.key, 0, now(), now(), now(), r.size, r.message_id, nullif(r.metadata, '')::jsonb, r.payload
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[], $8::bytea[], $9::text[], $10::text[],
	$11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::text[])
	AS r (id, grp, topic, key, size, message_id, metadata, payload, correlation, causation, tenant, traceparent, tracestate, dedup, due, expires)
WHERE EXISTS (SELECT 1 FROM outmill.meta WHERE only_row AND version > 0)`
)

func (s *sized) insert(ctx context.Context) error {
	n := len(s.list)
	ids, groups, topics, keys, messageIDs, metadata := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	sizes, payloads, none := make([]int64, n), make([][]byte, n), make([]string, n)
	for i, r := range s.list {
		text, err := json.Marshal(r.Metadata)
		if err != nil {
			return err
		}
		ids[i], groups[i], topics[i], keys[i], messageIDs[i] = outmill.NewWorkItemID().String(), "g", r.Topic, r.Key, r.MessageID
		metadata[i], sizes[i], payloads[i] = string(text), int64(r.Size()), r.Payload
	}
	return pgx.BeginFunc(ctx, s.p.quick, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sizedInsert, ids, groups, topics, keys, sizes, messageIDs, metadata, payloads, none, none, none, none, none, none, none, none)
		return err
	})
}

func (s *sized) copy(ctx context.Context) error {
	return pgx.BeginFunc(ctx, s.p.quick, func(tx pgx.Tx) error {
		var fits bool
		if err := tx.QueryRow(ctx, sizedFits).Scan(&fits, nil); err != nil {
			return err
		}
		return copyRows(ctx, tx, pgx.Identifier{"outmill", "records"}, s.list)
	})
}
