package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

// topicCounts are the numbers of topics that one subscriber reads.
var topicCounts = []int{1, 100, 500, 1000}

const topicsIntro = `One subscriber reads 1, 100, 500 and 1,000 topics with default settings, each with a handler that does nothing. A message at a
time is published to a topic chosen at random, n in all, each after the one before was delivered, through the subscriber's own store.
On PostgreSQL as many follow from a store and a pool of their own, as another service would have: notifications alone wake the
subscriber then, of which a store sends one in 20 ms (NotifyInterval). Then nothing is published for 15 s, of which the last 10 s are watched. What stands behind:

`

const topicsOutro = `
round_trips_per_s counts what the subscriber's pool asks PostgreSQL while idle, cpu_percent the processor time of this process and of
PostgreSQL together, of one core.`

// topicsFields are the fields of an engine and a count of topics.
func topicsFields(engine string, count int) (mean, worst, trips, cpu string) {
	prefix := fmt.Sprintf("%s_%d_", engine, count)
	return prefix + "mean_ms", prefix + "max_ms", prefix + "round_trips_per_s", prefix + "cpu_percent"
}

// otherMean is the field of the messages that another service publishes.
func otherMean(count int) string { return fmt.Sprintf("postgres_%d_other_mean_ms", count) }

func topicsAbout() string {
	var text strings.Builder
	text.WriteString(topicsIntro)
	line := func(field, what string) { fmt.Fprintf(&text, "  %-34s  %s\n", field, what) }
	for _, engine := range []string{"postgres", "sqlite"} {
		for _, count := range topicCounts {
			mean, worst, trips, cpu := topicsFields(engine, count)
			line(mean, fmt.Sprintf("%s, %d topics: from the return of Publish to the handler, mean", engine, count))
			line(worst, "the slowest of them")
			if engine == "postgres" {
				line(otherMean(count), "the mean of what another service publishes")
				line(trips, "round trips per second while idle")
			}
			line(cpu, "percent of a core while idle")
		}
	}
	text.WriteString(topicsOutro)
	return text.String()
}

func init() {
	scenarios = append(scenarios, scenario{
		name: "topics", help: "the cost of 1 to 1,000 topics of one subscriber, busy and idle",
		about: topicsAbout(), n: 300, short: 20, measure: measureTopics,
	})
}

func measureTopics(ctx context.Context, b *bench) error {
	pool, err := b.database(ctx, "topics")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "outmill-bench")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for round := range b.rounds {
		for _, count := range topicCounts {
			if err := b.topicsOnPostgres(ctx, pool, count); err != nil {
				return fmt.Errorf("postgres, %d topics: %w", count, err)
			}
			if err := b.topicsOnSQLite(ctx, filepath.Join(dir, fmt.Sprintf("%d-%d.db", round, count)), count); err != nil {
				return fmt.Errorf("sqlite, %d topics: %w", count, err)
			}
			mean, _, trips, cpu := topicsFields("postgres", count)
			lite, _, _, liteCPU := topicsFields("sqlite", count)
			b.say("round %d of %d: %d topics: postgres %.1f ms, idle %.1f round trips/s, %.1f %% of a core; sqlite %.1f ms, %.1f %%", round+1,
				b.rounds, count,
				b.results.median(mean), b.results.median(trips), b.results.median(cpu), b.results.median(lite), b.results.median(liteCPU))
		}
	}
	return nil
}

func (b *bench) topicsOnPostgres(ctx context.Context, pool *pgxpool.Pool, count int) (err error) {
	writing, err := outbox(ctx, pool)
	if err != nil {
		return err
	}
	readers, asked, err := counted(ctx, pool)
	if err != nil {
		return err
	}
	defer readers.Close()
	reading, err := postgres.New(readers, postgres.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reading.Close(), writing.Close()) }()
	first, remote := postmaster(ctx, pool)
	return b.watchTopics(ctx,
		topicsSide{engine: "postgres", count: count, store: reading, other: writing, idle: func() (trips int64, cpu time.Duration) {
			own, _ := ownTime()
			if remote == nil {
				server, _ := serverTime(first)
				own += server
			}
			return asked.roundTrips.Load(), own
		}})
}

func (b *bench) topicsOnSQLite(ctx context.Context, file string, count int) (err error) {
	store, err := sqlite.Open(ctx, file, sqlite.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Ensure(ctx); err != nil {
		return err
	}
	return b.watchTopics(ctx, topicsSide{engine: "sqlite", count: count, store: store, idle: func() (int64, time.Duration) {
		own, _ := ownTime()
		return 0, own
	}})
}

// topicsSide is one engine with one number of topics. idle has the usage so far.
type topicsSide struct {
	engine string
	count  int
	store  outmill.Store
	// other is nil or the store of another service.
	other outmill.Store
	idle  func() (trips int64, cpu time.Duration)
}

func (b *bench) watchTopics(ctx context.Context, side topicsSide) (err error) {
	sub, err := subscriber.New(side.store, subscriber.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sub.Close()) }()
	delivered := make(chan string, 1)
	for i := range side.count {
		messages, err := sub.Subscribe(ctx, topicName(i))
		if err != nil {
			return err
		}
		go func() {
			for msg := range messages {
				delivered <- msg.UUID
				msg.Ack()
			}
		}()
	}
	mean, worst, trips, cpu := topicsFields(side.engine, side.count)
	title := fmt.Sprintf("%s, %d topics: ", side.engine, side.count)
	list, err := b.oneByOne(ctx, side.store, delivered, side.count)
	if err != nil {
		return err
	}
	b.results.add(mean, title+"mean, ms", meanOf(list))
	b.results.add(worst, "slowest, ms", millis(slices.Max(list)))
	if side.other != nil {
		if list, err = b.oneByOne(ctx, side.other, delivered, side.count); err != nil {
			return err
		}
		b.results.add(otherMean(side.count), "mean from another service, ms", meanOf(list))
	}
	settle, watch := 5*time.Second, 10*time.Second
	if b.short {
		settle, watch = 100*time.Millisecond, time.Second
	}
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	askedBefore, usedBefore := side.idle()
	began := time.Now()
	if err := sleep(ctx, watch); err != nil {
		return err
	}
	asked, used := side.idle()
	took := time.Since(began).Seconds()
	if side.engine == "postgres" {
		b.results.add(trips, "round trips per second while idle", float64(asked-askedBefore)/took)
	}
	b.results.add(cpu, "percent of a core while idle", 100*(used-usedBefore).Seconds()/took)
	return nil
}

func topicName(i int) string { return fmt.Sprintf("topic-%04d", i) }

func meanOf(list []time.Duration) float64 {
	var sum time.Duration
	for _, took := range list {
		sum += took
	}
	return millis(sum) / float64(len(list))
}

// oneByOne publishes b.n messages one after the other and returns how long each
// took from the return of Publish to its handler.
func (b *bench) oneByOne(ctx context.Context, store outmill.Store, delivered <-chan string, count int) ([]time.Duration, error) {
	pub, err := publisher.New(store, publisher.Config{}, nil)
	if err != nil {
		return nil, err
	}
	list := make([]time.Duration, 0, b.n)
	for i := range b.n {
		msg := messages(i, 1, b.size)[0]
		if err := pub.Publish(topicName(rand.IntN(count)), msg); err != nil {
			return nil, err
		}
		published := time.Now()
		select {
		case uuid := <-delivered:
			if uuid != msg.UUID {
				return nil, fmt.Errorf("message %s came in the place of %s", uuid, msg.UUID)
			}
			list = append(list, time.Since(published))
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return list, nil
}
