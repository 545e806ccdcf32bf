package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

var errAway = errors.New("the store is away")

func away(context.Context) error { return errAway }

// shortLease is for tests that wait for its end; on a busy machine it may end
// at any time.
const shortLease = 300 * time.Millisecond

func lost(t *testing.T, it *worker.Item) {
	t.Helper()
	select {
	case <-it.Lost():
	case <-time.After(soon):
		require.Fail(t, "the lease is not lost")
	}
}

func TestLost(t *testing.T) {
	t.Parallel()

	t.Run("a lease is kept while the record is handled", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		rec := r.append("a")[0]
		w := r.start(func(c *worker.Config) { c.Lease = 2 * time.Second })
		it := r.take(w)
		first := it.Clock.Until()
		r.eventually("the lease is extended twice", func() bool { return r.store.called("Extend") >= 2 })
		r.eventually("its clock moves", func() bool { return it.Clock.Until().After(first) })
		it.Ack()
		r.eventuallyGone(rec)
	})

	t.Run("a lease that another worker has replaced is lost", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
			t.Run("order "+order.String(), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				records := r.append("k:1", "k:2", "k:3")
				w := r.start(func(c *worker.Config) {
					c.Order = order
					c.Lease = time.Second
				})
				it := r.take(w)
				require.Equal(t, "k:1", it.Record.MessageID)
				_, err := r.store.Delete(t.Context(), records[0].ID)
				require.NoError(t, err)
				lost(t, it)
				require.Zero(t, it.Left())
				require.False(t, it.Started())
				// The other records of the key follow, in order.
				for _, want := range []string{"k:2", "k:3"} {
					next := r.take(w)
					require.Equal(t, want, next.Record.MessageID)
					next.Ack()
				}
				it.Ack()
				r.eventuallyGone(records[1:]...)
			})
		}
	})

	t.Run("a record that comes again while it is handled gets the outcome of that handling", func(t *testing.T) {
		t.Parallel()
		outcomes := map[string]func(r *rig, rec *outmill.Record, it *worker.Item){
			"acked": func(r *rig, rec *outmill.Record, it *worker.Item) {
				it.Ack()
				r.eventuallyGone(rec)
			},
			"failed": func(r *rig, rec *outmill.Record, it *worker.Item) {
				it.Fail("no good")
				require.Equal(r, "no good", r.eventuallyStatus(rec, outmill.StatusDead).LastError)
			},
			"abandoned": func(r *rig, rec *outmill.Record, it *worker.Item) {
				it.Abandon(never, "no luck")
				found := r.eventuallyStatus(rec, outmill.StatusPending)
				require.Equal(r, 1, found.Attempts)
				require.Equal(r, "no luck", found.LastError)
			},
			"snoozed": func(r *rig, rec *outmill.Record, it *worker.Item) {
				it.Snooze(never)
				require.Zero(r, r.eventuallyStatus(rec, outmill.StatusPending).Attempts)
			},
		}
		for name, finish := range outcomes {
			t.Run(name+" in the worker that handles it", func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				rec := r.append("k:1")[0]
				w := r.start(byKey)
				it := r.take(w)
				r.endLease(rec)
				lost(t, it)
				r.takesNothing(w)
				finish(r, rec, it)
				r.takesNothing(w)
			})

			t.Run(name+" in another worker of the instance", func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				rec := r.append("k:1")[0]
				running := worker.NewRegistry()
				share := func(c *worker.Config) { c.Running = running }
				w := r.start(share)
				it := r.take(w)
				w.SetLimit(0)
				other := r.start(share)
				r.endLease(rec)
				r.claimedAgain(rec, it)
				r.takesNothing(other)
				finish(r, rec, it)
				r.takesNothing(other)
			})
		}
	})

	t.Run("an outcome that could not be stored in time counts when the record comes again", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		rec := r.append("a")[0]
		dead := make(chan string, 10)
		w := r.start(func(c *worker.Config) {
			c.OnDead = func(_ *outmill.Record, reason string) { dead <- reason }
		})
		r.store.failBefore("Fail", away)
		it := r.take(w)
		it.Fail("no good")
		r.endLease(rec)
		r.claimedAgain(rec, it)
		r.takesNothing(w)
		r.store.heal()
		require.Equal(t, "no good", r.eventuallyStatus(rec, outmill.StatusDead).LastError)
		require.Equal(t, "no good", <-dead)
		require.NoError(t, w.Drain(t.Context()))
		require.Empty(t, dead, "told once")
	})

	t.Run("room is not used up by records that are claimed again before their outcome is stored", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(func(c *worker.Config) { c.MaxBytes = 100 })
		for _, word := range []string{"a", "b", "c"} {
			rec := &outmill.Record{MessageID: word, Topic: topic, Payload: make([]byte, 60)}
			require.NoError(t, r.store.Append(t.Context(), rec))
			r.store.failBefore("Ack", away)
			it := r.take(w)
			it.Ack()
			r.endLease(rec)
			r.claimedAgain(rec, it)
			r.store.heal()
			r.eventuallyGone(rec)
		}
	})

	t.Run("changes of a message by its handler do not change the budget", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(func(c *worker.Config) { c.MaxBytes = 200 })
		for _, word := range []string{"a", "b", "c", "d"} {
			rec := &outmill.Record{MessageID: word, Topic: topic, Metadata: map[string]string{"big": string(make([]rune, 100))}}
			rec.Metadata["big"] = "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
			require.NoError(t, r.store.Append(t.Context(), rec))
			it := r.take(w)
			msg := storekit.MessageOf(it.Record)
			clear(msg.Metadata)
			it.Ack()
			r.eventuallyGone(rec)
		}
	})

	t.Run("a handling that never ends does not keep its record for ever", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		rec := r.append("a")[0]
		dead := make(chan string, 1)
		slow := func(c *worker.Config) {
			c.Lease = 3 * time.Second
			c.MaxProcessing = 10 * time.Millisecond
			c.Retry.MaxAttempts = 2
			c.OnDead = func(_ *outmill.Record, reason string) { dead <- reason }
		}
		w := r.start(slow)
		stuck := r.take(w)
		lost(t, stuck)
		found := r.eventuallyStatus(rec, outmill.StatusPending)
		require.Contains(t, found.LastError, "did not end within 10ms")
		r.eventually("the worker meets it again, and leaves it to others", func() bool {
			found = r.eventuallyStatus(rec, outmill.StatusPending)
			return found.Claims >= 3
		})
		require.Less(t, time.Until(found.NextAttemptAt), time.Second, "others get a chance far more often than once in a lease")
		require.Equal(t, 1, found.Attempts, "it was handled once")
		require.Zero(t, found.Expiries)

		other := r.start(slow)
		again := r.take(other)
		require.Equal(t, 1, again.Record.Attempts)
		require.Contains(t, <-dead, "did not end within 10ms")
		r.eventuallyStatus(rec, outmill.StatusDead)
		r.takesNothing(w)
		stuck.Ack()
		again.Ack()
		require.Equal(t, outmill.StatusDead, r.get(rec).Status, "too late")
	})

	t.Run("a record that was given up is not handled again before its handling has ended", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		rec := r.append("a")[0]
		running := worker.NewRegistry()
		share := func(c *worker.Config) { c.Running = running }
		w := r.start(share)
		it := r.take(w)
		it.GiveUp()
		require.NoError(t, w.Close(t.Context()))
		next := r.start(share)
		r.claimedAgain(rec, it)
		r.takesNothing(next)
		it.Release()
		again := r.take(next)
		require.Equal(t, "a", again.Record.MessageID)
		again.Ack()
		r.eventuallyGone(rec)
	})

	t.Run("a worker that ends releases records that are handled under an older lease", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		rec := r.append("a")[0]
		running := worker.NewRegistry()
		share := func(c *worker.Config) { c.Running = running }
		w := r.start(share)
		it := r.take(w)
		w.SetLimit(0)
		other := r.start(share)
		r.endLease(rec)
		r.eventually("the record is claimed again", func() bool { return r.get(rec).Claims > it.Record.Claims })
		require.NoError(t, other.Close(t.Context()))
		require.Equal(t, outmill.StatusPending, r.get(rec).Status)
		it.Ack()
	})

	t.Run("a waiting item is released if its lease cannot be extended", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		records := r.append("a", "b", "c")
		r.store.failBefore("Extend", away)
		r.start(func(c *worker.Config) { c.Lease = 8 * time.Second })
		for _, rec := range records {
			r.eventually("it is claimed again", func() bool { return r.get(rec).Claims >= 2 })
			found := r.get(rec)
			require.Zero(t, found.Expiries, "no expiry counts for what was merely prefetched")
			require.Zero(t, found.Attempts)
		}
	})

	t.Run("an item that no reader takes is released after a while", func(t *testing.T) {
		t.Parallel()

		t.Run("in the worker", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			rec := r.append("a")[0]
			w := r.start(func(c *worker.Config) {
				c.MaxProcessing = 20 * time.Millisecond
				c.Lease = time.Second
			})
			r.eventually("it is given back and claimed again", func() bool { return r.get(rec).Claims >= 3 })
			it := r.take(w)
			it.Ack()
			r.eventuallyGone(rec)
		})

		t.Run("taken, but not started", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			rec := r.append("a")[0]
			w := r.start(func(c *worker.Config) {
				c.MaxProcessing = 20 * time.Millisecond
				c.Lease = time.Second
				c.AwaitStart = true
			})
			it := r.take(w)
			lost(t, it)
			require.Zero(t, it.Left())
			require.False(t, it.Started())
			it.Release()
			again := r.take(w)
			require.Zero(t, again.Record.Expiries)
			require.Zero(t, again.Record.Attempts)
			require.True(t, again.Started())
			again.Ack()
			r.eventuallyGone(rec)
		})
	})

	t.Run("a record whose lease has ended is not handed out", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.append("k:1")
		w := r.start(func(c *worker.Config) {
			c.Lease = time.Second
			c.Order = outmill.OrderKey
			c.Pipelined = true
		})
		r.store.failBefore("Extend", away)
		r.eventually("it is claimed", func() bool { return r.store.called("Claim") > 1 })
		for range 20 {
			it := r.take(w)
			require.Positive(t, it.Left())
			it.Release()
		}
	})
}
