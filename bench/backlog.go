package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/kafka"
)

const backlogAbout = `n messages wait in PostgreSQL (fsync on), and a hundredth of n; Outmill's forwarder, ordered by key, moves them to a
real Kafka (acks=all). Each is drained to the end. A rate is that between the first batch that Kafka acked and the last one,
so that the start, which is the same for both, does not make the small backlog look slow. Autovacuum is on.

  rate_10k        messages per second with a hundredth of n waiting: 10,000 unless -n is set
  rate_1m         with n waiting: 1,000,000 unless -n is set; over all of them
  flatness        rate_1m / rate_10k: 1 where a message costs the same whatever waits behind it
  rate_1m_first   of rate_1m, over the first tenth of the messages, when the most wait
  rate_1m_last    over the last tenth, when the most have been deleted
  table_mib       the tables after the drain of n, and 40 s in which an idle reader claims and maintains the store; without their indexes
  index_mib       these
  total_mib       both`

const (
	// smallShare is the factor by which the small backlog is smaller.
	smallShare = 100
	// fewBatches is the smallest number of batches that has a rate.
	fewBatches = 4
)

func init() {
	scenarios = append(scenarios, scenario{
		name: "backlog", help: "the rate with 10,000 and with 1,000,000 waiting",
		about: backlogAbout, n: 1_000_000, short: 20_000, measure: measureBacklog,
	})
}

func measureBacklog(ctx context.Context, b *bench) error {
	broker, err := b.engines.kafka(ctx)
	if err != nil {
		return err
	}
	pool, err := b.database(ctx, "backlog")
	if err != nil {
		return err
	}
	small := &backlog{forwarding: &forwarding{b: b.with(max(b.n/smallShare, fewBatches*b.batch)), pool: pool, broker: broker}}
	large := &backlog{forwarding: &forwarding{b: b.with(b.n), pool: pool, broker: broker}}
	defer func() { _, _ = small.close(), large.close() }()
	// Caches are cold for the first side.
	if _, err := small.drainWatched(ctx); err != nil {
		return err
	}
	for round := range b.rounds {
		few, err := small.drainWatched(ctx)
		if err != nil {
			return err
		}
		all, err := large.drainWatched(ctx)
		if err != nil {
			return err
		}
		b.say("round %d of %d: %.0f/s with %d waiting, %.0f/s with %d", round+1, b.rounds, few.rate(0, 1), few.n, all.rate(0, 1), all.n)
		b.results.add("rate_10k", "msgs/s, few waiting", few.rate(0, 1))
		b.results.add("rate_1m", "msgs/s, many waiting", all.rate(0, 1))
		b.results.add("rate_1m_first", "of these, the first tenth", all.rate(0, 0.1))
		b.results.add("rate_1m_last", "of these, the last tenth", all.rate(0.9, 1))
		if err := b.tidy(ctx, large.store, forwarder.DefaultGroup); err != nil {
			return err
		}
		if err := b.addSizes(ctx, pool, "outmill", ""); err != nil {
			return err
		}
	}
	b.results.ratio("flatness", "many / few", "rate_1m", "rate_10k")
	return nil
}

// with returns the same bench with another number of messages. It adds no results.
func (b *bench) with(n int) *bench {
	other := *b
	other.n = n
	return &other
}

type backlog struct{ *forwarding }

func (l *backlog) drainWatched(ctx context.Context) (*timeline, error) {
	if err := l.prepare(true)(ctx); err != nil {
		return nil, err
	}
	pub, err := newKafkaPublisher(l.broker, kafka.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = pub.Close() }()
	endProfile, err := l.b.profile(fmt.Sprint(l.b.n))
	if err != nil {
		return nil, err
	}
	defer endProfile()
	line := &timeline{}
	_, err = l.drain(ctx, watch(pub, line.note))
	return line, err
}

// timeline has the number of acked messages at several times.
type timeline struct {
	mu   sync.Mutex
	n    int
	acks []acks
}

type acks struct {
	at  time.Time
	sum int
}

func (t *timeline) note(acked []string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n += len(acked)
	t.acks = append(t.acks, acks{at, t.n})
}

// rate returns the rate between two shares of the messages, such as 0.9 and 1. It is that of whole batches, at least one.
func (t *timeline) rate(from, to float64) float64 {
	first, last := t.before(from), t.reached(to)
	return float64(last.sum-first.sum) / last.at.Sub(first.at).Seconds()
}

// before is the last ack up to the share, or the first one of all.
func (t *timeline) before(share float64) acks {
	last := t.acks[0]
	for _, a := range t.acks {
		if float64(a.sum) <= share*float64(t.n) {
			last = a
		}
	}
	return last
}

// reached is the ack with which the share was reached.
func (t *timeline) reached(share float64) acks {
	for _, a := range t.acks {
		if float64(a.sum) >= share*float64(t.n) {
			return a
		}
	}
	return acks{}
}
