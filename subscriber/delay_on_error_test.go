package subscriber_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/subscriber"
)

func TestSubscriber_DelayOnError(t *testing.T) {
	t.Parallel()
	// doubling is a middleware whose delays are far from those of the retry policy.
	doubling := middleware.DelayOnError{InitialInterval: 20 * time.Millisecond, MaxInterval: 80 * time.Millisecond, Multiplier: 2}
	patient := func() subscriber.Config {
		cfg := quick()
		cfg.Retry = outmill.RetryPolicy{MaxAttempts: 5, InitialInterval: time.Hour, MaxInterval: time.Hour}
		return cfg
	}

	t.Run("the delays of DelayOnError replace the waits of the retry policy, and grow, until the last attempt", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		var mu sync.Mutex
		var seen []string
		s.route(t, patient(), func(msg *message.Message) error {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, msg.Metadata.Get(delay.DelayedForKey))
			return errBroken
		}, subscriber.KeepError, doubling.Middleware)
		s.publish(t, newOrder())
		require.Equal(t, errBroken.Error(), s.only(t, topic, outmill.StatusDead).LastError)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{"", "20ms", "40ms", "80ms", "80ms"}, seen)
	})

	t.Run("a message that was handled is forgotten", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		failed := false
		handled := make(chan string, 2)
		s.route(t, patient(), func(msg *message.Message) error {
			if !failed {
				failed = true
				return errBroken
			}
			handled <- msg.Metadata.Get(delay.DelayedForKey)
			return nil
		}, subscriber.KeepError, doubling.Middleware)
		s.publish(t, newOrder())
		require.Equal(t, "20ms", <-handled)
		s.only(t, topic, outmill.StatusProcessed)
		s.publish(t, newOrder())
		require.Empty(t, <-handled)
	})

	t.Run("an error that names its own wait is obeyed, and a message that nobody delayed waits by the policy", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			err         error
			middlewares []message.HandlerMiddleware
		}{
			"RetryAfter": {outmill.RetryAfter(errBroken, time.Hour),
				[]message.HandlerMiddleware{subscriber.KeepError, doubling.Middleware}},
			"without DelayOnError": {errBroken, []message.HandlerMiddleware{subscriber.KeepError}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := openShop(t)
				s.route(t, patient(), func(*message.Message) error { return c.err }, c.middlewares...)
				s.publish(t, newOrder())
				require.Eventually(t, func() bool {
					found, err := s.List(t.Context(), outmill.ListQuery{Content: true, Topic: topic})
					require.NoError(t, err)
					return len(found) == 1 && found[0].Attempts == 1 && time.Until(found[0].NextAttemptAt) > 30*time.Minute
				}, patience, 5*time.Millisecond)
			})
		}
	})
}
