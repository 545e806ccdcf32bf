package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const mib = 1 << 20

// sizes has the sizes of the tables of a schema, and of their indexes, in bytes.
type sizes struct{ table, index int64 }

// sizesOf adds up all tables, including partitions and values that are stored out of line.
func sizesOf(ctx context.Context, pool *pgxpool.Pool, schema string) (s sizes, err error) {
	err = pool.QueryRow(ctx, `SELECT sum(pg_table_size(c.oid))::bigint, sum(pg_indexes_size(c.oid))::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'`, schema).Scan(&s.table, &s.index)
	return s, err
}

// addSizes records the size of a schema's tables, and of their indexes.
func (b *bench) addSizes(ctx context.Context, pool *pgxpool.Pool, schema, prefix string) error {
	s, err := sizesOf(ctx, pool, schema)
	if err != nil {
		return err
	}
	b.results.add(prefix+"table_mib", titled(prefix, "tables, MiB"), float64(s.table)/mib)
	b.results.add(prefix+"index_mib", titled(prefix, "indexes, MiB"), float64(s.index)/mib)
	b.results.add(prefix+"total_mib", titled(prefix, "tables and indexes, MiB"), float64(s.table+s.index)/mib)
	return nil
}

// addVacuumed records the size of a schema after a VACUUM of the tables that autovacuum would
// process, one after the other.
func (b *bench) addVacuumed(ctx context.Context, pool *pgxpool.Pool, schema, prefix string) error {
	rows, err := pool.Query(ctx, `SELECT format('VACUUM %I.%I', n.nspname, c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'`, schema)
	if err != nil {
		return err
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for i := 0; i < len(statements) && err == nil; i++ {
		_, err = pool.Exec(ctx, statements[i])
	}
	if err != nil {
		return err
	}
	s, err := sizesOf(ctx, pool, schema)
	b.results.add(prefix+"vacuumed_mib", titled(prefix, "after a VACUUM, MiB"), float64(s.table+s.index)/mib)
	return err
}

// deadRows counts the rows of a schema that were updated or deleted since the tables were made,
// including rows of values that are stored out of line. Each leaves a dead row until its table is
// vacuumed or truncated. The server counts them when sessions end, or a little later.
func deadRows(ctx context.Context, pool *pgxpool.Pool, schema string) (int64, error) {
	const steady = time.Second
	pool.Reset()
	last := int64(-1)
	for {
		var n int64
		err := pool.QueryRow(ctx, `SELECT coalesce(sum(s.n_tup_upd + s.n_tup_del), 0)::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_stat_all_tables s ON s.relid IN (c.oid, c.reltoastrelid)
WHERE n.nspname = $1 AND c.relkind = 'r'`, schema).Scan(&n)
		if err != nil || n == last {
			return n, err
		}
		last = n
		if err := sleep(ctx, steady); err != nil {
			return 0, err
		}
	}
}

// bareInserts are the inserts that every outbox needs.
type bareInserts struct {
	b    *bench
	pool *pgxpool.Pool
}

func (i *bareInserts) measure(ctx context.Context, n int) error {
	if _, err := i.pool.Exec(ctx, `CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	topic text NOT NULL, key text NOT NULL, message_id text NOT NULL, metadata jsonb, payload bytea NOT NULL)`); err != nil {
		return err
	}
	written, err := walOf(ctx, i.pool, func() error { return i.insert(ctx, n) })
	if err != nil {
		return err
	}
	i.b.results.add("bare_wal_per_msg", "bytes of WAL per message, bare INSERT", written/float64(n))
	return nil
}

func (i *bareInserts) insert(ctx context.Context, n int) error {
	for from := 0; from < n; from += appendAtOnce {
		var topics, keys, ids, metadata []string
		var payloads [][]byte
		for _, r := range records("bloat", from, min(appendAtOnce, n-from), i.b.size, true) {
			text, err := json.Marshal(r.Metadata)
			if err != nil {
				return err
			}
			topics, keys, ids = append(topics, r.Topic), append(keys, r.Key), append(ids, r.MessageID)
			metadata, payloads = append(metadata, string(text)), append(payloads, r.Payload)
		}
		_, err := i.pool.Exec(ctx, `INSERT INTO bare (topic, key, message_id, metadata, payload)
SELECT topic, key, id, metadata::jsonb, payload
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[]) AS r (topic, key, id, metadata, payload)`,
			topics, keys, ids, metadata, payloads)
		if err != nil {
			return err
		}
	}
	return nil
}
