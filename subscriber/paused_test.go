package subscriber_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func TestSubscriber_Paused(t *testing.T) {
	t.Parallel()

	t.Run("handlers stop while their topic is paused, and continue in order after Resume", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		var mu sync.Mutex
		var got []string
		some := make(chan struct{}, 1)
		handled := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return append([]string{}, got...)
		}
		cfg := quick()
		cfg.Order = outmill.OrderKey
		s.route(t, cfg, func(msg *message.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if got = append(got, msg.UUID); len(got) == 20 {
				some <- struct{}{}
			}
			return nil
		})
		var want []string
		publish := func(n int) {
			messages := make([]*message.Message, n)
			for i := range messages {
				messages[i] = newOrder()
				outmill.SetKey(messages[i], "customer")
				want = append(want, messages[i].UUID)
			}
			s.publish(t, messages...)
		}
		publish(500)
		select {
		case <-some:
		case <-time.After(patience):
			t.Fatal("the handlers did not begin")
		}
		scope := roles.PauseScope{Topic: topic}
		require.NoError(t, s.Pause(t.Context(), scope, "ann", "the warehouse is down"))
		require.Eventually(t, func() bool { return s.count(t, outmill.StatusLeased) == 0 }, patience, 5*time.Millisecond,
			"the running handler finished, and the other messages went back")
		before := handled()
		require.Less(t, len(before), 500)
		publish(5)
		for end := time.Now().Add(20 * cfg.PollInterval); time.Now().Before(end); <-time.After(cfg.PollInterval) {
			require.Len(t, handled(), len(before), "a handler began under the pause")
		}
		for _, r := range s.records(t) {
			require.Zero(t, r.Attempts+r.Expiries, "a pause uses up no attempt")
		}

		ended, err := s.Resume(t.Context(), scope)
		require.NoError(t, err)
		require.True(t, ended)
		require.Eventually(t, func() bool { return len(handled()) >= len(want) }, patience, 5*time.Millisecond)
		require.Equal(t, want, handled())
	})
}

func (s *shop) records(t *testing.T) []*outmill.Record {
	t.Helper()
	found, err := s.List(t.Context(), outmill.ListQuery{Content: true, Limit: 10_000})
	require.NoError(t, err)
	return found
}
