package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
)

const latencyAbout = `Writers commit 1,000 transactions a second to PostgreSQL (fsync on), each with one message, n in all (60 s unless -n is
set), while a forwarder of the same process moves them to a real Kafka (acks=all). Each message has its time to be
published, so that a slow commit does not slow down the others. A latency is from the moment that the writer's Commit
returned to the one that the publisher returned with Kafka's ack. The first second is not counted. Settings are the defaults.

  p50_ms                Outmill's median
  p99_ms                what one in a hundred is above
  max_ms                the slowest
  behind                messages that Kafka had not acked 1 s after the last commit; they count as acked then
  rate_per_s            commits that were reached; the latencies hold for this rate
  watermill_p50_ms      the same for watermill-sql, components/forwarder, watermill-kafka with acks=all
  watermill_p99_ms      the same
  watermill_max_ms      the same
  watermill_behind      the same; its latencies mean little where this is not near 0
  watermill_rate_per_s  the same`

// latencyGrace is the time that a side has for the last committed messages.
const latencyGrace = time.Second

func init() {
	scenarios = append(scenarios, scenario{
		name: "latency", help: "from the commit to Kafka's ack at 1,000 msg/s, compared with Watermill's forwarder",
		about: latencyAbout, n: 60 * pacedPerSecond, short: 2 * pacedPerSecond, measure: measureLatency,
	})
}

func measureLatency(ctx context.Context, b *bench) error {
	broker, err := b.engines.kafka(ctx)
	if err != nil {
		return err
	}
	pool, err := b.database(ctx, "latency")
	if err != nil {
		return err
	}
	for round := range b.rounds {
		for _, side := range []struct {
			prefix string
			live   live
		}{
			{"", &outmillLive{pool: pool, broker: broker}},
			{"watermill_", &watermillLive{watermillForwarding: watermillForwarding{b: b, pool: pool, broker: broker}}},
		} {
			if err := b.addLatencies(ctx, side.prefix, side.live, round); err != nil {
				return err
			}
		}
	}
	return nil
}

// live is a side whose forwarder runs while messages are committed.
type live interface {
	// start begins to forward, and reports acks until ctx ends. It returns when it has begun.
	start(ctx context.Context, acked noteAcks) (wait func() error, err error)
	// commit commits message i.
	commit(ctx context.Context, i, size int) error
}

func (b *bench) addLatencies(ctx context.Context, prefix string, side live, round int) error {
	warm := min(pacedPerSecond, b.n/4)
	n := warm + b.n
	stamps := newStamps(n)
	endProfile, err := b.profile(prefix + "latency")
	if err != nil {
		return err
	}
	rate, err := b.runLive(ctx, side, stamps, n)
	endProfile()
	if err != nil {
		return fmt.Errorf("%sforwarder: %w", prefix, err)
	}
	list, behind := stamps.latencies(warm), stamps.waiting(warm)
	for _, q := range []struct {
		field, title string
		at           float64
	}{{"p50_ms", "median, ms", 0.5}, {"p99_ms", "99 %, ms", 0.99}, {"max_ms", "slowest, ms", 1}} {
		b.results.add(prefix+q.field, titled(prefix, q.title), millis(quantile(list, q.at)))
	}
	b.results.add(prefix+"behind", titled(prefix, "messages behind"), float64(behind))
	b.results.add(prefix+"rate_per_s", titled(prefix, "commits per second"), rate)
	b.say("round %d of %d: %sp50 %.1f ms, p99 %.1f ms, %d behind, at %.0f/s", round+1, b.rounds, prefix,
		millis(quantile(list, 0.5)), millis(quantile(list, 0.99)), behind, rate)
	return nil
}

// titled returns the title of a field with the prefix of a peer.
func titled(prefix, title string) string {
	switch prefix {
	case "watermill_":
		return "Watermill: " + title
	case "river_":
		return "River: " + title
	}
	return title
}

// runLive returns the rate that was reached.
func (b *bench) runLive(ctx context.Context, side live, stamps *stamps, n int) (float64, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wait, err := side.start(ctx, stamps.note)
	if err != nil {
		return 0, err
	}
	took, err := pacing{perSecond: pacedPerSecond, writers: pacedWriters, commit: func(ctx context.Context, i int) error {
		err := side.commit(ctx, i, b.size)
		stamps.commit(i)
		return err
	}}.run(ctx, n)
	if err == nil {
		err = awaitAcks(ctx, stamps)
	}
	stop()
	return float64(n) / took.Seconds(), errors.Join(err, wait())
}

func awaitAcks(ctx context.Context, stamps *stamps) error {
	until := time.Now().Add(latencyGrace)
	return poll(ctx, func() (bool, error) { return stamps.waiting(0) == 0 || time.Now().After(until), nil })
}

// outmillLive is Outmill's side.
type outmillLive struct {
	pool      *pgxpool.Pool
	broker    string
	topic     string
	store     *postgres.Store
	publisher *publisher.Publisher
}

func (l *outmillLive) start(ctx context.Context, acked noteAcks) (wait func() error, err error) {
	if l.store, err = outbox(ctx, l.pool); err != nil {
		return nil, err
	}
	if l.topic, err = newTopic(ctx, l.broker); err != nil {
		return nil, err
	}
	if l.publisher, err = publisher.New(l.store, publisher.Config{RequireTx: true}, nil); err != nil {
		return nil, err
	}
	pub, err := newKafkaPublisher(l.broker, kafka.Config{})
	if err != nil {
		return nil, err
	}
	fwd, err := forwarder.New(l.store, watch(pub, acked), forwarder.Config{}, nil)
	if err != nil {
		return nil, err
	}
	var running errgroup.Group
	running.Go(func() error { return fwd.Run(ctx) })
	select {
	case <-fwd.Running():
	case <-ctx.Done():
	}
	return func() error { return errors.Join(running.Wait(), pub.Close(), l.store.Close()) }, ctx.Err()
}

func (l *outmillLive) commit(ctx context.Context, i, size int) error {
	msg := messages(i, 1, size)[0]
	outmill.SetKey(msg, keyOf(i))
	return pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
		return l.publisher.WithContext(l.store.WithTx(ctx, tx)).Publish(l.topic, msg)
	})
}
