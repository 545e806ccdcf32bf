package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
)

const memoryAbout = `n messages of 1 KiB wait in PostgreSQL, and then a thousandth of n of 1 MiB (at least 20), each for a subscriber and for a
forwarder to a real Kafka. A process of its own runs the two with default settings until nothing is left, and then reads
what the kernel says was the most memory that it had (VmHWM, under Linux). To fill the table is not part of it. The handler
acks at once. For 1 MiB the topic and kafka.Config.MaxMessageBytes take messages of up to 2 MiB.

  peak_rss_small_mib  with messages of 1 KiB
  peak_rss_large_mib  with messages of 1 MiB
  peak_rss_mib        the larger of the two`

func init() {
	scenarios = append(scenarios, scenario{
		name: "memory", help: "the peak memory of a process that handles many messages, or large ones",
		about: memoryAbout, n: 1_000_000, short: 5_000, measure: measureMemory,
	})
}

const (
	kib = 1 << 10
	// largeShare is the factor by which there are fewer large messages.
	largeShare  = 1000
	fewestLarge = 20
	// largeLimit is the size of the messages that Kafka must accept.
	largeLimit = 2 * mib
	// fillBytes limits the payloads of one append.
	fillBytes = 16 * mib
)

// hoard has the messages that wait for the process.
type hoard struct {
	field, title string
	n, size      int
}

func measureMemory(ctx context.Context, b *bench) error {
	broker, err := b.engines.kafka(ctx)
	if err != nil {
		return err
	}
	pool, err := b.database(ctx, "memory")
	if err != nil {
		return err
	}
	small := hoard{"peak_rss_small_mib", "peak with 1 KiB each, MiB", b.n, kib}
	large := hoard{"peak_rss_large_mib", "peak with 1 MiB each, MiB", max(b.n/largeShare, fewestLarge), mib}
	for round := range b.rounds {
		for _, h := range []hoard{small, large} {
			peak, err := b.peakOf(ctx, pool, broker, h)
			if err != nil {
				return fmt.Errorf("%d messages of %d bytes: %w", h.n, h.size, err)
			}
			b.say("round %d of %d: %d messages of %d bytes: %.1f MiB", round+1, b.rounds, h.n, h.size, peak)
			b.results.add(h.field, h.title, peak)
		}
	}
	b.results.add("peak_rss_mib", "the larger", max(b.results.median(small.field), b.results.median(large.field)))
	return nil
}

// peakOf fills the table, starts a process that handles all messages, and returns its peak of
// memory in MiB.
func (b *bench) peakOf(ctx context.Context, pool *pgxpool.Pool, broker string, h hoard) (float64, error) {
	topic, err := newTopic(ctx, broker)
	if err == nil {
		err = takeLarge(ctx, broker, topic)
	}
	if err != nil {
		return 0, err
	}
	if err := b.fillFor(ctx, pool, topic, h); err != nil {
		return 0, err
	}
	address, err := urlOf(b.engines.postgresURL, pool)
	if err != nil {
		return 0, err
	}
	return b.runDrain(ctx, drainOrder{Postgres: address, Kafka: broker, Topic: topic, N: h.n, Large: h.size > kib})
}

// takeLarge makes the topic accept large messages.
func takeLarge(ctx context.Context, broker, topic string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		return err
	}
	defer client.Close()
	limit := strconv.Itoa(largeLimit)
	altered, err := kadm.NewClient(client).AlterTopicConfigs(ctx,
		[]kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &limit}}, topic)
	if err == nil {
		_, err = altered.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	return err
}

func (b *bench) fillFor(ctx context.Context, pool *pgxpool.Pool, topic string, h hoard) error {
	store, err := outbox(ctx, pool)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	// The subscriber and the forwarder will register in the same way.
	err = errors.Join(
		store.RegisterGroup(ctx, outmill.Registration{Topics: outmill.Topics{Include: []string{outmill.Exact(topic)}}}),
		store.RegisterGroup(ctx, outmill.Registration{Group: forwarder.DefaultGroup}))
	if err != nil {
		return err
	}
	atOnce := min(appendAtOnce, fillBytes/h.size)
	for from := 0; from < h.n; from += atOnce {
		if err := store.Append(ctx, records(topic, from, min(atOnce, h.n-from), h.size, true)...); err != nil {
			return fmt.Errorf("append: %w", err)
		}
		if from > 0 && from%200_000 == 0 {
			b.say("%d of %d appended", from, h.n)
		}
	}
	_, err = pool.Exec(ctx, "CHECKPOINT")
	return err
}

// urlOf is the URL of a pool's database on the server.
func urlOf(server string, pool *pgxpool.Pool) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	u.Path = "/" + pool.Config().ConnConfig.Database
	return u.String(), nil
}

// runDrain runs this program again: see init in memory_process.go.
func (b *bench) runDrain(ctx context.Context, o drainOrder) (float64, error) {
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), drainEnv+"="+string(text))
	cmd.Stderr = b.progress
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("the process that drains: %w", err)
	}
	var result drainResult
	if err := json.Unmarshal(out, &result); err != nil {
		return 0, fmt.Errorf("the process that drains said %q: %w", out, err)
	}
	return float64(result.PeakKiB) * kib / mib, nil
}
