package publisher_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
)

// keyed makes a message with a dedup key.
func keyed(name, dedupKey string) *message.Message {
	return msg(name, func(m *message.Message) { outmill.SetDedupKey(m, dedupKey) })
}

type duplicates struct{ seen []string }

func (d *duplicates) collect(c *publisher.Config) {
	c.OnDuplicate = func(topic string, m *message.Message) { d.seen = append(d.seen, topic+" "+m.UUID) }
}

func TestPublisher_Dedup(t *testing.T) {
	t.Parallel()

	t.Run("A message with a dedup key that was seen before", func(t *testing.T) {
		t.Parallel()

		t.Run("is left out and named to OnDuplicate, and the call succeeds", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			var dup duplicates
			pub := newPublisher(t, store, dup.collect)
			require.NoError(t, pub.Publish(orders, keyed("m1", "d1")))
			require.Empty(t, dup.seen)
			require.NoError(t, pub.Publish(orders, keyed("m2", "d1"), msg("m3"), keyed("m4", "d4"), keyed("m5", "d4")))
			require.Equal(t, []string{"orders m2", "orders m5"}, dup.seen)
			requirePublished(t, store, orders, "m1", "m3", "m4")
		})

		t.Run("is published in another topic", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			var dup duplicates
			pub := newPublisher(t, store, dup.collect)
			require.NoError(t, pub.Publish(orders, keyed("m1", "d1")))
			require.NoError(t, pub.Publish("invoices", keyed("m2", "d1")))
			requirePublished(t, store, "invoices", "m2")
			require.Empty(t, dup.seen)
		})

		t.Run("leaves the caller's transaction usable", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			var dup duplicates
			pub := newPublisher(t, store, dup.collect)
			require.NoError(t, pub.Publish(orders, keyed("m1", "d1")))
			execute(t, store.DB(), "CREATE TABLE shop (id TEXT)")
			tx := begin(t, store)
			view := pub.WithContext(store.WithTx(t.Context(), tx))
			require.NoError(t, view.Publish(orders, keyed("m2", "d1")))
			execute(t, tx, "INSERT INTO shop VALUES ('o1')")
			require.NoError(t, view.Publish(orders, keyed("m3", "d3")))
			require.NoError(t, tx.Commit())
			require.Equal(t, []string{"orders m2"}, dup.seen)
			requirePublished(t, store, orders, "m1", "m3")
			require.Equal(t, 1, count(t, store, "SELECT count(*) FROM shop"))
		})

		t.Run("is published when the transaction that had the key rolled back", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			var dup duplicates
			pub := newPublisher(t, store, dup.collect)
			tx := begin(t, store)
			require.NoError(t, pub.WithContext(store.WithTx(context.Background(), tx)).Publish(orders, keyed("m1", "d1")))
			require.NoError(t, tx.Rollback())
			require.NoError(t, pub.Publish(orders, keyed("m2", "d1")))
			require.Empty(t, dup.seen)
			requirePublished(t, store, orders, "m2")
		})

		t.Run("is skipped silently without OnDuplicate", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			require.NoError(t, pub.Publish(orders, keyed("m1", "d1"), keyed("m2", "d1")))
			requirePublished(t, store, orders, "m1")
		})
	})
}
