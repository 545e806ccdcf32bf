package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storekit"
)

const scrapeAbout = `n messages wait in PostgreSQL, in one topic and then in 100 topics, and nobody reads them. Metrics with default settings
are collected every second, for half a minute. Then the counts of "outmill status" are taken 20 times, each with a store of its own, which
connects as the command does.

  one_cpu_percent    one topic: the processor time that the collections cost PostgreSQL, of one core; the aim is less than 1
  one_status_ms      a connection, and the counts; the aim is less than 50
  one_status_cpu_ms  the processor time of these in PostgreSQL, which other programs of the machine disturb less
  many_cpu_percent   the same with 100 topics
  many_status_ms     the same with 100 topics
  many_status_cpu_ms  the same with 100 topics
  idle_cpu_percent   PostgreSQL in half a minute without collections, which the others include

Of a server that is not on this machine there are no processor times.`

func init() {
	scenarios = append(scenarios, scenario{
		name: "scrape", help: "what metrics and status cost with 1,000,000 waiting",
		about: scrapeAbout, n: 1_000_000, short: 2_000, measure: measureScrape,
	})
}

func (b *bench) scrapeTime() time.Duration {
	if b.short {
		return 2 * time.Second
	}
	return 30 * time.Second
}

func measureScrape(ctx context.Context, b *bench) error {
	pool, err := b.database(ctx, "scrape")
	if err != nil {
		return err
	}
	for _, waiting := range []struct {
		name, title string
		topics      int
	}{{"one", "one topic", 1}, {"many", "100 topics", 100}} {
		s := &scraping{b: b, pool: pool, name: waiting.name, title: waiting.title}
		if err := s.measure(ctx, waiting.topics); err != nil {
			return err
		}
	}
	return nil
}

// scraping is a store with waiting messages.
type scraping struct {
	b           *bench
	pool        *pgxpool.Pool
	name, title string
}

func (s *scraping) measure(ctx context.Context, topics int) error {
	store, err := outbox(ctx, s.pool)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if err := s.fill(ctx, store, topics); err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, "VACUUM ANALYZE"); err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	for round := range s.b.rounds {
		if s.name == "one" {
			if err := s.watch(ctx, "idle_cpu_percent", "nothing, percent of a core", nil); err != nil {
				return err
			}
		}
		if err := s.collect(ctx, store); err != nil {
			return err
		}
		if err := s.status(ctx, topics); err != nil {
			return err
		}
		s.b.say("round %d of %d: %s: %.1f ms", round+1, s.b.rounds, s.title, s.b.results.median(s.name+"_status_ms"))
	}
	return nil
}

func (s *scraping) fill(ctx context.Context, store *postgres.Store, topics int) error {
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("topic-%d", i))
	}
	registration := outmill.Registration{Group: forwarder.DefaultGroup, Topics: outmill.Topics{Include: names}}
	if err := store.RegisterGroup(ctx, registration); err != nil {
		return err
	}
	for from := 0; from < s.b.n; from += appendAtOnce {
		topic := names[from/appendAtOnce%topics]
		if err := store.Append(ctx, records(topic, from, min(appendAtOnce, s.b.n-from), s.b.size, true)...); err != nil {
			return err
		}
	}
	return nil
}

// watch adds the processor time of the server during a time in which each is called every second.
func (s *scraping) watch(ctx context.Context, field, title string, each func() error) error {
	first, remote := postmaster(ctx, s.pool)
	if remote != nil {
		s.b.say("no %s: %v", field, remote)
	}
	before, _ := serverTime(first)
	began := time.Now()
	for time.Since(began) < s.b.scrapeTime() {
		if each != nil {
			if err := each(); err != nil {
				return err
			}
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	after, err := serverTime(first)
	if remote == nil && err == nil {
		s.b.results.add(field, title, 100*(after-before).Seconds()/time.Since(began).Seconds())
	}
	return err
}

func (s *scraping) collect(ctx context.Context, store *postgres.Store) (err error) {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	defer func() { err = errors.Join(err, provider.Shutdown(context.WithoutCancel(ctx))) }()
	metrics, err := monitor.NewMetrics(provider, monitor.MetricsConfig{}, store)
	if err != nil {
		return err
	}
	defer func() { _ = metrics.Close() }()
	return s.watch(ctx, s.name+"_cpu_percent", s.title+": collections, percent of a core", func() error {
		var found metricdata.ResourceMetrics
		return reader.Collect(ctx, &found)
	})
}

const statusCalls = 20

// status measures the slowest part of the command: what it waits for.
func (s *scraping) status(ctx context.Context, topics int) error {
	first, remote := postmaster(ctx, s.pool)
	before, _ := serverTime(first)
	var each results
	for range statusCalls {
		began := time.Now()
		stats, err := s.count(ctx)
		took := time.Since(began)
		if err != nil {
			return err
		}
		if len(stats) != min(topics, (s.b.n+appendAtOnce-1)/appendAtOnce) {
			return fmt.Errorf("status has %d lines", len(stats))
		}
		each.add("ms", "", float64(took.Microseconds())/1000)
	}
	s.b.results.add(s.name+"_status_ms", s.title+": status, ms", each.median("ms"))
	if after, err := serverTime(first); remote == nil && err == nil {
		s.b.results.add(s.name+"_status_cpu_ms", s.title+": status, processor time of PostgreSQL, ms",
			float64((after-before).Milliseconds())/statusCalls)
	}
	return nil
}

func (s *scraping) count(ctx context.Context) (stats []outmill.TopicStats, err error) {
	pool, err := pgxpool.NewWithConfig(ctx, s.pool.Config())
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.Config{}, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	stats, _, err = storekit.QuickStats(ctx, store)
	return stats, err
}
