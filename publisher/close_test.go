package publisher_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
)

func TestPublisher_Close(t *testing.T) {
	t.Parallel()

	t.Run("a publisher works after Close, and so do its views, until the store is closed", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		pub := newPublisher(t, store)
		view := pub.WithContext(t.Context())
		for _, closed := range []message.Publisher{view, pub} {
			require.NoError(t, closed.Close())
			require.NoError(t, closed.Close())
			require.NoError(t, closed.Publish(orders, msg("m1")))
		}
		requirePublished(t, store, orders, "m1", "m1")
		require.NoError(t, store.Close())
		for _, closed := range []message.Publisher{view, pub} {
			require.ErrorIs(t, closed.Publish(orders, msg("m1")), outmill.ErrClosed)
		}
	})
}
