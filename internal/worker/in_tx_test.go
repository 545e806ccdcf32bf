package worker_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

// transacting is a store that counts the calls for acks in transactions, and that may have
// a time limit for transactions.
type transacting struct {
	*faulty
	limit                time.Duration
	holds, held, settled atomic.Int32
}

func (s *transacting) TxLimit() time.Duration { return s.limit }

func (s *transacting) HoldForTx(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	s.holds.Add(1)
	held, err := s.Store.HoldForTx(ctx, lease, leases)
	s.held.Add(int32(len(held)))
	return held, err
}

func (s *transacting) AckedInTx(ctx context.Context, records []*outmill.Record) error {
	s.settled.Add(int32(len(records)))
	return s.Store.AckedInTx(ctx, records)
}

func (r *rig) transacting(limit time.Duration, change func(*worker.Config)) (*transacting, *worker.Worker) {
	r.Helper()
	store := &transacting{faulty: r.store, limit: limit}
	return store, r.start(func(cfg *worker.Config) {
		cfg.Queue = store
		if change != nil {
			change(cfg)
		}
	})
}

// ackInTx acks the item in a transaction, which commits if end is nil.
func (r *rig) ackInTx(it *worker.Item, end error) {
	r.Helper()
	require.NoError(r, it.Hold(r.Context()))
	err := r.store.InTx(r.Context(), func(ctx context.Context, _ *sql.Tx) error {
		return errors.Join(it.AckInTx(ctx), end)
	})
	it.Ended(err == nil)
	require.ErrorIs(r, err, end)
}

func TestItem_AckInTx(t *testing.T) {
	t.Parallel()
	t.Run("leaves no ack to do after the commit", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		store, w := r.transacting(0, nil)
		r.append("m1", "m2")
		items := r.takeN(w, 2)
		r.ackInTx(items[0], nil)
		for _, it := range items {
			it.Ack()
		}
		r.eventually("both are gone", func() bool { return len(r.list()) == 0 })
		r.eventually("the store knows of the commit", func() bool { return store.settled.Load() == 1 })
	})
	t.Run("keeps the item while nobody can extend its lease, because the transaction has committed", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		store, w := r.transacting(0, func(c *worker.Config) {
			c.Lease, c.Order = 2*time.Second, outmill.OrderKey
		})
		r.append("k:1", "k:2")
		it := r.take(w)
		require.NoError(t, it.Hold(t.Context()))
		require.NoError(t, r.store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error { return it.AckInTx(ctx) }))
		extends := func() {
			from := r.store.called("Extend")
			r.eventually("leases are extended", func() bool { return r.store.called("Extend") >= from+2 })
		}
		// The handler has committed, and has not said so yet.
		extends()
		it.Ended(true)
		// The other record is extended, and is not handled, because it is of the same key.
		extends()
		select {
		case <-it.Lost():
			require.Fail(t, "the lease is lost")
		default:
		}
		it.Ack()
		r.take(w).Ack()
		r.eventually("both are gone", func() bool { return len(r.list()) == 0 })
		r.eventually("the store knows of the commit", func() bool { return store.settled.Load() == 1 })
	})
	t.Run("leaves the record to be settled otherwise after a rollback", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		_, w := r.transacting(0, nil)
		r.append("m1")
		it := r.take(w)
		r.ackInTx(it, errors.New("refused"))
		it.Abandon(0, "refused")
		again := r.take(w)
		require.Equal(t, 1, again.Record.Attempts)
		r.ackInTx(again, nil)
		again.Ack()
		r.eventually("it is gone", func() bool { return len(r.list()) == 0 })
	})
}

func TestItem_Hold(t *testing.T) {
	t.Parallel()
	t.Run("returns that the lease is lost if another worker has claimed the record", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		_, w := r.transacting(0, nil)
		r.append("m1")
		it := r.take(w)
		_, err := r.store.Delete(t.Context(), it.Record.ID)
		require.NoError(t, err)
		require.ErrorIs(t, it.Hold(t.Context()), storekit.ErrLeaseLost)
		select {
		case <-it.Lost():
		case <-time.After(soon):
			require.FailNow(t, "the item does not say that it is lost")
		}
		require.ErrorIs(t, it.AckInTx(t.Context()), storekit.ErrLeaseLost)
		it.Release()
	})
	t.Run("holds all that was claimed together in one call", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		store, w := r.transacting(0, nil)
		r.append("m1", "m2", "m3", "m4")
		items := r.takeN(w, 4)
		held := make(chan error)
		for _, it := range items {
			go func() { held <- it.Hold(t.Context()) }()
		}
		for range items {
			require.NoError(t, <-held)
		}
		require.EqualValues(t, 1, store.holds.Load())
		require.EqualValues(t, 4, store.held.Load())
		for _, it := range items {
			r.ackInTx(it, nil)
			it.Ack()
		}
		r.eventually("all are gone", func() bool { return len(r.list()) == 0 })
	})
	t.Run("needs no call for records that are claimed after the first one", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		store, w := r.transacting(0, nil)
		r.append("m1")
		first := r.take(w)
		r.ackInTx(first, nil)
		first.Ack()
		r.append("m2", "m3", "m4")
		items := r.takeN(w, 3)
		holds := store.holds.Load()
		for _, it := range items {
			r.ackInTx(it, nil)
			it.Ack()
		}
		require.Equal(t, holds, store.holds.Load())
		require.EqualValues(t, 4, store.held.Load())
		r.eventually("all are gone", func() bool { return len(r.list()) == 0 })
	})
	t.Run("keeps the lease for longer than the store's limit, and no extension touches it until the transaction ends", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		_, w := r.transacting(never, func(cfg *worker.Config) { cfg.Lease = time.Second })
		records := r.append("m1", "m2")
		items := r.takeN(w, 2)
		if items[0].Record.MessageID == "m2" {
			items[0], items[1] = items[1], items[0]
		}
		require.NoError(t, items[0].Hold(t.Context()))
		held := r.leaseUntil(records[0])
		require.Greater(t, time.Until(held), never)
		extensions := r.store.called("Extend")
		r.eventually("the other lease is extended", func() bool { return r.store.called("Extend") >= extensions+2 })
		require.Equal(t, held, r.leaseUntil(records[0]))
		items[0].Ended(false)
		for _, it := range items {
			it.Ack()
		}
		r.eventually("both are gone", func() bool { return len(r.list()) == 0 })
	})
}

func (r *rig) list() []*outmill.Record {
	r.Helper()
	found, err := r.store.List(r.Context(), outmill.ListQuery{})
	require.NoError(r, err)
	return found
}

func (r *rig) leaseUntil(rec *outmill.Record) time.Time {
	r.Helper()
	found, err := r.store.Get(r.Context(), rec.ID)
	require.NoError(r, err)
	return found.LeaseUntil
}
