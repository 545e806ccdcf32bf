package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/errgroup"
)

// watermillLive is the same with Watermill's own components, with the settings of the forward
// scenario. Each transaction gets its own publisher, as the documentation of the forwarder
// recommends.
type watermillLive struct {
	watermillForwarding
	db *sql.DB
}

func (l *watermillLive) start(ctx context.Context, acked noteAcks) (wait func() error, err error) {
	l.b = l.b.with(0)
	if err := l.prepare(ctx); err != nil {
		return nil, err
	}
	l.db = stdlib.OpenDBFromPool(l.pool)
	sub, err := l.subscriber(l.db)
	if err != nil {
		return nil, err
	}
	// Writers have no right to make the tables in their transactions.
	if err := sub.SubscribeInitialize(forwarderTopic); err != nil {
		return nil, err
	}
	pub, err := l.publisher()
	if err != nil {
		return nil, err
	}
	fwd, err := forwarder.NewForwarder(sub, &watchedPlain{pub, acked}, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: forwarderTopic})
	if err != nil {
		return nil, err
	}
	var running errgroup.Group
	running.Go(func() error { return fwd.Run(context.WithoutCancel(ctx)) })
	select {
	case <-fwd.Running():
	case <-ctx.Done():
	}
	return func() error {
		return errors.Join(fwd.Close(), running.Wait(), pub.Close(), l.db.Close())
	}, ctx.Err()
}

func (l *watermillLive) commit(ctx context.Context, i, size int) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	pub, err := watermillsql.NewPublisher(tx, watermillsql.PublisherConfig{SchemaAdapter: watermillSchema()}, nil)
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	enveloping := forwarder.NewPublisher(pub, forwarder.PublisherConfig{ForwarderTopic: forwarderTopic})
	if err := enveloping.Publish(l.topic, messages(i, 1, size)...); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
