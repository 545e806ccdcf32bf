package forwarder_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

func TestForwarder_Lifecycle(t *testing.T) {
	t.Parallel()

	t.Run("Run returns nil when its context ends", func(t *testing.T) {
		t.Parallel()
		fwd := newForwarder(t, newStore(t), newDestination(t), quick())
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-fwd.Running(); cancel() }()
		require.NoError(t, fwd.Run(ctx))
		require.NoError(t, fwd.Close())
	})

	t.Run("Run returns nil when the forwarder is closed", func(t *testing.T) {
		t.Parallel()
		fwd := newForwarder(t, newStore(t), newDestination(t), quick())
		go func() { <-fwd.Running(); fwd.Close() }()
		require.NoError(t, fwd.Run(t.Context()))
	})

	t.Run("Run with a context that has ended returns at once and may be called again", func(t *testing.T) {
		t.Parallel()
		fwd := newForwarder(t, newStore(t), newDestination(t), quick())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, fwd.Run(ctx))
		select {
		case <-fwd.Running():
			require.Fail(t, "it never ran")
		default:
		}
		go func() { <-fwd.Running(); fwd.Close() }()
		require.NoError(t, fwd.Run(t.Context()))
	})

	t.Run("a forwarder runs once", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		fwd := start(t, store, newDestination(t), quick())
		require.ErrorContains(t, fwd.Run(t.Context()), "make a new forwarder")
	})

	t.Run("a closed forwarder refuses to run", func(t *testing.T) {
		t.Parallel()
		fwd := newForwarder(t, newStore(t), newDestination(t), quick())
		require.NoError(t, fwd.Close())
		require.NoError(t, fwd.Close())
		require.ErrorIs(t, fwd.Run(t.Context()), outmill.ErrClosed)
		_, err := fwd.Once(t.Context())
		require.ErrorIs(t, err, outmill.ErrClosed)
	})

	t.Run("Close may be called by many at a time", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		fwd := start(t, store, newDestination(t), quick())
		var closing sync.WaitGroup
		for range 5 {
			closing.Go(func() { fwd.Close() })
		}
		closing.Wait()
	})

	t.Run("a missing schema is an error and Run may be called again when it is there", func(t *testing.T) {
		t.Parallel()
		store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "empty.db"), sqlite.Config{}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		d := newDestination(t)
		fwd := newForwarder(t, store, d, quick())
		require.ErrorIs(t, fwd.Run(t.Context()), outmill.ErrSchemaMissing)
		_, err = fwd.Once(t.Context())
		require.ErrorIs(t, err, outmill.ErrSchemaMissing)
		require.ErrorContains(t, err, "Ensure")
		require.NoError(t, store.Ensure(t.Context()))
		add(t, store, rec("orders", "", "m"))
		ended := make(chan error, 1)
		go func() { ended <- fwd.Run(context.Background()) }()
		d.waitFor(t, 1)
		require.NoError(t, fwd.Close())
		require.NoError(t, <-ended)
	})

	t.Run("Close waits for the publish under way and stores its ack", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			add(t, store, recs("orders", "a", 30)...)
			g := newGate()
			d.judge(func(string, *message.Message) error { g.pass(); return nil })
			cfg := quick()
			cfg.BatchSize = 10
			fwd := start(t, store, dest, cfg)
			<-g.reached
			closed := make(chan struct{})
			go func() { defer close(closed); fwd.Close() }()
			require.Eventually(t, func() bool { return errors.Is(fwd.Run(t.Context()), outmill.ErrClosed) }, patience, tick, "Close has not begun")
			select {
			case <-closed:
				require.Fail(t, "Close did not wait")
			case <-time.After(20 * time.Millisecond):
			}
			close(g.open)
			<-closed
			require.Equal(t, namesOf("orders", "a", 10), d.withKey("a"))
			left := list(t, store, outmill.StatusPending)
			require.Equal(t, namesOf("orders", "a", 30)[10:], idsOf(left))
			require.Empty(t, list(t, store, outmill.StatusLeased), "what was claimed ahead must be given back")
			requireUntouched(t, store)
		})
	})

	t.Run("Close does not wait for ever for a publisher that hangs", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "", 30)...)
		g := newGate()
		d := newDestination(t)
		d.judge(func(_ string, msg *message.Message) error {
			if msg.UUID == nameOf("orders", "", 7) {
				g.pass()
			}
			return nil
		})
		cfg := quick()
		cfg.CloseTimeout = 10 * time.Millisecond
		l := journal.New()
		fwd := startLogged(t, store, d, cfg, l)
		d.waitFor(t, 29)
		<-g.reached
		require.NoError(t, fwd.Close())
		require.Equal(t, []string{nameOf("orders", "", 7)}, idsOf(list(t, store, outmill.StatusLeased)),
			"what did arrive must be acked, what hangs is left to its lease")
		require.Empty(t, list(t, store, outmill.StatusPending))
		l.Wait(t, "did not return in time")
		close(g.open)
	})

	t.Run("Close ends the call of a publisher of batches", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "", 5)...)
		d := newBatchDestination(t)
		inside := make(chan struct{})
		d.wrap(nothingUntilItsEnd(inside))
		cfg := quick()
		cfg.CloseTimeout = 10 * time.Millisecond
		l := journal.New()
		fwd := startLogged(t, store, d, cfg, l)
		<-inside
		require.NoError(t, fwd.Close())
		require.Len(t, list(t, store, outmill.StatusPending), 5)
		requireUntouched(t, store)
		require.Empty(t, l.Find("The broker accepted no message"), "it was not the broker")
	})

	t.Run("a call of a publisher of batches ends with the publish timeout", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "a", 5)...)
		d := newBatchDestination(t)
		var calls atomic.Int64
		d.wrap(func(ctx context.Context, _ []storekit.Outgoing, publish func() error) error {
			if calls.Add(1) <= 2 {
				<-ctx.Done()
				return ctx.Err()
			}
			return publish()
		})
		cfg := quick()
		cfg.Retry = mortal()
		cfg.PublishTimeout = 10 * time.Millisecond
		start(t, store, d, cfg)
		requireEmpty(t, store)
		require.Equal(t, namesOf("orders", "a", 5), d.withKey("a"))
	})

	t.Run("a plain publisher that hangs is waited for and said so", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "a", 5)...)
		g := newGate()
		d := newDestination(t)
		d.judge(func(string, *message.Message) error { g.pass(); return nil })
		cfg := quick()
		cfg.PublishTimeout = time.Millisecond
		cfg.Retry = mortal()
		l := journal.New()
		startLogged(t, store, d, cfg, l)
		<-g.reached
		l.Wait(t, "has not returned")
		close(g.open)
		// A slow call counts as one that hangs, and its message comes again.
		requireEmpty(t, store)
		require.Equal(t, namesOf("orders", "a", 5), d.withKey("a"))
	})

	t.Run("other processes take the records of a hanging publisher, without a lost attempt", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "a", 50)...)
		g := newGate()
		d := newDestination(t)
		d.judge(func(string, *message.Message) error { g.pass(); return nil })
		cfg := quick()
		cfg.BatchSize = 10
		cfg.PublishTimeout = 10 * time.Millisecond
		start(t, store, d, cfg)
		<-g.reached
		require.Eventually(t, func() bool { return len(list(t, store, outmill.StatusPending)) == 50 }, patience, tick, "all should be given back")
		for _, r := range list(t, store, "") {
			require.Zero(t, r.Expiries, "giving up is not an expiry")
		}
		requireUntouched(t, store)
		other := newDestination(t)
		fwd := newForwarder(t, store, other, quick())
		n, err := fwd.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, 50, n)
		require.Equal(t, namesOf("orders", "a", 50), other.withKey("a"))
		close(g.open)
		add(t, store, rec("orders", "a", "later"))
		require.Eventually(t, func() bool { return len(list(t, store, "")) == 0 }, patience, tick)
		// The limit of 10 ms may have the last one come twice on a busy machine.
		require.Equal(t, []string{nameOf("orders", "a", 0), "later"}, d.withKey("a"), "of the others none may come from the one that hung")
	})

	t.Run("a hook that hangs does not keep Close for ever", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, rec("orders", "", "m"))
		g := newGate()
		cfg := quick()
		cfg.CloseTimeout = 10 * time.Millisecond
		cfg.Filter = func(string, *message.Message) bool { g.pass(); return true }
		fwd := start(t, store, newDestination(t), cfg)
		<-g.reached
		require.NoError(t, fwd.Close())
		close(g.open)
	})

	t.Run("forwarders that are closed at any moment lose nothing and publish nothing twice", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			register(t, store)
			const n = 300
			for _, key := range []string{"a", "b", ""} {
				add(t, store, recs("orders", key, n)...)
			}
			cfg := quick()
			cfg.BatchSize = 20
			for closes := 0; len(d.all()) < 3*n; closes++ {
				fwd := newForwarder(t, store, dest, cfg)
				ended := make(chan error, 1)
				go func() { ended <- fwd.Run(context.Background()) }()
				d.waitFor(t, min(len(d.all())+closes*7%50, 3*n))
				require.NoError(t, fwd.Close())
				if err := <-ended; err != nil {
					require.ErrorIs(t, err, outmill.ErrClosed, "closed before it began")
				}
				require.Empty(t, list(t, store, outmill.StatusLeased))
			}
			require.Equal(t, namesOf("orders", "a", n), d.withKey("a"))
			require.Equal(t, namesOf("orders", "b", n), d.withKey("b"))
			require.Len(t, d.ids(), 3*n)
			require.Empty(t, list(t, store, ""))
		})
	})

	t.Run("Close ends a registration that hangs", func(t *testing.T) {
		t.Parallel()
		inside := make(chan struct{})
		store := &queueWith{Store: newStore(t), register: func(ctx context.Context, _ outmill.Registration) error {
			close(inside)
			<-ctx.Done()
			return ctx.Err()
		}}
		fwd := newForwarder(t, store, newDestination(t), quick())
		ended := make(chan error, 1)
		go func() { ended <- fwd.Run(context.Background()) }()
		<-inside
		require.NoError(t, fwd.Close())
		require.NoError(t, <-ended)
	})

	t.Run("an outage of the database loses no message", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			inner := newStore(t)
			var claims atomic.Int64
			store := &queueWith{Store: inner, claim: func(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
				if claims.Add(1)%3 != 0 {
					return nil, errors.New("connection reset")
				}
				return inner.Claim(ctx, req)
			}}
			register(t, inner)
			add(t, inner, recs("orders", "a", 50)...)
			cfg := quick()
			cfg.BatchSize = 10
			start(t, store, dest, cfg)
			requireEmpty(t, inner)
			require.Equal(t, namesOf("orders", "a", 50), d.withKey("a"))
		})
	})

	t.Run("a process that slept longer than its leases publishes no record that others have claimed", func(t *testing.T) {
		t.Parallel()
		sleepIn := func(t *testing.T, dest message.Publisher, d *destination, where func(cfg *forwarder.Config, sleep func())) {
			store := newStore(t)
			register(t, store)
			add(t, store, recs("orders", "a", 10)...)
			g := newGate()
			asleep := quick()
			asleep.Lease = 200 * time.Millisecond
			where(&asleep, g.pass)
			start(t, sleepy(store, g), dest, asleep)
			<-g.reached
			other := newBatchDestination(t)
			start(t, store, other, quick())
			other.waitFor(t, 10)
			requireEmpty(t, store)
			close(g.open)
			add(t, store, rec("orders", "b", "later"))
			require.Eventually(t, func() bool { return len(d.ids())+len(other.ids()) >= 11 }, patience, tick)
			requireEmpty(t, store)
			for _, id := range d.ids() {
				require.Contains(t, []string{nameOf("orders", "a", 0), "later"}, id, "only what had begun before may be published again")
			}
		}
		t.Run("asleep in a hook", func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, dest message.Publisher, d *destination) {
				sleepIn(t, dest, d, func(cfg *forwarder.Config, sleep func()) {
					cfg.Filter = func(string, *message.Message) bool { sleep(); return true }
				})
			})
		})
		t.Run("asleep in a plain publisher", func(t *testing.T) {
			t.Parallel()
			d := newDestination(t)
			sleepIn(t, d, d, func(_ *forwarder.Config, sleep func()) {
				d.judge(func(string, *message.Message) error { sleep(); return nil })
			})
		})
	})

	t.Run("a first registration that fails is tried again, unless no retry helps", func(t *testing.T) {
		t.Parallel()
		inner := newStore(t)
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			store := &queueWith{Store: inner, register: func(ctx context.Context, reg outmill.Registration) error {
				if calls++; calls <= 5 {
					return errors.New("database or disk is full")
				}
				return inner.RegisterGroup(ctx, reg)
			}}
			l := journal.New()
			d := &destination{real: gochannel.NewGoChannel(gochannel.Config{}, nil)}
			fwd, err := forwarder.New(store, d, forwarder.Config{}, l)
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- fwd.Run(context.Background()) }()
			<-fwd.Running()
			require.NoError(t, fwd.Close())
			require.NoError(t, <-ended)
			require.Equal(t, 7, calls, "6 registrations, and the stop")

			for _, last := range []error{outmill.ErrSchemaMissing, outmill.ErrClosed, outmill.ErrInvalidConfig} {
				store.register = func(context.Context, outmill.Registration) error { return last }
				fwd := newForwarder(t, store, d, forwarder.Config{})
				require.ErrorIs(t, fwd.Run(context.Background()), last)
			}

			store.register = func(context.Context, outmill.Registration) error { return errors.New("for ever") }
			stopped := newForwarder(t, store, d, forwarder.Config{})
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			require.NoError(t, stopped.Run(ctx))
		})
	})

	t.Run("the registration is renewed and late records are adopted", func(t *testing.T) {
		t.Parallel()
		for name, interval := range map[string]time.Duration{"with upkeep": time.Minute, "without": -1} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				inner := newStore(t)
				synctest.Test(t, func(t *testing.T) {
					renewed := make(chan struct{}, 100)
					store := &queueWith{Store: inner, register: func(ctx context.Context, reg outmill.Registration) error {
						require.Equal(t, worker.Name(""), reg.Worker)
						renewed <- struct{}{}
						return inner.RegisterGroup(ctx, reg)
					}}
					d := &destination{real: gochannel.NewGoChannel(gochannel.Config{}, nil)}
					fwd := newForwarder(t, store, d, forwarder.Config{UpkeepInterval: interval})
					ended := make(chan error, 1)
					go func() { ended <- fwd.Run(context.Background()) }()
					for range 4 {
						<-renewed
					}
					require.NoError(t, fwd.Close())
					require.NoError(t, <-ended)
				})
			})
		}
	})
}

// gate stops messages on their way through a destination.
type gate struct {
	reached, open chan struct{}
	once          sync.Once
}

func newGate() *gate { return &gate{reached: make(chan struct{}), open: make(chan struct{})} }

// pass waits until the gate is open.
func (g *gate) pass() {
	g.once.Do(func() { close(g.reached) })
	<-g.open
}

// queueWith is a store with some methods of its own.
type queueWith struct {
	*sqlite.Store
	register func(ctx context.Context, reg outmill.Registration) error
	claim    func(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error)
	extend   func(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error)
}

func (q *queueWith) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	if q.register == nil {
		return q.Store.RegisterGroup(ctx, regs...)
	}
	return q.register(ctx, regs[0])
}

func (q *queueWith) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	if q.claim == nil {
		return q.Store.Claim(ctx, req)
	}
	return q.claim(ctx, req)
}

func (q *queueWith) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	if q.extend == nil {
		return q.Store.Extend(ctx, lease, leases)
	}
	return q.extend(ctx, lease, leases)
}

// sleepy is the store as a process sees it that is stopped at the gate: it
// does not extend its leases, and wakes up when the gate opens.
func sleepy(store *sqlite.Store, g *gate) *queueWith {
	return &queueWith{
		Store: store,
		extend: func(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
			select {
			case <-g.open:
				return store.Extend(ctx, lease, leases)
			default:
				return nil, errors.New("asleep")
			}
		},
		claim: func(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
			select {
			case <-g.reached:
				<-g.open
			default:
			}
			return store.Claim(ctx, req)
		},
	}
}

// nothingUntilItsEnd closes inside, waits until the context of the publish ends, and fails each message.
func nothingUntilItsEnd(inside chan<- struct{}) func(ctx context.Context, batch []storekit.Outgoing, publish func() error) error {
	return func(ctx context.Context, batch []storekit.Outgoing, _ func() error) error {
		close(inside)
		<-ctx.Done()
		failed := &storekit.PublishError{Total: len(batch)}
		for i := range batch {
			failed.Failed = append(failed.Failed, storekit.FailedMessage{Index: i, Err: ctx.Err()})
		}
		return failed
	}
}
