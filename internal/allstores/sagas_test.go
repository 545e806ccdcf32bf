package allstores

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	outmillmongo "github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sagas"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

// parcel is the state of a saga: an order that waits for its payment.
type parcel struct {
	Steps int  `bson:"steps" json:"steps"`
	Paid  bool `bson:"paid" json:"paid"`
}

type parcelEvent struct{ Order string }

func ofParcel(m parcelEvent) string { return m.Order }

// shipParcel ends the saga of a parcel that was paid, and cancelParcel that of one that was not.
func shipParcel(c *sagas.Context[parcel], m parcelEvent) error {
	c.State.Steps++
	c.State.Paid = true
	c.Complete()
	return c.PublishValue("ship", m)
}

func cancelParcel(c *sagas.Context[parcel], m parcelEvent) error {
	c.State.Steps++
	c.Complete()
	return c.PublishValue("cancel", m)
}

// onEachKeeper runs the test on every store that keeps sagas.
func onEachKeeper(t *testing.T, test func(t *testing.T, s keeper)) {
	t.Helper()
	onEachStore(t, func(t *testing.T, s site) {
		found, ok := outmill.As[roles.Sagas](s.store)
		if !ok {
			t.Skipf("a %T keeps no sagas", s.store)
		}
		test(t, keeper{s, found})
	})
}

type keeper struct {
	site
	sagas roles.Sagas
}

func (k keeper) start(t *testing.T, cfg sagas.Config, sub *subscriber.Subscriber, reactions ...sagas.Reaction[parcel]) {
	t.Helper()
	cfg.Store, cfg.ConflictDelay = k.store, 5*time.Millisecond
	saga, err := sagas.Define(cfg, reactions...)
	require.NoError(t, err)
	router := newRouter(t)
	require.NoError(t, saga.AddHandlers(router, sub))
	run(t, router)
}

func (k keeper) publish(t *testing.T, topic, uuid, order string) {
	t.Helper()
	msg := message.NewMessage(uuid, fmt.Appendf(nil, `{"Order":%q}`, order))
	outmill.SetKey(msg, order)
	require.NoError(t, k.pub.Publish(topic, msg))
}

func (k keeper) find(t *testing.T, order string) (*roles.Saga, parcel, error) {
	t.Helper()
	var state parcel
	saga, err := k.sagas.FindSaga(t.Context(), "parcel", order, &state, roles.SagaOptions{})
	return saga, state, err
}

// crowd counts the runs of a handler, and makes the first two of them run at the same time,
// so that they conflict.
type crowd struct {
	runs atomic.Int32
	met  chan struct{}
	once sync.Once
	mu   sync.Mutex
	// failures counts the failures that used up an attempt.
	failures []string
}

func (c *crowd) enter(ctx context.Context, alone bool) {
	if delivery, ok := outmill.Delivery(ctx); ok && delivery.Attempt > 1 {
		c.mu.Lock()
		c.failures = append(c.failures, delivery.LastError)
		c.mu.Unlock()
	}
	n := c.runs.Add(1)
	if n == 2 || alone {
		c.once.Do(func() { close(c.met) })
	}
	<-c.met
}

func TestSagas_Hot(t *testing.T) {
	t.Parallel()
	const steps = 64
	for name, box := range map[string]*inbox.Config{"": nil, ", with an inbox": {}} {
		t.Run("64 concurrent steps of one saga lose nothing, and only conflicts use up attempts"+name, func(t *testing.T) {
			t.Parallel()
			onEachKeeper(t, func(t *testing.T, k keeper) {
				// A file has one writer, so no two handlers of SQLite meet.
				alone := k.store.Name()[:6] == "sqlite"
				guests := &crowd{met: make(chan struct{})}
				k.start(t, sagas.Config{Inbox: box}, k.eager(t, 1000),
					sagas.StartedBy("steps", ofParcel, func(c *sagas.Context[parcel], _ parcelEvent) error {
						guests.enter(c, alone)
						c.State.Steps++
						return c.PublishValue("done", parcelEvent{c.Correlation})
					}))
				for i := range steps {
					k.publish(t, "steps", fmt.Sprint("step ", i), "o1")
				}
				k.requireDone(t, "steps", "done", steps)
				saga, state, err := k.find(t, "o1")
				require.NoError(t, err)
				require.Equal(t, steps, state.Steps)
				require.EqualValues(t, steps, saga.Version)
				for _, failure := range guests.failures {
					require.Contains(t, failure, "times in a row: ")
				}
				t.Logf("%d runs of %d steps", guests.runs.Load(), steps)
				require.Equal(t, alone, guests.runs.Load() == steps, "%d runs", guests.runs.Load())
			})
		})
	}
	t.Run("the steps of one saga do not conflict in the order of its key", func(t *testing.T) {
		t.Parallel()
		onEachKeeper(t, func(t *testing.T, k keeper) {
			cfg := quick()
			cfg.Order = outmill.OrderKey
			sub, err := subscriber.New(k.store, cfg, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, sub.Close()) })
			var runs, at, most atomic.Int32
			k.start(t, sagas.Config{}, sub, sagas.StartedBy("steps", ofParcel, func(c *sagas.Context[parcel], _ parcelEvent) error {
				runs.Add(1)
				most.Store(max(most.Load(), at.Add(1)))
				defer at.Add(-1)
				c.State.Steps++
				return nil
			}))
			for i := range steps {
				k.publish(t, "steps", fmt.Sprint("step ", i), "o1")
			}
			k.requireNothingLeft(t)
			_, state, err := k.find(t, "o1")
			require.NoError(t, err)
			require.EqualValues(t, []int32{steps, steps, 1}, []int32{int32(state.Steps), runs.Load(), most.Load()})
		})
	})
}

// requireDone waits until no message of the topic is left, and requires n messages of another
// topic.
func (k keeper) requireDone(t *testing.T, topic, others string, n int) {
	t.Helper()
	list := func(topic string) []*outmill.Record {
		found, err := k.store.List(t.Context(), outmill.ListQuery{Content: true, Topic: topic, Limit: 1000})
		require.NoError(t, err)
		return found
	}
	require.Eventually(t, func() bool { return len(list(topic)) == 0 }, patience, 10*time.Millisecond)
	require.Len(t, list(others), n)
}

func TestSagas_Story(t *testing.T) {
	t.Parallel()
	t.Run("an order is shipped when it is paid and cancelled when it is not, each once, though messages come twice", func(t *testing.T) {
		t.Parallel()
		onEachKeeper(t, func(t *testing.T, k keeper) {
			k.start(t, sagas.Config{Inbox: &inbox.Config{}, KeepFinished: true, Retention: time.Millisecond}, k.subscriber(t, ""),
				sagas.StartedBy("placed", ofParcel, func(c *sagas.Context[parcel], m parcelEvent) error {
					c.State.Steps++
					wait := time.Hour
					if m.Order == "unpaid" {
						wait = time.Millisecond
					}
					return c.Timeout("overdue", wait, m)
				}),
				sagas.On("paid", ofParcel, shipParcel), sagas.Timeout("overdue", cancelParcel))
			for range 2 {
				for _, order := range []string{"paid", "unpaid"} {
					k.publish(t, "placed", "place "+order, order)
				}
			}
			k.requireDone(t, "placed", "ship", 0)
			for range 2 {
				k.publish(t, "paid", "pay", "paid")
			}
			k.requireDone(t, "paid", "ship", 1)
			for order, want := range map[string]parcel{"paid": {2, true}, "unpaid": {2, false}} {
				require.Eventually(t, func() bool {
					saga, state, err := k.find(t, order)
					if errors.Is(err, roles.ErrSagaNotFound) {
						// MongoDB may have deleted it by itself.
						return true
					}
					require.NoError(t, err)
					return saga.Finished && state == want
				}, patience, 10*time.Millisecond, order)
			}
			k.requireDone(t, "paid", "cancel", 1)
			retention := k.sagas
			for _, order := range []string{"paid", "unpaid"} {
				require.Eventually(t, func() bool {
					_, err := retention.DeleteOldSagas(t.Context(), 10)
					require.NoError(t, err)
					_, _, err = k.find(t, order)
					return errors.Is(err, roles.ErrSagaNotFound)
				}, patience, 10*time.Millisecond)
			}
		})
	})
}

func TestSagas_Tenants(t *testing.T) {
	t.Parallel()
	t.Run("a saga stays in its tenant, though another tenant has the same correlation value and message ids", func(t *testing.T) {
		t.Parallel()
		for provider := range stores {
			t.Run("on "+provider, func(t *testing.T) {
				t.Parallel()
				requireSagasApart(t, openTenants(t, provider, 2))
			})
		}
	})
}

func requireSagasApart(t *testing.T, list []tenants.Tenant) {
	t.Helper()
	if _, ok := outmill.As[roles.Sagas](list[0].Store); !ok {
		t.Skipf("a %T keeps no sagas", list[0].Store)
	}
	set := openSet(t, tenants.Config{Discovery: tenants.Static(list), Ensure: true}, len(list))
	pub, err := publisher.New(set, publisher.Config{}, nil)
	require.NoError(t, err)
	k := keeper{site{set, pub}, set}
	k.start(t, sagas.Config{Inbox: &inbox.Config{}, KeepFinished: true}, k.subscriber(t, ""),
		sagas.StartedBy("placed", ofParcel, func(c *sagas.Context[parcel], m parcelEvent) error {
			c.State.Steps++
			wait := time.Hour
			if c.Message.Metadata.Get(outmill.MetadataTenantID) == list[1].Key {
				wait = time.Millisecond
			}
			return c.Timeout("overdue", wait, m)
		}),
		sagas.On("paid", ofParcel, shipParcel), sagas.Timeout("overdue", cancelParcel))
	publish := func(topic string, to ...tenants.Tenant) {
		for _, tenant := range to {
			msg := message.NewMessage(topic+" o1", []byte(`{"Order":"o1"}`))
			outmill.SetTenantID(msg, tenant.Key)
			outmill.SetKey(msg, "o1")
			require.NoError(t, pub.Publish(topic, msg))
		}
	}
	publish("placed", list...)
	k.requireDone(t, "placed", "ship", 0)
	publish("paid", list[0])
	k.requireDone(t, "paid", "ship", 1)
	require.Eventually(t, func() bool {
		found, err := set.List(t.Context(), outmill.ListQuery{Content: true, Topic: "cancel"})
		require.NoError(t, err)
		return len(found) == 1
	}, patience, 10*time.Millisecond)
	for i, want := range []struct {
		topics []string
		state  parcel
	}{{[]string{"overdue", "ship"}, parcel{2, true}}, {[]string{"cancel"}, parcel{2, false}}} {
		store := list[i].Store
		own, _ := outmill.As[roles.Sagas](store)
		_, state, err := keeper{site{store: store}, own}.find(t, "o1")
		require.NoError(t, err)
		require.Equal(t, want.state, state, list[i].Key)
		var topics []string
		require.Eventually(t, func() bool {
			left, err := store.List(t.Context(), outmill.ListQuery{Content: true})
			require.NoError(t, err)
			topics = nil
			for _, rec := range left {
				topics = append(topics, rec.Topic)
			}
			// The timeout is acked after the step that publishes has committed.
			return len(topics) <= len(want.topics)
		}, patience, 10*time.Millisecond, list[i].Key)
		require.ElementsMatch(t, want.topics, topics, list[i].Key)
	}
}

func TestSagas_Retention(t *testing.T) {
	t.Parallel()
	t.Run("is for the version of a saga that is finished, and takes part in the transaction", func(t *testing.T) {
		t.Parallel()
		onEachKeeper(t, func(t *testing.T, k keeper) {
			retention := k.sagas
			transactor, ok := outmill.As[roles.Transactor](k.store)
			require.True(t, ok)
			ctx, options := t.Context(), roles.SagaOptions{}
			saga := &roles.Saga{Type: "parcel", Correlation: "o1"}
			require.NoError(t, k.sagas.InsertSaga(ctx, saga, &parcel{}, options))
			require.ErrorIs(t, retention.RetainSaga(ctx, saga, time.Hour, options), roles.ErrSagaConflict)
			stale := *saga
			saga.Finished = true
			require.NoError(t, k.sagas.UpdateSaga(ctx, saga, &parcel{Steps: 1}, options))
			require.ErrorIs(t, retention.RetainSaga(ctx, &stale, time.Hour, options), roles.ErrSagaConflict)
			require.ErrorIs(t, retention.RetainSaga(ctx, saga, 0, options), outmill.ErrInvalidConfig)

			refused := errors.New("refused")
			require.ErrorIs(t, transactor.Transact(ctx, func(ctx context.Context) error {
				return errors.Join(retention.RetainSaga(ctx, saga, time.Microsecond, options), refused)
			}), refused)
			deleted, err := retention.DeleteOldSagas(ctx, 10)
			require.NoError(t, err)
			require.Zero(t, deleted)
			require.NoError(t, retention.RetainSaga(ctx, saga, time.Hour, options))
			found, state, err := k.find(t, "o1")
			require.NoError(t, err)
			require.Equal(t, parcel{Steps: 1}, state)
			require.Equal(t, saga.Version, found.Version)
			for _, limit := range []int{0, -1} {
				_, err := retention.DeleteOldSagas(ctx, limit)
				require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			}
		})
	})
	t.Run("deletes no more than the limit", func(t *testing.T) {
		t.Parallel()
		onEachKeeper(t, func(t *testing.T, k keeper) {
			if _, is := k.store.(*outmillmongo.Store); is {
				t.Skip("the server deletes by itself, too")
			}
			retention := k.sagas
			for i := range 5 {
				saga := &roles.Saga{Type: fmt.Sprint("kind", i%2), Correlation: fmt.Sprint(i), Finished: true}
				require.NoError(t, k.sagas.InsertSaga(t.Context(), saga, &parcel{}, roles.SagaOptions{}))
				require.NoError(t, retention.RetainSaga(t.Context(), saga, time.Microsecond, roles.SagaOptions{}))
			}
			left := 5
			require.Eventually(t, func() bool {
				n, err := retention.DeleteOldSagas(t.Context(), 2)
				require.NoError(t, err)
				require.LessOrEqual(t, n, 2)
				left -= n
				return left == 0
			}, patience, 5*time.Millisecond)
		})
	})
}
