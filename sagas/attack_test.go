package sagas_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sagas"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
)

// disturb changes the saga as a concurrent handler would, so that the update of the caller's
// handler conflicts.
func (s *shop) disturb(c *sagas.Context[order]) error {
	saga, err := s.FindSaga(c, "order", c.Correlation, &order{}, roles.SagaOptions{})
	if err != nil {
		return err
	}
	return s.UpdateSaga(c, saga, c.State, roles.SagaOptions{})
}

func TestSaga_WithInbox(t *testing.T) {
	t.Parallel()
	for name, outside := range map[string]func(box *inbox.Inbox) []message.HandlerMiddleware{
		"inside the router's KeepError": func(box *inbox.Inbox) []message.HandlerMiddleware {
			return []message.HandlerMiddleware{subscriber.KeepError, box.Middleware}
		},
		"alone": func(box *inbox.Inbox) []message.HandlerMiddleware { return []message.HandlerMiddleware{box.Middleware} },
	} {
		t.Run("after a conflict an inbox of the router, "+name+", commits nothing", func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			box, err := inbox.New(s.Store, inbox.Config{Consumer: "sagas"})
			require.NoError(t, err)
			s.router.AddMiddleware(outside(box)...)
			var calls atomic.Int32
			s.run(t, sagas.Config{ConflictDelay: time.Millisecond},
				sagas.StartedBy("placed", ofOrder, func(c *sagas.Context[order], _ event) error {
					if calls.Add(1) == 2 {
						return s.disturb(c)
					}
					return placed(c, event{})
				}))
			s.publish(t, "placed", "o1")
			s.settled(t, outmill.StatusProcessed, 1)
			s.publish(t, "placed", "o1")
			s.settled(t, outmill.StatusProcessed, 2)
			_, state, err := s.find(t, "o1")
			require.NoError(t, err)
			require.Equal(t, 2, state.Placed)
		})
	}
}

func TestTimeout_OfAnEarlierSaga(t *testing.T) {
	t.Parallel()
	t.Run("is acked, and does not reach a saga that was started later", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		var timeouts atomic.Int32
		s.run(t, sagas.Config{},
			sagas.StartedBy("placed", ofOrder, func(c *sagas.Context[order], _ event) error {
				return c.Timeout("unpaid", time.Hour, event{c.Correlation})
			}),
			sagas.On("paid", ofOrder, func(c *sagas.Context[order], _ event) error { c.Complete(); return nil }),
			sagas.Timeout("unpaid", func(*sagas.Context[order], event) error { timeouts.Add(1); return nil }))
		s.publish(t, "placed", "o1")
		s.settled(t, outmill.StatusProcessed, 1)
		first := s.settled(t, outmill.StatusPending, 1)[0]
		s.publish(t, "paid", "o1")
		s.settled(t, outmill.StatusProcessed, 2)
		s.publish(t, "placed", "o1")
		s.settled(t, outmill.StatusProcessed, 3)
		s.arrive(t, first)
		s.settled(t, outmill.StatusProcessed, 4)
		require.Zero(t, timeouts.Load())
		for _, r := range s.settled(t, outmill.StatusPending, 2) {
			if r.ID != first.ID {
				s.arrive(t, r)
			}
		}
		s.settled(t, outmill.StatusProcessed, 5)
		require.EqualValues(t, 1, timeouts.Load(), "that of the second saga")
	})
}

// arrive publishes a copy of a timeout that is due at once.
func (s *shop) arrive(t *testing.T, timeout *outmill.Record) {
	t.Helper()
	msg := message.NewMessage(watermill.NewUUID(), timeout.Payload)
	msg.Metadata = timeout.Metadata
	require.NoError(t, s.pub.Publish(timeout.Topic, msg))
}

// repeating runs each transaction twice, as a store does after a deadlock.
type repeating struct{ *sqlite.Store }

func (r repeating) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	if joined, _ := storekit.InTransaction(ctx, r.Store); joined {
		return fn(ctx)
	}
	deadlock := errors.New("deadlock")
	err := r.Store.Transact(ctx, func(ctx context.Context) error { return errors.Join(fn(ctx), deadlock) })
	if !errors.Is(err, deadlock) {
		return err
	}
	return r.Store.Transact(ctx, fn)
}

func TestSaga_Repeated(t *testing.T) {
	t.Parallel()
	t.Run("a transaction that runs again begins with the original message and state", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		type lines struct {
			Order string
			Items []string
		}
		saga, err := sagas.Define(sagas.Config{Store: repeating{s.Store}},
			sagas.StartedBy("placed", func(m lines) string { return m.Order }, func(c *sagas.Context[order], m lines) error {
				require.Equal(t, []string{"book"}, m.Items)
				require.Empty(t, c.Message.Metadata.Get("seen"))
				require.Equal(t, 0, c.State.Placed)
				m.Items[0] = "changed"
				c.Message.Metadata.Set("seen", "yes")
				return placed(c, event{})
			}))
		require.NoError(t, err)
		require.NoError(t, saga.AddHandlers(s.router, s.sub))
		s.start(t)
		require.NoError(t, s.pub.Publish("placed", message.NewMessage(watermill.NewUUID(), []byte(`{"Order":"o1","Items":["book"]}`))))
		s.settled(t, outmill.StatusProcessed, 1)
	})
}

// impatient is a store that gives up on conflicts when the time is over, as MongoDB's does.
type impatient struct{ *sqlite.Store }

func (i impatient) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	err := i.Store.Transact(ctx, fn)
	if errors.Is(err, roles.ErrSagaConflict) {
		return context.DeadlineExceeded
	}
	return err
}

func TestSaga_ConflictsUntilTheEnd(t *testing.T) {
	t.Parallel()
	t.Run("count no attempt if the store gives up on them", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		var calls atomic.Int32
		saga, err := sagas.Define(sagas.Config{Store: impatient{s.Store}, ConflictDelay: time.Millisecond},
			sagas.StartedBy("placed", ofOrder, func(c *sagas.Context[order], m event) error {
				if n := calls.Add(1); 1 < n && n < 6 {
					return s.disturb(c)
				}
				return placed(c, m)
			}))
		require.NoError(t, err)
		require.NoError(t, saga.AddHandlers(s.router, s.sub))
		s.start(t)
		for i := range 2 {
			s.publish(t, "placed", "o1")
			for _, r := range s.settled(t, outmill.StatusProcessed, i+1) {
				require.Zero(t, r.Attempts)
			}
		}
		_, state, err := s.find(t, "o1")
		require.NoError(t, err)
		require.Equal(t, 2, state.Placed)
	})
}

func TestSaga_Finished(t *testing.T) {
	t.Parallel()
	t.Run("is not started again while the store keeps it", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		told := make(chan string, 1)
		s.run(t, sagas.Config{KeepFinished: true, NotFound: func(msg *message.Message, correlation string) error {
			if _, inTx := s.Tx(msg.Context()); inTx {
				told <- correlation
			}
			return nil
		}}, sagas.StartedBy("placed", ofOrder, func(c *sagas.Context[order], m event) error {
			c.Complete()
			return placed(c, m)
		}))
		s.publish(t, "placed", "o1")
		s.settled(t, outmill.StatusProcessed, 1)
		s.publish(t, "placed", "o1")
		require.Equal(t, "o1", <-told)
		s.settled(t, outmill.StatusProcessed, 2)
		_, state, err := s.find(t, "o1")
		require.NoError(t, err)
		require.Equal(t, 1, state.Placed)
	})
}

func TestSaga_Errors(t *testing.T) {
	t.Parallel()
	t.Run("contain no part of the payload or the state", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		type secrets struct {
			Order string
			Card  int8
			At    time.Time
		}
		type stateBefore struct {
			Placed string `json:"placed"`
		}
		stored := &roles.Saga{Type: "order", Correlation: "o1"}
		require.NoError(t, s.InsertSaga(t.Context(), stored, &stateBefore{"471147114711"}, roles.SagaOptions{}))
		ofSecrets := func(m secrets) string { return m.Order }
		s.run(t, sagas.Config{}, sagas.StartedBy("placed", ofSecrets, func(*sagas.Context[order], secrets) error { return nil }))
		for _, payload := range []string{`{"Card":471147114711}`, `{"At":"471147114711"}`, `471147114711`, `{"Order":"o1"}`} {
			require.NoError(t, s.pub.Publish("placed", message.NewMessage(watermill.NewUUID(), []byte(payload))))
		}
		for _, r := range s.settled(t, outmill.StatusDead, 4) {
			require.NotContains(t, r.LastError, "471147114711")
			require.NotEmpty(t, r.LastError)
		}
	})
}

func TestSaga_AddHandlers(t *testing.T) {
	t.Parallel()
	t.Run("adds no handler if one of the names is taken", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		saga, err := sagas.Define(sagas.Config{Store: s.Store}, sagas.On("paid", ofOrder, placed), sagas.On("shipped", ofOrder, placed))
		require.NoError(t, err)
		s.router.AddConsumerHandler("order:shipped", "shipped", s.sub, func(*message.Message) error { return nil })
		require.ErrorIs(t, saga.AddHandlers(s.router, s.sub), outmill.ErrInvalidConfig)
		require.Len(t, s.router.Handlers(), 1)
		require.ErrorIs(t, saga.AddHandlers(nil, s.sub), outmill.ErrInvalidConfig)
		s.start(t)
	})
}
