package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/subscriber"
)

const burndownAbout = `n messages wait in PostgreSQL (fsync on), vacuumed, analysed and flushed to the disk before the clock starts, and
are handled by handlers that do nothing. The clock stops when the last one is settled in the database.

Outmill: a Watermill router with the middleware KeepError over the subscriber, BatchSize as -batch has it, MaxInFlight
2,000, and as many workers as that for River, whose own bench has 2,000. Settings else as they are by default: Outmill
deletes what is acked, and its acks do not wait for the disk; River keeps completed jobs, and its completer waits.

  outmill_msgs_per_s          Outmill, router, no order
  outmill_ordered_msgs_per_s  Outmill, router, ordered by key (10,000 keys)
  outmill_channel_msgs_per_s  Outmill, the subscriber's bare channel, no order, each message acked as it comes
  outmill_durable_msgs_per_s  Outmill, router, no order, with postgres.Config.DurableSettle: acks wait for the disk too
  river_jobs_per_s            River, tuned as its own bench
  ratio                       outmill_msgs_per_s / river
  ordered_ratio               outmill_ordered_msgs_per_s / river
  channel_ratio               outmill_channel_msgs_per_s / river
  durable_ratio               outmill_durable_msgs_per_s / river`

func init() {
	scenarios = append(scenarios, scenario{
		name: "burndown", help: "handlers that do nothing process a backlog, compared with River",
		about: burndownAbout, n: 200_000, short: 2_000, measure: measureBurndown,
	})
}

// burnInFlight is the number of handlers that run at the same time: 2,000, like the workers of
// River's bench.
const burnInFlight = 2000

const burnTopic = "orders"

func measureBurndown(ctx context.Context, b *bench) error {
	pool, err := b.database(ctx, "burndown")
	if err != nil {
		return err
	}
	peer, err := newRiver(ctx, pool)
	if err != nil {
		return err
	}
	b.results.fact("outmill_settings", fmt.Sprintf("subscriber.Config BatchSize=%d MaxInFlight=%d, else defaults", b.batch, burnInFlight))
	b.results.fact("river_settings", riverSettings())
	// Both leave a table that autovacuum would process while the other side runs.
	burner := func(order outmill.Order, durable bool) *burning {
		return &burning{b: b, pool: pool, order: order, durable: durable, inFlight: burnInFlight, clear: peer.clear}
	}
	plain, ordered, durable := burner(outmill.OrderNone, false), burner(outmill.OrderKey, false), burner(outmill.OrderNone, true)
	queue := &riverBurning{river: peer, b: b}
	err = b.compare(ctx,
		side{field: "outmill_msgs_per_s", title: "Outmill, router", prepare: plain.prepare, run: plain.byRouter},
		side{field: "outmill_ordered_msgs_per_s", title: "Outmill, router, by key", prepare: ordered.prepare, run: ordered.byRouter},
		side{field: "outmill_channel_msgs_per_s", title: "Outmill, channel", prepare: plain.prepare, run: plain.byChannel},
		side{field: "outmill_durable_msgs_per_s", title: "Outmill, router, durable acks", prepare: durable.prepare, run: durable.byRouter},
		side{field: "river_jobs_per_s", title: "River", prepare: queue.prepare, run: queue.run},
	)
	if err != nil {
		return err
	}
	r := &b.results
	r.ratio("ratio", "Outmill / River", "outmill_msgs_per_s", "river_jobs_per_s")
	r.ratio("ordered_ratio", "by key / River", "outmill_ordered_msgs_per_s", "river_jobs_per_s")
	r.ratio("channel_ratio", "channel / River", "outmill_channel_msgs_per_s", "river_jobs_per_s")
	r.ratio("durable_ratio", "durable / River", "outmill_durable_msgs_per_s", "river_jobs_per_s")
	return nil
}

// burning is Outmill's side.
type burning struct {
	b       *bench
	pool    *pgxpool.Pool
	order   outmill.Order
	durable bool
	// inFlight is the number of handlers that run at the same time.
	inFlight int
	// only is the one topic whose messages must be settled at the end, for handlers that publish.
	only string
	// clear empties the peer's tables.
	clear func(ctx context.Context) error
	store *postgres.Store
}

func (f *burning) prepare(ctx context.Context) (err error) {
	if err := f.clear(ctx); err != nil {
		return err
	}
	if f.store, err = outbox(ctx, f.pool); err != nil {
		return err
	}
	if err := f.b.fill(ctx, f.store, "", burnTopic, f.b.n, true); err != nil {
		return err
	}
	if f.durable {
		if err := f.store.Close(); err != nil {
			return err
		}
		if f.store, err = postgres.New(f.pool, postgres.Config{DurableSettle: true}, nil); err != nil {
			return err
		}
	}
	return settleOurs(ctx, f.pool)
}

// settleDown does work before the clock starts that the server would otherwise do later: hint
// bits, statistics, dirty pages.
func settleDown(ctx context.Context, pool *pgxpool.Pool, tables string) error {
	for _, statement := range []string{"VACUUM ANALYZE " + tables, "CHECKPOINT"} {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// settleOurs is settleDown for Outmill's tables.
func settleOurs(ctx context.Context, pool *pgxpool.Pool) error {
	var tables string
	if err := pool.QueryRow(ctx, sqlTables).Scan(&tables); err != nil {
		return err
	}
	return settleDown(ctx, pool, tables)
}

func (f *burning) subscriber() (*subscriber.Subscriber, error) {
	return subscriber.New(f.store, subscriber.Config{Order: f.order, BatchSize: f.b.batch, MaxInFlight: f.inFlight}, nil)
}

func (f *burning) byRouter(ctx context.Context) (took time.Duration, err error) {
	defer f.close(&err)
	return f.handled(ctx, f.b.n, func(*message.Message) error { return nil })
}

// handled runs the handler in a router until n messages are handled and settled.
func (f *burning) handled(
	ctx context.Context, n int, handle message.NoPublishHandlerFunc, middleware ...message.HandlerMiddleware,
) (time.Duration, error) {
	return f.routed(ctx, n, func(router *message.Router, sub message.Subscriber) error {
		router.AddConsumerHandler("handler", burnTopic, sub, handle).AddMiddleware(middleware...)
		return nil
	})
}

// routed is the same as handled, with the handlers that add adds to the router.
func (f *burning) routed(
	ctx context.Context, n int, add func(router *message.Router, sub message.Subscriber) error,
) (took time.Duration, err error) {
	sub, err := f.subscriber()
	if err != nil {
		return 0, err
	}
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		return 0, err
	}
	all, count := counting(n)
	router.AddMiddleware(count, subscriber.KeepError)
	if err := add(router, sub); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- router.Run(ctx) }()
	took, err = f.settled(ctx, began, all)
	if closeErr := router.Close(); err == nil {
		err = closeErr
	}
	if runErr := <-ended; err == nil {
		err = runErr
	}
	return took, err
}

// counting closes all after n handlings that succeeded.
func counting(n int) (all <-chan struct{}, count message.HandlerMiddleware) {
	done := make(chan struct{})
	var handled atomic.Int64
	return done, func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := h(msg)
			if err == nil && handled.Add(1) == int64(n) {
				close(done)
			}
			return produced, err
		}
	}
}

func (f *burning) byChannel(ctx context.Context) (took time.Duration, err error) {
	defer f.close(&err)
	sub, err := f.subscriber()
	if err != nil {
		return 0, err
	}
	defer func() { _ = sub.Close() }()
	began := time.Now()
	messages, err := sub.Subscribe(ctx, burnTopic)
	if err != nil {
		return 0, err
	}
	all := make(chan struct{})
	go func() {
		for range f.b.n {
			msg, ok := <-messages
			if !ok {
				return
			}
			msg.Ack()
		}
		close(all)
	}()
	return f.settled(ctx, began, all)
}

// settled waits until all messages are handled, and then until no message is left. It
// does not query before, because it shares the cores with the measured side.
func (f *burning) settled(ctx context.Context, began time.Time, all <-chan struct{}) (time.Duration, error) {
	select {
	case <-all:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	err := poll(ctx, func() (bool, error) {
		left, err := unsettled(ctx, f.store, f.only)
		return !left, err
	})
	took := time.Since(began)
	if err != nil || f.only != "" {
		return took, err
	}
	return took, nothingLeft(ctx, f.store)
}

// close also empties the tables, for the next sides.
func (f *burning) close(err *error) {
	if closeErr := f.store.Close(); *err == nil {
		*err = closeErr
	}
	if dropErr := dropSchema(context.Background(), f.pool); *err == nil {
		*err = dropErr
	}
}

// dropSchema tries again after a deadlock, because the server may still execute the last
// statement of a worker whose connection is closed.
func dropSchema(ctx context.Context, pool *pgxpool.Pool) error {
	for try := 1; ; try++ {
		_, err := pool.Exec(ctx, "DROP SCHEMA IF EXISTS outmill CASCADE")
		var told *pgconn.PgError
		if err == nil || try == 5 || !errors.As(err, &told) || told.Code != "40P01" {
			return err
		}
	}
}
