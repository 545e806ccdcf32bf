package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"
)

const consumersAbout = `Consumers of one topic of a MongoDB store, each a process with a client of its own: claim -batch, ack, and so on until
all n messages are handled. One process and eight in turn, without an order and in the order of keys. Each message has a
key of its own, so that no consumer waits for the handlers of another one. A consumer whose claim finds nothing pauses for
10 ms, and twice as long each further time up to 100 ms, as a subscriber does.

  consumers_1_per_s                 messages per second, one process, without an order
  consumers_1_claim_p50_ms          how long a claim takes, of those that found something
  consumers_1_claim_p99_ms          "
  consumers_1_mongod_us             processor time of mongod for one message, in microseconds
  consumers_1_round_trips           commands for one message, claim and ack, as the driver counts them
  consumers_8_per_s                 the same, eight processes
  consumers_8_claim_p50_ms          "
  consumers_8_claim_p99_ms          "
  consumers_8_mongod_us             "
  consumers_8_round_trips           "
  consumers_ordered_1_per_s         the same, in the order of keys
  consumers_ordered_1_claim_p50_ms  "
  consumers_ordered_1_claim_p99_ms  "
  consumers_ordered_1_mongod_us     "
  consumers_ordered_1_round_trips   "
  consumers_ordered_8_per_s         "
  consumers_ordered_8_claim_p50_ms  "
  consumers_ordered_8_claim_p99_ms  "
  consumers_ordered_8_mongod_us     "
  consumers_ordered_8_round_trips   "
  consumers_ratio                   consumers_8 / consumers_1
  consumers_ordered_ratio           consumers_ordered_8 / consumers_ordered_1

With -before PROGRAM the same is measured of another build of this program, in the same run; its fields begin with before_.
To compare with the library of an older commit:

  git worktree add DIR COMMIT && cp bench/*.go DIR/bench/ && go build -C DIR/bench -o PROGRAM .`

func init() {
	scenarios = append(scenarios, scenario{
		name: "consumers", help: "one process and eight that consume one topic of a MongoDB",
		about: consumersAbout, n: 100_000, short: 2_000, measure: measureConsumers,
	})
}

// consumerSide is one way to consume.
type consumerSide struct {
	prefix, title string
	program       string
	ordered       bool
	processes     int
}

func measureConsumers(ctx context.Context, b *bench) error {
	if b.only != "" && b.only != "mongo" {
		return fmt.Errorf("consumers are measured of mongo only, not of %q", b.only)
	}
	db, err := b.mongoDatabase(ctx, "consumers")
	if err != nil {
		return err
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	sides := consumerSides("", "", own)
	if b.before != "" {
		sides = append(sides, consumerSides("before_", "before, ", b.before)...)
	}
	for round := range b.rounds {
		for _, side := range sides {
			if err := side.measure(ctx, b, db); err != nil {
				return fmt.Errorf("%s: %w", side.title, err)
			}
			b.say("round %d of %d: %s: %.0f/s", round+1, b.rounds, side.title, b.results.byName[side.prefix+"_per_s"].rounds[round])
		}
	}
	b.results.ratio("consumers_ratio", "eight / one", "consumers_8_per_s", "consumers_1_per_s")
	b.results.ratio("consumers_ordered_ratio", "eight / one, in order", "consumers_ordered_8_per_s", "consumers_ordered_1_per_s")
	if b.before != "" {
		b.results.ratio("before_consumers_ratio", "eight / one before", "consumers_8_per_s", "before_consumers_1_per_s")
		b.results.ratio("before_consumers_ordered_ratio", "eight / one before, in order", "consumers_ordered_8_per_s",
			"before_consumers_ordered_1_per_s")
	}
	return nil
}

func consumerSides(field, title, program string) []consumerSide {
	var sides []consumerSide
	for _, ordered := range []bool{false, true} {
		prefix, order := field+"consumers", ""
		if ordered {
			prefix, order = prefix+"_ordered", ", in order"
		}
		for _, processes := range []int{1, 8} {
			sides = append(sides, consumerSide{
				prefix: fmt.Sprintf("%s_%d", prefix, processes), title: fmt.Sprintf("%s%d consumers%s", title, processes, order),
				program: program, ordered: ordered, processes: processes,
			})
		}
	}
	return sides
}

func (s consumerSide) measure(ctx context.Context, b *bench, db *mongo.Database) error {
	if err := db.Drop(ctx); err != nil {
		return err
	}
	order := consumerOrder{URL: b.engines.mongoURL, Database: db.Name(), Batch: b.batch, Ordered: s.ordered, N: b.n, Size: b.size}
	fill := order
	fill.Fill = true
	if _, err := fill.run(ctx, s.program, nil); err != nil {
		return err
	}
	server, err := mongodOf(ctx, db)
	if err != nil {
		return err
	}
	before, err := readProcess(server)
	if err != nil {
		return err
	}
	results := make([]consumerResult, s.processes)
	var all errgroup.Group
	start := make(chan struct{})
	ready := make(chan struct{}, s.processes)
	for i := range results {
		all.Go(func() (err error) {
			results[i], err = order.run(ctx, s.program, func() {
				ready <- struct{}{}
				<-start
			})
			if err != nil {
				ready <- struct{}{}
			}
			return err
		})
	}
	for range results {
		<-ready
	}
	close(start)
	if err := all.Wait(); err != nil {
		return err
	}
	after, err := readProcess(server)
	if err != nil {
		return err
	}
	return s.add(b, results, after.used-before.used)
}

// mongodOf returns the process of the server, which must run on this machine.
func mongodOf(ctx context.Context, db *mongo.Database) (string, error) {
	var status struct {
		Pid int64 `bson:"pid"`
	}
	if err := db.RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status); err != nil {
		return "", err
	}
	pid := strconv.FormatInt(status.Pid, 10)
	if p, err := readProcess(pid); err != nil || p.name != "mongod" {
		return "", errors.New("mongod does not run on this machine")
	}
	return pid, nil
}

func (s consumerSide) add(b *bench, results []consumerResult, used time.Duration) error {
	var claims []time.Duration
	var messages, commands int
	began, ended := results[0].Began, results[0].Ended
	for _, r := range results {
		if r.Messages > 0 {
			began, ended = min(began, r.Began), max(ended, r.Ended)
		}
		claims = append(claims, r.Claims...)
		messages += r.Messages
		commands += r.Commands
	}
	if messages != b.n {
		return fmt.Errorf("%d messages were handled, of %d", messages, b.n)
	}
	slices.Sort(claims)
	at := func(share float64) float64 {
		return float64(claims[min(len(claims)-1, int(share*float64(len(claims))))]) / float64(time.Millisecond)
	}
	r := &b.results
	r.add(s.prefix+"_per_s", s.title+", messages/s", float64(messages)/time.Duration(ended-began).Seconds())
	r.add(s.prefix+"_claim_p50_ms", s.title+", claim p50 in ms", at(0.5))
	r.add(s.prefix+"_claim_p99_ms", s.title+", claim p99 in ms", at(0.99))
	r.add(s.prefix+"_mongod_us", s.title+", µs of mongod for a message", float64(used)/float64(time.Microsecond)/float64(messages))
	r.add(s.prefix+"_round_trips", s.title+", commands for a message", float64(commands)/float64(messages))
	return nil
}
