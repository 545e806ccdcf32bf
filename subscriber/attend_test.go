package subscriber_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestAttendant(t *testing.T) {
	t.Parallel()

	t.Run("acks and nacks of later messages are stored while an earlier one is still handled", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.MaxInFlight, cfg.Retry.MaxAttempts = 50, 1
		messages := subscribe(t, s.subscriber(t, cfg))
		s.publishOrders(t, 50)
		var delivered []*message.Message
		for range 50 {
			delivered = append(delivered, next(t, messages))
		}
		slow, others := delivered[0], delivered[1:]
		slices.Reverse(others)
		for i, msg := range others {
			if i%7 == 0 {
				require.True(t, msg.Nack())
			} else {
				require.True(t, msg.Ack())
			}
		}
		require.Eventually(t, func() bool {
			return s.count(t, outmill.StatusProcessed) == 42 && s.count(t, outmill.StatusDead) == 7
		}, patience, 5*time.Millisecond)
		require.Equal(t, 1, s.count(t, outmill.StatusLeased))
		require.NoError(t, slow.Context().Err())
		require.True(t, slow.Ack())
		require.Eventually(t, func() bool { return s.count(t, outmill.StatusProcessed) == 43 }, patience, 5*time.Millisecond)
	})
}

func TestMessageContext(t *testing.T) {
	t.Parallel()

	ends := map[string]func(t *testing.T, msg *message.Message, unsubscribe func()){
		"the ack":  func(t *testing.T, msg *message.Message, _ func()) { require.True(t, msg.Ack()) },
		"the nack": func(t *testing.T, msg *message.Message, _ func()) { require.True(t, msg.Nack()) },
		"CloseTimeout after the end of the subscription": func(t *testing.T, msg *message.Message, unsubscribe func()) {
			unsubscribe()
			t.Cleanup(func() { msg.Ack() })
		},
	}
	for name, end := range ends {
		t.Run("ends after "+name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t)
			cfg := quick()
			cfg.CloseTimeout = time.Millisecond
			subscribed, unsubscribe := context.WithCancel(context.Background())
			defer unsubscribe()
			messages, err := s.subscriber(t, cfg).Subscribe(subscribed, topic)
			require.NoError(t, err)
			s.publishOrders(t, 1)
			msg := next(t, messages)
			ctx := msg.Context()

			derived, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			told := make(chan struct{})
			context.AfterFunc(ctx, func() { close(told) })
			require.NoError(t, ctx.Err())
			require.NoError(t, derived.Err())
			end(t, msg, unsubscribe)
			for _, done := range []<-chan struct{}{ctx.Done(), derived.Done(), told} {
				within(t, done)
			}
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.ErrorIs(t, derived.Err(), context.Canceled)
			require.ErrorIs(t, context.Cause(ctx), context.Canceled)
		})

		t.Run("ends after "+name+", and who asks later learns it", func(t *testing.T) {
			t.Parallel()
			s := openShop(t)
			cfg := quick()
			cfg.CloseTimeout = time.Millisecond
			subscribed, unsubscribe := context.WithCancel(context.Background())
			defer unsubscribe()
			messages, err := s.subscriber(t, cfg).Subscribe(subscribed, topic)
			require.NoError(t, err)
			s.publishOrders(t, 1)
			msg := next(t, messages)
			ctx := msg.Context()

			require.NoError(t, ctx.Err())
			end(t, msg, unsubscribe)
			require.Eventually(t, func() bool { return ctx.Err() != nil }, patience, time.Millisecond)
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.ErrorIs(t, context.Cause(ctx), context.Canceled)
			within(t, ctx.Done())
			derived, cancel := context.WithCancel(ctx)
			defer cancel()
			require.ErrorIs(t, derived.Err(), context.Canceled)
			_, known := outmill.Delivery(derived)
			require.True(t, known, "its values stay")
		})
	}
}

// within fails the test if the channel is not closed in time.
func within(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		require.Fail(t, "the context has not ended")
	}
}
