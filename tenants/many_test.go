package tenants_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/tenants"
)

// crowd is a set of many members in memory that counts their claims and requests for statistics.
type crowd struct {
	set    *tenants.Set
	claims atomic.Int64
	stats  atomic.Int64
	woken  atomic.Int64
	stores []outmill.Store
	// perTenant is the memory that the set takes for each, in bytes.
	perTenant float64
}

type counted struct {
	*memstore.Store
	claims, stats *atomic.Int64
}

func (c *counted) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	c.stats.Add(1)
	return c.Store.Stats(ctx, limit)
}

func (c *counted) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	c.claims.Add(1)
	return c.Store.Claim(ctx, req)
}

func newCrowd(t *testing.T, n int) *crowd {
	c := &crowd{}
	list := make(tenants.Static, n)
	for i := range list {
		store := memstore.New(memstore.NewDatabase(), memstore.Options{})
		t.Cleanup(func() { _ = store.Close() })
		require.NoError(t, store.Ensure(t.Context()))
		// What a store keeps of its groups is not the set's.
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
		counted := &counted{store, &c.claims, &c.stats}
		c.stores = append(c.stores, counted)
		list[i] = tenants.Tenant{Key: name(i), Store: counted}
	}
	before := heap()
	set, err := tenants.New(t.Context(), tenants.Config{Discovery: list, MaxIdle: time.Hour, CallTimeout: patient}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	c.set = set
	require.NoError(t, set.RegisterGroup(t.Context(), outmill.Registration{}))
	set.Wake(t.Context(), func(string) { c.woken.Add(1) })
	// Each member is looked at once.
	for c.claims.Load() < int64(n) {
		require.Empty(t, c.claim(t, 100))
	}
	c.perTenant = float64(heap()-before) / float64(n)
	return c
}

func name(i int) string { return fmt.Sprintf("t%05d", i) }

// claim claims by a call that asks 64 members at most.
func (c *crowd) claim(t *testing.T, limit int) []*outmill.Record {
	t.Helper()
	before := c.claims.Load()
	found, err := c.set.Claim(t.Context(), outmill.ClaimRequest{
		Owner: outmill.OwnerToken{1}, Limit: limit, Lease: time.Hour, Topics: outmill.Topics{Include: []string{topic}},
	})
	require.NoError(t, err)
	require.LessOrEqual(t, c.claims.Load()-before, int64(64))
	return found
}

func (c *crowd) append(t *testing.T, tenant, n int) {
	t.Helper()
	for range n {
		require.NoError(t, c.set.Append(t.Context(), &outmill.Record{Topic: topic, TenantID: name(tenant)}))
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestSet_Crowds is not parallel, because it measures the memory of the process.
func TestSet_Crowds(t *testing.T) {
	few, many := newCrowd(t, 1_000), newCrowd(t, 10_000)
	t.Logf("bytes for each tenant: %.0f of 1,000, %.0f of 10,000", few.perTenant, many.perTenant)

	t.Run("the memory for each tenant does not grow with their number", func(t *testing.T) {
		require.Less(t, many.perTenant, 1.5*few.perTenant)
		require.Less(t, many.perTenant, 8000.0)
	})

	t.Run("an append wakes its member only, and the next claim finds it", func(t *testing.T) {
		for _, c := range []*crowd{few, many} {
			for i := range 20 {
				before := c.woken.Load()
				c.append(t, 37*i, 1)
				require.LessOrEqual(t, c.woken.Load()-before, int64(2))
				found := c.claim(t, 10)
				require.Len(t, found, 1)
				require.Equal(t, name(37*i), found[0].Store)
				ack(t, c, found)
			}
		}
	})

	t.Run("claims ask the members that have something, and few others", func(t *testing.T) {
		for _, c := range []*crowd{few, many} {
			const busy, each = 40, 10
			for i := range busy {
				c.append(t, 11*i, each)
			}
			before, rounds, got := c.claims.Load(), 0, map[string]int{}
			for total := 0; total < busy*each; rounds++ {
				found := c.claim(t, 100)
				require.NotEmpty(t, found)
				for _, rec := range found {
					got[rec.Store]++
				}
				total += len(found)
				ack(t, c, found)
			}
			calls := c.claims.Load() - before
			t.Logf("%d records of %d members came with %d claims, which asked members %d times", busy*each, busy, rounds, calls)
			require.Len(t, got, busy)
			require.LessOrEqual(t, rounds, 2*busy*each/100)
			require.LessOrEqual(t, calls, int64(64*rounds))
		}
	})

	t.Run("one member with very many does not hold up others", func(t *testing.T) {
		for _, c := range []*crowd{few, many} {
			c.append(t, 0, 2000)
			for i := 1; i < 50; i++ {
				c.append(t, i, 10)
			}
			small, rounds := 0, 0
			for ; small < 490; rounds++ {
				found := c.claim(t, 100)
				for _, rec := range found {
					if rec.Store != name(0) {
						small++
					}
				}
				ack(t, c, found)
			}
			t.Logf("490 records of 49 members came with %d claims of 100, beside a member of 2,000", rounds)
			require.LessOrEqual(t, rounds, 12)
		}
	})

	t.Run("claims, appends and acks ask no member for statistics", func(t *testing.T) {
		for _, c := range []*crowd{few, many} {
			// All the claims above count too, and so do some that find nothing.
			for range 100 {
				c.claim(t, 100)
			}
			require.Zero(t, c.stats.Load())
			_, err := c.set.Stats(t.Context(), 1)
			require.NoError(t, err)
			require.EqualValues(t, len(c.stores), c.stats.Load(), "the test counts")
		}
	})
}

func ack(t *testing.T, c *crowd, found []*outmill.Record) {
	t.Helper()
	require.NoError(t, c.set.Ack(t.Context(), "", leasesOf(found)))
}
