package subscriber_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/subscriber"
)

func groupOf(t *testing.T, s *shop, name string) outmill.GroupInfo {
	t.Helper()
	groups, err := s.Groups(t.Context())
	require.NoError(t, err)
	for _, g := range groups {
		if g.Group == name {
			return g
		}
	}
	require.FailNow(t, "no such group", name)
	return outmill.GroupInfo{}
}

func TestSubscriber_Registration(t *testing.T) {
	t.Parallel()

	t.Run("a subscriber registers under its name and for ever", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		require.NoError(t, s.subscriber(t, quick()).SubscribeInitialize(topic))
		named := quick()
		named.Worker = "second of two"
		require.NoError(t, s.subscriber(t, named).SubscribeInitialize(topic))
		group := groupOf(t, s, outmill.DefaultGroup)
		var names []string
		for _, w := range group.Workers {
			names = append(names, w.Name)
		}
		require.ElementsMatch(t, []string{worker.Name(""), "second of two"}, names)
		require.Len(t, group.Registrations, 1)
		require.Zero(t, group.Registrations[0].ExpiresAt)
	})

	t.Run("registrations of a subscriber with a RegistrationTTL end", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.Group, cfg.RegistrationTTL = "replies", time.Hour
		require.NoError(t, s.subscriber(t, cfg).SubscribeInitialize(topic))
		registered := groupOf(t, s, "replies").Registrations
		require.Len(t, registered, 1)
		require.WithinDuration(t, time.Now().Add(time.Hour), registered[0].ExpiresAt, time.Minute)
	})

	t.Run("a registration lasts as long as its subscriber reads", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.Group, cfg.RegistrationTTL, cfg.UpkeepInterval = "replies", 5*time.Second, -1
		sub := s.subscriber(t, cfg)
		ctx, stop := context.WithCancel(t.Context())
		messages, err := sub.Subscribe(ctx, topic)
		require.NoError(t, err)
		first := groupOf(t, s, "replies").Registrations[0].ExpiresAt
		require.Eventually(t, func() bool {
			ended, _, err := s.ExpireRegistrations(t.Context(), 10)
			require.NoError(t, err)
			require.Zero(t, ended, "it is renewed")
			return groupOf(t, s, "replies").Registrations[0].ExpiresAt.After(first)
		}, patience, 10*time.Millisecond)
		stop()
		for range messages {
			require.Fail(t, "nothing was published")
		}
		require.Eventually(t, func() bool {
			ended, _, err := s.ExpireRegistrations(t.Context(), 10)
			require.NoError(t, err)
			return ended == 1
		}, patience, 10*time.Millisecond, "nobody reads any more")
	})

	t.Run("a negative RegistrationTTL and a workers name that is too long are refused", func(t *testing.T) {
		t.Parallel()
		err := subscriber.Config{RegistrationTTL: -time.Second, Worker: strings.Repeat("w", 256)}.Validate()
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "subscriber.Config.RegistrationTTL is -1s")
		require.ErrorIs(t, err, outmill.ErrInvalidRecord)
		require.ErrorContains(t, err, "worker has 256 characters")
	})
}
