package tenants_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

// fairMember is an open store that serves turns in these topics.
func fairMember(t *testing.T, address, key string, topics ...string) tenants.Tenant {
	t.Helper()
	config := postgres.Config{Name: key, Schema: strings.ReplaceAll(key, "-", "_"), FairTopics: topics}
	store, err := postgres.Open(t.Context(), address, config, nil)
	require.NoError(t, err)
	require.NoError(t, store.Ensure(t.Context()))
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return tenants.Tenant{Key: key, Store: store}
}

// rigOf is a rig over these members.
func rigOf(t *testing.T, members tenants.Static, change func(*tenants.Config)) *rig {
	t.Helper()
	return newRig(t, nil, func(cfg *tenants.Config) {
		cfg.Discovery = members
		if change != nil {
			change(cfg)
		}
	})
}

// appendOf writes n records of a tenant id to a member.
func (r *rig) appendOf(member, tenant string, n int) {
	r.Helper()
	for i := range n {
		rec := &outmill.Record{MessageID: fmt.Sprintf("%s/%s/%d", member, tenant, i), Topic: topic, TenantID: tenant}
		outbox, err := r.set.Outbox(member)
		require.NoError(r, err)
		require.NoError(r, outbox.Append(r.Context(), rec))
	}
}

func TestSet_FairTopics(t *testing.T) {
	t.Parallel()

	t.Run("a set serves turns if all its members do", func(t *testing.T) {
		t.Parallel()
		serves := func(members ...tenants.Tenant) bool {
			set, err := tenants.New(t.Context(), tenants.Config{Discovery: tenants.Static(members)}, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, set.Close()) }()
			turns, ok := outmill.As[storekit.TenantTurns](outmill.Store(set))
			require.True(t, ok)
			cfg := subscriber.Config{MaxInFlightPerTenant: 1}
			sub, err := subscriber.New(set, cfg, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, sub.Close()) }()
			if err := sub.SubscribeInitialize(topic); err != nil {
				require.ErrorIs(t, err, outmill.ErrInvalidConfig)
				require.False(t, turns.ServesTurns(topic))
				return false
			}
			return turns.ServesTurns(topic)
		}
		address := postgrestest.Database(t)
		require.True(t, serves(fairMember(t, address, "a", "*"), fairMember(t, address, "b", topic)))
		require.False(t, serves(fairMember(t, address, "c", "*"), fairMember(t, address, "d", "bills")))
		require.False(t, serves(fairMember(t, address, "e", "*"), tenants.Tenant{Key: "b", Store: &plain{newSpy(t, "b")}}))
		require.True(t, serves(), "a set without members, which may come")
	})

	t.Run("a subscriber of many members handles all while a tenant waits at its limit", func(t *testing.T) {
		t.Parallel()
		r := rigOf(t, partedMembers(t, manyNames(20)), nil)
		sub, err := subscriber.New(r.set, subscriber.Config{MaxInFlight: 10, MaxInFlightPerTenant: 2, PollInterval: time.Hour,
			Order: outmill.OrderKey}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, sub.Close()) }()
		messages, err := sub.Subscribe(t.Context(), topic)
		require.NoError(t, err)
		began, opened, done := make(chan string, 100), make(chan struct{}), make(chan string, 1000)
		go func() {
			for msg := range messages {
				go func() {
					if msg.Metadata.Get(outmill.MetadataTenantID) == "slow" {
						began <- msg.UUID
						<-opened
					}
					msg.Ack()
					done <- msg.Metadata.Get(outmill.MetadataTenantID)
				}()
			}
		}()
		r.appendOf("tenant-3", "slow", 30)
		for i := range 20 {
			r.appendOf(fmt.Sprint("tenant-", i), "quick", 3)
		}
		for range 60 {
			require.Equal(t, "quick", next(t, done))
		}
		next(t, began)
		next(t, began)
		require.Empty(t, began)
		close(opened)
		for range 30 {
			require.Equal(t, "slow", next(t, done))
		}
	})
}

// next waits for a value.
func next(t *testing.T, values <-chan string) string {
	t.Helper()
	select {
	case value := <-values:
		return value
	case <-time.After(soon):
		require.FailNow(t, "nothing came")
		return ""
	}
}
