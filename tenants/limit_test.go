package tenants_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/tenants"
)

func limited(most int) func(*tenants.Config) {
	return func(cfg *tenants.Config) { cfg.MaxInFlightPerTenant = most }
}

func TestSet_MaxInFlightPerTenant(t *testing.T) {
	t.Parallel()

	t.Run("a tenant has no more records in flight than the limit, and others get theirs", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"large", "small"}, limited(5))
		r.append("large", 20)
		r.append("small", 3)
		first := r.claim(100)
		require.Equal(t, map[string]int{"large": 5, "small": 3}, perStore(first))
		require.Empty(t, r.claim(100))
		var acked []*outmill.Record
		for _, rec := range first {
			if rec.Store == "large" && len(acked) < 2 {
				acked = append(acked, rec)
			}
		}
		r.ack(acked...)
		require.Equal(t, map[string]int{"large": 2}, perStore(r.claim(100)))
	})

	t.Run("each way to settle a record makes room for another", func(t *testing.T) {
		t.Parallel()
		for name, settle := range map[string]func(s *tenants.Set, ctx context.Context, lease outmill.Lease) error{
			"ack": func(s *tenants.Set, ctx context.Context, l outmill.Lease) error {
				return s.Ack(ctx, "", []outmill.Lease{l})
			},
			"release": func(s *tenants.Set, ctx context.Context, l outmill.Lease) error {
				return s.Release(ctx, []outmill.Lease{l})
			},
			"abandon": func(s *tenants.Set, ctx context.Context, l outmill.Lease) error {
				return s.Abandon(ctx, []outmill.Settlement{{Lease: l, Delay: time.Hour}})
			},
			"snooze": func(s *tenants.Set, ctx context.Context, l outmill.Lease) error {
				return s.Snooze(ctx, []outmill.Settlement{{Lease: l, Delay: time.Hour}})
			},
			"fail": func(s *tenants.Set, ctx context.Context, l outmill.Lease) error {
				return s.Fail(ctx, []outmill.Settlement{{Lease: l, Err: "no"}})
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, []string{"a", "b"}, limited(1))
				r.append("a", 2)
				found := r.claim(10)
				require.Len(t, found, 1)
				require.Empty(t, r.claim(10))
				require.NoError(t, settle(r.set, t.Context(), found[0].Lease()))
				require.Len(t, r.claim(10), 1)
			})
		}
	})

	t.Run("a reader that found no room is woken when a record is settled", func(t *testing.T) {
		t.Parallel()
		for _, members := range []int{2, 20} {
			t.Run(fmt.Sprintf("%d members", members), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, manyNames(members), limited(1))
				r.append("tenant-0", 3)
				found := r.claim(10)
				require.Len(t, found, 1)
				require.Empty(t, r.claim(10))
				woken := make(chan struct{}, 1)
				r.set.Wake(t.Context(), func(string) {
					select {
					case woken <- struct{}{}:
					default:
					}
				})
				r.ack(found...)
				select {
				case <-woken:
				case <-time.After(time.Minute):
					require.FailNow(t, "nothing woke the reader")
				}
				require.Len(t, r.claim(10), 1, "the next claim looks at the member at once")
			})
		}
	})

	t.Run("a lease that ends makes room", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, manyNames(20), limited(2))
		r.append("tenant-0", 4)
		req := request(10)
		req.Lease = 50 * time.Millisecond
		found, err := r.set.Claim(t.Context(), req)
		require.NoError(t, err)
		require.Len(t, found, 2)
		// By the clock of the database the leases stand, so that these two are not handed out again.
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			found, err := r.set.Claim(t.Context(), request(10))
			require.NoError(c, err)
			require.Len(c, found, 2)
		}, time.Minute, time.Millisecond)
	})

	t.Run("concurrent claims stay within the limit together", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, limited(7))
		r.append("a", 100)
		var mu sync.Mutex
		total := 0
		var claims errgroup.Group
		for range 8 {
			claims.Go(func() error {
				found, err := r.set.Claim(t.Context(), request(5))
				mu.Lock()
				defer mu.Unlock()
				total += len(found)
				return err
			})
		}
		require.NoError(t, claims.Wait())
		require.LessOrEqual(t, total, 7)
		require.Equal(t, 7, total+len(r.claim(100)))
	})

	t.Run("a strategy passes a tenant that has no room", func(t *testing.T) {
		t.Parallel()
		for name, strategy := range map[string]tenants.Strategy{"round robin": tenants.RoundRobin{}, "drain first": tenants.DrainFirst{}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, []string{"a", "b"}, func(cfg *tenants.Config) { cfg.Strategy, cfg.MaxInFlightPerTenant = strategy, 2 })
				r.append("a", 10)
				r.append("b", 1)
				got := map[string]int{}
				for range 6 {
					for store, n := range perStore(r.claim(10)) {
						got[store] += n
					}
				}
				require.Equal(t, map[string]int{"a": 2, "b": 1}, got)
			})
		}
	})

	t.Run("a negative limit is refused", func(t *testing.T) {
		t.Parallel()
		_, err := tenants.New(t.Context(), tenants.Config{Discovery: tenants.Static{}, MaxInFlightPerTenant: -1}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "MaxInFlightPerTenant")
	})
}

func manyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%d", i)
	}
	return names
}
