package worker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/worker"
)

func TestItem_Waits(t *testing.T) {
	t.Parallel()
	briefly := func(cfg *worker.Config) { cfg.Lease, cfg.MaxProcessing = 600*time.Millisecond, 300*time.Millisecond }
	lost := func(r *rig, it *worker.Item) {
		r.Helper()
		select {
		case <-it.Lost():
		case <-time.After(soon):
			require.FailNow(r, "the worker does not give the record up")
		}
	}
	t.Run("a handler that waits for its transaction for MaxProcessing loses no attempt", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(briefly)
		r.append("m1")
		it := r.take(w)
		it.Started()
		it.Waits()
		lost(r, it)
		it.Release()
		again := r.take(w)
		require.Zero(t, again.Record.Attempts)
		again.Ack()
	})
	t.Run("MaxProcessing counts from the begin of the transaction, and then an attempt counts", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(briefly)
		r.append("m1")
		it := r.take(w)
		it.Started()
		it.Waits()
		<-time.After(200 * time.Millisecond)
		it.Begins()
		begun := time.Now()
		it.Begins()
		lost(r, it)
		require.GreaterOrEqual(t, time.Since(begun), 300*time.Millisecond)
		it.Release()
		again := r.take(w)
		require.Equal(t, 1, again.Record.Attempts)
		again.Ack()
	})
}
