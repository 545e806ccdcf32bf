package main

import (
	"context"
	"database/sql"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// publishWatermill uses watermill-sql as its documentation recommends for publishing in a
// transaction: a publisher for each *sql.Tx, made without
// AutoInitializeSchema, over a table that exists already. The driver is pgx,
// whose statements stay prepared.
type publishWatermill struct {
	db    *sql.DB
	batch message.Messages
}

func (w *publishWatermill) prepare(ctx context.Context) error {
	pub, err := watermillsql.NewPublisher(w.db, watermillsql.PublisherConfig{SchemaAdapter: watermillSchema(), AutoInitializeSchema: true},
		nil)
	if err != nil {
		return err
	}
	defer closing(pub)
	if err := pub.Publish(publishTopic, w.batch[0]); err != nil {
		return err
	}
	_, err = w.db.ExecContext(ctx, "TRUNCATE watermill_"+publishTopic)
	return err
}

func (w *publishWatermill) publish(ctx context.Context) error {
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	pub, err := watermillsql.NewPublisher(tx, watermillsql.PublisherConfig{SchemaAdapter: watermillSchema()}, nil)
	if err != nil {
		return err
	}
	if err := pub.Publish(publishTopic, w.batch...); err != nil {
		return err
	}
	return tx.Commit()
}

// publishRiver is River's side.
type publishRiver struct {
	pool   *pgxpool.Pool
	batch  []river.InsertManyParams
	client *river.Client[pgx.Tx]
}

func (r *publishRiver) prepare(context.Context) error {
	var err error
	r.client, err = (&riverPeer{driver: riverpgxv5.New(r.pool)}).inserter()
	return err
}

func (r *publishRiver) insertOne(ctx context.Context) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		_, err := r.client.InsertTx(ctx, tx, r.batch[0].Args, nil)
		return err
	})
}

func (r *publishRiver) insertMany(ctx context.Context) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		_, err := r.client.InsertManyTx(ctx, tx, r.batch)
		return err
	})
}

func (r *publishRiver) insertFast(ctx context.Context) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		_, err := r.client.InsertManyFastTx(ctx, tx, r.batch)
		return err
	})
}
