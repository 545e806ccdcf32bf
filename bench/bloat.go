package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const bloatAbout = `What is deleted or updated stays in the tables for as long as an old transaction could still see it. A transaction of the
same database holds its snapshot while n messages are committed, 1,000 a second, each in a transaction of its own, and worked
off at the same time: for 5 minutes unless -n is set. Before that, and after it, under the same snapshot, a burst of a sixth of n
(50,000) waits and is drained, -rounds times. No broker: Outmill's forwarder, ordered by key, publishes to one that acks at
once, River has workers that do nothing, tuned as its own bench; what is left is the database's part. Tables are all those of
the schema, with what is stored out of line. Their size is taken under the snapshot, 40 s after the last burst was drained:
until then an idle reader of Outmill's goes on claiming and maintains the store, as a subscriber or forwarder does.

  drain_before_per_s        messages per second of a burst on tables that are new
  drain_after_per_s         of one on tables that are full of what is dead
  drain_loss                1 - after / before: 0.1 is 10 %
  dead_per_msg              rows that were updated or deleted, in all tables, for each message: as many dead ones
  drained_mib               the tables and their indexes at once after the last burst
  table_mib                 the tables at the end
  index_mib                 their indexes
  total_mib                 both
  vacuumed_mib              both once the snapshot is gone and a plain VACUUM, as autovacuum runs it, has been over the tables
  wal_per_msg               bytes of WAL of a burst, from its append (1,000 a call) to its end, after a CHECKPOINT
  bare_wal_per_msg          of a bare INSERT of the same, 1,000 a statement, into a table with a primary key alone
  wal_ratio                 wal_per_msg / bare_wal_per_msg
  river_drain_before_per_s  the same of River
  river_drain_after_per_s   the same of River
  river_drain_loss          the same of River
  river_dead_per_msg        the same of River
  river_drained_mib         the same of River, which keeps completed jobs for a day
  river_table_mib           the same of River
  river_index_mib           the same of River
  river_total_mib           the same of River
  river_vacuumed_mib        the same of River
  river_wal_per_msg         the same of River
  river_wal_ratio           river_wal_per_msg / bare_wal_per_msg`

// burstShare is the factor by which a burst is smaller than the messages under the snapshot.
const burstShare = 6

func init() {
	scenarios = append(scenarios, scenario{
		name: "bloat", help: "the cost of a transaction that stays open, compared with River",
		about: bloatAbout, n: 300 * pacedPerSecond, short: 2 * pacedPerSecond, measure: measureBloat,
	})
}

// bloated is a queue in the database of a pool.
type bloated interface {
	// schema has its tables, and reset makes them empty.
	schema() string
	reset(ctx context.Context) error
	// append appends n messages, and drain handles them.
	append(ctx context.Context, n int) error
	drain(ctx context.Context, n int) (time.Duration, error)
	// tidy gives the queue the time that it needs for its upkeep after a drain.
	tidy(ctx context.Context) error
	// work handles the messages that commit commits, until ctx ends. When finish returns, all n
	// are handled.
	work(ctx context.Context, n int) (finish func() error, err error)
	commit(ctx context.Context, i int) error
}

func measureBloat(ctx context.Context, b *bench) error {
	pool, err := b.database(ctx, "bloat")
	if err != nil {
		return err
	}
	bare := &bareInserts{b: b, pool: pool}
	if err := bare.measure(ctx, b.burst()); err != nil {
		return err
	}
	ours := &outmillBloat{outmillLive: outmillLive{pool: pool, topic: "bloat"}, b: b}
	defer func() { _ = ours.close() }()
	if err := b.addBloat(ctx, pool, ours, ""); err != nil {
		return fmt.Errorf("outmill: %w", err)
	}
	riverPool, err := b.database(ctx, "bloat_river")
	if err != nil {
		return err
	}
	peer, err := newRiver(ctx, riverPool)
	if err != nil {
		return err
	}
	if err := b.addBloat(ctx, riverPool, &riverBloat{riverPeer: peer, b: b}, "river_"); err != nil {
		return fmt.Errorf("river: %w", err)
	}
	return nil
}

func (b *bench) burst() int { return max(b.n/burstShare, 1) }

// addBloat runs the whole measurement with one queue.
func (b *bench) addBloat(ctx context.Context, pool *pgxpool.Pool, q bloated, prefix string) error {
	for range b.rounds {
		if err := b.drainNew(ctx, pool, q, prefix); err != nil {
			return err
		}
	}
	if err := q.reset(ctx); err != nil {
		return err
	}
	before, err := deadRows(ctx, pool, q.schema())
	if err != nil {
		return err
	}
	release, err := holdSnapshot(ctx, pool)
	if err != nil {
		return err
	}
	defer release()
	b.say("%s", titled(prefix, fmt.Sprintf("%d messages under an old snapshot", b.n)))
	if err := b.workPaced(ctx, q); err != nil {
		return err
	}
	for range b.rounds {
		if err := b.drainBurst(ctx, q, prefix, "drain_after_per_s", "msgs/s, after"); err != nil {
			return err
		}
	}
	drained, err := sizesOf(ctx, pool, q.schema())
	if err != nil {
		return err
	}
	b.results.add(prefix+"drained_mib", titled(prefix, "after the last burst, MiB"), float64(drained.table+drained.index)/mib)
	if err := q.tidy(ctx); err != nil {
		return err
	}
	after, err := deadRows(ctx, pool, q.schema())
	if err != nil {
		return err
	}
	messages := b.n + b.rounds*b.burst()
	b.results.add(prefix+"dead_per_msg", titled(prefix, "dead rows per message"), float64(after-before)/float64(messages))
	r := &b.results
	r.add(prefix+"drain_loss", titled(prefix, "1 - after / before"),
		1-r.median(prefix+"drain_after_per_s")/r.median(prefix+"drain_before_per_s"))
	r.ratio(prefix+"wal_ratio", titled(prefix, "WAL / bare INSERT's"), prefix+"wal_per_msg", "bare_wal_per_msg")
	if err := b.addSizes(ctx, pool, q.schema(), prefix); err != nil {
		return err
	}
	release()
	return b.addVacuumed(ctx, pool, q.schema(), prefix)
}

// drainNew drains a burst on new tables, and measures its WAL.
func (b *bench) drainNew(ctx context.Context, pool *pgxpool.Pool, q bloated, prefix string) error {
	if err := q.reset(ctx); err != nil {
		return err
	}
	written, err := walOf(ctx, pool, func() error { return b.drainBurst(ctx, q, prefix, "drain_before_per_s", "msgs/s, before") })
	if err != nil {
		return err
	}
	b.results.add(prefix+"wal_per_msg", titled(prefix, "bytes of WAL per message"), written/float64(b.burst()))
	return nil
}

func (b *bench) drainBurst(ctx context.Context, q bloated, prefix, field, title string) error {
	if err := q.append(ctx, b.burst()); err != nil {
		return err
	}
	endProfile, err := b.profile(prefix + field)
	if err != nil {
		return err
	}
	took, err := q.drain(ctx, b.burst())
	endProfile()
	if err != nil {
		return err
	}
	rate := float64(b.burst()) / took.Seconds()
	b.say("%s: %.0f", titled(prefix, title), rate)
	b.results.add(prefix+field, titled(prefix, title), rate)
	return nil
}

// workPaced returns when all messages are committed and handled.
func (b *bench) workPaced(ctx context.Context, q bloated) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	finish, err := q.work(ctx, b.n)
	if err != nil {
		return err
	}
	_, err = pacing{perSecond: pacedPerSecond, writers: pacedWriters, commit: q.commit}.run(ctx, b.n)
	if err != nil {
		stop()
	}
	return errors.Join(err, finish())
}

// walOf returns the number of bytes of WAL that the server writes while the function runs.
func walOf(ctx context.Context, pool *pgxpool.Pool, do func() error) (float64, error) {
	if _, err := pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return 0, err
	}
	var before string
	if err := pool.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&before); err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	var written float64
	err := pool.QueryRow(ctx, "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::text::pg_lsn)::float8", before).Scan(&written)
	return written, err
}

// holdSnapshot begins a transaction. Until it is released, the server keeps all rows that its
// snapshot sees.
func holdSnapshot(ctx context.Context, pool *pgxpool.Pool) (release func(), err error) {
	conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	release = func() {
		if tx != nil {
			_ = tx.Rollback(context.WithoutCancel(ctx))
		}
		_ = conn.Close(context.WithoutCancel(ctx))
	}
	if err == nil {
		// The snapshot is taken by the first query.
		_, err = tx.Exec(ctx, "SELECT count(*) FROM pg_class")
	}
	if err != nil {
		release()
	}
	return release, err
}
