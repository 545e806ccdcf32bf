package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storekit"
)

const forwardAbout = `n messages wait in PostgreSQL (fsync on), and are moved to a real Kafka (acks=all).

  outmill_msgs_per_s          Outmill's forwarder, ordered by key as it is by default, to package kafka
  outmill_unkeyed_msgs_per_s  the same where messages have no key
  watermill_msgs_per_s        watermill-sql, components/forwarder, watermill-kafka with acks=all
  ratio                       outmill / watermill
  raw_read_per_s              a bare ordered SELECT of the same columns of the log, by pgx
  raw_produce_per_s           bare idempotent producing of the same records, by franz-go
  limit_msgs_per_s            1 / (1/raw_read + 1/raw_produce), since the cores are shared
  of_limit                    outmill / limit`

func init() {
	scenarios = append(scenarios, scenario{
		name: "forward", help: "waiting messages from PostgreSQL to Kafka, compared with Watermill's forwarder",
		about: forwardAbout, n: 100_000, short: 2_000, measure: measureForward,
	})
}

// The values of -only: onlyOurs leaves out what Outmill is compared with, and onlyLimit the peer, which takes most of the time.
const (
	onlyOurs  = "outmill"
	onlyLimit = "limit"
)

func measureForward(ctx context.Context, b *bench) error {
	if !slices.Contains([]string{"", onlyOurs, onlyLimit}, b.only) {
		return fmt.Errorf("forward: -only takes %s or %s, not %q", onlyOurs, onlyLimit, b.only)
	}
	broker, err := b.engines.kafka(ctx)
	if err != nil {
		return err
	}
	pool, err := b.database(ctx, "forward")
	if err != nil {
		return err
	}
	ours := &forwarding{b: b, pool: pool, broker: broker}
	defer func() { _ = ours.close() }()
	peer := &watermillForwarding{b: b, pool: pool, broker: broker}
	// The peer's rate falls with the number of waiting messages, so both sides get the same number.
	sides := []side{
		{field: "outmill_msgs_per_s", title: "Outmill, by key", prepare: ours.prepare(true), run: ours.run},
		{field: "outmill_unkeyed_msgs_per_s", title: "Outmill, no keys", prepare: ours.prepare(false), run: ours.run},
		{field: "watermill_msgs_per_s", title: "Watermill's forwarder", prepare: peer.prepare, run: peer.run},
		{field: "raw_read_per_s", title: "bare SELECT", prepare: ours.prepare(true), run: ours.read},
		{field: "raw_produce_per_s", title: "bare producing", run: ours.produce},
	}
	switch b.only {
	case onlyOurs:
		return b.compare(ctx, sides[:2]...)
	case onlyLimit:
		sides = slices.Delete(sides, 1, 3)
	}
	if err := b.compare(ctx, sides...); err != nil {
		return err
	}
	r := &b.results
	if b.only == "" {
		r.ratio("ratio", "Outmill / Watermill", "outmill_msgs_per_s", "watermill_msgs_per_s")
	}
	limit := 1 / (1/r.median("raw_read_per_s") + 1/r.median("raw_produce_per_s"))
	r.add("limit_msgs_per_s", "limit of reading and producing", limit)
	r.ratio("of_limit", "Outmill / limit", "outmill_msgs_per_s", "limit_msgs_per_s")
	return nil
}

// forwarding is Outmill's side.
type forwarding struct {
	b      *bench
	pool   *pgxpool.Pool
	broker string
	store  *postgres.Store
	topic  string
}

func (f *forwarding) prepare(keyed bool) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return f.prepareWith(ctx, keyed, func(store outmill.Store) outmill.Store { return store })
	}
}

// prepareWith appends the messages through a decorator.
func (f *forwarding) prepareWith(ctx context.Context, keyed bool, decorate func(outmill.Store) outmill.Store) (err error) {
	if err := f.close(); err != nil {
		return err
	}
	if f.store, err = outbox(ctx, f.pool); err != nil {
		return err
	}
	if f.topic, err = newTopic(ctx, f.broker); err != nil {
		return err
	}
	if err := f.b.fill(ctx, decorate(f.store), forwarder.DefaultGroup, f.topic, f.b.n, keyed); err != nil {
		return err
	}
	_, err = f.pool.Exec(ctx, "CHECKPOINT")
	return err
}

// close ends the store of the previous round.
func (f *forwarding) close() error {
	if f.store == nil {
		return nil
	}
	return f.store.Close()
}

// run ends when Kafka and the store have acked the last message.
func (f *forwarding) run(ctx context.Context) (time.Duration, error) {
	pub, err := newKafkaPublisher(f.broker, kafka.Config{})
	if err != nil {
		return 0, err
	}
	defer func() { _ = pub.Close() }()
	return f.drain(ctx, pub)
}

func newKafkaPublisher(broker string, config kafka.Config) (*kafka.Publisher, error) {
	config.Brokers = []string{broker}
	return kafka.NewPublisher(config, nil)
}

// drain counts the acks of the publisher and does not query the table. A query that finds no row
// reads all deleted rows, and this would slow down the measured side. A forwarder that ends has
// stored its acks.
func (f *forwarding) drain(ctx context.Context, pub storekit.BatchPublisher) (time.Duration, error) {
	return f.drainFrom(ctx, f.store, pub)
}

// drainFrom is the same as drain, and reads the store through a decorator.
func (f *forwarding) drainFrom(ctx context.Context, queue outmill.Queue, pub storekit.BatchPublisher) (time.Duration, error) {
	return f.b.drain(ctx, f.store, queue, pub)
}

// drain forwards all of a store, which it reads through a decorator.
func (b *bench) drain(ctx context.Context, store outmill.Inspector, queue outmill.Queue, pub storekit.BatchPublisher) (
	time.Duration, error) {
	acked := newAckCount(b.n)
	fwd, err := forwarder.New(queue, watch(pub, acked.note), forwarder.Config{BatchSize: b.forwards}, nil)
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(ctx) }()
	select {
	case <-acked.all:
		stop()
		err = <-ended
	case err = <-ended:
		err = cmp.Or(err, ctx.Err(), errors.New("the forwarder ended early"))
	}
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	return took, nothingLeft(ctx, store)
}

const sqlRead = `SELECT pos, id, topic, key, message_id, metadata, payload FROM outmill.log WHERE topic = $1 ORDER BY pos`

// read reads the waiting records by the index that claims use. Without it the server would sort,
// which is slower, because the tables are not analysed.
func (f *forwarding) read(ctx context.Context) (time.Duration, error) {
	tx, err := f.pool.Begin(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "SET LOCAL enable_sort = off"); err != nil {
		return 0, err
	}
	began := time.Now()
	rows, err := tx.Query(ctx, sqlRead, f.topic)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var seq int64
		var id [16]byte
		var topic string
		var key, messageID *string
		var metadata, payload []byte
		if err := rows.Scan(&seq, &id, &topic, &key, &messageID, &metadata, &payload); err != nil {
			return 0, err
		}
		n++
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if n != f.b.n {
		return 0, fmt.Errorf("read %d of %d records", n, f.b.n)
	}
	return time.Since(began), nil
}

// produce sends the same records with the client that package kafka uses: idempotent, acks=all. It waits for no room in the client's buffer,
// which would slow it down.
func (f *forwarding) produce(ctx context.Context) (time.Duration, error) {
	topic, err := newTopic(ctx, f.broker)
	if err != nil {
		return 0, err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(f.broker), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(f.b.n))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	list := records(topic, 0, f.b.n, f.b.size, true)
	began := time.Now()
	var failed error
	for _, r := range list {
		client.Produce(ctx, &kgo.Record{Key: []byte(r.Key), Value: r.Payload, Headers: []kgo.RecordHeader{
			{Key: "_watermill_message_uuid", Value: []byte(r.MessageID)}, {Key: "name", Value: []byte("order.placed")},
		}}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return 0, err
	}
	return time.Since(began), failed
}

// pollEvery is the interval at which the bench checks whether a side that does not report its end
// is done.
const pollEvery = 20 * time.Millisecond

func poll(ctx context.Context, done func() (bool, error)) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if is, err := done(); err != nil || is {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// closing closes the resources that Watermill's components do not close.
func closing(closers ...message.Publisher) {
	for _, c := range closers {
		_ = c.Close()
	}
}
