package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"

	ours "github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/mysql"
)

const forwardMySQLAbout = `n messages wait in MariaDB (or the MySQL of -mysql), which waits for the disk, and are moved to a real Kafka
(acks=all).

  outmill_msgs_per_s          Outmill's forwarder, ordered by key as it is by default, to package kafka
  outmill_unkeyed_msgs_per_s  the same where messages have no key
  watermill_msgs_per_s        watermill-sql on the same server, components/forwarder, watermill-kafka with acks=all
  ratio                       outmill / watermill`

func init() {
	scenarios = append(scenarios, scenario{
		name: "forward-mysql", help: "waiting messages from MariaDB to Kafka, compared with Watermill's forwarder",
		about: forwardMySQLAbout, n: 20_000, short: 1_000, measure: measureForwardMySQL,
	})
}

func measureForwardMySQL(ctx context.Context, b *bench) error {
	broker, err := b.engines.kafka(ctx)
	if err != nil {
		return err
	}
	f := &mysqlForwarding{b: b, broker: broker}
	defer func() { _ = f.close() }()
	peer := &watermillForwarding{b: b, broker: broker}
	sides := []side{
		{field: "outmill_msgs_per_s", title: "Outmill, by key", prepare: f.prepare(true), run: f.run},
		{field: "outmill_unkeyed_msgs_per_s", title: "Outmill, no keys", prepare: f.prepare(false), run: f.run},
	}
	if b.only != onlyOurs {
		sides = append(sides, side{
			field: "watermill_msgs_per_s", title: "Watermill's forwarder", prepare: f.preparePeer(peer), run: f.runPeer(peer),
		})
	}
	if err := b.compare(ctx, sides...); err != nil || b.only == onlyOurs {
		return err
	}
	b.results.ratio("ratio", "Outmill / Watermill", "outmill_msgs_per_s", "watermill_msgs_per_s")
	return nil
}

// mysqlForwarding is Outmill's side, and has the database of the peer.
type mysqlForwarding struct {
	b      *bench
	broker string
	store  *mysql.Store
}

func (f *mysqlForwarding) close() error {
	if f.store == nil {
		return nil
	}
	err := f.store.Close()
	f.store = nil
	return err
}

func (f *mysqlForwarding) open(ctx context.Context) (topic string, err error) {
	if err := f.close(); err != nil {
		return "", err
	}
	if f.store, err = f.b.mysqlStore(ctx, "forward"); err != nil {
		return "", err
	}
	return newTopic(ctx, f.broker)
}

func (f *mysqlForwarding) prepare(keyed bool) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		topic, err := f.open(ctx)
		if err != nil {
			return err
		}
		return f.b.fill(ctx, f.store, ours.DefaultGroup, topic, f.b.n, keyed)
	}
}

func (f *mysqlForwarding) run(ctx context.Context) (time.Duration, error) {
	pub, err := newKafkaPublisher(f.broker, kafka.Config{})
	if err != nil {
		return 0, err
	}
	defer func() { _ = pub.Close() }()
	return f.b.drain(ctx, f.store, f.store, pub)
}

func (f *mysqlForwarding) preparePeer(peer *watermillForwarding) func(ctx context.Context) error {
	return func(ctx context.Context) (err error) {
		if peer.topic, err = f.open(ctx); err != nil {
			return err
		}
		pub, err := watermillsql.NewPublisher(f.store.DB(),
			watermillsql.PublisherConfig{SchemaAdapter: watermillMySQL(), AutoInitializeSchema: true}, nil)
		if err != nil {
			return err
		}
		enveloping := forwarder.NewPublisher(pub, forwarder.PublisherConfig{ForwarderTopic: forwarderTopic})
		defer closing(enveloping)
		for from := 0; from < f.b.n; from += appendAtOnce {
			if err := enveloping.Publish(peer.topic, messages(from, min(appendAtOnce, f.b.n-from), f.b.size)...); err != nil {
				return fmt.Errorf("watermill-sql: %w", err)
			}
		}
		return nil
	}
}

func watermillMySQL() watermillsql.DefaultMySQLSchema {
	return watermillsql.DefaultMySQLSchema{SubscribeBatchSize: 1000}
}

func (f *mysqlForwarding) runPeer(peer *watermillForwarding) func(ctx context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		return peer.forward(ctx, func() (*watermillsql.Subscriber, error) { return mysqlSubscriber(f.store.DB()) })
	}
}

func mysqlSubscriber(db *sql.DB) (*watermillsql.Subscriber, error) {
	return watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
		SchemaAdapter: watermillMySQL(), OffsetsAdapter: watermillsql.DefaultMySQLOffsetsAdapter{},
		InitializeSchema: true, PollInterval: 10 * time.Millisecond,
	}, watermill.NopLogger{})
}
