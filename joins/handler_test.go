package joins_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

func TestHandler(t *testing.T) {
	t.Parallel()

	t.Run("the last step makes the end due without any polling", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		cfg := quick()
		cfg.PollInterval = time.Hour
		p := plantOn(t, store, store, cfg)
		open := make(chan struct{})
		p.handle(extracts[0], func(*message.Message) error {
			<-open
			return nil
		})
		completed := p.listen(transform)
		p.run(t, func(cfg *joins.Config) { cfg.Snooze = time.Hour })
		id := p.etl(t, of(1), nil, good)
		require.Eventually(t, func() bool {
			waits := p.records(t, joins.Topic, outmill.StatusPending)
			return len(waits) == 1 && waits[0].Claims == 1
		}, patience, tick, "the message is not snoozed")
		close(open)
		requireJoinOf(t, receive(t, completed), id, roles.JoinCompleted, "", "1", "1", "0")
		p.requireSettled(t, completed)
	})

	t.Run("looking at a join that is not decided uses up no attempts", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed, failed := p.listen(transform), p.listen(alert)
		p.run(t, func(cfg *joins.Config) { cfg.Snooze = time.Millisecond })
		id := p.etl(t, of(1), nil)
		require.Eventually(t, func() bool {
			waits := p.records(t, joins.Topic, "")
			require.Len(t, waits, 1)
			require.Zero(t, waits[0].Attempts)
			require.Empty(t, waits[0].LastError)
			return waits[0].Claims > 2*quick().Retry.MaxAttempts
		}, patience, tick)
		p.publishSteps(t, t.Context(), id, good)
		requireJoinOf(t, receive(t, completed), id, roles.JoinCompleted, "", "1", "1", "0")
		p.requireSettled(t, completed, failed)
	})

	t.Run("a crash after the end of a join publishes nothing twice", func(t *testing.T) {
		t.Parallel()
		queue := &forgetful{Store: newStore(t), lost: make(chan struct{})}
		p := plantOn(t, queue.Store, queue, quick())
		p.extract()
		completed, failed := p.listen(transform), p.listen(alert)
		p.run(t)
		id := p.etl(t, of(1), nil, good)
		requireJoinOf(t, receive(t, completed), id, roles.JoinCompleted, "", "1", "1", "0")
		receive(t, queue.lost)
		p.requireSettled(t, completed, failed)
	})

	t.Run("of many routers one ends each join", func(t *testing.T) {
		t.Parallel()
		const routers, jobs = 3, 8
		store := newStore(t)
		completed := make(chan *message.Message, 10*jobs)
		// Due messages wake the readers. Polling by so many readers would slow the test down.
		cfg := quick()
		cfg.PollInterval = 500 * time.Millisecond
		var p *plant
		for range routers {
			p = plantOn(t, store, store, cfg)
			p.handle(extracts[0], work)
			p.handle(transform, func(msg *message.Message) error {
				completed <- msg.Copy()
				return nil
			})
			p.run(t)
		}
		var want, got []string
		for range jobs {
			id := p.etl(t, of(3), nil)
			for _, payload := range []string{good, badAtFirst, bad} {
				p.publishSteps(t, t.Context(), id, payload)
			}
			// A second wait for the same join may end it too.
			require.NoError(t, joins.Wait(t.Context(), p.pub, waitFor(id)))
			want = append(want, id.String())
		}
		for range jobs {
			msg := receive(t, completed)
			got = append(got, msg.Metadata[joins.MetadataJoinID])
			require.Equal(t, "2", msg.Metadata[joins.MetadataCompletedSteps])
			require.Equal(t, "1", msg.Metadata[joins.MetadataFailedSteps])
		}
		require.ElementsMatch(t, want, got)
		require.Eventually(t, func() bool { return len(p.records(t, joins.Topic, "")) == 0 }, patience, tick)
		require.Empty(t, completed)
	})

	t.Run("a payload that cannot be read is dead at once", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.run(t)
		for _, payload := range []string{"", "what?", "{}", `{"version":1}`, `{"version":1,"join":"42"}`, `{"version":"1"}`, `[]`} {
			require.NoError(t, p.pub.Publish(joins.Topic, message.NewMessage(watermill.NewUUID(), []byte(payload))))
			rec := p.requireDead(t, joins.Topic)
			require.Equal(t, 1, rec.Attempts, payload)
			require.Contains(t, rec.LastError, "payload", payload)
			p.clear(t, rec)
		}
	})

	t.Run("a payload of a newer version is left to others for a while", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.run(t)
		for _, payload := range []string{`{"version":2}`, `{"version":2,"join":{"id":"in another form"}}`} {
			require.NoError(t, p.pub.Publish(joins.Topic, message.NewMessage(watermill.NewUUID(), []byte(payload))))
			rec := p.requireDead(t, joins.Topic)
			require.Equal(t, quick().Retry.MaxAttempts, rec.Attempts, payload)
			require.Contains(t, rec.LastError, "newer", payload)
			p.clear(t, rec)
		}
	})

	t.Run("a wait for an unknown join is dead at once and may be requeued", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		completed := p.listen(transform)
		p.run(t)
		join := of(1)
		join.ID = outmill.NewJoinID()
		require.NoError(t, joins.Wait(t.Context(), p.pub, waitFor(join.ID)))
		rec := p.requireDead(t, joins.Topic)
		require.Equal(t, 1, rec.Attempts)
		require.Contains(t, rec.LastError, join.ID.String())

		start(t, t.Context(), p.Store, join)
		p.publishSteps(t, t.Context(), join.ID, good)
		n, err := p.Requeue(t.Context(), rec.ID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		requireJoinOf(t, receive(t, completed), join.ID, roles.JoinCompleted, "", "1", "1", "0")
		p.requireSettled(t, completed)
	})

	t.Run("a join that cannot end leaves a dead message with the reason", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.extract()
		p.run(t)
		// The join has more steps than the number for its seal.
		id := p.etl(t, roles.Join{Unsealed: true}, func(wait *joins.WaitRequest) { wait.Seal = true }, good)
		rec := p.requireDead(t, joins.Topic)
		require.Equal(t, 1, rec.Attempts)
		require.Contains(t, rec.LastError, roles.ErrTooManySteps.Error())
		require.Contains(t, rec.LastError, id.String())
		require.Equal(t, roles.JoinPending, p.join(t, id).Status)
	})

	t.Run("joins work behind the middlewares of the router", func(t *testing.T) {
		t.Parallel()
		for name, keepErrorToo := range map[string]bool{"without KeepError": false, "with KeepError": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := newPlant(t)
				poison, err := middleware.PoisonQueueWithFilter(p.pub, "poison", outmill.IsPermanent)
				require.NoError(t, err)
				if keepErrorToo {
					p.router.AddMiddleware(subscriber.KeepError)
				}
				p.router.AddMiddleware(
					poison,
					middleware.Retry{MaxRetries: 2, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond, Multiplier: 1}.Middleware,
					middleware.Timeout(time.Minute),
					middleware.CorrelationID,
					middleware.Recoverer,
				)
				for _, topic := range extracts {
					p.router.AddConsumerHandler(topic, topic, p.sub, work)
				}
				completed, poisoned := p.listen(transform), p.listen("poison")
				p.run(t, func(cfg *joins.Config) { cfg.Snooze = time.Millisecond })
				require.NoError(t, p.pub.Publish(joins.Topic, message.NewMessage("unreadable", nil)))
				require.Equal(t, "unreadable", receive(t, poisoned).UUID)

				id := p.etl(t, of(1), nil)
				// The router acks the unreadable message some time after it has published it to the
				// poison queue.
				require.Eventually(t, func() bool {
					waits := p.records(t, joins.Topic, "")
					return len(waits) == 1 && waits[0].Attempts == 0 && waits[0].Claims > 2*quick().Retry.MaxAttempts
				}, patience, tick)
				p.publishSteps(t, t.Context(), id, good)
				requireJoinOf(t, receive(t, completed), id, roles.JoinCompleted, "", "1", "1", "0")
				p.requireSettled(t, completed, poisoned)
			})
		}
	})

	t.Run("a step that is forwarded is done when the broker has it", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		p.handle(extracts[0], work)
		completed := p.listen(transform)
		p.run(t)
		broker := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 100}, nil)
		t.Cleanup(func() { require.NoError(t, broker.Close()) })
		arrived := map[string]<-chan *message.Message{}
		for _, topic := range append([]string{transform, joins.Topic}, extracts...) {
			var err error
			arrived[topic], err = broker.Subscribe(t.Context(), topic)
			require.NoError(t, err)
		}
		// A forwarder of all topics does not forward the topic of joins.
		fwd, err := forwarder.New(p.Store, broker, forwarder.Config{PollInterval: 10 * time.Millisecond}, nil)
		require.NoError(t, err)

		// The first step has a handler too; only the broker gets the others.
		for _, topic := range extracts[1:] {
			require.NoError(t, p.RegisterGroup(t.Context(),
				outmill.Registration{Group: forwarder.DefaultGroup, Topics: outmill.Topics{Include: []string{topic}}}))
		}
		id := p.etl(t, of(3), failIfAnyStepFailed, good, good, good)
		require.Eventually(t, func() bool { return p.join(t, id).CompletedSteps == 1 }, patience, tick)

		ended := make(chan error, 1)
		go func() { ended <- fwd.Run(context.Background()) }()
		t.Cleanup(func() {
			require.NoError(t, fwd.Close())
			require.NoError(t, <-ended)
		})
		requireJoinOf(t, receive(t, completed), id, roles.JoinCompleted, "", "3", "3", "0")
		for _, topic := range append([]string{transform}, extracts[1:]...) {
			receive(t, arrived[topic]).Ack()
		}
		p.requireSettled(t, completed, arrived[joins.Topic])
	})

	t.Run("the end of a join is logged once", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		logs := journal.New()
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, logs)
		require.NoError(t, err)
		p.router = router
		p.extract()
		completed := p.listen(transform)
		p.run(t)
		id := p.etl(t, of(1), nil, good)
		receive(t, completed)
		p.requireSettled(t, completed)
		said := slices.DeleteFunc(logs.Lines(), func(l journal.Line) bool { return l.Msg != "Join ended" })
		require.Len(t, said, 1)
		require.Equal(t, id.String(), said[0].Fields["join_id"])
		require.Equal(t, "completed", said[0].Fields["status"])
		require.Equal(t, p.Name(), said[0].Fields["store"])
	})

	t.Run("handlers that make no sense are refused", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		valid := joins.Config{Store: p.Store}
		for name, try := range map[string]func() (*message.Handler, error){
			"router":         func() (*message.Handler, error) { return joins.AddHandlers(nil, p.sub, valid) },
			"the subscriber": func() (*message.Handler, error) { return joins.AddHandlers(p.router, nil, valid) },
			"subscriber": func() (*message.Handler, error) {
				return joins.AddHandlers(p.router, (*subscriber.Subscriber)(nil), valid)
			},
			"joins.Config.Store": func() (*message.Handler, error) { return joins.AddHandlers(p.router, p.sub, joins.Config{}) },
			"joins.Config.Snooze": func() (*message.Handler, error) {
				return joins.AddHandlers(p.router, p.sub, joins.Config{Store: p.Store, Snooze: -1})
			},
		} {
			added, err := try()
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, name)
			require.ErrorContains(t, err, name)
			require.Nil(t, added, name)
		}
		require.Empty(t, p.router.Handlers())
		err := joins.Config{Store: (*sqlite.Store)(nil), Snooze: -1}.Validate()
		require.ErrorContains(t, err, "Store")
		require.ErrorContains(t, err, "Snooze")
	})

	t.Run("the handler has a name of its own", func(t *testing.T) {
		t.Parallel()
		p := newPlant(t)
		cfg := joins.Config{Store: p.Store}
		_, err := joins.AddHandlers(p.router, p.sub, cfg)
		require.NoError(t, err)
		_, err = joins.AddHandlers(p.router, p.sub, cfg)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, joins.DefaultHandlerName)
		cfg.HandlerName = "joins of another group"
		_, err = joins.AddHandlers(p.router, p.sub, cfg)
		require.NoError(t, err)
		require.Len(t, p.router.Handlers(), 2)
	})
}

// forgetful loses the first ack of a message on joins.Topic, as if the process had died
// before it. It releases the record at once, because a lease that is short enough for a
// test would end too early on a busy machine.
type forgetful struct {
	*sqlite.Store
	lost chan struct{}

	mu    sync.Mutex
	waits []outmill.WorkItemID
}

func (q *forgetful) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	records, err := q.Store.Claim(ctx, req)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, rec := range records {
		if rec.Topic == joins.Topic {
			q.waits = append(q.waits, rec.ID)
		}
	}
	return records, err
}

func (q *forgetful) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	leases = slices.Clone(leases)
	if i := slices.IndexFunc(leases, q.loses); i >= 0 {
		if err := q.Release(ctx, leases[i:i+1]); err != nil {
			return err
		}
		leases = slices.Delete(leases, i, i+1)
	}
	return q.Store.Ack(ctx, by, leases)
}

func (q *forgetful) loses(lease outmill.Lease) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.lost:
		return false
	default:
	}
	if !slices.Contains(q.waits, lease.ID) {
		return false
	}
	close(q.lost)
	return true
}
