package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/subscriber"
)

const idleAbout = `A subscriber of one topic and a forwarder of all of them to a real Kafka have nothing to do, with default settings, each
with a store and a pool of its own, as two services would have. They get 15 s to settle (looks are less frequent once
nothing has come for 10 s), and are watched for a minute, into which one round of upkeep falls for each.

  statements_per_s             what PostgreSQL carried out for both together, by pg_stat_statements, or by the driver where the
                               server does not have it: every statement, BEGIN, COMMIT and set_config too; what the bench
                               itself asks is left out
  subscriber_statements_per_s  the subscriber's share, forwarder_statements_per_s the forwarder's, as the driver counts
  round_trips_per_s            how often they asked, both together: a transaction that goes out as one batch is one
  cpu_percent                  the processor time of this process, of one core

and postgres_cpu_percent, that of all processes of the server, where it runs on this machine under Linux.`

func init() {
	scenarios = append(scenarios, scenario{
		name: "idle", help: "the cost of a subscriber and a forwarder that have nothing to do",
		about: idleAbout, measure: measureIdle,
	})
}

// idleTimes returns how long the idlers settle, and how long they are measured.
func (b *bench) idleTimes() (settle, watch time.Duration) {
	if b.short {
		return time.Second, 2 * time.Second
	}
	return 15 * time.Second, time.Minute
}

func measureIdle(ctx context.Context, b *bench) error {
	broker, err := b.engines.kafka(ctx)
	if err != nil {
		return err
	}
	pool, err := b.database(ctx, "idle")
	if err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "CREATE EXTENSION pg_stat_statements"); err != nil {
		b.say("statements are counted by the driver: %v", err)
	}
	store, err := outbox(ctx, pool)
	if err != nil {
		return err
	}
	if err := store.Close(); err != nil {
		return err
	}
	for round := range b.rounds {
		if err := b.watchIdle(ctx, &idlers{pool: pool, broker: broker}); err != nil {
			return err
		}
		b.say("round %d of %d: %.2f statements/s", round+1, b.rounds, b.results.median("statements_per_s"))
	}
	return nil
}

func (b *bench) watchIdle(ctx context.Context, idle *idlers) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wait, err := idle.start(ctx)
	if err != nil {
		return err
	}
	settle, watch := b.idleTimes()
	if err = sleep(ctx, settle); err == nil {
		err = b.measureIdlers(ctx, idle, watch)
	}
	stop()
	return errors.Join(err, wait())
}

func (b *bench) measureIdlers(ctx context.Context, idle *idlers, watch time.Duration) error {
	first, remote := postmaster(ctx, idle.pool)
	if remote != nil {
		b.say("no postgres_cpu_percent: %v", remote)
	}
	byServer := countStatements(ctx, idle.pool) == nil
	before, began := idle.look(first), time.Now()
	if err := sleep(ctx, watch); err != nil {
		return err
	}
	after, took := idle.look(first), time.Since(began)
	asked := after.subscriber + after.forwarder - before.subscriber - before.forwarder
	if byServer {
		var err error
		if asked, err = statements(ctx, idle.pool); err != nil {
			return err
		}
	}
	perSecond := func(n int64) float64 { return float64(n) / took.Seconds() }
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / took.Seconds() }
	r := &b.results
	r.add("statements_per_s", "statements per second", perSecond(asked))
	r.add("subscriber_statements_per_s", "of these, the subscriber", perSecond(after.subscriber-before.subscriber))
	r.add("forwarder_statements_per_s", "of these, the forwarder", perSecond(after.forwarder-before.forwarder))
	r.add("round_trips_per_s", "round trips per second", perSecond(after.roundTrips-before.roundTrips))
	if after.own > 0 {
		r.add("cpu_percent", "percent of a core", percent(after.own-before.own))
	}
	if remote == nil {
		r.add("postgres_cpu_percent", "percent of a core, PostgreSQL", percent(after.server-before.server))
	}
	return nil
}

// idlers are a subscriber and a forwarder with nothing to do.
type idlers struct {
	pool   *pgxpool.Pool
	broker string

	bySubscriber, byForwarder *traffic
}

type look struct {
	subscriber, forwarder, roundTrips int64
	own, server                       time.Duration
}

// look leaves numbers at 0 that this system does not report.
func (l *idlers) look(first int) look {
	own, _ := ownTime()
	server, _ := serverTime(first)
	return look{
		subscriber: l.bySubscriber.statements.Load(), forwarder: l.byForwarder.statements.Load(),
		roundTrips: l.bySubscriber.roundTrips.Load() + l.byForwarder.roundTrips.Load(),
		own:        own, server: server,
	}
}

// start runs both until ctx ends.
func (l *idlers) start(ctx context.Context) (wait func() error, err error) {
	var ends []func() error
	wait = func() error {
		var errs []error
		for i := len(ends) - 1; i >= 0; i-- {
			errs = append(errs, ends[i]())
		}
		return errors.Join(errs...)
	}
	subscribe, traffic, err := l.subscriber(ctx)
	if err != nil {
		return nil, err
	}
	ends, l.bySubscriber = append(ends, subscribe), traffic
	forward, traffic, err := l.forwarder(ctx)
	if err != nil {
		return nil, errors.Join(err, wait())
	}
	ends, l.byForwarder = append(ends, forward), traffic
	return wait, nil
}

func (l *idlers) store(ctx context.Context) (store *postgres.Store, t *traffic, end func() error, err error) {
	pool, t, err := counted(ctx, l.pool)
	if err != nil {
		return nil, nil, nil, err
	}
	store, err = postgres.New(pool, postgres.Config{}, nil)
	return store, t, func() error { defer pool.Close(); return store.Close() }, err
}

func (l *idlers) subscriber(ctx context.Context) (end func() error, t *traffic, err error) {
	store, t, endStore, err := l.store(ctx)
	if err != nil {
		return nil, nil, err
	}
	sub, err := subscriber.New(store, subscriber.Config{}, nil)
	if err != nil {
		return nil, nil, err
	}
	if _, err := sub.Subscribe(ctx, "idle"); err != nil {
		return nil, nil, errors.Join(err, sub.Close(), endStore())
	}
	return func() error { return errors.Join(sub.Close(), endStore()) }, t, nil
}

func (l *idlers) forwarder(ctx context.Context) (end func() error, t *traffic, err error) {
	store, t, endStore, err := l.store(ctx)
	if err != nil {
		return nil, nil, err
	}
	pub, err := newKafkaPublisher(l.broker, kafka.Config{})
	if err != nil {
		return nil, nil, err
	}
	fwd, err := forwarder.New(store, pub, forwarder.Config{}, nil)
	if err != nil {
		return nil, nil, err
	}
	var running errgroup.Group
	running.Go(func() error { return fwd.Run(ctx) })
	return func() error { return errors.Join(running.Wait(), pub.Close(), endStore()) }, t, nil
}
