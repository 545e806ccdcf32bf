package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
)

const stallAbout = `Writers commit 200 transactions a second to PostgreSQL (fsync on), each with one message, and a forwarder of the same process
receives them; no broker, what it publishes to acks at once. After some seconds three transactions begin, which stay open for
-held: one in another database of the server that has a number and has written nothing, one that has written to another
table, and one of another store, as another process would have, that has published 10 messages to the same topic. Then this one
commits, while the other two are open still, and the writers go on. A latency is from the moment that Commit returned to the one
that the message arrived.

  p50_ms       median of the writers' messages while the three are open
  p99_ms       what one in a hundred is above
  max_ms       the slowest
  own_ms       until the last of the 10 messages arrived
  calm_p50_ms  median of the writers' messages in the 10 s before the three begin
  calm_p99_ms  what one in a hundred is above
  behind       messages of both that had not arrived 1 s after the last commit; they count as arrived then
  rate_per_s   commits that were reached; the latencies hold for this rate`

const (
	stallTopic     = "stall"
	stallPerSecond = 200
	// stallOwn is the number of messages that the long transaction publishes.
	stallOwn = 10

	defaultHeld, shortHeld = 2 * time.Minute, 2 * time.Second
)

func init() {
	scenarios = append(scenarios, scenario{
		name: "stall", help: "what transactions that stay open cost the messages of others",
		about: stallAbout, measure: measureStall,
	})
}

// stallTimes are the durations of three phases: messages that are not counted, messages before a
// transaction is open, and messages after the commit.
func (b *bench) stallTimes() (warm, calm, tail time.Duration) {
	if b.short {
		return time.Second, time.Second, time.Second
	}
	return 2 * time.Second, 10 * time.Second, 5 * time.Second
}

func measureStall(ctx context.Context, b *bench) error {
	pool, err := b.database(ctx, "stall")
	if err != nil {
		return err
	}
	elsewhere, err := b.database(ctx, "stall_elsewhere")
	if err != nil {
		return err
	}
	for round := range b.rounds {
		s := &stall{outmillBloat: outmillBloat{outmillLive: outmillLive{pool: pool, topic: stallTopic}, b: b}, elsewhere: elsewhere}
		if err := s.measure(ctx); err != nil {
			return err
		}
		b.say("round %d of %d: p99 %.1f ms, %.1f ms before", round+1, b.rounds, b.results.median("p99_ms"), b.results.median("calm_p99_ms"))
	}
	return nil
}

// stall is one round.
type stall struct {
	outmillBloat
	elsewhere *pgxpool.Pool
	// n is the number of messages that the writers commit. The messages of the long transaction
	// have the numbers from n on.
	n      int
	stamps *stamps
	// From calmFrom to heldFrom no transaction is open, and from then to heldTo three are open.
	calmFrom, heldFrom, heldTo time.Time
	rate                       float64
	// ends has functions that end the open transactions.
	ends []func()
}

func (s *stall) measure(ctx context.Context) (err error) {
	if err := s.reset(ctx); err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, "DROP TABLE IF EXISTS elsewhere; CREATE TABLE elsewhere (n integer)"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	warm, calm, tail := s.b.stallTimes()
	s.n = int((warm + calm + s.b.held + tail).Seconds() * stallPerSecond)
	s.stamps = newStamps(s.n + stallOwn)
	fwd, err := forwarder.New(s.store, watch(discard{}, s.stamps.note), forwarder.Config{}, nil)
	if err != nil {
		return err
	}
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return fwd.Run(ctx) })
	running.Go(func() error { return errors.Join(s.course(ctx), fwd.Close()) })
	if err := running.Wait(); err != nil {
		return err
	}
	s.addResults()
	return nothingLeft(ctx, s.store)
}

// course runs the phases while the forwarder runs.
func (s *stall) course(ctx context.Context) error {
	endProfile, err := s.b.profile("stall")
	if err != nil {
		return err
	}
	defer endProfile()
	defer func() { s.release() }()
	group, inGroup := errgroup.WithContext(ctx)
	group.Go(func() error { return s.write(inGroup) })
	group.Go(func() error { return s.stayOpen(inGroup) })
	if err := group.Wait(); err != nil {
		return err
	}
	return awaitAcks(ctx, s.stamps)
}

func (s *stall) write(ctx context.Context) error {
	took, err := pacing{perSecond: stallPerSecond, writers: pacedWriters, commit: func(ctx context.Context, i int) error {
		err := s.commit(ctx, i)
		s.stamps.commit(i)
		return err
	}}.run(ctx, s.n)
	s.rate = float64(s.n) / took.Seconds()
	return err
}

// stayOpen begins the transactions, waits, and commits the one with messages. The other two stay
// open until release.
func (s *stall) stayOpen(ctx context.Context) error {
	warm, calm, _ := s.b.stallTimes()
	if err := sleep(ctx, warm); err != nil {
		return err
	}
	s.calmFrom = time.Now()
	if err := sleep(ctx, calm); err != nil {
		return err
	}
	s.heldFrom = time.Now()
	for _, other := range []struct {
		pool      *pgxpool.Pool
		statement string
	}{{s.elsewhere, "SELECT pg_current_xact_id()"}, {s.pool, "INSERT INTO elsewhere VALUES (1)"}} {
		tx, err := s.begin(ctx, other.pool)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, other.statement); err != nil {
			return err
		}
	}
	own, err := s.publishOwn(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, s.b.held); err != nil {
		return err
	}
	s.heldTo = time.Now()
	if err := own.Commit(ctx); err != nil {
		return err
	}
	for i := range stallOwn {
		s.stamps.commit(s.n + i)
	}
	return nil
}

// begin begins a transaction that stays open until it is committed, or released.
func (s *stall) begin(ctx context.Context, pool *pgxpool.Pool) (pgx.Tx, error) {
	tx, err := pool.Begin(ctx)
	if err == nil {
		s.ends = append(s.ends, func() { _ = tx.Rollback(context.WithoutCancel(ctx)) })
	}
	return tx, err
}

// publishOwn publishes the messages of the long transaction, and leaves it open.
func (s *stall) publishOwn(ctx context.Context) (pgx.Tx, error) {
	store, err := postgres.New(s.pool, postgres.Config{}, nil)
	if err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() { _ = store.Close() })
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	if err != nil {
		return nil, err
	}
	tx, err := s.begin(ctx, s.pool)
	if err != nil {
		return nil, err
	}
	list := messages(s.n, stallOwn, s.b.size)
	for i, msg := range list {
		outmill.SetKey(msg, keyOf(s.n+i))
	}
	return tx, pub.WithContext(store.WithTx(ctx, tx)).Publish(stallTopic, list...)
}

func (s *stall) release() {
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
	s.ends = nil
}

func (s *stall) addResults() {
	r := &s.b.results
	held, calm := s.stamps.during(s.heldFrom, s.heldTo), s.stamps.during(s.calmFrom, s.heldFrom)
	own := s.stamps.latencies(s.n)
	r.add("p50_ms", "median, ms", millis(quantile(held, 0.5)))
	r.add("p99_ms", "99 %, ms", millis(quantile(held, 0.99)))
	r.add("max_ms", "slowest, ms", millis(quantile(held, 1)))
	r.add("own_ms", "the long transaction's messages, ms", millis(quantile(own, 1)))
	r.add("calm_p50_ms", "median before, ms", millis(quantile(calm, 0.5)))
	r.add("calm_p99_ms", "99 % before, ms", millis(quantile(calm, 0.99)))
	r.add("behind", "messages behind", float64(s.stamps.waiting(0)))
	r.add("rate_per_s", "commits per second", s.rate)
}
