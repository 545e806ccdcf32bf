package main

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// forwarderTopic is the topic of the enveloped messages of Watermill's forwarder.
const forwarderTopic = "forwarder"

// watermillForwarding is Watermill's own outbox: watermill-sql's publisher with
// the forwarder's envelope, its subscriber, components/forwarder, and
// watermill-kafka's publisher, each as its documentation recommends:
//   - SubscribeBatchSize of DefaultPostgreSQLSchema, "the number of messages to be
//     queried at once", at 1,000 instead of 100;
//   - a poll interval of 10 ms, so that no time is lost between batches;
//   - acks=all instead of the default acks=1, because Outmill uses it. The publisher waits for
//     each message, because the forwarder publishes one message at a time.
type watermillForwarding struct {
	b      *bench
	pool   *pgxpool.Pool
	broker string
	topic  string
}

func watermillSchema() watermillsql.DefaultPostgreSQLSchema {
	return watermillsql.DefaultPostgreSQLSchema{SubscribeBatchSize: 1000}
}

func (f *watermillForwarding) prepare(ctx context.Context) (err error) {
	if f.topic, err = newTopic(ctx, f.broker); err != nil {
		return err
	}
	for _, table := range []string{"watermill_" + forwarderTopic, "watermill_offsets_" + forwarderTopic} {
		if _, err := f.pool.Exec(ctx, "DROP TABLE IF EXISTS "+table); err != nil {
			return err
		}
	}
	db := stdlib.OpenDBFromPool(f.pool)
	defer func() { _ = db.Close() }()
	pub, err := watermillsql.NewPublisher(db, watermillsql.PublisherConfig{SchemaAdapter: watermillSchema(), AutoInitializeSchema: true}, nil)
	if err != nil {
		return err
	}
	enveloping := forwarder.NewPublisher(pub, forwarder.PublisherConfig{ForwarderTopic: forwarderTopic})
	defer closing(enveloping)
	for from := 0; from < f.b.n; from += appendAtOnce {
		if err := enveloping.Publish(f.topic, messages(from, min(appendAtOnce, f.b.n-from), f.b.size)...); err != nil {
			return err
		}
	}
	_, err = f.pool.Exec(ctx, "CHECKPOINT")
	return err
}

func (f *watermillForwarding) run(ctx context.Context) (time.Duration, error) {
	db := stdlib.OpenDBFromPool(f.pool)
	defer func() { _ = db.Close() }()
	return f.forward(ctx, func() (*watermillsql.Subscriber, error) { return f.subscriber(db) })
}

// forward runs Watermill's forwarder until all messages are in Kafka.
func (f *watermillForwarding) forward(ctx context.Context, subscriber func() (*watermillsql.Subscriber, error)) (time.Duration, error) {
	sub, err := subscriber()
	if err != nil {
		return 0, err
	}
	pub, err := f.publisher()
	if err != nil {
		return 0, err
	}
	defer closing(pub)
	fwd, err := forwarder.NewForwarder(sub, pub, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: forwarderTopic})
	if err != nil {
		return 0, err
	}
	arrived, err := newCounter(f.broker, f.topic)
	if err != nil {
		return 0, err
	}
	defer arrived.client.Close()
	began := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(ctx) }()
	err = poll(ctx, func() (bool, error) {
		n, err := arrived.count(ctx)
		return n >= int64(f.b.n), err
	})
	took := time.Since(began)
	if closeErr := fwd.Close(); err == nil {
		err = closeErr
	}
	if runErr := <-ended; err == nil && runErr != nil {
		err = fmt.Errorf("the forwarder: %w", runErr)
	}
	return took, err
}

func (f *watermillForwarding) subscriber(db *sql.DB) (*watermillsql.Subscriber, error) {
	return watermillsql.NewSubscriber(db, watermillsql.SubscriberConfig{
		SchemaAdapter: watermillSchema(), OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true, PollInterval: 10 * time.Millisecond,
	}, nil)
}

func (f *watermillForwarding) publisher() (message.Publisher, error) {
	config := wkafka.DefaultSaramaSyncPublisherConfig()
	config.Producer.RequiredAcks = sarama.WaitForAll
	return wkafka.NewPublisher(wkafka.PublisherConfig{
		Brokers: []string{f.broker}, Marshaler: wkafka.DefaultMarshaler{}, OverwriteSaramaConfig: config,
	}, watermill.NopLogger{})
}
