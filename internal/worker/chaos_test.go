package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
)

func TestChaos(t *testing.T) {
	t.Parallel()

	// It has
	// two instances of several workers on a store that fails now and then, before
	// it has done what it was told or after. Handlers fail, workers come and go.
	t.Run("records are handled in order and none is lost on a store that fails", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
			t.Run("order "+order.String(), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				c := &chaos{rig: r, order: order, done: make(chan struct{}), acked: map[string]bool{}, running: map[string]int{}}
				const perKey = 8
				for i := range perKey {
					for k := range chaosKeys {
						r.append(fmt.Sprintf("k%d:%d", k, i))
					}
				}
				c.want = chaosKeys * perKey
				for _, call := range []string{"Claim", "Extend", "Ack", "Abandon", "Release", "Snooze"} {
					r.store.failBefore(call, sometimes)
					r.store.failAfter(call, sometimes)
				}
				var instances sync.WaitGroup
				for range 2 {
					running := worker.NewRegistry()
					for range 2 {
						instances.Go(func() { c.work(running) })
					}
				}
				finished := make(chan struct{})
				go func() {
					instances.Wait()
					close(finished)
				}()
				select {
				case <-finished:
				case <-time.After(2 * time.Minute):
					c.mu.Lock()
					defer c.mu.Unlock()
					require.Failf(t, "stuck", "%d of %d records are acked", len(c.acked), c.want)
				}
				require.Empty(t, c.wrong)
			})
		}
	})
}

const chaosKeys = 3

var errChaos = errors.New("chaos")

func sometimes(context.Context) error {
	if rand.IntN(12) == 0 {
		return errChaos
	}
	return nil
}

// chaos records the handlings.
type chaos struct {
	*rig
	order outmill.Order
	want  int
	done  chan struct{}

	mu      sync.Mutex
	acked   map[string]bool
	running map[string]int
	wrong   []string
}

// work runs one worker after the other until all records are acked.
func (c *chaos) work(running *worker.Registry) {
	for {
		select {
		case <-c.done:
			return
		default:
		}
		cfg := config(c.store)
		cfg.Order = c.order
		cfg.Running = running
		cfg.Lease = 400 * time.Millisecond
		cfg.Retry.MaxAttempts = -1
		w := worker.New(cfg)
		w.Start(context.WithoutCancel(c.Context()))
		c.use(w, running)
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		if err := w.Close(ctx); err != nil {
			c.Error(err)
		}
		cancel()
	}
}

func (c *chaos) use(w *worker.Worker, running *worker.Registry) {
	ctx, cancel := context.WithTimeout(c.Context(), time.Second)
	defer cancel()
	var handling sync.WaitGroup
	defer handling.Wait()
	for handled := 0; handled < 20; {
		items, err := w.Take(ctx, 4)
		if err != nil {
			return
		}
		handled += len(items)
		for _, it := range items {
			if it.Left() <= 0 {
				it.Release()
				continue
			}
			handling.Go(func() { c.handle(it, running) })
		}
	}
}

func (c *chaos) handle(it *worker.Item, running *worker.Registry) {
	word := it.Record.MessageID
	here := fmt.Sprintf("%s in %p", word, running)
	c.mu.Lock()
	c.check(word)
	c.running[here]++
	if c.running[here] > 1 {
		c.wrong = append(c.wrong, here+" is handled twice at a time")
	}
	c.mu.Unlock()
	if rand.IntN(20) == 0 {
		// Sometimes the work takes longer than a lease.
		<-time.After(rand.N(time.Second))
	}
	fate := rand.IntN(8)
	c.mu.Lock()
	c.running[here]--
	if fate > 2 {
		c.acked[word] = true
		if len(c.acked) == c.want {
			c.want = -1
			close(c.done)
		}
	}
	c.mu.Unlock()
	switch fate {
	case 0:
		it.Abandon(rand.N(5*time.Millisecond), "no luck")
	case 1:
		it.Snooze(rand.N(5 * time.Millisecond))
	case 2:
		it.Release()
	default:
		it.Ack()
	}
}

// check reports a record whose handling begins before all records ahead of it were handled.
func (c *chaos) check(word string) {
	key, place, _ := strings.Cut(word, ":")
	var mine int
	if _, err := fmt.Sscan(place, &mine); err != nil {
		c.wrong = append(c.wrong, err.Error())
	}
	if c.order == outmill.OrderNone {
		return
	}
	for i := range mine {
		for k := range chaosKeys {
			other := fmt.Sprintf("k%d:%d", k, i)
			if c.order == outmill.OrderKey && !strings.HasPrefix(other, key+":") {
				continue
			}
			if !c.acked[other] {
				c.wrong = append(c.wrong, word+" begins before "+other)
			}
		}
	}
}
