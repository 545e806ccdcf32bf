package main

import (
	"context"
	"errors"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// sqlWatermillDone returns whether the offset of the last message is committed.
const sqlWatermillDone = `SELECT o.offset_acked = (SELECT max("offset") FROM watermill_` + burnTopic + `)
FROM watermill_offsets_` + burnTopic + ` AS o`

// depositWorker completes its job in the transaction of its work, as River's
// documentation has it.
type depositWorker struct {
	river.WorkerDefaults[jobArgs]
	pool *pgxpool.Pool
}

func (w *depositWorker) Work(ctx context.Context, job *river.Job[jobArgs]) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlDeposit, job.Args.Number%accounts); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

func (d *depositing) fillRiver(ctx context.Context, first, n int) error {
	return d.river.fill(ctx, first, n, d.b.size)
}

func (d *depositing) byRiver(ctx context.Context, n int) (time.Duration, error) {
	return d.river.work(ctx, n, d.b.handlers, &depositWorker{pool: d.pool})
}

func (d *depositing) fillWatermill(ctx context.Context, first, n int) error {
	config := watermillsql.PublisherConfig{SchemaAdapter: watermillSchema(), AutoInitializeSchema: true}
	pub, err := watermillsql.NewPublisher(d.db, config, nil)
	if err != nil {
		return err
	}
	defer closing(pub)
	for from := 0; from < n; from += appendAtOnce {
		if err := pub.Publish(burnTopic, messages(first+from, min(appendAtOnce, n-from), d.b.size)...); err != nil {
			return err
		}
	}
	return settleDown(ctx, d.pool, "watermill_"+burnTopic)
}

// byWatermill ends when the offset of the last message is committed.
func (d *depositing) byWatermill(ctx context.Context, n int) (took time.Duration, err error) {
	sub, err := watermillsql.NewSubscriber(d.db, watermillsql.SubscriberConfig{
		SchemaAdapter: watermillSchema(), OffsetsAdapter: watermillsql.DefaultPostgreSQLOffsetsAdapter{},
		InitializeSchema: true, PollInterval: 10 * time.Millisecond,
	}, nil)
	if err != nil {
		return 0, err
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		return 0, err
	}
	all, count := counting(n)
	router.AddMiddleware(count)
	router.AddConsumerHandler("handler", burnTopic, sub, d.depositByWatermill)
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- router.Run(ctx) }()
	select {
	case <-all:
		err = poll(ctx, func() (done bool, err error) {
			err = d.pool.QueryRow(ctx, sqlWatermillDone).Scan(&done)
			return done, err
		})
	case <-ctx.Done():
		err = ctx.Err()
	}
	took = time.Since(began)
	return took, errors.Join(err, router.Close(), <-ended)
}

func (d *depositing) depositByWatermill(msg *message.Message) error {
	account, err := accountOf(msg.Payload)
	if err != nil {
		return err
	}
	tx, ok := watermillsql.TxFromContext(msg.Context())
	if !ok {
		return errors.New("the subscriber gives no transaction")
	}
	_, err = tx.ExecContext(msg.Context(), sqlDeposit, account)
	return err
}
