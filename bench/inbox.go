package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
)

const inboxAbout = `n messages wait in PostgreSQL (fsync on), vacuumed, analysed and flushed to the disk before the clock starts. Their
handlers UPDATE one row of 10,000, which the message names, in a transaction whose commit waits for the disk. 64 handlers
run at a time (-handlers), over a pool of 80 connections. The clock stops when the last message is settled in the database; then all
rows together must have been updated n times. Before that each side handles 1,280 other messages, so that the connections
have prepared their statements.

  inbox_per_s              Outmill's inbox: note and UPDATE in one transaction; the subscriber acks afterwards, in batches
  plain_per_s              Outmill without an inbox: the handler begins a pgx.Tx, updates and commits, and the subscriber acks
                           afterwards, in batches; a crash between the two handles a message twice
  river_per_s              River, tuned as its own bench, with JobCompleteTx in the handler's transaction
  watermill_per_s          watermill-sql's subscriber, whose handlers use its transaction: one transaction for each batch of
                           1,000 messages, handled one after the other, as it cannot do otherwise
  inbox_round_trips        round trips for one message, as the driver counts them: claims, acks, BEGIN and COMMIT too
  plain_round_trips        "
  river_round_trips        "
  watermill_round_trips    "
  inbox_cpu_us             processor time of this process and of PostgreSQL's for one message, in microseconds; 0 where the server
                           is not on this machine
  plain_cpu_us             "
  river_cpu_us             "
  watermill_cpu_us         "
  inbox_ratio              the inbox's time / the time without an inbox: 1 is no overhead
  inbox_river_ratio        the inbox's time / River's
  inbox_watermill_ratio    the inbox's time / watermill-sql's`

func init() {
	scenarios = append(scenarios, scenario{
		name: "inbox", help: "handlers of one UPDATE with and without an inbox, compared with River and watermill-sql",
		about: inboxAbout, n: 20_000, short: 500, measure: measureInbox,
	})
}

const (
	// handlersAtOnce is the number of handlers that run at the same time, unless -handlers sets
	// another one.
	handlersAtOnce = 64

	// handlersWarm is the number of messages that are handled before the clock starts.
	handlersWarm = 20 * handlersAtOnce

	accounts = 10_000

	sqlDeposit = "UPDATE accounts SET balance = balance + 1 WHERE id = $1"
)

// accountOf is the account that a payload names.
func accountOf(payload []byte) (int, error) {
	var args jobArgs
	err := json.Unmarshal(payload, &args)
	return args.Number % accounts, err
}

func measureInbox(ctx context.Context, b *bench) error {
	database, err := b.database(ctx, "inbox")
	if err != nil {
		return err
	}
	pool, traffic, err := countedBy(ctx, database, b.handlerConns())
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := connectAll(ctx, pool, b.handlerConns()); err != nil {
		return err
	}
	peer, err := newRiver(ctx, pool)
	if err != nil {
		return err
	}
	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	d := &depositing{b: b, pool: pool, db: db, meter: &meter{pool, traffic}, river: peer}
	d.ours = &burning{b: b, pool: pool, inFlight: b.handlers}
	b.results.fact("outmill_settings", fmt.Sprintf("subscriber.Config BatchSize=%d MaxInFlight=%d, else defaults", b.batch, b.handlers))
	b.results.fact("river_settings", fmt.Sprintf("MaxWorkers=%d FetchCooldown=%s FetchPollInterval=%s, else defaults",
		b.handlers, riverFetchCooldown, riverPollInterval))
	err = b.compare(ctx,
		d.side("inbox", "Outmill, inbox", d.fillOurs, d.byInbox),
		d.side("plain", "Outmill, no inbox", d.fillOurs, d.byHand),
		d.side("river", "River, JobCompleteTx", d.fillRiver, d.byRiver),
		d.side("watermill", "watermill-sql, its transaction", d.fillWatermill, d.byWatermill),
	)
	if err != nil {
		return err
	}
	if err := d.empty(ctx); err != nil {
		return err
	}
	r := &b.results
	r.ratio("inbox_ratio", "inbox's time / without", "plain_per_s", "inbox_per_s")
	r.ratio("inbox_river_ratio", "inbox's time / River's", "river_per_s", "inbox_per_s")
	r.ratio("inbox_watermill_ratio", "inbox's time / watermill-sql's", "watermill_per_s", "inbox_per_s")
	return nil
}

// handlerConns is how many connections the handlers have: some more, for claims and acks.
func (b *bench) handlerConns() int32 { return int32(b.handlers + 16) }

// connectAll opens this number of connections, which then wait in the pool.
func connectAll(ctx context.Context, pool *pgxpool.Pool, conns int32) error {
	for range conns {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
	}
	return nil
}

// depositing has what the sides share.
type depositing struct {
	b     *bench
	pool  *pgxpool.Pool
	db    *sql.DB
	meter *meter
	river *riverPeer
	ours  *burning
}

// side is a side whose round trips, processor time and updates are counted. fill makes n
// messages wait, of which first are handled already, and run handles them.
func (d *depositing) side(
	name, title string, fill func(ctx context.Context, first, n int) error, run func(ctx context.Context, n int) (time.Duration, error),
) side {
	return side{field: name + "_per_s", title: title,
		prepare: func(ctx context.Context) error {
			if err := d.empty(ctx); err != nil {
				return err
			}
			if err := fill(ctx, 0, handlersWarm); err != nil {
				return err
			}
			if _, err := run(ctx, handlersWarm); err != nil {
				return err
			}
			return fill(ctx, handlersWarm, d.b.n)
		},
		run: func(ctx context.Context) (time.Duration, error) {
			each, err := d.meter.start(ctx)
			if err != nil {
				return 0, err
			}
			took, err := run(ctx, d.b.n)
			if err != nil {
				return 0, err
			}
			if err := each(&d.b.results, name, title, d.b.n); err != nil {
				return 0, err
			}
			return took, d.check(ctx)
		},
	}
}

// check fails where a message was handled twice, or never.
func (d *depositing) check(ctx context.Context) error {
	var updates int
	err := d.pool.QueryRow(ctx, "SELECT sum(balance) FROM accounts").Scan(&updates)
	if want := d.b.n + handlersWarm; err == nil && updates != want {
		err = fmt.Errorf("%d messages made %d updates", want, updates)
	}
	return err
}

// empty leaves only accounts, which are new.
func (d *depositing) empty(ctx context.Context) error {
	if d.ours.store != nil {
		if err := d.ours.store.Close(); err != nil {
			return err
		}
		d.ours.store = nil
	}
	if err := d.river.clear(ctx); err != nil {
		return err
	}
	for _, statement := range []string{
		"DROP SCHEMA IF EXISTS outmill CASCADE",
		"DROP TABLE IF EXISTS accounts, watermill_" + burnTopic + ", watermill_offsets_" + burnTopic,
		"CREATE TABLE accounts (id integer PRIMARY KEY, balance bigint NOT NULL)",
		fmt.Sprintf("INSERT INTO accounts SELECT i, 0 FROM generate_series(0, %d) AS i", accounts-1),
		"VACUUM ANALYZE accounts",
	} {
		if _, err := d.pool.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// fillOurs makes the store where there is none.
func (d *depositing) fillOurs(ctx context.Context, first, n int) (err error) {
	if d.ours.store == nil {
		if d.ours.store, err = outbox(ctx, d.pool); err != nil {
			return err
		}
	}
	if err := d.b.fillFrom(ctx, d.ours.store, "", burnTopic, first, n, true); err != nil {
		return err
	}
	return settleOurs(ctx, d.pool)
}

func (d *depositing) byHand(ctx context.Context, n int) (time.Duration, error) {
	return d.ours.handled(ctx, n, func(msg *message.Message) error {
		account, err := accountOf(msg.Payload)
		if err != nil {
			return err
		}
		return pgx.BeginFunc(msg.Context(), d.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(msg.Context(), sqlDeposit, account)
			return err
		})
	})
}

func (d *depositing) byInbox(ctx context.Context, n int) (time.Duration, error) {
	store := d.ours.store
	box, err := inbox.New(store, inbox.Config{Consumer: "accounts"})
	if err != nil {
		return 0, err
	}
	return d.ours.handled(ctx, n, func(msg *message.Message) error {
		account, err := accountOf(msg.Payload)
		if err != nil {
			return err
		}
		tx, ok := store.Tx(msg.Context())
		if !ok {
			return outmill.ErrNoTx
		}
		_, err = tx.Exec(msg.Context(), sqlDeposit, account)
		return err
	}, box.Middleware)
}
