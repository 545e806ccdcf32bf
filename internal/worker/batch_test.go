package worker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/roles"
)

// startWhole runs a worker whose claims become batches of up to 3 records.
func (r *rig) startWhole(change ...func(*worker.Config)) *worker.Worker {
	r.Helper()
	return r.start(func(c *worker.Config) {
		c.Order, c.Pipelined, c.BatchSize, c.MaxItems = outmill.OrderKey, true, 3, 9
		c.Whole = func() bool { return true }
		for _, f := range change {
			f(c)
		}
	})
}

// takeBatch returns the next batch. Its records must have these names.
func (r *rig) takeBatch(w *worker.Worker, want ...string) *worker.Batch {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), soon)
	defer cancel()
	items, batches, err := w.TakeBatches(ctx, 1)
	require.NoError(r, err)
	require.Empty(r, names(items))
	require.Len(r, batches, 1)
	got := make([]string, 0, len(want))
	for _, raw := range batches[0].Raw() {
		got = append(got, raw.MessageID)
	}
	require.Equal(r, want, got)
	return batches[0]
}

// takeItems returns the next items, and no batch.
func (r *rig) takeItems(w *worker.Worker, n int) []*worker.Item {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), soon)
	defer cancel()
	var all []*worker.Item
	for len(all) < n {
		items, batches, err := w.TakeBatches(ctx, n-len(all))
		require.NoError(r, err, "took %v", names(all))
		require.Empty(r, batches)
		all = append(all, items...)
	}
	return all
}

func (r *rig) eventuallyLeased(recs ...*outmill.Record) {
	r.Helper()
	for _, rec := range recs {
		r.eventuallyStatus(rec, outmill.StatusLeased)
	}
}

func TestBatch(t *testing.T) {
	t.Parallel()

	t.Run("a claim is taken and acked as one thing", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		recs := r.append("k:1", "k:2", "l:1")
		w := r.startWhole()
		b := r.takeBatch(w, "k:1", "k:2", "l:1")
		require.True(t, b.Started())
		b.Ack()
		r.eventuallyGone(recs...)
		require.NoError(t, w.Drain(t.Context()))
		w.WaitEmpty(t.Context())
		require.Equal(t, 1, r.store.called("Ack"))
		require.Equal(t, 3, w.Settled())
	})

	t.Run("the worker is not empty, nor drained, before the acks are stored", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		recs := r.append("k:1", "k:2", "l:1")
		storing, goOn := make(chan struct{}), make(chan struct{})
		r.store.failBefore("Ack", func(context.Context) error {
			close(storing)
			<-goOn
			return nil
		})
		w := r.startWhole()
		r.takeBatch(w, "k:1", "k:2", "l:1").Ack()
		<-storing
		stored := make(chan error, 3)
		go func() { stored <- w.Drain(t.Context()) }()
		go func() { stored <- w.WaitStored(t.Context()) }()
		go func() {
			w.WaitEmpty(t.Context())
			stored <- nil
		}()
		select {
		case <-stored:
			t.Error("it does not wait")
		case <-time.After(50 * time.Millisecond):
		}
		close(goOn)
		for range 3 {
			require.NoError(t, <-stored)
		}
		r.eventuallyGone(recs...)
	})

	t.Run("where one record fails, nothing of the batch is acked before its records are settled one by one", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		recs := r.append("k:1", "k:2", "l:1")
		w := r.startWhole()
		b := r.takeBatch(w, "k:1", "k:2", "l:1")
		items := b.Items()
		require.Equal(t, []string{"k:1", "k:2", "l:1"}, names(items))
		require.False(t, b.Started())
		require.Zero(t, r.store.called("Ack"))
		items[0].Fail("never")
		items[1].Ack()
		items[2].Ack()
		r.eventuallyGone(recs[1:]...)
		r.eventuallyStatus(recs[0], outmill.StatusDead)
		next := r.append("k:3")
		r.takeBatch(w, "k:3").Ack()
		r.eventuallyGone(next...)
	})

	t.Run("a record that is given back takes the later ones of its key along, also those of a batch behind it", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		recs := r.append("k:1", "l:1", "m:1", "k:2", "l:2", "m:2")
		w := r.startWhole()
		b := r.takeBatch(w, "k:1", "l:1", "m:1")
		r.eventuallyLeased(recs...)
		items := b.Items()
		items[0].Release()
		items[1].Ack()
		items[2].Ack()
		rest := r.takeItems(w, 4)
		require.ElementsMatch(t, []string{"l:2", "m:2", "k:1", "k:2"}, names(rest))
		got := names(rest)
		require.Less(t, slices.Index(got, "k:1"), slices.Index(got, "k:2"))
		for _, it := range rest {
			it.Ack()
		}
		r.eventuallyGone(recs...)
	})

	t.Run("its lease is extended record by record, and then it is acked so", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		recs := r.append("k:1", "k:2", "l:1")
		w := r.startWhole(func(c *worker.Config) { c.Lease, c.MaxItems = 2*time.Second, 3 })
		b := r.takeBatch(w, "k:1", "k:2", "l:1")
		first := r.get(recs[0]).LeaseUntil
		r.eventually("the lease is extended", func() bool { return r.get(recs[0]).LeaseUntil.After(first) })
		require.Equal(t, 1, r.get(recs[0]).Claims)
		require.False(t, b.Started())
		b.Ack()
		r.eventuallyGone(recs...)
	})

	t.Run("a batch whose lease another owner has is not acked", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		recs := r.append("k:1", "k:2", "l:1")
		// It has no room to claim them itself.
		w := r.startWhole(func(c *worker.Config) { c.MaxItems = 3 })
		b := r.takeBatch(w, "k:1", "k:2", "l:1")
		for _, rec := range recs {
			r.endLease(rec)
		}
		other, err := r.store.Store.Claim(t.Context(), outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Limit: 3, Lease: time.Hour, Order: outmill.OrderKey,
		})
		require.NoError(t, err)
		require.Len(t, other, 3)
		b.Ack()
		w.WaitEmpty(t.Context())
		for _, rec := range other {
			require.Equal(t, rec.Owner, r.get(rec).Owner)
		}
	})

	t.Run("a record that comes again while its batch is handled gets the outcome of that handling", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		recs := r.append("k:1", "k:2", "l:1")
		w := r.startWhole()
		b := r.takeBatch(w, "k:1", "k:2", "l:1")
		r.endLease(recs[2])
		r.eventually("the record is claimed again", func() bool { return r.get(recs[2]).Claims > 1 })
		claims := r.store.called("Claim")
		r.eventually("the answer of the claim is read", func() bool { return r.store.called("Claim") > claims })
		r.takesNothing(w)
		b.Ack()
		r.eventuallyGone(recs...)
	})

	t.Run("records that were claimed before come one by one", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		recs := r.append("k:1", "k:2", "l:1")
		old, err := r.store.Store.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: 1, Lease: time.Hour})
		require.NoError(t, err)
		require.NoError(t, r.store.Store.Release(t.Context(), []outmill.Lease{old[0].Lease()}))
		w := r.startWhole()
		for _, it := range r.takeItems(w, 3) {
			it.Ack()
		}
		r.eventuallyGone(recs...)
	})

	t.Run("acks that cannot be stored are stored later", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		recs := r.append("k:1", "k:2", "l:1")
		r.store.failBefore("Ack", away)
		w := r.startWhole()
		r.takeBatch(w, "k:1", "k:2", "l:1").Ack()
		r.eventually("it tries again", func() bool { return r.store.called("Ack") > 2 })
		r.store.heal()
		r.eventuallyGone(recs...)
		w.WaitEmpty(t.Context())
		next := r.append("k:3")
		r.takeBatch(w, "k:3").Ack()
		r.eventuallyGone(next...)
	})

	t.Run("a pause releases the records that it covers of a batch that waits, and no others", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		recs := r.append("k:1", "l:1", "m:1", "k:2", "l:2", "m:2")
		w := r.startWhole(func(c *worker.Config) { c.MaxItems = 6 })
		b := r.takeBatch(w, "k:1", "l:1", "m:1")
		r.eventuallyLeased(recs...)
		r.pause(roles.PauseScope{Topic: topic, Key: "k"})
		b.Ack()
		r.eventuallyGone(recs[:3]...)
		r.eventuallyStatus(recs[3], outmill.StatusPending)
		for _, it := range r.takeItems(w, 2) {
			require.Contains(t, []string{"l:2", "m:2"}, it.Record.MessageID)
			it.Ack()
		}
		r.eventuallyGone(recs[4:]...)
		r.eventuallyStatus(recs[3], outmill.StatusPending)
	})

	for name, end := range map[string]func(r *rig, w *worker.Worker){
		"the end of the worker":  func(_ *rig, w *worker.Worker) { w.Stop() },
		"a change of the topics": func(_ *rig, w *worker.Worker) { w.SetTopics(outmill.Topics{Include: []string{"other"}}) },
		"a limit of no records":  func(_ *rig, w *worker.Worker) { w.SetLimit(0) },
	} {
		t.Run(name+" releases a batch that waits, and leaves the one that was taken", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			recs := r.append("k:1", "l:1", "m:1", "k:2", "l:2", "m:2")
			w := r.startWhole(func(c *worker.Config) { c.MaxItems = 6 })
			b := r.takeBatch(w, "k:1", "l:1", "m:1")
			r.eventuallyLeased(recs...)
			end(r, w)
			for _, rec := range recs[3:] {
				require.Zero(t, r.eventuallyStatus(rec, outmill.StatusPending).Attempts)
			}
			b.Ack()
			r.eventuallyGone(recs[:3]...)
		})
	}

	t.Run("batches and items of a key are taken in order, whatever a claim becomes", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		const n = 60
		for i := range n {
			r.append(fmt.Sprintf("k:%02d", i))
		}
		claims := 0
		w := r.startWhole(func(c *worker.Config) {
			c.Whole = func() bool {
				claims++
				return claims%3 != 0
			}
		})
		failed := map[string]bool{}
		var got []string
		handle := func(name string, ack, release func()) bool {
			if len(got) > 0 && name <= got[len(got)-1] || len(name) == 0 {
				t.Errorf("%s comes behind %v", name, got)
			}
			if name[len(name)-1] == '5' && !failed[name] {
				failed[name] = true
				release()
				return false
			}
			got = append(got, name)
			ack()
			return true
		}
		for len(got) < n {
			items, batches, err := w.TakeBatches(t.Context(), 2)
			require.NoError(t, err)
			for _, b := range batches {
				if slices.ContainsFunc(b.Raw(), func(raw roles.RawRecord) bool { return raw.MessageID[3] == '5' }) {
					items = append(items, b.Items()...)
					continue
				}
				for _, raw := range b.Raw() {
					handle(raw.MessageID, func() {}, nil)
				}
				b.Ack()
			}
			for i, it := range items {
				if !handle(it.Record.MessageID, it.Ack, it.Release) {
					for _, later := range items[i+1:] {
						later.Release()
					}
					break
				}
			}
		}
		require.True(t, slices.IsSorted(got), got)
	})

	t.Run("a store that closes takes the batches along", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.append("k:1", "k:2", "l:1")
		w := r.startWhole(func(c *worker.Config) { c.Lease = time.Second })
		b := r.takeBatch(w, "k:1", "k:2", "l:1")
		r.store.failBefore("Extend", func(context.Context) error { return outmill.ErrClosed })
		w.WaitEmpty(t.Context())
		b.Ack()
		require.Zero(t, r.store.called("Ack"))
	})
}
