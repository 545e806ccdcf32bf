package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
)

func byKey(c *worker.Config) { c.Order = outmill.OrderKey }

func TestOrder(t *testing.T) {
	t.Parallel()

	t.Run("a key is handed out one by one", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.append("k:1", "k:2", "l:1", "free")
		w := r.start(byKey)
		items := r.takeN(w, 3)
		require.ElementsMatch(t, []string{"k:1", "l:1", "free"}, names(items))
		r.takesNothing(w)
		items[0].Ack()
		require.Equal(t, "k:2", r.take(w).Record.MessageID)
	})

	t.Run("a pipelined key is handed out at once and in order", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.append("k:1", "k:2", "k:3")
		w := r.start(func(c *worker.Config) {
			byKey(c)
			c.Pipelined = true
		})
		require.Equal(t, []string{"k:1", "k:2", "k:3"}, names(r.takeN(w, 3)))
	})

	t.Run("later records of a key wait for a released one", func(t *testing.T) {
		t.Parallel()
		givenBack := map[string]func(*worker.Item){
			"released":  (*worker.Item).Release,
			"abandoned": func(it *worker.Item) { it.Abandon(0, "no luck") },
			"snoozed":   func(it *worker.Item) { it.Snooze(0) },
		}
		for name, giveBack := range givenBack {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.append("k:1", "k:2", "k:3")
				w := r.start(byKey)
				giveBack(r.take(w))
				r.handlesInOrder(w, "k:1", "k:2", "k:3")
			})

			t.Run(name+" while a claim is under way that returns later ones", func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.append("k:1", "k:2")
				w := r.start(byKey)
				first := r.take(w)
				answered, answer := r.holdClaim()
				r.append("k:3", "k:4")
				<-answered
				giveBack(first)
				answer()
				r.handlesInOrder(w, "k:1", "k:2", "k:3", "k:4")
			})
		}
	})

	t.Run("a key keeps its order when the answer to a claim is lost", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic} {
			t.Run("order "+order.String(), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				records := r.append("k:1")
				var once sync.Once
				r.store.failAfter("Claim", func(context.Context) error {
					err := error(nil)
					once.Do(func() {
						err = errors.New("connection reset")
						records = append(records, r.append("k:2", "k:3")...)
					})
					return err
				})
				w := r.start(func(c *worker.Config) { c.Order = order })
				r.claimsInVain(records[0])
				r.handlesInOrder(w, "k:1", "k:2", "k:3")
				r.eventuallyGone(records...)
			})
		}
	})

	t.Run("a key keeps its order when a part of the answer to a claim is lost", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.store.shorten = func(records []*outmill.Record) []*outmill.Record {
			return slices.DeleteFunc(records, func(rec *outmill.Record) bool { return rec.Key == "k" })
		}
		records := r.append("l:1", "k:1")
		var once sync.Once
		r.store.failAfter("Claim", func(context.Context) error {
			err := error(nil)
			once.Do(func() {
				err = errors.New("connection reset")
				records = append(records, r.append("k:2", "l:2")...)
			})
			return err
		})
		unanswered := records[1]
		w := r.start(byKey)
		r.claimsInVain(unanswered)
		next := map[string]int{}
		for range 4 {
			it := r.take(w)
			next[it.Record.Key]++
			require.Equal(t, fmt.Sprintf("%s:%d", it.Record.Key, next[it.Record.Key]), it.Record.MessageID)
			it.Ack()
		}
		r.eventuallyGone(records...)
	})

	// The lease that is lost here stands on in the store.
	t.Run("a key keeps its order when the answers to extensions are lost", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic} {
			t.Run("order "+order.String(), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				records := r.append("k:1")
				w := r.start(func(c *worker.Config) {
					c.Order = order
					c.Lease = time.Second
				})
				first := r.take(w)
				records = append(records, r.append("k:2")...)
				r.store.failAfter("Extend", away)
				lost(t, first)
				r.store.heal()
				first.Release()
				r.handlesInOrder(w, "k:1", "k:2")
				r.eventuallyGone(records...)
			})
		}
	})

	t.Run("claims that fail after they have leased records continue without long pauses", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.store.shorten = func(records []*outmill.Record) []*outmill.Record { return records }
		r.store.failAfter("Claim", away)
		for i := range 40 {
			r.append(fmt.Sprintf("k:%d", i))
		}
		w := r.start(func(c *worker.Config) {
			c.BatchSize, c.MaxItems = 1, 1
			c.MaxErrorBackoff = never
		})
		for range 40 {
			r.take(w).Ack()
		}
	})

	t.Run("a skipped key continues at once", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.append("k:1", "k:2")
		w := r.start(func(c *worker.Config) {
			byKey(c)
			c.KeyPolicy = outmill.KeySkip
		})
		r.take(w).Abandon(never, "no luck")
		require.Equal(t, "k:2", r.take(w).Record.MessageID)
	})

	t.Run("a parked key goes dead with its record", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		records := r.append("k:1", "k:2", "l:1")
		w := r.start(func(c *worker.Config) {
			byKey(c)
			c.KeyPolicy = outmill.KeyPark
		})
		items := r.takeN(w, 2)
		require.Equal(t, []string{"k:1", "l:1"}, names(items))
		items[0].Fail("no good")
		r.eventuallyStatus(records[0], outmill.StatusDead)
		r.eventuallyStatus(records[1], outmill.StatusDead)
		items[1].Ack()
		r.eventuallyGone(records[2])
	})

	t.Run("pipelined records behind one whose lease has ended go back with it", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		first := r.append("k:1")
		w := r.start(func(c *worker.Config) {
			byKey(c)
			c.Pipelined = true
			c.BatchSize, c.MaxItems = 2, 4
			c.Lease = shortLease
		})
		r.eventuallyStatus(first[0], outmill.StatusLeased)
		r.store.failBefore("Extend", away)
		later := r.append("k:2")
		seen := 0
		for seen < 30 {
			for _, it := range r.takeN(w, 1) {
				require.Equal(t, "k:1", it.Record.MessageID, "k:2 is behind it, or not there yet")
				it.Release()
				seen++
			}
		}
		_ = later
	})

	t.Run("a key with a long backlog does not hold up other keys", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		var hot []string
		for i := range 60 {
			hot = append(hot, fmt.Sprintf("hot:%d", i))
		}
		r.append(hot...)
		r.append("a:1", "b:1", "b:2")
		w := r.start(func(c *worker.Config) {
			byKey(c)
			c.BatchSize, c.MaxItems = 20, 40
		})
		slow := r.take(w)
		require.Equal(t, hot[0], slow.Record.MessageID)
		others := r.takeN(w, 2)
		require.ElementsMatch(t, []string{"a:1", "b:1"}, names(others))
		for _, it := range others {
			it.Ack()
		}
		last := r.take(w)
		require.Equal(t, "b:2", last.Record.MessageID)
		last.Ack()
		slow.Ack()
		for _, want := range hot[1:] {
			it := r.take(w)
			require.Equal(t, want, it.Record.MessageID)
			it.Ack()
		}
	})
}
