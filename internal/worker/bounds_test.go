package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
)

func (r *rig) leased() int {
	r.Helper()
	stats, err := r.store.Stats(r.Context(), 0)
	require.NoError(r, err)
	n := 0
	for _, s := range stats {
		n += s.Leased
	}
	return n
}

func words(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(i)
	}
	return list
}

func TestBounds(t *testing.T) {
	t.Parallel()

	t.Run("the items in flight are limited", func(t *testing.T) {
		t.Parallel()

		t.Run("by count", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.append(words(50)...)
			w := r.start(func(c *worker.Config) { c.BatchSize, c.MaxItems = 4, 10 })
			items := r.takeN(w, 10)
			r.takesNothing(w)
			require.Equal(t, 10, r.leased())
			for _, it := range items {
				it.Ack()
			}
			r.takeN(w, 10)
		})

		t.Run("by bytes, save for one record", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for range 10 {
				require.NoError(t, r.store.Append(t.Context(), &outmill.Record{Topic: topic, Payload: make([]byte, 1000)}))
			}
			w := r.start(func(c *worker.Config) { c.MaxBytes = 2500 })
			items := r.takeN(w, 3)
			r.takesNothing(w)
			require.Equal(t, 3, r.leased(), "two fit, and one goes beyond")
			for _, it := range items {
				it.Ack()
			}
			r.takeN(w, 3)
		})
	})

	t.Run("a limit of 0 pauses", func(t *testing.T) {
		t.Parallel()

		t.Run("and releases the waiting items", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.append("a", "b")
			w := r.start(nil)
			it := r.take(w)
			w.SetLimit(0)
			r.eventually("only what was taken is held", func() bool { return r.leased() == 1 })
			it.Ack()
			r.takesNothing(w)
			w.SetLimit(10)
			require.Equal(t, "b", r.take(w).Record.MessageID)
		})

		t.Run("and releases the records of a claim in progress", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.append("a", "b")
			answered, answer := r.holdClaim()
			w := r.start(nil)
			<-answered
			w.SetLimit(0)
			answer()
			r.takesNothing(w)
			r.eventually("nothing is held", func() bool { return r.leased() == 0 })
			w.SetLimit(1)
			r.take(w)
			r.takesNothing(w)
		})
	})

	t.Run("topics can be changed", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		require.NoError(t, r.store.Append(t.Context(),
			&outmill.Record{Topic: "bills", MessageID: "bill"}, &outmill.Record{Topic: "orders", MessageID: "order"}))
		answered, answer := r.holdClaim()
		w := r.start(nil)
		<-answered
		w.SetTopics(outmill.Topics{Exclude: []string{"bills"}})
		answer()
		require.Equal(t, "order", r.take(w).Record.MessageID)
		r.takesNothing(w)
		r.eventually("the other topic's record is given back", func() bool { return r.leased() == 1 })
		w.SetTopics(outmill.Topics{})
		require.Equal(t, "bill", r.take(w).Record.MessageID)
	})

	t.Run("a pause does not release an item that was taken", func(t *testing.T) {
		t.Parallel()
		const n = 60
		r := newRig(t)
		r.append(words(n)...)
		w := r.start(func(c *worker.Config) { c.Running = worker.NewRegistry() })
		stop := make(chan struct{})
		var flipping sync.WaitGroup
		flipping.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					w.SetLimit(0)
					w.SetLimit(10)
				}
			}
		})
		seen := map[string]int{}
		for range n {
			it := r.take(w)
			seen[it.Record.MessageID]++
			it.Ack()
		}
		close(stop)
		flipping.Wait()
		for word, times := range seen {
			require.Equal(t, 1, times, word)
		}
	})

	t.Run("drain returns when all that is due is settled", func(t *testing.T) {
		t.Parallel()

		t.Run("and counts the handled items", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			records := r.append(words(25)...)
			w := r.start(nil)
			var handling sync.WaitGroup
			handling.Go(func() {
				for range records {
					r.take(w).Ack()
				}
			})
			require.NoError(t, w.Drain(t.Context()))
			handling.Wait()
			require.Equal(t, len(records), w.Settled())
			require.Nil(t, r.get(records[24]))
		})

		t.Run("but not while something is being handled, and without claiming all the time", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.append("a")
			w := r.start(func(c *worker.Config) { c.PollInterval = never })
			it := r.take(w)
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			before := r.store.called("Claim")
			require.ErrorIs(t, w.Drain(ctx), context.DeadlineExceeded)
			require.Less(t, r.store.called("Claim")-before, 10)
			it.Ack()
			require.NoError(t, w.Drain(t.Context()))
		})

		t.Run("or with the error of a claim", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w := r.start(nil)
			r.store.failBefore("Claim", away)
			require.ErrorIs(t, w.Drain(t.Context()), errAway)
		})

		t.Run("or when the worker stops", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.append("a")
			w := r.start(nil)
			it := r.take(w)
			end := make(chan error)
			go func() { end <- w.Drain(context.Background()) }()
			w.Stop()
			require.ErrorIs(t, <-end, outmill.ErrClosed)
			it.Ack()
		})

		t.Run("and does not count released items", func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.append("a")
			w := r.start(nil)
			r.take(w).Release()
			r.take(w).Ack()
			require.NoError(t, w.Drain(t.Context()))
			require.Equal(t, 1, w.Settled())
		})
	})
}
