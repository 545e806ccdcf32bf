package forwarder_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

var errPoison = errors.New("unprintable")

// unfair delays each call by a random number of scheduler turns, so that concurrent calls
// end in any order. It records keys with two concurrent calls.
type unfair struct {
	*destination

	mu      sync.Mutex
	inside  map[string]int
	clashes []string
}

func (p *unfair) Publish(topic string, messages ...*message.Message) error {
	key := messages[0].Metadata.Get(outmill.MetadataKey)
	p.count(key, 1)
	defer p.count(key, -1)
	for range rand.N(200) {
		runtime.Gosched()
	}
	return p.destination.Publish(topic, messages...)
}

func (p *unfair) count(key string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inside[key] += n; p.inside[key] > 1 {
		p.clashes = append(p.clashes, key)
	}
}

// crowd blocks all calls until it is full, and then lets the last call continue first.
type crowd struct {
	*destination
	size int

	mu      sync.Mutex
	waiting []chan struct{}
}

func (p *crowd) Publish(topic string, messages ...*message.Message) error {
	<-p.enter()
	err := p.destination.Publish(topic, messages...)
	p.letNextGo()
	return err
}

func (p *crowd) enter() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn := make(chan struct{})
	p.waiting = append(p.waiting, turn)
	if len(p.waiting) == p.size {
		close(turn)
	}
	return turn
}

func (p *crowd) letNextGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = p.waiting[:len(p.waiting)-1]
	if n := len(p.waiting); n > 0 {
		close(p.waiting[n-1])
	}
}

func TestForwarder_Order(t *testing.T) {
	t.Parallel()

	t.Run("lanes keep the order of a key if the publisher finishes in any order", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		const keys, each = 8, 25
		for i := range each {
			for k := range keys {
				key := fmt.Sprint("key", k)
				add(t, store, rec("orders", key, nameOf("orders", key, i)))
			}
		}
		d := &unfair{destination: newDestination(t), inside: map[string]int{}}
		cfg := quick()
		cfg.BatchSize = keys * each / 2
		start(t, store, d, cfg)
		d.waitFor(t, keys*each)
		for k := range keys {
			key := fmt.Sprint("key", k)
			require.Equal(t, namesOf("orders", key, each), d.withKey(key))
		}
		require.Empty(t, d.clashes, "two messages of a key were in the publisher at a time")
		requireEmpty(t, store)
	})

	t.Run("messages without a key are published many at a time", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		const lanes = 16
		add(t, store, recs("orders", "", lanes)...)
		d := &crowd{destination: newDestination(t), size: lanes}
		cfg := quick()
		cfg.Lanes = lanes
		start(t, store, d, cfg)
		d.waitFor(t, lanes)
		requireEmpty(t, store)
	})

	t.Run("no more messages are published at a time than there are lanes", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "", 50)...)
		d := newDestination(t)
		inside := make(chan struct{}, 3)
		d.judge(func(string, *message.Message) error {
			select {
			case inside <- struct{}{}:
			default:
				return outmill.Permanent(errors.New("too many at a time"))
			}
			defer func() { <-inside }()
			return nil
		})
		cfg := quick()
		cfg.Lanes = 3
		start(t, store, d, cfg)
		d.requireArrived(t, namesOf("orders", "", 50)...)
		requireEmpty(t, store)
	})

	t.Run("a message that fails delays only its key", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, recs("orders", "a", 5)...)
			add(t, store, recs("orders", "b", 5)...)
			add(t, store, recs("orders", "", 5)...)
			d.failOnly(outmill.RetryAfter(errPoison, 0), nameOf("orders", "a", 2))
			cfg := quick()
			cfg.Retry.MaxAttempts = -1
			start(t, store, dest, cfg)
			d.waitForTries(t, 25)
			require.Equal(t, namesOf("orders", "a", 2), d.withKey("a"))
			require.Equal(t, namesOf("orders", "b", 5), d.withKey("b"))
			require.Len(t, d.withKey(""), 5)
			d.comeBack()
			d.waitFor(t, 15)
			require.Equal(t, namesOf("orders", "a", 5), d.withKey("a"))
			requireEmpty(t, store)
		})
	})

	t.Run("a message that can never be delivered goes dead alone", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, recs("orders", "a", 5)...)
			add(t, store, recs("orders", "", 5)...)
			poison := nameOf("orders", "a", 2)
			d.failOnly(outmill.Permanent(errPoison), poison)
			cfg := quick()
			told := make(chan string, 10)
			cfg.OnDead = func(rec *outmill.Record, reason string) { told <- rec.MessageID + ": " + reason }
			start(t, store, dest, cfg)
			d.waitFor(t, 9)
			require.Equal(t, slices.Delete(namesOf("orders", "a", 5), 2, 3), d.withKey("a"))
			dead := requireDead(t, store, poison)
			require.Equal(t, errPoison.Error(), dead[0].LastError)
			require.Equal(t, poison+": "+errPoison.Error(), <-told)
			require.Empty(t, told)
		})
	})

	t.Run("with Skip the later messages of a key pass one that fails", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "a", 5)...)
		d := newDestination(t)
		d.failOnly(outmill.RetryAfter(errPoison, 0), nameOf("orders", "a", 0))
		cfg := quick()
		cfg.KeyPolicy = outmill.KeySkip
		cfg.Retry.MaxAttempts = -1
		start(t, store, d, cfg)
		d.waitFor(t, 4)
		require.Equal(t, namesOf("orders", "a", 5)[1:], d.withKey("a"))
		d.comeBack()
		d.waitFor(t, 5)
	})

	t.Run("with Park the later messages of a key go dead with one that does", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, recs("orders", "a", 7)...)
			add(t, store, recs("orders", "b", 7)...)
			add(t, store, recs("orders", "", 7)...)
			poison := nameOf("orders", "a", 2)
			d.failOnly(outmill.Permanent(errPoison), poison, nameOf("orders", "", 3))
			cfg := quick()
			cfg.KeyPolicy = outmill.KeyPark
			cfg.BatchSize = 20
			start(t, store, dest, cfg)
			parked := append([]string{nameOf("orders", "", 3)}, namesOf("orders", "a", 7)[2:]...)
			dead := requireDead(t, store, parked...)
			d.waitFor(t, 15)
			require.Equal(t, namesOf("orders", "a", 2), d.withKey("a"), "nothing of the key may pass the dead one")
			require.Equal(t, namesOf("orders", "b", 7), d.withKey("b"))
			d.comeBack()
			for _, r := range dead {
				if r.MessageID == poison {
					_, err := store.Requeue(t.Context(), r.ID)
					require.NoError(t, err)
				}
			}
			d.waitFor(t, 20)
			require.Equal(t, namesOf("orders", "a", 7), d.withKey("a"), "they come back together, in their order")
		})
	})

	t.Run("a message that a hook fails holds up its key", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, recs("orders", "a", 5)...)
			add(t, store, recs("orders", "b", 5)...)
			cfg := quick()
			failures := 4
			cfg.Transform = func(_ string, msg *message.Message) (*message.Message, error) {
				if msg.UUID == nameOf("orders", "a", 1) && failures > 0 {
					failures--
					return nil, errPoison
				}
				return msg, nil
			}
			start(t, store, dest, cfg)
			d.waitFor(t, 10)
			require.Equal(t, namesOf("orders", "a", 5), d.withKey("a"))
			require.Equal(t, namesOf("orders", "b", 5), d.withKey("b"))
			require.Len(t, d.triedIDs(), 10, "nothing behind the failed one may reach the publisher")
			requireEmpty(t, store)
		})
	})

	t.Run("a key that fails is held up in the batches that were claimed ahead too", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, recs("orders", "a", 60)...)
			poison := nameOf("orders", "a", 7)
			d.failOnly(outmill.RetryAfter(errPoison, 20*time.Millisecond), poison)
			cfg := quick()
			cfg.BatchSize = 10
			cfg.Retry.MaxAttempts = -1
			start(t, store, dest, cfg)
			d.waitForTries(t, 10)
			require.Equal(t, namesOf("orders", "a", 7), d.withKey("a"))
			d.comeBack()
			d.waitFor(t, 60)
			require.Equal(t, namesOf("orders", "a", 60), d.withKey("a"))
			require.Len(t, d.ids(), 60, "nothing may be published twice")
			requireEmpty(t, store)
		})
	})

	t.Run("without order a message that fails delays no other", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "a", 5)...)
		d := newDestination(t)
		d.failOnly(outmill.RetryAfter(errPoison, 0), nameOf("orders", "a", 0))
		cfg := quick()
		cfg.Unordered = true
		cfg.Retry.MaxAttempts = -1
		start(t, store, d, cfg)
		d.waitFor(t, 4)
		require.NotContains(t, d.ids(), nameOf("orders", "a", 0))
		d.comeBack()
		d.waitFor(t, 5)
	})

	t.Run("keys of different topics are different keys", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, recs("orders", "a", 3)...)
			add(t, store, recs("invoices", "a", 3)...)
			d.failOnly(outmill.RetryAfter(errPoison, 0), nameOf("orders", "a", 0))
			cfg := quick()
			cfg.Retry.MaxAttempts = -1
			start(t, store, dest, cfg)
			d.requireArrived(t, namesOf("invoices", "a", 3)...)
		})
	})
}
