package forwarder_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/journal"
)

func TestForwarder_Once(t *testing.T) {
	t.Parallel()

	t.Run("Once forwards all that is due and returns", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			add(t, store, recs("orders", "a", 350)...)
			fwd := newForwarder(t, store, dest, quick())
			n, err := fwd.Once(t.Context())
			require.NoError(t, err)
			require.Equal(t, 350, n)
			require.Equal(t, namesOf("orders", "a", 350), d.withKey("a"))
			require.Empty(t, list(t, store, ""))
			n, err = fwd.Once(t.Context())
			require.NoError(t, err)
			require.Zero(t, n)
			add(t, store, rec("orders", "b", "more"))
			n, err = fwd.Once(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.NoError(t, fwd.Close())
		})
	})

	t.Run("Once during Run waits until Run has forwarded the records", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			fwd := start(t, store, dest, quick())
			for i := range 10 {
				id := fmt.Sprint(i)
				add(t, store, rec("orders", "a", id))
				_, err := fwd.Once(t.Context())
				require.NoError(t, err)
				require.Contains(t, d.ids(), id)
				require.Empty(t, list(t, store, ""))
			}
		})
	})

	t.Run("Once reports an unavailable broker and releases all records", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			add(t, store, recs("orders", "a", 250)...)
			d.goAway()
			cfg := quick()
			cfg.Retry = mortal()
			fwd := newForwarder(t, store, dest, cfg)
			n, err := fwd.Once(t.Context())
			require.ErrorIs(t, err, errAway)
			require.Zero(t, n)
			require.Len(t, list(t, store, outmill.StatusPending), 250)
			requireUntouched(t, store)
			d.comeBack()
			n, err = fwd.Once(t.Context())
			require.NoError(t, err)
			require.Equal(t, 250, n)
			require.Equal(t, namesOf("orders", "a", 250), d.withKey("a"))
		})
	})

	t.Run("Once during Run reports an outage that Run knows of", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, rec("orders", "a", "m"))
		d := newDestination(t)
		d.goAway()
		l := journal.New()
		cfg := quick()
		cfg.MaxErrorBackoff = time.Hour
		fwd := startLogged(t, store, d, cfg, l)
		l.Wait(t, "The broker accepted no message")
		_, err := fwd.Once(t.Context())
		require.ErrorIs(t, err, errAway)
		require.Len(t, d.triedIDs(), 1, "it need not wait for the next probe")
	})

	t.Run("Once forwards the other topics before it reports one that is refused", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			add(t, store, recs("forbidden", "a", 50)...)
			add(t, store, recs("orders", "a", 250)...)
			d.judge(func(topic string, _ *message.Message) error {
				if topic == "forbidden" {
					return outmill.ErrTopicUnavailable
				}
				return nil
			})
			cfg := quick()
			cfg.MaxErrorBackoff = time.Minute
			cfg.BatchSize = 20
			fwd := newForwarder(t, store, dest, cfg)
			n, err := fwd.Once(t.Context())
			require.ErrorIs(t, err, outmill.ErrTopicUnavailable)
			require.ErrorContains(t, err, "forbidden")
			require.Equal(t, 250, n)
			require.Len(t, list(t, store, outmill.StatusPending), 50)
			requireUntouched(t, store)
		})
	})

	t.Run("Once during Run reports a topic that is held", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, rec("forbidden", "a", "m"))
		d := newDestination(t)
		d.judge(func(string, *message.Message) error { return outmill.ErrTopicUnavailable })
		l := journal.New()
		cfg := quick()
		cfg.MaxErrorBackoff = time.Hour
		fwd := startLogged(t, store, d, cfg, l)
		l.Wait(t, "the forwarder holds it")
		_, err := fwd.Once(t.Context())
		require.ErrorIs(t, err, outmill.ErrTopicUnavailable)
		require.ErrorContains(t, err, "forbidden")
	})

	t.Run("Once reports an unavailable database", func(t *testing.T) {
		t.Parallel()
		away := errors.New("connection reset")
		store := &queueWith{Store: newStore(t), claim: func(context.Context, outmill.ClaimRequest) ([]*outmill.Record, error) {
			return nil, away
		}}
		_, err := newForwarder(t, store, newDestination(t), quick()).Once(t.Context())
		require.ErrorIs(t, err, away)
	})

	t.Run("Once ends with its context", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, recs("orders", "a", 5)...)
		ended, end := context.WithCancel(t.Context())
		end()
		_, err := newForwarder(t, store, newDestination(t), quick()).Once(ended)
		require.ErrorIs(t, err, context.Canceled)

		d := newDestination(t)
		ctx, cancel := context.WithCancel(t.Context())
		d.judge(func(string, *message.Message) error { cancel(); return nil })
		cfg := quick()
		cfg.BatchSize = 1
		n, err := newForwarder(t, store, d, cfg).Once(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 1, n)
		require.Len(t, list(t, store, outmill.StatusPending), 4)
	})

	t.Run("Close ends Once and waits for it", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, dest message.Publisher, d *destination) {
			store := newStore(t)
			add(t, store, recs("orders", "a", 50)...)
			g := newGate()
			d.judge(func(string, *message.Message) error { g.pass(); return nil })
			cfg := quick()
			cfg.BatchSize = 10
			fwd := newForwarder(t, store, dest, cfg)
			result := make(chan error, 1)
			go func() {
				_, err := fwd.Once(context.Background())
				result <- err
			}()
			<-g.reached
			closed := make(chan struct{})
			go func() { defer close(closed); fwd.Close() }()
			select {
			case <-closed:
				require.Fail(t, "Close did not wait for Once")
			case <-time.After(20 * time.Millisecond):
			}
			close(g.open)
			<-closed
			require.ErrorIs(t, <-result, outmill.ErrClosed)
			require.Len(t, list(t, store, outmill.StatusPending), 40)
			require.Empty(t, list(t, store, outmill.StatusLeased))
		})
	})

	t.Run("Once after the end of Run returns that the forwarder is closed", func(t *testing.T) {
		t.Parallel()
		fwd := newForwarder(t, newStore(t), newDestination(t), quick())
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-fwd.Running(); cancel() }()
		require.NoError(t, fwd.Run(ctx))
		_, err := fwd.Once(t.Context())
		require.ErrorIs(t, err, outmill.ErrClosed)
	})

	t.Run("Once takes the records of a dead process when their leases end", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "a", 5)...)
		held, err := store.Claim(t.Context(), outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Group: forwarder.DefaultGroup, Limit: 5, Lease: time.Millisecond, Order: outmill.OrderKey,
		})
		require.NoError(t, err)
		require.Len(t, held, 5)
		d := newDestination(t)
		fwd := newForwarder(t, store, d, quick())
		require.Eventually(t, func() bool {
			_, err := fwd.Once(t.Context())
			require.NoError(t, err)
			return len(d.all()) == 5
		}, patience, tick)
		require.Equal(t, namesOf("orders", "a", 5), d.withKey("a"))
	})

	t.Run("many calls of Once at a time publish each message once", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, recs("orders", "a", 200)...)
		d := newBatchDestination(t)
		cfg := quick()
		cfg.BatchSize = 10
		fwd := newForwarder(t, store, d, cfg)
		results := make(chan error, 4)
		for range cap(results) {
			go func() {
				_, err := fwd.Once(context.Background())
				results <- err
			}()
		}
		for range cap(results) {
			require.NoError(t, <-results)
		}
		d.requireArrived(t, namesOf("orders", "a", 200)...)
		require.Equal(t, namesOf("orders", "a", 200), d.withKey("a"))
	})
}
