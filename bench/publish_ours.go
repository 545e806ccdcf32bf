package main

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
)

// publishOurs is Outmill's side.
type publishOurs struct {
	pool  *pgxpool.Pool
	batch message.Messages
	store *postgres.Store
	pub   *publisher.Publisher
}

func (o *publishOurs) prepare(ctx context.Context) (err error) {
	if err := o.close(); err != nil {
		return err
	}
	if o.store, err = outbox(ctx, o.pool); err != nil {
		return err
	}
	if err := o.store.RegisterGroup(ctx, outmill.Registration{Topics: outmill.Topics{Include: []string{publishTopic}}}); err != nil {
		return err
	}
	o.pub, err = publisher.New(o.store, publisher.Config{}, nil)
	return err
}

func (o *publishOurs) close() error {
	if o.store == nil {
		return nil
	}
	return o.store.Close()
}

func (o *publishOurs) publish(ctx context.Context) error {
	return pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		return o.pub.WithContext(o.store.WithTx(ctx, tx)).Publish(publishTopic, o.batch...)
	})
}

// append makes the records itself, like the publisher.
func (o *publishOurs) append(ctx context.Context) error {
	list := make([]*outmill.Record, len(o.batch))
	for i, msg := range o.batch {
		list[i] = &outmill.Record{Topic: publishTopic, MessageID: msg.UUID, Key: msg.Metadata.Get(outmill.MetadataKey), Payload: msg.Payload,
			Metadata: map[string]string{"name": msg.Metadata.Get("name")}}
	}
	return o.store.Append(ctx, list...)
}
