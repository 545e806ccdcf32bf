package subscriber_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/subscriber"
)

// routed runs a router with that logger over the handler until the test ends.
func (s *shop) routed(
	t *testing.T, logger *journal.Journal, handle message.NoPublishHandlerFunc, middlewares ...message.HandlerMiddleware,
) {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, logger)
	require.NoError(t, err)
	router.AddMiddleware(middlewares...)
	sub, err := subscriber.New(s, quick(), logger)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	router.AddConsumerHandler("handler", topic, sub, handle)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		require.NoError(t, router.Close())
		require.NoError(t, <-ended)
	})
}

func TestSubscriber_Snooze(t *testing.T) {
	t.Parallel()

	t.Run("a snooze is no error for the router and for middlewares outside KeepError", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		logger := journal.New()
		var calls, outside atomic.Int32
		noError := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				produced, err := h(msg)
				if err != nil || len(produced) > 0 {
					outside.Add(1)
				}
				return produced, err
			}
		}
		producing := func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				_, err := h(msg)
				if err == nil {
					return nil, nil
				}
				return []*message.Message{newOrder()}, err
			}
		}
		// KeepError twice, as if both the router and the handler had it.
		s.routed(t, logger, func(*message.Message) error {
			if calls.Add(1) < 4 {
				return outmill.Snooze(time.Millisecond)
			}
			return nil
		}, noError, subscriber.KeepError, noError, subscriber.KeepError, producing)
		s.publish(t, newOrder())
		rec := s.only(t, topic, outmill.StatusProcessed)
		require.EqualValues(t, 4, calls.Load())
		require.Zero(t, rec.Attempts)
		require.Empty(t, rec.LastError)
		require.Zero(t, outside.Load())
		require.Zero(t, logger.Count("ERROR"))
	})

	t.Run("a snooze that an error wraps takes effect and is logged", func(t *testing.T) {
		t.Parallel()
		for name, wrapped := range map[string]error{
			"wrapped": fmt.Errorf("the machine is cold: %w", outmill.Snooze(time.Millisecond)),
			"joined":  errors.Join(errBroken, outmill.Snooze(time.Millisecond)),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := openShop(t)
				logger := journal.New()
				var calls atomic.Int32
				s.routed(t, logger, func(*message.Message) error {
					if calls.Add(1) < 4 {
						return wrapped
					}
					return nil
				}, subscriber.KeepError)
				s.publish(t, newOrder())
				require.Zero(t, s.only(t, topic, outmill.StatusProcessed).Attempts)
				require.Equal(t, 3, logger.Count("ERROR", "the machine is"))
			})
		}
	})

	t.Run("a delivery has the last error and the start of the handling (OBX-057)", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		join := &roles.Join{ExpectedSteps: 1}
		require.NoError(t, s.StartJoin(t.Context(), join))
		order := newOrder()
		outmill.SetJoins(order, join.ID)
		s.publish(t, order)
		messages := subscribe(t, s.subscriber(t, quick()))
		s.only(t, topic, outmill.StatusLeased)
		// The message waits in the subscriber, because the test does not read the channel yet.
		for range 2 {
			before := time.Now().Round(0)
			msg := next(t, messages)
			info, ok := outmill.Delivery(msg.Context())
			require.True(t, ok)
			require.False(t, info.StartedAt.Before(before), "%s is before the message was received, at %s", info.StartedAt, before)
			require.False(t, info.StartedAt.After(time.Now()))
			require.Equal(t, []outmill.JoinID{join.ID}, info.Joins)
			again, _ := outmill.Delivery(msg.Context())
			require.Equal(t, info.StartedAt, again.StartedAt)
			if info.Attempt == 1 {
				require.Empty(t, info.LastError)
				msg.Nack()
				continue
			}
			require.Contains(t, info.LastError, "KeepError")
			msg.Ack()
		}
		s.only(t, topic, outmill.StatusProcessed)
	})
}
