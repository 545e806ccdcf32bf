package sagas_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sagas"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

const patience = 5 * time.Minute

type order struct {
	Placed int  `json:"placed"`
	Paid   bool `json:"paid"`
}

type event struct{ Order string }

func ofOrder(m event) string { return m.Order }

// shop is a store with a router that is not running yet.
type shop struct {
	*sqlite.Store
	pub    *publisher.Publisher
	router *message.Router
	sub    *subscriber.Subscriber
}

func newShop(t *testing.T) *shop {
	t.Helper()
	store, err := sqlite.Open(t.Context(), "file:"+filepath.Join(t.TempDir(), "shop.db")+"?_pragma=synchronous(OFF)",
		sqlite.Config{Retain: time.Hour}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	sub, err := subscriber.New(store, subscriber.Config{
		Retry:        outmill.RetryPolicy{MaxAttempts: 2, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond},
		PollInterval: 20 * time.Millisecond, CloseTimeout: patience,
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
	require.NoError(t, err)
	return &shop{store, pub, router, sub}
}

func (s *shop) run(t *testing.T, cfg sagas.Config, reactions ...sagas.Reaction[order]) {
	t.Helper()
	cfg.Store = s.Store
	saga, err := sagas.Define(cfg, reactions...)
	require.NoError(t, err)
	require.NoError(t, saga.AddHandlers(s.router, s.sub))
	s.start(t)
}

// start runs the router until the test ends.
func (s *shop) start(t *testing.T) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.router.Run(context.Background()) }()
	<-s.router.Running()
	t.Cleanup(func() {
		require.NoError(t, s.router.Close())
		require.NoError(t, <-ended)
	})
}

func (s *shop) publish(t *testing.T, topic, id string) {
	t.Helper()
	require.NoError(t, s.pub.Publish(topic, message.NewMessage(watermill.NewUUID(), []byte(`{"Order":"`+id+`"}`))))
}

// settled waits until n records have the status.
func (s *shop) settled(t *testing.T, status outmill.Status, n int) []*outmill.Record {
	t.Helper()
	var found []*outmill.Record
	require.Eventually(t, func() bool {
		var err error
		found, err = s.List(t.Context(), outmill.ListQuery{Status: status, Limit: 100, Content: true})
		return err == nil && len(found) == n
	}, patience, 5*time.Millisecond)
	return found
}

func (s *shop) find(t *testing.T, id string) (*roles.Saga, order, error) {
	t.Helper()
	var state order
	saga, err := s.FindSaga(t.Context(), "order", id, &state, roles.SagaOptions{})
	return saga, state, err
}

func placed(c *sagas.Context[order], _ event) error { c.State.Placed++; return nil }

func TestSaga_Completes(t *testing.T) {
	t.Parallel()
	t.Run("with a timeout that compensates, and acks a later timeout of the finished saga", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.run(t, sagas.Config{KeepFinished: true},
			sagas.StartedBy("placed", ofOrder, func(c *sagas.Context[order], _ event) error {
				return errors.Join(c.Timeout("unpaid", time.Millisecond, event{}), c.Timeout("unpaid", 2*time.Millisecond, event{}))
			}),
			sagas.Timeout("unpaid", func(c *sagas.Context[order], _ event) error {
				c.Complete()
				return c.PublishValue("cancelled", event{c.Correlation})
			}),
			sagas.On("cancelled", ofOrder, func(*sagas.Context[order], event) error { return errors.New("the saga is finished") }),
		)
		s.publish(t, "placed", "o1")
		s.settled(t, outmill.StatusProcessed, 4)
		saga, _, err := s.find(t, "o1")
		require.NoError(t, err)
		require.True(t, saga.Finished)
	})
}

func TestSaga_RollsBack(t *testing.T) {
	t.Parallel()
	t.Run("a handler that fails or panics leaves no state and no message", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.run(t, sagas.Config{},
			sagas.StartedBy("placed", ofOrder, func(c *sagas.Context[order], _ event) error {
				if err := c.PublishValue("never", event{}); err != nil {
					return err
				}
				if delivery, _ := outmill.Delivery(c); delivery.Attempt == 1 {
					panic("boom")
				}
				return errors.New("broken")
			}))
		s.publish(t, "placed", "o1")
		s.settled(t, outmill.StatusDead, 1)
		_, _, err := s.find(t, "o1")
		require.ErrorIs(t, err, roles.ErrSagaNotFound)
		all, err := s.List(t.Context(), outmill.ListQuery{Limit: 10, Content: true})
		require.NoError(t, err)
		require.Len(t, all, 1)
	})
}

func TestSaga_Conflicts(t *testing.T) {
	t.Parallel()
	t.Run("deliver the message again and count no attempt", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		var calls atomic.Int32
		s.run(t, sagas.Config{ConflictDelay: time.Millisecond},
			sagas.StartedBy("placed", ofOrder, placed),
			sagas.On("paid", ofOrder, func(c *sagas.Context[order], _ event) error {
				if calls.Add(1) <= 4 {
					// A concurrent handler makes the update conflict in this way.
					saga, err := s.FindSaga(c, "order", c.Correlation, &order{}, roles.SagaOptions{})
					if err == nil {
						err = s.UpdateSaga(c, saga, c.State, roles.SagaOptions{})
					}
					return err
				}
				c.State.Paid = true
				return nil
			}))
		s.publish(t, "placed", "o1")
		s.settled(t, outmill.StatusProcessed, 1)
		s.publish(t, "paid", "o1")
		for _, r := range s.settled(t, outmill.StatusProcessed, 2) {
			require.LessOrEqual(t, r.Attempts, 1)
		}
		_, state, err := s.find(t, "o1")
		require.NoError(t, err)
		require.True(t, state.Paid)
		require.Equal(t, int32(5), calls.Load())
	})
	t.Run("several starts of one saga at the same time start it once", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.run(t, sagas.Config{ConflictDelay: time.Millisecond}, sagas.StartedBy("placed", ofOrder, placed))
		for range 10 {
			s.publish(t, "placed", "o1")
		}
		s.settled(t, outmill.StatusProcessed, 10)
		saga, state, err := s.find(t, "o1")
		require.NoError(t, err)
		require.Equal(t, 10, state.Placed)
		require.Equal(t, int64(10), saga.Version)
	})
}

func TestSaga_NotFound(t *testing.T) {
	t.Parallel()
	t.Run("is logged with the name of the store", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		logs := journal.New()
		s.run(t, sagas.Config{Logger: logs}, sagas.On("paid", ofOrder, placed))
		s.publish(t, "paid", "o1")
		id := s.settled(t, outmill.StatusProcessed, 1)[0].MessageID
		lines := logs.Lines(watermill.InfoLogLevel)
		require.Len(t, lines, 1)
		require.Equal(t, watermill.LogFields{
			"store": s.Name(), "saga": "order", "topic": "paid", "message_uuid": id, "correlation": "o1",
		}, lines[0].Fields)
	})
	t.Run("calls the hook, and invalid messages go dead", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		told := make(chan string, 1)
		s.run(t, sagas.Config{NotFound: func(_ *message.Message, correlation string) error {
			told <- correlation
			return nil
		}}, sagas.On("paid", ofOrder, placed))
		s.publish(t, "paid", "o1")
		require.Equal(t, "o1", <-told)
		s.settled(t, outmill.StatusProcessed, 1)
		s.publish(t, "paid", "")
		s.settled(t, outmill.StatusDead, 1)
	})
}
