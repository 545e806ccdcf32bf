package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
)

const idsAbout = `n rows wait in PostgreSQL's log, and none is a record. Their ids are those of eight publishers whose clocks differ by up to an hour,
and each segment has one id of 1970. The rows are inserted by SQL, since no publisher has such clocks. Then operators look for single ids, delete
these, and read pages of 100 behind these. So what Delete and the pages read of an id is in memory. The numbers are milliseconds, each in a transaction of its own.

  get_ms          Get of an id, median
  get_max_ms      the slowest of them
  delete_ms       Delete of an id that waits, median
  delete_max_ms   the slowest of them
  list_ms         List from a random id on, median
  list_max_ms     the slowest of them
  find_ms         Find with the key of 1 % of the rows, from a random id on, median; a page may end early, after 10,000 rows
  find_max_ms     the slowest of them
  log_mib         the log without its indexes
  index_mib       the index of the ids`

func init() {
	scenarios = append(scenarios, scenario{
		name: "ids", help: "finding ids and pages among millions of rows that wait in PostgreSQL",
		about: idsAbout, n: 10_000_000, short: 3_000, measure: measureIDs,
	})
}

const (
	idsTopic = "orders"
	// idsSegments is the number of segments of the log.
	idsSegments = 3
	// idsLooks is the number of calls of each kind in a round.
	idsLooks = 200
)

// sqlIDs fills a segment with $2 rows: an id has the milliseconds of its clock, and random bits. The first one is of 1970.
const sqlIDs = `INSERT INTO outmill.log_%d (created_at, event, id, topic, key, metadata, payload)
SELECT ($1::bigint + i / 10) * 1000, (SELECT last FROM outmill.events), (lpad(to_hex(CASE i WHEN 0 THEN 1 ELSE $1::bigint + i / 10 - i %% 8 * 450000 END), 12, '0')
	|| '7' || substr(h, 1, 3) || '8' || substr(h, 4, 15))::uuid, $3, 'customer-' || i %% 100, '{"name":"order.placed"}', decode(repeat('78', $4), 'hex')
FROM (SELECT i, md5($1::bigint || '-' || i) AS h FROM generate_series(0, $2::bigint - 1) AS i) AS s`

func measureIDs(ctx context.Context, b *bench) (err error) {
	pool, err := b.database(ctx, "ids")
	if err != nil {
		return err
	}
	store, err := outbox(ctx, pool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := b.fill(ctx, store, "", idsTopic, 0, true); err != nil {
		return err
	}
	begin := time.Now().Add(-24 * time.Hour).UnixMilli()
	for segment := range idsSegments {
		rows := b.n / idsSegments
		if _, err := pool.Exec(ctx, fmt.Sprintf(sqlIDs, segment), begin+int64(segment*rows/10), rows, idsTopic, b.size); err != nil {
			return fmt.Errorf("fill segment %d: %w", segment, err)
		}
		b.say("%d of %d rows", (segment+1)*rows, b.n)
	}
	if _, err := pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	for range b.rounds {
		if err := b.lookForIDs(ctx, pool, store); err != nil {
			return err
		}
	}
	return b.idSizes(ctx, pool)
}

// lookForIDs measures a round, and adds its results.
func (b *bench) lookForIDs(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store) error {
	ids, err := sampleIDs(ctx, pool, b.rounds)
	if err != nil {
		return err
	}
	for _, look := range []struct {
		field, title string
		call         func(id outmill.WorkItemID) error
	}{
		{"get", "Get", func(id outmill.WorkItemID) error {
			_, err := store.Get(ctx, id)
			return err
		}},
		{"list", "List of 100", func(id outmill.WorkItemID) error {
			_, err := store.List(ctx, outmill.ListQuery{After: id})
			return err
		}},
		{"find", "Find of 100", func(id outmill.WorkItemID) error {
			_, err := store.Find(ctx, outmill.ListQuery{Topic: idsTopic, Key: "customer-7", After: id})
			return err
		}},
		{"delete", "Delete", func(id outmill.WorkItemID) error {
			n, err := store.Delete(ctx, id)
			if err == nil && n != 1 {
				err = fmt.Errorf("deleted %d records", n)
			}
			return err
		}},
	} {
		if err := b.timeOf(look.field, look.title, ids, look.call); err != nil {
			return fmt.Errorf("%s: %w", look.title, err)
		}
	}
	return nil
}

// timeOf adds the median and the largest time of a call for each id to the results.
func (b *bench) timeOf(field, title string, ids []outmill.WorkItemID, call func(id outmill.WorkItemID) error) error {
	spent := make([]time.Duration, len(ids))
	for i, id := range ids {
		began := time.Now()
		if err := call(id); err != nil {
			return err
		}
		spent[i] = time.Since(began)
	}
	slices.Sort(spent)
	b.results.add(field+"_ms", title+", median ms", millis(spent[len(spent)/2]))
	b.results.add(field+"_max_ms", title+", slowest ms", millis(spent[len(spent)-1]))
	return nil
}

// sampleIDs returns random ids of rows that are not deleted.
func sampleIDs(ctx context.Context, pool *pgxpool.Pool, rounds int) ([]outmill.WorkItemID, error) {
	var ids []outmill.WorkItemID
	var low, high int64
	if err := pool.QueryRow(ctx, "SELECT min(pos), max(pos) FROM outmill.log").Scan(&low, &high); err != nil {
		return nil, err
	}
	if high-low < 3*idsLooks*int64(rounds) {
		return nil, fmt.Errorf("%d rows are too few for %d rounds: give a larger -n", high-low, rounds)
	}
	for seen := map[int64]bool{}; len(ids) < idsLooks; {
		pos := low + rand.Int64N(high-low)
		if seen[pos] {
			continue
		}
		seen[pos] = true
		var id [16]byte
		if err := pool.QueryRow(ctx, `SELECT id FROM outmill.log WHERE topic = $1 AND pos = $2
			AND NOT EXISTS (SELECT 1 FROM outmill.skips AS s WHERE s.topic = $1 AND s.pos = $2)`, idsTopic, pos).Scan(&id); err != nil {
			if errors.Is(err, pgx.ErrNoRows) {
				continue
			}
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (b *bench) idSizes(ctx context.Context, pool *pgxpool.Pool) error {
	var table, index float64
	err := pool.QueryRow(ctx, `SELECT sum(pg_table_size(c.oid)), sum((SELECT sum(pg_relation_size(i.indexrelid)) FROM pg_index AS i
		WHERE i.indrelid = c.oid AND i.indkey[0] = (SELECT attnum FROM pg_attribute WHERE attrelid = c.oid AND attname = 'id')))
		FROM pg_class AS c WHERE c.oid IN ('outmill.log_0'::regclass, 'outmill.log_1'::regclass, 'outmill.log_2'::regclass)`).Scan(&table, &index)
	b.results.add("log_mib", "the log, MiB", table/mib)
	b.results.add("index_mib", "the index of ids, MiB", index/mib)
	return err
}
