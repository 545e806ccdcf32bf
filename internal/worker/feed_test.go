package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
)

func byTopic(c *worker.Config) { c.ByTopic, c.AwaitStart, c.MaxItems = true, true, 0 }

// appendTo writes one record for each topic, with the topic as message id.
func (r *rig) appendTo(topics ...string) {
	r.Helper()
	for _, topic := range topics {
		require.NoError(r, r.store.Append(r.Context(), &outmill.Record{MessageID: topic, Topic: topic}))
	}
}

func (r *rig) takeFrom(f *worker.Feed) *worker.Item {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), soon)
	defer cancel()
	items, err := f.Take(ctx, 1)
	require.NoError(r, err)
	require.True(r, items[0].Started())
	return items[0]
}

// takesNothingFrom checks for a short time that no item comes. It cannot prove that none
// comes later.
func (r *rig) takesNothingFrom(f *worker.Feed) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
	defer cancel()
	items, err := f.Take(ctx, 1)
	require.ErrorIs(r, err, context.DeadlineExceeded, "took %v", names(items))
}

// requests returns the claims that were made so far.
func (r *rig) requests() []outmill.ClaimRequest {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	return append([]outmill.ClaimRequest(nil), r.store.claims...)
}

func TestFeed(t *testing.T) {
	t.Parallel()

	t.Run("many idle topics cost no more than one (OBX-122)", func(t *testing.T) {
		t.Parallel()
		claims := func(topics int) int {
			r := newRig(t)
			w := r.start(func(c *worker.Config) { byTopic(c); c.PollInterval = 50 * time.Millisecond })
			for i := range topics {
				w.Open(fmt.Sprint(i), 1)
			}
			r.eventually("all are covered by one claim", func() bool {
				list := r.requests()
				return len(list) > 0 && len(list[len(list)-1].Topics.Include) == topics && len(list[len(list)-1].Topics.Exclude) == 0
			})
			before, began := len(r.requests()), time.Now()
			r.eventually("it is idle for a while", func() bool { return time.Since(began) > time.Second })
			return len(r.requests()) - before
		}
		one, many := claims(1), claims(500)
		require.LessOrEqual(t, many, 2*one+10)
	})

	t.Run("a wake up has its topic looked at alone (OBX-122)", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(func(c *worker.Config) { byTopic(c); c.PollInterval = never })
		feeds := map[string]*worker.Feed{}
		for _, name := range []string{"orders", "bills", "ships", "gifts"} {
			feeds[name] = w.Open(name, 1)
		}
		require.NoError(t, w.Drain(t.Context()))
		// The pauses between the polls double, so after some rounds a wake-up comes when no other
		// topic is due.
		for range 20 {
			before := len(r.requests())
			r.appendTo("unread", "bills")
			r.takeFrom(feeds["bills"]).Ack()
			if slices.ContainsFunc(r.requests()[before:], func(req outmill.ClaimRequest) bool {
				return slices.Equal([]string{"bills"}, req.Topics.Include)
			}) {
				return
			}
		}
		require.Fail(t, "each claim covers other topics, too")
	})

	t.Run("a full topic is left out of the claims", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(byTopic)
		busy, idle := w.Open("busy", 1), w.Open("idle", 1)
		r.appendTo("busy", "busy", "busy")
		running := r.takeFrom(busy)
		for range 5 {
			r.appendTo("idle")
			r.takeFrom(idle).Ack()
		}
		r.eventually("the busy topic holds what its handler has", func() bool { return r.leased() == 1 })
		running.Ack()
		r.takeFrom(busy).Ack()
	})

	t.Run("a suspect holds up its own topic only", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.appendTo("a", "a", "b")
		r.exec(`UPDATE outmill_records SET expiries = 2 WHERE seq = 2`)
		w := r.start(byTopic)
		a, b := w.Open("a", 10), w.Open("b", 10)
		first := r.takeFrom(a)
		other := r.takeFrom(b)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := a.Take(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the suspect waits until it is alone in its topic")
		first.Ack()
		suspect := r.takeFrom(a)
		require.True(t, suspect.Record.Suspect())
		suspect.Ack()
		other.Ack()
	})

	t.Run("a closed feed releases items that were not taken", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(byTopic)
		first, second := w.Open(topic, 2), w.Open(topic, 3)
		require.Same(t, first, second, "readers of one topic share it")
		r.append("a", "b", "c")
		r.eventually("all are held", func() bool { return r.leased() == 3 })
		first.Close(2)
		taken := r.takeFrom(second)
		second.Close(3)
		r.eventually("only what was taken is held", func() bool { return r.leased() == 1 })
		taken.Ack()
		again := w.Open(topic, 1)
		r.takeFrom(again).Ack()
		r.takeFrom(again).Ack()
	})

	t.Run("a handling that outlives its lease keeps its hand busy", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		records := r.append("a", "b")
		w := r.start(func(c *worker.Config) {
			byTopic(c)
			c.Lease = time.Second
			c.MaxProcessing = 50 * time.Millisecond
		})
		feed := w.Open(topic, 1)
		stuck := r.takeFrom(feed)
		<-stuck.Lost()
		r.eventuallyStatus(records[0], outmill.StatusPending)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := feed.Take(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, outmill.StatusPending, r.get(records[1]).Status)
		stuck.Release()
		r.takeFrom(feed).Ack()
	})

	t.Run("a reader that ends leaves the items to the other reader of its topic", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(func(c *worker.Config) { byTopic(c); c.Lease = never })
		feed := w.Open(topic, 2)
		require.Same(t, feed, w.Open(topic, 2))
		// The reader whose context ends was the first to wait.
		took := make(chan *worker.Item, 2)
		read := func(ends bool) {
			waits := make(chan struct{})
			ctx := &watched{Context: t.Context(), ends: ends, waits: sync.OnceFunc(func() { close(waits) })}
			go func() {
				if items, err := feed.Take(ctx, 1); err == nil {
					took <- items[0]
				}
			}()
			<-waits
		}
		read(true)
		read(false)
		r.append("a")
		select {
		case it := <-took:
			it.Ack()
		case <-time.After(soon):
			require.Fail(t, "it waits for a reader that has ended")
		}
	})

	t.Run("records that no reader took are claimed again while another one is handled", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.append("a", "b")
		w := r.start(func(c *worker.Config) { byTopic(c); c.Lease = 200 * time.Millisecond })
		feed := w.Open(topic, 2)
		running := r.takeFrom(feed)
		items, err := feed.Take(t.Context(), 1)
		require.NoError(t, err)
		<-items[0].Lost()
		items[0].Release()
		r.takeFrom(feed).Ack()
		running.Ack()
	})

	t.Run("a handling whose record came again keeps one hand busy and not two", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		lost := r.append("a")[0]
		w := r.start(func(c *worker.Config) { byTopic(c); c.Lease = 200 * time.Millisecond })
		feed := w.Open(topic, 2)
		running := r.takeFrom(feed)
		r.endLease(lost)
		_, err := r.store.Store.ReapExpired(t.Context(), 10)
		require.NoError(t, err)
		<-running.Lost()
		r.eventually("it came again", func() bool { found := r.get(lost); return found.Status == outmill.StatusLeased && found.Claims > 1 })
		r.append("b")
		next := r.takeFrom(feed)
		require.Equal(t, "b", next.Record.MessageID)
		next.Ack()
		running.Ack()
	})

	t.Run("two suspects of one topic are handled one by one", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.append("a", "b", "c", "d")
		r.exec(`UPDATE outmill_records SET expiries = 2 WHERE seq > 2`)
		// The second and the third claim are concurrent.
		var began atomic.Int32
		together := make(chan struct{})
		r.store.failBefore("Claim", func(ctx context.Context) error {
			switch began.Add(1) {
			case 2:
				select {
				case <-together:
				case <-ctx.Done():
				}
			case 3:
				close(together)
			}
			return nil
		})
		w := r.start(func(c *worker.Config) { byTopic(c); c.BatchSize = 2; c.Lease = never })
		feed := w.Open(topic, 10)
		first, second := r.takeFrom(feed), r.takeFrom(feed)
		<-together
		r.takesNothingFrom(feed)
		first.Ack()
		r.takesNothingFrom(feed)
		second.Ack()
		suspect := r.takeFrom(feed)
		r.takesNothingFrom(feed)
		suspect.Ack()
		r.takeFrom(feed).Ack()
	})

	t.Run("a key with a long backlog does not hold up other keys while there is other work", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		words := make([]string, 40)
		for i := range words {
			words[i] = fmt.Sprint("k:", i)
		}
		r.append(append(words, "other:0")...)
		w := r.start(func(c *worker.Config) { byTopic(c); c.Order = outmill.OrderKey })
		feed := w.Open(topic, 20)
		first := r.takeFrom(feed)
		took := make(chan *worker.Item, 1)
		go func() {
			if items, err := feed.Take(t.Context(), 1); err == nil {
				took <- items[0]
			}
		}()
		// Each outcome of another topic wakes the worker in the same way.
		wakes := time.NewTicker(tick)
		defer wakes.Stop()
		timeout := time.After(soon)
		for {
			select {
			case it := <-took:
				require.Equal(t, "other:0", it.Record.MessageID)
				it.Ack()
				first.Ack()
				return
			case <-wakes.C:
				w.Poke()
			case <-timeout:
				require.FailNow(t, "the other key has to wait")
			}
		}
	})

	t.Run("Drain returns when no reader is left", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		w := r.start(byTopic)
		feed := w.Open(topic, 1)
		running := make(chan error, 1)
		r.append("a")
		it := r.takeFrom(feed)
		go func() { running <- w.Drain(t.Context()) }()
		feed.Close(1)
		it.Ack()
		select {
		case err := <-running:
			require.NoError(t, err)
		case <-time.After(soon):
			require.Fail(t, "it waits for claims that nobody makes")
		}
	})

	t.Run("a handling that begins during the extension of its lease is not released", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.append("a")
		answer := make(chan struct{})
		t.Cleanup(sync.OnceFunc(func() { close(answer) }))
		var extends atomic.Int32
		r.store.failAfter("Extend", func(context.Context) error {
			if extends.Add(1) == 1 {
				<-answer
			}
			return nil
		})
		w := r.start(func(c *worker.Config) { byTopic(c); c.Lease = 3 * time.Second })
		feed := w.Open(topic, 1)
		items, err := feed.Take(t.Context(), 1)
		require.NoError(t, err)
		it := items[0]
		r.eventually("its time is over, as far as the worker knows", func() bool { return it.Left() == 0 })
		require.False(t, it.Started())
		answer <- struct{}{}
		r.eventually("the lease is kept", func() bool { return extends.Load() > 1 })
		select {
		case <-it.Lost():
			require.Fail(t, "another process may handle it at the same time")
		default:
		}
		it.Ack()
	})
}

// watched is a context that signals when a goroutine begins to wait for its end. With ends
// set, it ends between two calls of Err, without waking the goroutines that wait.
type watched struct {
	context.Context
	waits func()
	ends  bool
	asked atomic.Int32
}

func (c *watched) Done() <-chan struct{} {
	c.waits()
	return c.Context.Done()
}

func (c *watched) Err() error {
	if c.asked.Add(1) > 1 && c.ends {
		return context.Canceled
	}
	return c.Context.Err()
}
