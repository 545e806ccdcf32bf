package tenants_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/mongo"
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

// turnMember is an open store that serves each tenant of all topics in turn, and so obeys ClaimRequest.TenantRoom.
func turnMember(t *testing.T, key string) tenants.Tenant {
	t.Helper()
	db := mongotest.Database(t)
	store, err := mongo.New(db.Client(), mongo.Config{Name: key, Database: db.Name(), FairTopics: []string{"*"}}, nil)
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

// turnSet is a rig over members a and b, which serve turns in all topics.
func turnSet(t *testing.T, change func(*tenants.Config)) *rig {
	t.Helper()
	return rigOf(t, tenants.Static{turnMember(t, "a"), turnMember(t, "b")}, change)
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

// claimIn claims with this room of each tenant of each member.
func (r *rig) claimIn(limit, room int) map[string]int {
	r.Helper()
	req := request(limit)
	req.TenantRoom = func(string, string, string) int { return room }
	found, err := r.set.Claim(r.Context(), req)
	require.NoError(r, err)
	counts := map[string]int{}
	for _, rec := range found {
		counts[rec.Store+"/"+rec.TenantID]++
	}
	return counts
}

func TestSet_TenantRoom(t *testing.T) {
	t.Parallel()

	t.Run("a tenant has its room in each member that has records of it", func(t *testing.T) {
		t.Parallel()
		r := turnSet(t, nil)
		for _, member := range []string{"a", "b"} {
			r.appendOf(member, "x", 10)
			r.appendOf(member, "", 10)
		}
		require.Equal(t, map[string]int{"a/x": 3, "a/": 3, "b/x": 3, "b/": 3}, r.claimIn(100, 3))
	})

	t.Run("the room holds for a claim that asks a member more than once", func(t *testing.T) {
		t.Parallel()
		for name, strategy := range map[string]tenants.Strategy{"shared": nil, "round robin": tenants.RoundRobin{}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := turnSet(t, func(cfg *tenants.Config) { cfg.Strategy = strategy })
				want := map[string]int{}
				for i := range 10 {
					tenant := fmt.Sprint("t", i)
					r.appendOf("a", tenant, 20)
					want["a/"+tenant] = 5
				}
				require.Equal(t, want, r.claimIn(60, 5))
			})
		}
	})

	t.Run("the limit of a member holds, too", func(t *testing.T) {
		t.Parallel()
		r := turnSet(t, limited(4))
		r.appendOf("a", "x", 10)
		r.appendOf("a", "y", 10)
		r.appendOf("b", "x", 10)
		require.Equal(t, map[string]int{"a/x": 2, "a/y": 2, "b/x": 3}, r.claimIn(100, 3))
	})

	t.Run("a member without room is asked again when its tenant has room, and not only after a pause", func(t *testing.T) {
		t.Parallel()
		members := partedMembers(t, manyNames(20))
		members[7] = turnMember(t, members[7].Key)
		r := rigOf(t, members, nil)
		r.appendOf("tenant-7", "x", 30)
		require.Equal(t, map[string]int{"tenant-7/x": 1}, r.claimIn(10, 1))
		for range 10 {
			for range 3 {
				require.Empty(t, r.claimIn(10, 0))
			}
			require.Equal(t, map[string]int{"tenant-7/x": 2}, r.claimIn(10, 2))
		}
	})

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
