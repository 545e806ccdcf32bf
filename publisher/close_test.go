package publisher_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
)

func TestPublisher_Close(t *testing.T) {
	t.Parallel()

	t.Run("A closed publisher", func(t *testing.T) {
		t.Parallel()

		t.Run("refuses to publish, through its views too", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			shared, view := pub.Shared(), pub.WithContext(t.Context())
			require.NoError(t, pub.Close())
			for _, closed := range []message.Publisher{pub, shared, view, pub.Shared()} {
				require.ErrorIs(t, closed.Publish(orders, msg("m1")), outmill.ErrClosed)
				require.ErrorIs(t, closed.Publish(orders), outmill.ErrClosed)
			}
			outmilltest.RequireNotPublished(t, store, orders)
		})

		t.Run("can be closed again", func(t *testing.T) {
			t.Parallel()
			pub := newPublisher(t, outmilltest.NewStore(t))
			require.NoError(t, pub.Close())
			require.NoError(t, pub.Close())
		})

		t.Run("leaves the store open", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			require.NoError(t, newPublisher(t, store).Close())
			require.NoError(t, newPublisher(t, store).Publish(orders, msg("m1")))
			requirePublished(t, store, orders, "m1")
		})
	})

	t.Run("Closing a view does nothing", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		pub := newPublisher(t, store)
		for _, view := range []message.Publisher{pub.Shared(), pub.WithContext(t.Context())} {
			require.NoError(t, view.Close())
			require.NoError(t, view.Publish(orders, msg("m1")))
		}
		require.NoError(t, pub.Publish(orders, msg("m1")))
		requirePublished(t, store, orders, "m1", "m1", "m1")
	})

	t.Run("Close waits for the calls under way and refuses others at once", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		slow := &gated{Writer: store, entered: make(chan struct{}), open: make(chan struct{})}
		pub := newPublisher(t, slow)

		published, closed := make(chan error, 1), make(chan bool, 1)
		go func() { published <- pub.Publish(orders, msg("m1")) }()
		receive(t, slow.entered)
		go func() {
			_ = pub.Close()
			closed <- slow.done.Load()
		}()
		require.Eventually(t, func() bool { return pub.Publish(orders) != nil }, patience, tick)
		require.ErrorIs(t, pub.Publish(orders, msg("m2")), outmill.ErrClosed)
		require.Empty(t, closed, "Close returned before the call under way did")
		close(slow.open)
		require.NoError(t, receive(t, published))
		require.True(t, receive(t, closed), "Close returned before the call under way did")
		requirePublished(t, store, orders, "m1")
	})

	t.Run("OnDuplicate may use the publisher even while it is closing", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		var pub *publisher.Publisher
		pub = newPublisher(t, store, func(c *publisher.Config) {
			c.OnDuplicate = func(_ string, m *message.Message) {
				require.NoError(t, pub.Publish("duplicates", msg("again "+m.UUID)))
				require.NoError(t, pub.Close())
			}
		})
		require.NoError(t, pub.Publish(orders, keyed("m1", "d")))
		require.NoError(t, pub.Publish(orders, keyed("m2", "d")))
		requirePublished(t, store, "duplicates", "again m2")
		require.ErrorIs(t, pub.Publish(orders, msg("m3")), outmill.ErrClosed)
	})
}

// gated blocks an Append until the test lets it reach the store.
type gated struct {
	outmill.Writer
	entered, open chan struct{}
	done          atomic.Bool
}

func (g *gated) Append(ctx context.Context, records ...*outmill.Record) error {
	g.entered <- struct{}{}
	<-g.open
	defer g.done.Store(true)
	return g.Writer.Append(ctx, records...)
}
