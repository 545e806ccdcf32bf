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

func Test_a_subscriber_registers_under_its_name_and_for_ever(t *testing.T) {
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
}

func Test_registrations_of_a_subscriber_with_a_RegistrationTTL_end(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	cfg := quick()
	cfg.Group, cfg.RegistrationTTL = "replies", time.Hour
	require.NoError(t, s.subscriber(t, cfg).SubscribeInitialize(topic))
	registered := groupOf(t, s, "replies").Registrations
	require.Len(t, registered, 1)
	require.WithinDuration(t, time.Now().Add(time.Hour), registered[0].ExpiresAt, time.Minute)
}

func Test_a_registration_lasts_as_long_as_its_subscriber_reads(t *testing.T) {
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
}

func Test_a_negative_RegistrationTTL_and_a_workers_name_that_is_too_long_are_refused(t *testing.T) {
	t.Parallel()
	err := subscriber.Config{RegistrationTTL: -time.Second, Worker: strings.Repeat("w", 256)}.Validate()
	require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	require.ErrorContains(t, err, "subscriber.Config.RegistrationTTL is -1s")
	require.ErrorIs(t, err, outmill.ErrInvalidRecord)
	require.ErrorContains(t, err, "worker has 256 characters")
}
