package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outmill/outmill"
)

const publishAbout = `Messages are published to PostgreSQL (fsync on) by one client, each call in a transaction that the client begins and
commits, into tables that are empty at the start of each round. Messages have keys, and a group reads their topic. The
hand-written INSERT and COPY write the columns of a record into a table with only its primary key, the id. A row of the log is
16 bytes shorter.

One message per transaction, n/5 of them with synchronous_commit off, so that overhead shows:

  outmill_single_per_s          Outmill's publisher in a pgx.Tx
  insert_single_per_s           a hand-written INSERT of the same columns, into a table with only its primary key
  watermill_single_per_s        watermill-sql's publisher in a *sql.Tx, on the same pool
  river_single_per_s            River's InsertTx
  outmill_append_single_per_s   Outmill's store alone, in a transaction of its own
  single_ratio                  Outmill's time / the INSERT's time: 1 is no overhead

The same n/50 times with synchronous_commit on:

  outmill_single_durable_per_s    Outmill
  insert_single_durable_per_s     INSERT
  watermill_single_durable_per_s  watermill-sql
  river_single_durable_per_s      River
  single_durable_ratio            Outmill's time / the INSERT's time

n messages, 1,000 per transaction, synchronous_commit on:

  outmill_bulk_per_s          Outmill's publisher in a pgx.Tx
  outmill_bulk_unkeyed_per_s  the same where messages have no key
  outmill_append_bulk_per_s   Outmill's store alone, in a transaction of its own
  copy_bulk_per_s             a hand-written COPY of the same columns, into a table with only its primary key
  watermill_bulk_per_s        watermill-sql's publisher in a *sql.Tx: one INSERT of 1,000 rows
  river_bulk_per_s            River's InsertManyFastTx, which uses COPY
  river_bulk_insert_per_s     River's InsertManyTx
  bulk_ratio                  outmill_bulk / copy_bulk`

func init() {
	scenarios = append(scenarios, scenario{
		name: "publish", help: "publishing to PostgreSQL, one by one and in bulk, compared with INSERT, COPY, watermill-sql and River",
		about: publishAbout, n: 100_000, short: 2_000, measure: measurePublish,
	})
}

const (
	publishTopic = "orders"
	bulk         = 1000
)

func measurePublish(ctx context.Context, b *bench) error {
	durable, err := b.database(ctx, "publish")
	if err != nil {
		return err
	}
	quick, err := withoutWaiting(ctx, durable)
	if err != nil {
		return err
	}
	defer quick.Close()
	durableDB, quickDB := stdlib.OpenDBFromPool(durable), stdlib.OpenDBFromPool(quick)
	defer func() { _, _ = durableDB.Close(), quickDB.Close() }()
	queue, err := newRiver(ctx, quick)
	if err != nil {
		return err
	}
	p := &publishing{b: b, durable: durable, quick: quick, durableDB: durableDB, quickDB: quickDB, queue: queue}
	for _, part := range []func(context.Context) error{p.singles, p.durableSingles, p.inBulk} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	r := &b.results
	r.ratio("single_ratio", "Outmill's time / INSERT's", "insert_single_per_s", "outmill_single_per_s")
	r.ratio("single_durable_ratio", "Outmill's time / INSERT's, durable", "insert_single_durable_per_s", "outmill_single_durable_per_s")
	r.ratio("bulk_ratio", "Outmill / COPY", "outmill_bulk_per_s", "copy_bulk_per_s")
	return nil
}

// withoutWaiting returns a second pool on the database, whose commits do not
// wait for the disk.
func withoutWaiting(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Pool, error) {
	config := pool.Config()
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	return pgxpool.NewWithConfig(ctx, config)
}

// publishing has what the sides share.
type publishing struct {
	b *bench
	// quick is a pool whose commits do not wait for the disk.
	durable, quick     *pgxpool.Pool
	durableDB, quickDB *sql.DB
	queue              *riverPeer
}

// empty returns a prepare that first removes the tables of all sides and the dirty pages.
// Otherwise autovacuum would process them while other sides run.
func (p *publishing) empty(then func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if err := p.queue.clear(ctx); err != nil {
			return err
		}
		for _, statement := range []string{"DROP SCHEMA IF EXISTS outmill CASCADE", "DROP TABLE IF EXISTS bare, watermill_" + publishTopic} {
			if _, err := p.durable.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		if err := then(ctx); err != nil {
			return err
		}
		_, err := p.durable.Exec(ctx, "CHECKPOINT")
		return err
	}
}

func (p *publishing) singles(ctx context.Context) error {
	n := max(1, p.b.n/5)
	c := p.on(p.quick, p.quickDB, 1)
	defer func() { _ = c.ours.close() }()
	return p.b.compare(ctx,
		side{field: "outmill_single_per_s", title: "Outmill, single", n: n, prepare: p.empty(c.ours.prepare), run: times(n, c.ours.publish)},
		side{field: "insert_single_per_s", title: "INSERT, single", n: n, prepare: p.empty(c.bare.prepare), run: times(n, c.bare.insert)},
		side{field: "watermill_single_per_s", title: "watermill-sql, single", n: n, prepare: p.empty(c.watermill.prepare),
			run: times(n, c.watermill.publish)},
		side{field: "river_single_per_s", title: "River, single", n: n, prepare: p.empty(c.river.prepare), run: times(n, c.river.insertOne)},
		side{field: "outmill_append_single_per_s", title: "Outmill's store, single", n: n, prepare: p.empty(c.ours.prepare),
			run: times(n, c.ours.append)},
	)
}

func (p *publishing) durableSingles(ctx context.Context) error {
	n := max(1, p.b.n/50)
	c := p.on(p.durable, p.durableDB, 1)
	defer func() { _ = c.ours.close() }()
	return p.b.compare(ctx,
		side{field: "outmill_single_durable_per_s", title: "Outmill, single, durable", n: n, prepare: p.empty(c.ours.prepare),
			run: times(n, c.ours.publish)},
		side{field: "insert_single_durable_per_s", title: "INSERT, single, durable", n: n, prepare: p.empty(c.bare.prepare),
			run: times(n, c.bare.insert)},
		side{field: "watermill_single_durable_per_s", title: "watermill-sql, single, durable", n: n, prepare: p.empty(c.watermill.prepare),
			run: times(n, c.watermill.publish)},
		side{field: "river_single_durable_per_s", title: "River, single, durable", n: n, prepare: p.empty(c.river.prepare),
			run: times(n, c.river.insertOne)},
	)
}

func (p *publishing) inBulk(ctx context.Context) error {
	calls := max(1, p.b.n/bulk)
	n := calls * bulk
	c := p.on(p.durable, p.durableDB, bulk)
	unkeyed := &publishOurs{pool: p.durable, batch: p.messages(bulk, false)}
	defer func() { _, _ = c.ours.close(), unkeyed.close() }()
	return p.b.compare(ctx,
		side{field: "outmill_bulk_per_s", title: "Outmill, bulk", n: n, prepare: p.empty(c.ours.prepare), run: times(calls, c.ours.publish)},
		side{field: "outmill_bulk_unkeyed_per_s", title: "Outmill, bulk, no keys", n: n, prepare: p.empty(unkeyed.prepare),
			run: times(calls, unkeyed.publish)},
		side{field: "outmill_append_bulk_per_s", title: "Outmill's store, bulk", n: n, prepare: p.empty(c.ours.prepare),
			run: times(calls, c.ours.append)},
		side{field: "copy_bulk_per_s", title: "COPY, bulk", n: n, prepare: p.empty(c.bare.prepare), run: times(calls, c.bare.copy)},
		side{field: "watermill_bulk_per_s", title: "watermill-sql, bulk", n: n, prepare: p.empty(c.watermill.prepare),
			run: times(calls, c.watermill.publish)},
		side{field: "river_bulk_per_s", title: "River, InsertManyFastTx", n: n, prepare: p.empty(c.river.prepare),
			run: times(calls, c.river.insertFast)},
		side{field: "river_bulk_insert_per_s", title: "River, InsertManyTx", n: n, prepare: p.empty(c.river.prepare),
			run: times(calls, c.river.insertMany)},
	)
}

// contenders publish the same messages.
type contenders struct {
	ours      *publishOurs
	bare      *publishBare
	watermill *publishWatermill
	river     *publishRiver
}

func (p *publishing) on(pool *pgxpool.Pool, db *sql.DB, batch int) contenders {
	return contenders{
		ours:      &publishOurs{pool: pool, batch: p.messages(batch, true)},
		bare:      &publishBare{pool: pool, list: records(publishTopic, 0, batch, p.b.size, true)},
		watermill: &publishWatermill{db: db, batch: p.messages(batch, true)},
		river:     &publishRiver{pool: pool, batch: jobs(0, batch, p.b.size)},
	}
}

// messages are made before the clock starts, and published repeatedly, because no side changes
// them.
func (p *publishing) messages(n int, keyed bool) message.Messages {
	list := messages(0, n, p.b.size)
	if keyed {
		for i, msg := range list {
			outmill.SetKey(msg, keyOf(i))
		}
	}
	return list
}

// times calls once before the clock starts, so that connections are open and statements are
// prepared.
func times(n int, call func(ctx context.Context) error) func(ctx context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		if err := call(ctx); err != nil {
			return 0, err
		}
		began := time.Now()
		for range n {
			if err := call(ctx); err != nil {
				return 0, err
			}
		}
		return time.Since(began), nil
	}
}
