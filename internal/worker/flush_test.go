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

func TestFlush(t *testing.T) {
	t.Parallel()

	t.Run("outcomes wait for an unavailable store", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		records := r.append("acked", "abandoned", "failed", "snoozed")
		w := r.start(nil)
		items := map[string]*worker.Item{}
		for _, it := range r.takeN(w, len(records)) {
			items[it.Record.MessageID] = it
		}
		calls := []string{"Ack", "Abandon", "Fail", "Snooze"}
		for _, call := range calls {
			r.store.failBefore(call, away)
		}
		items["acked"].Ack()
		items["abandoned"].Abandon(never, "no luck")
		items["failed"].Fail("no good")
		items["snoozed"].Snooze(never)
		r.eventually("it is tried again", func() bool { return r.store.called("Abandon") >= 3 })
		r.store.heal()
		r.eventuallyGone(records[0])
		require.Equal(t, "no luck", r.eventuallyStatus(records[1], outmill.StatusPending).LastError)
		require.Equal(t, "no good", r.eventuallyStatus(records[2], outmill.StatusDead).LastError)
		require.Zero(t, r.eventuallyStatus(records[3], outmill.StatusPending).Attempts)
	})

	t.Run("an outcome whose answer was lost counts once", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		rec := r.append("a")[0]
		w := r.start(nil)
		r.store.failAfter("Abandon", away)
		r.take(w).Abandon(never, "no luck")
		r.eventually("it is tried again", func() bool { return r.store.called("Abandon") >= 3 })
		r.store.heal()
		require.NoError(t, w.Drain(t.Context()))
		require.Equal(t, 1, r.get(rec).Attempts)
	})

	t.Run("a record that comes again before the answer of its outcome is handled again", func(t *testing.T) {
		t.Parallel()
		for call, settle := range map[string]func(*worker.Item){
			"Abandon": func(it *worker.Item) { it.Abandon(0, "no luck") },
			"Snooze":  func(it *worker.Item) { it.Snooze(0) },
			"Release": (*worker.Item).Release,
		} {
			t.Run(call, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				rec := r.append("a")[0]
				w := r.start(nil)
				answer := make(chan struct{})
				r.store.failAfter(call, func(ctx context.Context) error {
					select {
					case <-answer:
					case <-ctx.Done():
					}
					return nil
				})
				settle(r.take(w))
				again := r.take(w)
				want := 0
				if call == "Abandon" {
					want = 1
				}
				require.Equal(t, want, again.Record.Attempts)
				close(answer)
				again.Ack()
				r.eventuallyGone(rec)
				require.NoError(t, w.Drain(t.Context()))
				require.Equal(t, want, r.store.called("Abandon"))
			})
		}
	})

	t.Run("only the first outcome of an item counts", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		rec := r.append("a")[0]
		w := r.start(nil)
		it := r.take(w)
		it.Abandon(time.Millisecond, "no luck")
		it.Ack()
		again := r.take(w)
		it.Ack()
		it.Release()
		require.Equal(t, 1, again.Record.Attempts)
		r.takesNothing(w)
		again.Ack()
		r.eventuallyGone(rec)
	})

	t.Run("acks gather", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		records := r.append(words(40)...)
		w := r.start(func(c *worker.Config) {
			c.BatchSize, c.MaxItems = 20, 40
			c.FlushInterval = soon
		})
		items := r.takeN(w, 40)
		for _, it := range items {
			it.Ack()
		}
		r.eventuallyGone(records...)
		require.LessOrEqual(t, r.store.called("Ack"), 4)
	})

	t.Run("a hook that panics does not end the worker", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		records := r.append("a", "b")
		w := r.start(func(c *worker.Config) {
			c.OnDead = func(*outmill.Record, string) { panic("hook") }
		})
		for range records {
			r.take(w).Fail("no good")
		}
		for _, rec := range records {
			r.eventuallyStatus(rec, outmill.StatusDead)
		}
	})

	t.Run("an error that cannot be looked at is an error all the same", func(t *testing.T) {
		t.Parallel()
		var typedNil *nilError
		for name, err := range map[string]error{"typed nil": typedNil, "nil": nil} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				rec := r.append("a")[0]
				w := r.start(func(c *worker.Config) { c.Retry.MaxAttempts = 2 })
				require.False(t, r.take(w).Judge(err).Dead)
				r.eventually("the attempt is counted", func() bool { return r.get(rec).Attempts == 1 })
				r.exec(`UPDATE outmill_records SET wake_at = 1, next_at = 1`)
				require.True(t, r.take(w).Judge(err).Dead)
				r.eventuallyStatus(rec, outmill.StatusDead)
			})
		}
	})

	t.Run("a backoff that panics is replaced by the default", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.append("a")
		w := r.start(func(c *worker.Config) {
			c.Retry.BackOff = func() outmill.BackOff { panic("backoff") }
		})
		require.Equal(t, storekit.Verdict{Delay: outmill.DefaultInitialInterval}, r.take(w).Judge(errors.New("no luck")))
	})
}

// nilError is an error type whose methods panic on a nil receiver.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }
func (e *nilError) Unwrap() error { return errors.New(e.text) }
