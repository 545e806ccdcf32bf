package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/subscriber"
)

const joinAbout = `Joins on PostgreSQL (fsync on), ended by the router handler of package joins, in a router of default settings.

First one join after the other on a database that is idle otherwise: its two steps and its wait are published in one
transaction, the wait has found the join undecided and sleeps, and then another store, as another process would have, acks
the steps. A latency is from the moment that its last Ack returned to the one that the handler of OnComplete is called.
Then n joins of 10 steps each wait, and are worked off: the clock runs from the router's start to the last OnComplete.

  last_ack_p50_ms  median from the last ack to the handler of OnComplete
  last_ack_p99_ms  what one in a hundred is above
  joins_per_s      joins of 10 steps that end, of n that wait`

func init() {
	scenarios = append(scenarios, scenario{
		name: "join", help: "from the last step of a join to the message that follows, and many joins at once",
		about: joinAbout, n: 1000, short: 20, measure: measureJoin,
	})
}

const (
	stepTopic     = "step"
	completeTopic = "complete"
	stepsOfMany   = 10
	// joinSettle is how long a wait gets to find its join undecided.
	joinSettle = 300 * time.Millisecond
)

func measureJoin(ctx context.Context, b *bench) error {
	pool, err := b.database(ctx, "join")
	if err != nil {
		return err
	}
	for range b.rounds {
		if err := b.joinLatencies(ctx, pool); err != nil {
			return fmt.Errorf("latency: %w", err)
		}
		if err := b.manyJoins(ctx, pool); err != nil {
			return fmt.Errorf("many: %w", err)
		}
	}
	return nil
}

func (b *bench) joinLatencies(ctx context.Context, pool *pgxpool.Pool) error {
	store, err := outbox(ctx, pool)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	other, err := postgres.New(pool, postgres.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close() }()
	if err := store.RegisterGroup(ctx, outmill.Registration{Topics: outmill.Topics{Include: []string{stepTopic}}}); err != nil {
		return err
	}
	handled := make(chan time.Time, 1)
	stop, err := runJoins(ctx, store, nil, func() { handled <- time.Now() })
	if err != nil {
		return err
	}
	defer func() { _ = stop() }()
	var list []time.Duration
	for range min(b.n, 100) {
		if err := startJoins(ctx, pool, store, 1, 2); err != nil {
			return err
		}
		if err := sleep(ctx, joinSettle); err != nil {
			return err
		}
		acked, err := ackSteps(ctx, other)
		if err != nil {
			return err
		}
		select {
		case at := <-handled:
			list = append(list, max(at.Sub(acked), 0))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	slices.Sort(list)
	b.results.add("last_ack_p50_ms", "last ack to handler, median, ms", millis(quantile(list, 0.5)))
	b.results.add("last_ack_p99_ms", "last ack to handler, 99 %, ms", millis(quantile(list, 0.99)))
	return nil
}

// ackSteps handles all steps.
func ackSteps(ctx context.Context, store *postgres.Store) (time.Time, error) {
	records, err := store.Claim(ctx, outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Topics: outmill.Topics{Include: []string{stepTopic}}, Limit: 2, Lease: time.Minute,
	})
	if err == nil && len(records) != 2 {
		err = fmt.Errorf("claimed %d of 2 steps", len(records))
	}
	for _, r := range records {
		err = errors.Join(err, store.Ack(ctx, "", []outmill.Lease{r.Lease()}))
	}
	return time.Now(), err
}

func (b *bench) manyJoins(ctx context.Context, pool *pgxpool.Pool) error {
	store, err := outbox(ctx, pool)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if err := store.RegisterGroup(ctx,
		outmill.Registration{Topics: outmill.Topics{Include: []string{stepTopic, joins.Topic, completeTopic}}}); err != nil {
		return err
	}
	if err := startJoins(ctx, pool, store, b.n, stepsOfMany); err != nil {
		return err
	}
	if err := settleOurs(ctx, pool); err != nil {
		return err
	}
	left := b.n
	all := make(chan struct{})
	counted := make(chan struct{}, b.n)
	began := time.Now()
	stop, err := runJoins(ctx, store, func() {}, func() { counted <- struct{}{} })
	if err != nil {
		return err
	}
	go func() {
		defer close(all)
		for ; left > 0; left-- {
			select {
			case <-counted:
			case <-ctx.Done():
				return
			}
		}
	}()
	<-all
	took := time.Since(began)
	b.results.add("joins_per_s", "joins of 10 steps per second", float64(b.n)/took.Seconds())
	b.say("%d joins of %d steps in %s", b.n, stepsOfMany, took.Round(time.Millisecond))
	return errors.Join(stop(), ctx.Err())
}

// startJoins commits n joins with their steps, a transaction for each.
func startJoins(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, n, steps int) error {
	pub, err := publisher.New(store, publisher.Config{}, nil)
	if err != nil {
		return err
	}
	for i := range n {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		err = startJoin(store.WithTx(ctx, tx), store, pub, i, steps)
		if err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}

func startJoin(ctx context.Context, store *postgres.Store, pub *publisher.Publisher, i, steps int) error {
	id, err := joins.Start(ctx, store, joins.Join{ExpectedSteps: steps})
	if err != nil {
		return err
	}
	list := messages(i*steps, steps, 200)
	for _, msg := range list {
		joins.AddStep(msg, id)
	}
	if err := pub.WithContext(ctx).Publish(stepTopic, list...); err != nil {
		return err
	}
	return joins.Wait(ctx, pub, joins.WaitRequest{Join: id, OnComplete: joins.Next{Topic: completeTopic}})
}

// runJoins runs a router with the handler of joins, one for what follows, and
// one for the steps unless step is nil.
func runJoins(ctx context.Context, store *postgres.Store, step, complete func()) (stop func() error, err error) {
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		return nil, err
	}
	sub, err := subscriber.New(store, subscriber.Config{}, nil)
	if err != nil {
		return nil, err
	}
	if _, err := joins.AddHandlers(router, sub, joins.Config{Store: store}); err != nil {
		return nil, err
	}
	calling := func(fn func()) message.NoPublishHandlerFunc {
		return func(*message.Message) error { fn(); return nil }
	}
	router.AddConsumerHandler("complete", completeTopic, sub, calling(complete))
	if step != nil {
		router.AddConsumerHandler("step", stepTopic, sub, calling(step))
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	select {
	case <-router.Running():
	case err := <-ended:
		return nil, err
	}
	return func() error { return errors.Join(router.Close(), <-ended, sub.Close()) }, nil
}
