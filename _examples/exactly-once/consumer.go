package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/sqlite"
)

const (
	createTables = `CREATE TABLE IF NOT EXISTS visits (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), counted INTEGER NOT NULL, delivered INTEGER NOT NULL);
INSERT INTO visits VALUES (1, 0, 0) ON CONFLICT DO NOTHING`
	countOne = `UPDATE visits SET counted = counted + 1`
	// noteDelivery is no part of the handler's transaction, so it may count too few.
	noteDelivery = `UPDATE visits SET delivered = delivered + 1`
)

// consume counts the messages of the topic, from its beginning, until the last one.
func consume(ctx context.Context, broker, database string) error {
	store, err := openStore(ctx, database)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if _, err := store.DB().ExecContext(ctx, createTables); err != nil {
		return err
	}
	box, err := inbox.New(store, inbox.Config{Consumer: "counter"})
	if err != nil {
		return err
	}
	sub, err := wkafka.NewSubscriber(wkafka.SubscriberConfig{
		Brokers: []string{broker}, Unmarshaler: wkafka.DefaultMarshaler{}, OverwriteSaramaConfig: fromTheBeginning(),
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	count := func(msg *message.Message) error {
		tx, ok := store.Tx(msg.Context())
		if !ok {
			return errors.New("the message has no transaction")
		}
		_, err := tx.ExecContext(msg.Context(), countOne)
		return err
	}
	router.AddConsumerHandler("counter", topic, sub, func(msg *message.Message) error {
		if msg.UUID == last {
			close(ended)
			return nil
		}
		if _, err := store.DB().ExecContext(msg.Context(), noteDelivery); err != nil {
			return err
		}
		_, err := box.Middleware(message.HandlerFunc(func(msg *message.Message) ([]*message.Message, error) { return nil, count(msg) }))(msg)
		return err
	})
	return runUntil(ctx, router, ended)
}

func runUntil(ctx context.Context, router *message.Router, ended <-chan struct{}) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(ctx, func() { _ = router.Close() })()
	go func() {
		select {
		case <-ended:
			stop()
		case <-ctx.Done():
		}
	}()
	return router.Run(context.WithoutCancel(ctx))
}

func openStore(ctx context.Context, database string) (*sqlite.Store, error) {
	// Commits need not wait for the disk, because the parent kills a process and not the machine.
	store, err := sqlite.Open(ctx, "file:"+database+"?_pragma=synchronous(NORMAL)", sqlite.Config{}, nil)
	if err != nil {
		return nil, err
	}
	if err := store.Ensure(ctx); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// fromTheBeginning makes a consumer without a group read the whole topic.
func fromTheBeginning() *sarama.Config {
	config := wkafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Metadata.Retry.Max = 50
	return config
}

// counts reads how many messages were counted and delivered.
func counts(ctx context.Context, db *sql.DB) (counted, delivered int, err error) {
	err = db.QueryRowContext(ctx, `SELECT counted, delivered FROM visits`).Scan(&counted, &delivered)
	if err != nil {
		return 0, 0, fmt.Errorf("read the count: %w", err)
	}
	return counted, delivered, nil
}
