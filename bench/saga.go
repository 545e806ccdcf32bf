package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sagas"
)

const sagaAbout = `n messages wait in PostgreSQL (fsync on), vacuumed, analysed and flushed to the disk before the clock starts, for 10,000
sagas that exist. A step loads the saga, changes its state and publishes a message for another group, in a transaction whose
commit waits for the disk. 64 handlers run at a time (-handlers), over a pool of 80 connections. The clock stops when the last message
is settled in the database; then the sagas must have as many steps as there were messages, and there must be as many
published messages. Before that each side takes 1,280 other steps, so that the connections have prepared their statements.

  steps_per_s              steps of sagas whose message is acked afterwards, in batches
  inbox_steps_per_s        the same in an inbox: a note and the ack are in the transaction too
  step_round_trips         round trips for one step, as the driver counts them: claims, acks, BEGIN and COMMIT too
  inbox_step_round_trips   "
  step_cpu_us              processor time of this process and of PostgreSQL's for one step, in microseconds; 0 where the server is
                           not on this machine
  inbox_step_cpu_us        "`

func init() {
	scenarios = append(scenarios, scenario{
		name: "saga", help: "steps of sagas on PostgreSQL",
		about: sagaAbout, n: 20_000, short: 500, measure: measureSaga,
	})
}

const (
	stepsTopic = "steps"

	journeyType = "journey"
)

// journey is the state of a saga.
type journey struct{ Steps, Last int }

func measureSaga(ctx context.Context, b *bench) error {
	database, err := b.database(ctx, "saga")
	if err != nil {
		return err
	}
	pool, traffic, err := countedBy(ctx, database, b.handlerConns())
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := connectAll(ctx, pool, b.handlerConns()); err != nil {
		return err
	}
	b.results.fact("outmill_settings", fmt.Sprintf("subscriber.Config BatchSize=%d MaxInFlight=%d, else defaults", b.batch, b.handlers))
	s := &stepping{b: b, pool: pool, meter: &meter{pool, traffic}}
	return b.compare(ctx, s.side("step", "sagas", s.steps), s.side("inbox_step", "sagas in an inbox", s.stepsInInbox))
}

// stepping has the parts that the sides share.
type stepping struct {
	b     *bench
	pool  *pgxpool.Pool
	meter *meter
	ours  *burning
}

func (s *stepping) side(name, title string, run func(ctx context.Context, n int) (time.Duration, error)) side {
	return side{field: name + "s_per_s", title: title,
		prepare: func(ctx context.Context) error {
			if err := s.open(ctx); err != nil {
				return err
			}
			if err := s.fill(ctx, 0, handlersWarm); err != nil {
				return err
			}
			if _, err := run(ctx, handlersWarm); err != nil {
				return err
			}
			return s.fill(ctx, handlersWarm, s.b.n)
		},
		run: func(ctx context.Context) (took time.Duration, err error) {
			defer s.ours.close(&err)
			each, err := s.meter.start(ctx)
			if err != nil {
				return 0, err
			}
			if took, err = run(ctx, s.b.n); err != nil {
				return 0, err
			}
			if err := each(&s.b.results, name, title, s.b.n); err != nil {
				return 0, err
			}
			return took, s.check(ctx)
		},
	}
}

// open makes a store with sagas, and a group that reads the messages that they publish.
func (s *stepping) open(ctx context.Context) error {
	store, err := outbox(ctx, s.pool)
	if err != nil {
		return err
	}
	s.ours = &burning{b: s.b, pool: s.pool, inFlight: s.b.handlers, only: burnTopic, store: store}
	next := outmill.Registration{Group: "next", Topics: outmill.Topics{Include: []string{stepsTopic}}}
	if err := store.RegisterGroup(ctx, next); err != nil {
		return err
	}
	return store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error {
		for i := range s.sagas() {
			saga := &roles.Saga{Type: journeyType, Correlation: keyOf(i)}
			if err := store.InsertSaga(ctx, saga, &journey{}, roles.SagaOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// sagas is the number of sagas that take a step.
func (s *stepping) sagas() int { return min(keys, s.b.n+handlersWarm) }

func (s *stepping) fill(ctx context.Context, first, n int) error {
	if err := s.b.fillFrom(ctx, s.ours.store, "", burnTopic, first, n, true); err != nil {
		return err
	}
	return settleOurs(ctx, s.pool)
}

// check fails if a step ran twice, or never.
func (s *stepping) check(ctx context.Context) error {
	want := s.b.n + handlersWarm
	taken, err := s.taken(ctx)
	if err != nil {
		return err
	}
	stats, err := s.ours.store.Stats(ctx, want+1)
	published := 0
	for _, at := range stats {
		if at.Topic == stepsTopic {
			published += at.Pending
		}
	}
	if err == nil && (taken != want || published != want) {
		err = fmt.Errorf("%d messages made %d steps and %d messages", want, taken, published)
	}
	return err
}

// taken is the number of steps in the states of all sagas.
func (s *stepping) taken(ctx context.Context) (steps int, err error) {
	for i := range s.sagas() {
		var state journey
		if _, err := s.ours.store.FindSaga(ctx, journeyType, keyOf(i), &state, roles.SagaOptions{}); err != nil {
			return 0, err
		}
		steps += state.Steps
	}
	return steps, nil
}

func (s *stepping) steps(ctx context.Context, n int) (time.Duration, error) {
	return s.routed(ctx, n)
}

func (s *stepping) stepsInInbox(ctx context.Context, n int) (time.Duration, error) {
	box, err := inbox.New(s.ours.store, inbox.Config{Consumer: "journeys"})
	if err != nil {
		return 0, err
	}
	return s.routed(ctx, n, box.Middleware)
}

func (s *stepping) routed(ctx context.Context, n int, middleware ...message.HandlerMiddleware) (time.Duration, error) {
	journeys, err := sagas.Define(sagas.Config{Store: s.ours.store},
		sagas.On(burnTopic, func(m jobArgs) string { return keyOf(m.Number) }, func(c *sagas.Context[journey], m jobArgs) error {
			c.State.Steps++
			c.State.Last = m.Number
			return c.PublishValue(stepsTopic, c.State)
		}))
	if err != nil {
		return 0, err
	}
	return s.ours.routed(ctx, n, func(router *message.Router, sub message.Subscriber) error {
		router.AddMiddleware(middleware...)
		return journeys.AddHandlers(router, sub)
	})
}
