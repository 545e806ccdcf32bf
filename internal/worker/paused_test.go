package worker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/roles"
)

func (r *rig) pause(scope roles.PauseScope) {
	r.Helper()
	require.NoError(r, r.store.Pause(r.Context(), scope, "ann", ""))
}

func (r *rig) resume(scope roles.PauseScope) {
	r.Helper()
	ended, err := r.store.Resume(r.Context(), scope)
	require.NoError(r, err)
	require.True(r, ended)
}

func TestWorker_Pauses(t *testing.T) {
	t.Parallel()
	paused := roles.PauseScope{Topic: topic}

	t.Run("items that wait are released under a pause, and the one in handling continues", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		recs := r.append("a", "b", "c")
		w := r.start(nil)
		it := r.take(w)
		r.pause(paused)
		for _, rec := range recs[1:] {
			found := r.eventuallyStatus(rec, outmill.StatusPending)
			require.Zero(t, found.Attempts+found.Expiries)
		}
		require.Equal(t, outmill.StatusLeased, r.get(recs[0]).Status)
		r.takesNothing(w)
		select {
		case <-it.Lost():
			t.Error("the handling lost its lease")
		default:
		}
		it.Ack()
		r.eventuallyGone(recs[0])
		r.resume(paused)
		r.handlesInOrder(w, "b", "c")
		r.eventuallyGone(recs...)
	})

	t.Run("a worker without room for more hears of a pause when it settles", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		recs := r.append("a", "b", "c")
		w := r.start(func(c *worker.Config) { c.BatchSize, c.MaxItems = 3, 3 })
		it := r.take(w)
		r.pause(paused)
		it.Ack()
		r.eventuallyStatus(recs[1], outmill.StatusPending)
		r.eventuallyStatus(recs[2], outmill.StatusPending)
	})

	t.Run("a worker without room for more hears of a pause when it extends", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		recs := r.append("a", "b", "c")
		w := r.start(func(c *worker.Config) { c.BatchSize, c.MaxItems, c.Lease = 3, 3, soon/40 })
		it := r.take(w)
		r.pause(paused)
		r.eventuallyStatus(recs[1], outmill.StatusPending)
		r.eventuallyStatus(recs[2], outmill.StatusPending)
		require.Equal(t, outmill.StatusLeased, r.get(recs[0]).Status)
		it.Ack()
	})

	t.Run("the later items of a key are released with a paused one", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		records := []*outmill.Record{
			{Topic: topic, Key: "k", MessageID: "k1"}, {Topic: topic, Key: "k", MessageID: "k2", TenantID: "acme"},
			{Topic: topic, Key: "k", MessageID: "k3"}, {Topic: topic, Key: "other", MessageID: "o1"},
		}
		require.NoError(t, r.store.Append(t.Context(), records...))
		w := r.start(func(c *worker.Config) { c.Order = outmill.OrderKey })
		it := r.take(w)
		require.Equal(t, "k1", it.Record.MessageID)
		r.pause(roles.PauseScope{TenantID: "acme"})
		r.eventuallyStatus(records[1], outmill.StatusPending)
		r.eventuallyStatus(records[2], outmill.StatusPending)
		it.Ack()
		r.handlesInOrder(w, "o1")
		r.takesNothing(w)
		r.resume(roles.PauseScope{TenantID: "acme"})
		r.handlesInOrder(w, "k2", "k3")
	})

	t.Run("records of a claim that began before a pause are released", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		rec := r.append("a")[0]
		answered, release := r.holdClaim()
		w := r.start(func(c *worker.Config) { c.Order = outmill.OrderKey })
		<-answered
		r.pause(paused)
		require.Equal(t, outmill.StatusLeased, r.get(rec).Status)
		release()
		r.eventuallyStatus(rec, outmill.StatusPending)
		r.takesNothing(w)
		r.resume(paused)
		r.handlesInOrder(w, "a")
	})

	t.Run("an item that is offered and not started is released", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		rec := r.append("a")[0]
		w := r.start(func(c *worker.Config) { c.AwaitStart = true })
		it := r.take(w)
		r.pause(paused)
		select {
		case <-it.Lost():
		case <-time.After(soon):
			t.Fatal("the reader did not hear that the item was released")
		}
		require.False(t, it.Started())
		it.Release()
		r.eventuallyStatus(rec, outmill.StatusPending)
	})
}
