package worker_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/sqlite"
)

// newFairRig is a rig whose topic is fair.
func newFairRig(t *testing.T) *rig {
	t.Helper()
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=synchronous(OFF)"
	store, err := sqlite.Open(t.Context(), file, sqlite.Config{BusyTimeout: soon, FairTopics: []string{topic}}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
	return &rig{t, &faulty{Store: store, before: map[string]fault{}, after: map[string]fault{}}}
}

func TestWorker_PartsOfAFairTopic(t *testing.T) {
	t.Parallel()
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
		t.Run("order "+order.String(), func(t *testing.T) {
			t.Parallel()
			const most, large, small = 4, 40, 6
			r := newFairRig(t)
			for i := range large + small {
				tenant := "large"
				if i >= large {
					tenant = "small"
				}
				rec := &outmill.Record{MessageID: fmt.Sprint(tenant, i), Topic: topic, Key: fmt.Sprint(i), TenantID: tenant}
				require.NoError(t, r.store.Append(t.Context(), rec))
			}
			w := r.start(func(c *worker.Config) { byTopic(c); c.Order, c.MaxPerTenant = order, most })
			f := w.Open(topic, 30)
			var items []*worker.Item
			handled := map[string]int{}
			for handled["small"] < small {
				it := r.takeFrom(f)
				require.Equal(t, 1, it.Record.Claims, "nothing is claimed to be given back")
				r.holdsAtMost(most)
				if it.Record.TenantID == "large" {
					items = append(items, it) // its handler is slow
					require.LessOrEqual(t, len(items), most)
					continue
				}
				handled["small"]++
				it.Ack()
			}
			for handled["large"] < large {
				for _, it := range items {
					handled["large"]++
					it.Ack()
				}
				if items = nil; handled["large"] < large {
					items = append(items, r.takeFrom(f))
					require.Equal(t, 1, items[0].Record.Claims)
					r.holdsAtMost(most)
				}
			}
			require.NoError(t, w.Drain(t.Context()))
			require.Zero(t, r.store.called("Release"))
			require.Empty(t, r.leasedOf())
		})
	}
}

// leasedOf counts the leased records of each tenant.
func (r *rig) leasedOf() map[string]int {
	r.Helper()
	records, err := r.store.List(r.Context(), outmill.ListQuery{Status: outmill.StatusLeased, Limit: 1000})
	require.NoError(r, err)
	of := map[string]int{}
	for _, rec := range records {
		of[rec.TenantID]++
	}
	return of
}

func (r *rig) holdsAtMost(n int) {
	r.Helper()
	for tenant, held := range r.leasedOf() {
		require.LessOrEqual(r, held, n, "records of %s", tenant)
	}
}
