package forwarder_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

// ackCounter counts the calls of Ack, and the leases of the last one.
type ackCounter struct {
	*sqlite.Store
	calls, last atomic.Int64
}

func (c *ackCounter) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	c.calls.Add(1)
	c.last.Store(int64(len(leases)))
	return c.Store.Ack(ctx, by, leases)
}

// A forwarder to a publisher of raw records handles claims as one thing. The other tests run with such a publisher, too.
func TestForwarder_Batches(t *testing.T) {
	t.Parallel()

	// given returns a store with 20 records of one key, and a publisher of raw records.
	given := func(t *testing.T) (*sqlite.Store, rawDestination) {
		t.Helper()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "a", 20)...)
		return store, rawDestination{batchDestination: newBatchDestination(t)}
	}
	all := namesOf("orders", "a", 20)

	t.Run("a batch is published in one call, and acked in one", func(t *testing.T) {
		t.Parallel()
		store, d := given(t)
		counter := &ackCounter{Store: store}
		n, err := newForwarder(t, counter, d, quick()).Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, 20, n)
		require.Equal(t, all, d.withKey("a"))
		require.EqualValues(t, 1, counter.calls.Load())
		require.EqualValues(t, 20, counter.last.Load())
		requireEmpty(t, store)
	})

	t.Run("of a batch with a record that is refused, everything else is acked, in order", func(t *testing.T) {
		t.Parallel()
		store, d := given(t)
		d.failOnly(outmill.Permanent(errors.New("never")), all[7])
		n, err := newForwarder(t, store, d, quick()).Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, 19, n)
		requireDead(t, store, all[7])
		require.Equal(t, slices.Delete(slices.Clone(all), 7, 8), d.withKey("a"))
	})

	t.Run("a batch that was published while its leases were extended is acked", func(t *testing.T) {
		t.Parallel()
		store, d := given(t)
		cfg := quick()
		// A busy machine has two thirds of it for the extension.
		cfg.Lease = 10 * time.Second
		first := list(t, store, "")[0]
		d.wrap(func(_ context.Context, _ []storekit.Outgoing, publish func() error) error {
			leased, err := store.Get(context.Background(), first.ID)
			if err != nil {
				return err
			}
			require.Eventually(t, func() bool {
				now, err := store.Get(context.Background(), first.ID)
				return err == nil && now.LeaseUntil.After(leased.LeaseUntil)
			}, patience, tick, "the lease is extended")
			return publish()
		})
		n, err := newForwarder(t, store, d, cfg).Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, 20, n)
		requireEmpty(t, store)
		require.Equal(t, all, d.ids(), "each once")
	})

	t.Run("while the broker is away, of a new batch one record is the probe", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		d := rawDestination{batchDestination: newBatchDestination(t)}
		d.goAway()
		first := rec("orders", "a", "first")
		add(t, store, first)
		start(t, store, d, quick())
		require.Eventually(t, func() bool { return len(d.allBatches()) > 0 }, patience, tick)
		_, err := store.Delete(t.Context(), first.ID)
		require.NoError(t, err)
		add(t, store, recs("orders", "b", 20)...)
		require.Eventually(t, func() bool { return slices.Contains(d.triedIDs(), nameOf("orders", "b", 0)) }, patience, tick)
		for _, batch := range d.allBatches() {
			require.Len(t, batch, 1)
		}
		d.comeBack()
		requireEmpty(t, store)
		require.Equal(t, namesOf("orders", "b", 20), d.withKey("b"))
	})

	t.Run("a pause during the publish lets the batch go, and holds what comes later", func(t *testing.T) {
		t.Parallel()
		store, d := given(t)
		d.wrap(func(_ context.Context, _ []storekit.Outgoing, publish func() error) error {
			if err := store.Pause(context.Background(), roles.PauseScope{Topic: "orders"}, "ann", ""); err != nil {
				return err
			}
			return publish()
		})
		n, err := newForwarder(t, store, d, quick()).Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, 20, n)
		add(t, store, rec("orders", "a", "later"))
		n, err = newForwarder(t, store, d, quick()).Once(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
		require.Equal(t, []string{"later"}, idsOf(list(t, store, outmill.StatusPending)))
	})

	t.Run("what hangs when the forwarder closes is left to its lease", func(t *testing.T) {
		t.Parallel()
		store, d := given(t)
		g := newGate()
		d.wrap(func(context.Context, []storekit.Outgoing, func() error) error { g.pass(); return nil })
		cfg := quick()
		cfg.CloseTimeout = 10 * time.Millisecond
		l := journal.New()
		fwd := startLogged(t, store, d, cfg, l)
		<-g.reached
		require.NoError(t, fwd.Close())
		require.Equal(t, all, idsOf(list(t, store, outmill.StatusLeased)))
		l.Wait(t, "did not return in time")
		close(g.open)
	})

	t.Run("what hangs for too long is given back, without a lost attempt", func(t *testing.T) {
		t.Parallel()
		store, d := given(t)
		g := newGate()
		d.wrap(func(_ context.Context, _ []storekit.Outgoing, publish func() error) error {
			g.pass()
			return publish()
		})
		cfg := quick()
		cfg.PublishTimeout = 10 * time.Millisecond
		start(t, store, d, cfg)
		<-g.reached
		require.Eventually(t, func() bool { return len(list(t, store, outmill.StatusPending)) == 20 }, patience, tick, "all are given back")
		requireUntouched(t, store)
		close(g.open)
		requireEmpty(t, store)
		require.Equal(t, all, d.withKey("a"))
	})

	t.Run("a batch of which nothing was published is given back when the forwarder closes", func(t *testing.T) {
		t.Parallel()
		store, d := given(t)
		inside := make(chan struct{})
		d.wrap(nothingUntilItsEnd(inside))
		cfg := quick()
		cfg.CloseTimeout = 10 * time.Millisecond
		fwd := start(t, store, d, cfg)
		<-inside
		require.NoError(t, fwd.Close())
		require.Len(t, list(t, store, outmill.StatusPending), 20)
		requireUntouched(t, store)
	})
}
