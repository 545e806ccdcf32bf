package tenants_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/tenants"
)

// quiet is a set of members in memory that counts the calls of all of them.
type quiet struct {
	*testing.T
	set    *tenants.Set
	stores []*meter
	calls  atomic.Int64
	asks   atomic.Int64
	refuse atomic.Bool
}

// meter is a member's store that counts what a reader and the upkeep do when they find nothing.
type meter struct {
	*memstore.Store
	db *memstore.Database
	of *quiet
}

func (m *meter) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	m.of.calls.Add(1)
	return m.Store.Claim(ctx, req)
}

func (m *meter) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	m.of.calls.Add(1)
	return m.Store.RegisterGroup(ctx, regs...)
}

func (m *meter) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	m.of.calls.Add(1)
	return m.Store.Stats(ctx, limit)
}

func (m *meter) Maintain(ctx context.Context) (bool, error) {
	m.of.calls.Add(1)
	return m.Store.Maintain(ctx)
}

func (m *meter) ReapExpired(ctx context.Context, limit int) (int, error) {
	m.of.calls.Add(1)
	return m.Store.ReapExpired(ctx, limit)
}

func (m *meter) ExpireDue(ctx context.Context, limit int) (int, error) {
	m.of.calls.Add(1)
	return m.Store.ExpireDue(ctx, limit)
}

func (m *meter) DeleteDedupKeys(ctx context.Context, limit int) (int, error) {
	m.of.calls.Add(1)
	return m.Store.DeleteDedupKeys(ctx, limit)
}

func (m *meter) AreIdle(ctx context.Context, stores []any) ([]bool, error) {
	m.of.asks.Add(1)
	if m.of.refuse.Load() {
		return nil, errAway
	}
	return m.Store.AreIdle(ctx, stores)
}

// IdleWith has all stores asked together, as if they were schemas of one database.
func (m *meter) IdleWith() (with, self any) { return m.of, m.Store }

// newQuiet returns a set of n members that looks for rests every pause.
func newQuiet(t *testing.T, n int, config tenants.Config) *quiet {
	t.Helper()
	q := makeQuiet(t, n, config)
	q.register()
	return q
}

// makeQuiet is newQuiet without a registration.
func makeQuiet(t *testing.T, n int, config tenants.Config) *quiet {
	t.Helper()
	q := &quiet{T: t}
	list := make(tenants.Static, n)
	for i := range list {
		db := memstore.NewDatabase()
		store := &meter{memstore.New(db, memstore.Options{}), db, q}
		t.Cleanup(func() { _ = store.Close() })
		require.NoError(t, store.Ensure(t.Context()))
		q.stores = append(q.stores, store)
		list[i] = tenants.Tenant{Key: name(i), Store: store}
	}
	config.Discovery, config.WithoutWake, config.CallTimeout = list, true, patient
	set, err := tenants.New(t.Context(), config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	q.set = set
	return q
}

func (q *quiet) register() {
	q.Helper()
	require.NoError(q, q.set.RegisterGroup(q.Context(), outmill.Registration{Worker: "a worker"}))
}

func (q *quiet) claim() []*outmill.Record {
	q.Helper()
	found, err := q.set.Claim(q.Context(), outmill.ClaimRequest{Owner: outmill.OwnerToken{1}, Limit: 100, Lease: time.Hour})
	require.NoError(q, err)
	return found
}

// resting is how many members are at rest.
func (q *quiet) resting() (n int) {
	for _, m := range q.set.Status().Members {
		if m.Resting {
			n++
		}
	}
	return n
}

func (q *quiet) awaitRest(n int) {
	q.Helper()
	require.Eventually(q, func() bool { return q.resting() == n }, soon, tick)
}

// round does what a subscriber does every minute.
func (q *quiet) round() {
	q.Helper()
	q.register()
	for _, tidy := range []func(context.Context, int) (int, error){q.set.ReapExpired, q.set.ExpireDue, q.set.DeleteDedupKeys} {
		_, err := tidy(q.Context(), 100)
		require.NoError(q, err)
	}
	_, err := q.set.StatsOfBusy(q.Context(), 1)
	require.NoError(q, err)
	// Members that are not at rest yet have their turns, a few with each call.
	for more := true; more; {
		more, err = q.set.Maintain(q.Context())
		require.NoError(q, err)
	}
}

func TestSet_Rest(t *testing.T) {
	t.Parallel()

	t.Run("500 tenants at rest cost one question for each 64 of them, and no claim and no upkeep", func(t *testing.T) {
		t.Parallel()
		began := time.Now()
		q := newQuiet(t, 500, tenants.Config{MaxIdle: time.Hour})
		q.claimAll()
		q.awaitRest(500)
		calls, atRest := q.calls.Load(), time.Now()
		for range 10 {
			require.Empty(t, q.claim())
			q.round()
		}
		// The upkeep of 500 members is spread over twelve hours at random, so some seconds may have one of it: one in 20 s on
		// average, and on a busy machine the rounds take longer.
		require.LessOrEqual(t, q.calls.Load()-calls, 5+int64(time.Since(atRest)/(5*time.Second)), "calls of the members")
		asks := q.asks.Load()
		// The set looks after one second, and then the pause doubles. A question that began before the last claim is asked once more.
		looks := int64(2)
		for pause := time.Second; pause < time.Since(began); pause = 2*pause + time.Second {
			looks++
		}
		require.LessOrEqual(t, asks, 8*looks, "no other question")
	})

	t.Run("a set that only publishes asks nothing", func(t *testing.T) {
		t.Parallel()
		q := makeQuiet(t, 50, tenants.Config{MaxIdle: 10 * time.Millisecond})
		busy := newQuiet(t, 50, tenants.Config{MaxIdle: 10 * time.Millisecond})
		require.NoError(t, q.set.Append(t.Context(), &outmill.Record{Topic: topic, TenantID: name(3)}))
		require.Eventually(t, func() bool { return busy.asks.Load() > 5 }, soon, tick)
		require.Zero(t, q.asks.Load())
		require.Empty(t, q.claim(), "no group is registered")
		require.Eventually(t, func() bool { return q.asks.Load() > 0 }, soon, tick)
	})

	t.Run("a tenant at rest gets a registration whose problems have changed", func(t *testing.T) {
		t.Parallel()
		q := newQuiet(t, 50, tenants.Config{MaxIdle: time.Hour})
		q.claimAll()
		q.awaitRest(50)
		for _, problems := range []map[string]string{{"": "the broker is away"}, nil, {"": "the broker is away"}} {
			reg := outmill.Registration{Worker: "a worker", Problems: problems}
			require.NoError(t, q.set.RegisterGroup(t.Context(), reg))
			groups, err := q.stores[3].Groups(t.Context())
			require.NoError(t, err)
			require.Len(t, groups, 1)
			require.Len(t, groups[0].Workers, 1)
			require.Equal(t, problems, groups[0].Workers[0].Problems)
			calls := q.calls.Load()
			require.NoError(t, q.set.RegisterGroup(t.Context(), reg))
			require.Equal(t, calls, q.calls.Load(), "the same problems need no call")
		}
	})

	t.Run("a record that nobody announces is found with the next question", func(t *testing.T) {
		t.Parallel()
		q := newQuiet(t, 50, tenants.Config{MaxIdle: 50 * time.Millisecond})
		q.claimAll()
		q.awaitRest(50)
		require.NoError(t, q.stores[7].Append(t.Context(), &outmill.Record{Topic: topic}))
		var found []*outmill.Record
		require.Eventually(t, func() bool { found = q.claim(); return len(found) > 0 }, soon, tick)
		require.Equal(t, name(7), found[0].Store)
		q.awaitRest(49)
		require.NoError(t, q.set.Ack(t.Context(), "", leasesOf(found)))
		q.awaitRest(50)
	})

	t.Run("an append through the set ends the rest of its tenant at once", func(t *testing.T) {
		t.Parallel()
		q := newQuiet(t, 50, tenants.Config{MaxIdle: time.Hour})
		q.claimAll()
		q.awaitRest(50)
		require.NoError(t, q.set.Append(t.Context(), &outmill.Record{Topic: topic, TenantID: name(3)}))
		require.Equal(t, 49, q.resting())
		calls := q.calls.Load()
		require.Len(t, q.claim(), 1)
		require.LessOrEqual(t, q.calls.Load()-calls, int64(2))
	})

	t.Run("a tenant is not at rest while it has a record that is delayed, leased or waiting for a retry", func(t *testing.T) {
		t.Parallel()
		q := newQuiet(t, 50, tenants.Config{MaxIdle: 20 * time.Millisecond})
		q.claimAll()
		require.NoError(t, q.stores[1].Append(t.Context(), &outmill.Record{Topic: topic, DueAt: time.Now().Add(time.Hour)}))
		require.NoError(t, q.stores[2].Append(t.Context(), &outmill.Record{Topic: topic}, &outmill.Record{Topic: topic}))
		var found []*outmill.Record
		require.Eventually(t, func() bool { found = append(found, q.claim()...); return len(found) == 2 }, soon, tick)
		require.NoError(t, q.set.Abandon(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Delay: time.Hour}}))
		q.awaitRest(48)
		asks := q.asks.Load()
		require.Eventually(t, func() bool { return q.asks.Load() > asks+3 }, soon, tick)
		require.Equal(t, 48, q.resting())
		q.stores[1].db.Elapse(time.Hour)
		require.Eventually(t, func() bool { found = append(found, q.claim()...); return len(found) == 3 }, soon, tick)
	})

	t.Run("when the question fails, no tenant is at rest", func(t *testing.T) {
		t.Parallel()
		var told atomic.Int64
		q := newQuiet(t, 50, tenants.Config{MaxIdle: 20 * time.Millisecond, OnError: func(err error) {
			if errors.Is(err, errAway) {
				told.Add(1)
			}
		}})
		q.claimAll()
		q.awaitRest(50)
		q.refuse.Store(true)
		q.awaitRest(0)
		require.Positive(t, told.Load())
		calls := q.calls.Load()
		require.Empty(t, q.claim())
		require.Greater(t, q.calls.Load(), calls)
		q.refuse.Store(false)
		q.awaitRest(50)
	})

	t.Run("a registration with a TTL is renewed in tenants at rest before an eighth of it has passed", func(t *testing.T) {
		t.Parallel()
		q := newQuiet(t, 10, tenants.Config{MaxIdle: time.Hour})
		reg := outmill.Registration{Group: "g", TTL: 4 * time.Second}
		require.NoError(t, q.set.RegisterGroup(t.Context(), reg))
		q.claimAll()
		q.awaitRest(10)
		calls := q.calls.Load()
		require.Eventually(t, func() bool {
			require.NoError(t, q.set.RegisterGroup(t.Context(), reg))
			return q.calls.Load() >= calls+20
		}, soon, tick)
	})

	t.Run("a group that is new is registered in tenants at rest, and one that was dropped is registered again", func(t *testing.T) {
		t.Parallel()
		q := newQuiet(t, 20, tenants.Config{MaxIdle: time.Hour})
		q.claimAll()
		q.awaitRest(20)
		calls := q.calls.Load()
		another := outmill.Registration{Group: "another"}
		for range 3 {
			require.NoError(t, q.set.RegisterGroup(t.Context(), another))
		}
		require.Equal(t, int64(20), q.calls.Load()-calls)
		_, err := q.set.DropGroup(t.Context(), "another")
		require.NoError(t, err)
		require.NoError(t, q.set.RegisterGroup(t.Context(), another))
		require.Equal(t, int64(40), q.calls.Load()-calls)
	})

	t.Run("a strategy chooses among the tenants that are not at rest", func(t *testing.T) {
		t.Parallel()
		q := newQuiet(t, 50, tenants.Config{MaxIdle: time.Hour, Strategy: tenants.RoundRobin{}})
		q.awaitRest(50)
		calls := q.calls.Load()
		require.Empty(t, q.claim())
		require.Equal(t, calls, q.calls.Load())
		require.NoError(t, q.set.Append(t.Context(), &outmill.Record{Topic: topic, TenantID: name(3)}))
		require.Len(t, q.claim(), 1)
	})

	t.Run("in a set of no more tenants than a claim asks, each claim asks all", func(t *testing.T) {
		t.Parallel()
		q := newQuiet(t, 4, tenants.Config{MaxIdle: 10 * time.Millisecond})
		require.NoError(t, q.set.Refresh(t.Context()))
		calls := q.calls.Load()
		require.Empty(t, q.claim())
		require.Equal(t, int64(4), q.calls.Load()-calls)
		require.Zero(t, q.resting())
		require.Zero(t, q.asks.Load())
	})
}

// claimAll claims until each member was asked once.
func (q *quiet) claimAll() {
	q.Helper()
	for before := q.calls.Load(); q.calls.Load() < before+int64(len(q.stores)); {
		require.Empty(q, q.claim())
	}
}

var _ roles.Idle = (*meter)(nil)
