package sagas_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sagas"
	"github.com/outmill/outmill/subscriber"
)

func TestConfig_Inbox(t *testing.T) {
	t.Parallel()
	t.Run("a message that is delivered twice is handled once, also after the saga has ended", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.run(t, sagas.Config{Inbox: &inbox.Config{}}, sagas.StartedBy("placed", ofOrder, func(c *sagas.Context[order], m event) error {
			c.Complete()
			return c.PublishValue("invoices", m)
		}))
		for range 2 {
			require.NoError(t, s.pub.Publish("placed", message.NewMessage("m1", []byte(`{"Order":"o1"}`))))
		}
		s.settled(t, outmill.StatusProcessed, 2)
		sent, err := s.List(t.Context(), outmill.ListQuery{Topic: "invoices", Content: true})
		require.NoError(t, err)
		require.Len(t, sent, 1)
	})
	t.Run("an error rolls the note back, so the message is handled when it is delivered again", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.run(t, sagas.Config{Inbox: &inbox.Config{}}, sagas.StartedBy("placed", ofOrder, func(c *sagas.Context[order], m event) error {
			if delivery, _ := outmill.Delivery(c); delivery.Attempt == 1 {
				return errors.New("broken")
			}
			return placed(c, m)
		}))
		s.publish(t, "placed", "o1")
		s.settled(t, outmill.StatusProcessed, 1)
		_, state, err := s.find(t, "o1")
		require.NoError(t, err)
		require.Equal(t, 1, state.Placed)
	})
	t.Run("messages of another subscriber are handled once, too", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		saga, err := sagas.Define(sagas.Config{Store: s.Store, Inbox: &inbox.Config{}}, sagas.StartedBy("placed", ofOrder, placed))
		require.NoError(t, err)
		broker := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
		handled := make(chan error, 3)
		s.router.AddConsumerHandler("orders of a broker", "placed", broker, func(msg *message.Message) error {
			err := saga.Handler("placed")(msg)
			handled <- err
			return err
		})
		s.start(t)
		for _, uuid := range []string{"m1", "m1", "m2"} {
			require.NoError(t, broker.Publish("placed", message.NewMessage(uuid, []byte(`{"Order":"o1"}`))))
			require.NoError(t, <-handled)
		}
		_, state, err := s.find(t, "o1")
		require.NoError(t, err)
		require.Equal(t, 2, state.Placed)
	})
}

func TestConfig_Retention(t *testing.T) {
	t.Parallel()
	finish := func(t *testing.T, retention time.Duration) *shop {
		t.Helper()
		s := newShop(t)
		sub, err := subscriber.New(s.Store, subscriber.Config{UpkeepInterval: 5 * time.Millisecond, PollInterval: 20 * time.Millisecond}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sub.Close()) })
		s.sub = sub
		s.run(t, sagas.Config{KeepFinished: true, Retention: retention},
			sagas.StartedBy("placed", ofOrder, placed),
			sagas.On("paid", ofOrder, func(c *sagas.Context[order], _ event) error { c.Complete(); return nil }),
			sagas.StartedBy("cancelled", ofOrder, func(c *sagas.Context[order], _ event) error { c.Complete(); return nil }))
		s.publish(t, "placed", "open")
		s.publish(t, "placed", "paid")
		s.settled(t, outmill.StatusProcessed, 2)
		s.publish(t, "paid", "paid")
		s.publish(t, "cancelled", "at once")
		s.settled(t, outmill.StatusProcessed, 4)
		return s
	}
	t.Run("a subscriber deletes finished sagas after their retention, and no other sagas", func(t *testing.T) {
		t.Parallel()
		s := finish(t, time.Millisecond)
		for _, id := range []string{"paid", "at once"} {
			require.Eventually(t, func() bool {
				_, _, err := s.find(t, id)
				return errors.Is(err, roles.ErrSagaNotFound)
			}, patience, 5*time.Millisecond)
		}
		_, _, err := s.find(t, "open")
		require.NoError(t, err)
	})
	for name, retention := range map[string]time.Duration{"until their retention has passed": 0, "for ever, if it is negative": -1} {
		t.Run("finished sagas are kept "+name, func(t *testing.T) {
			t.Parallel()
			s := finish(t, retention)
			n, err := s.DeleteOldSagas(t.Context(), 10)
			require.NoError(t, err)
			require.Zero(t, n)
			for _, id := range []string{"paid", "at once"} {
				saga, _, err := s.find(t, id)
				require.NoError(t, err)
				require.True(t, saga.Finished)
			}
			n, err = s.DeleteFinishedSagas(t.Context(), "order", 0, 10)
			require.NoError(t, err)
			require.Equal(t, 2, n)
		})
	}
	t.Run("a saga that is not finished has no retention", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		saga := &roles.Saga{Type: "order", Correlation: "o1"}
		require.NoError(t, s.InsertSaga(t.Context(), saga, &order{}, roles.SagaOptions{}))
		require.ErrorIs(t, s.RetainSaga(t.Context(), saga, time.Hour, roles.SagaOptions{}), roles.ErrSagaConflict)
		require.ErrorIs(t, s.RetainSaga(t.Context(), saga, 0, roles.SagaOptions{}), outmill.ErrInvalidConfig)
	})
}

func TestContext_Publish(t *testing.T) {
	t.Parallel()
	t.Run("passes on correlation and causation, and sets the correlation value as the key", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		s.run(t, sagas.Config{}, sagas.StartedBy("placed", ofOrder, func(c *sagas.Context[order], m event) error {
			require.False(t, c.ID.IsZero())
			return c.PublishValue("invoices", m)
		}))
		msg := message.NewMessage("m1", []byte(`{"Order":"o1"}`))
		outmill.SetCorrelationID(msg, "visit 7")
		require.NoError(t, s.pub.Publish("placed", msg))
		s.settled(t, outmill.StatusProcessed, 1)
		sent, err := s.List(context.WithoutCancel(t.Context()), outmill.ListQuery{Topic: "invoices", Content: true})
		require.NoError(t, err)
		require.Len(t, sent, 1)
		require.Equal(t, []string{"o1", "visit 7", "m1"}, []string{sent[0].Key, sent[0].CorrelationID, sent[0].CausationID})
	})
}
