package publisher_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
)

// aboutNow is the tolerance for delays until a time of day. Watermill counts them from the
// client's clock, in whole seconds.
const aboutNow = time.Minute

func TestPublisher_Delays(t *testing.T) {
	t.Parallel()

	t.Run("Watermills delays", func(t *testing.T) {
		t.Parallel()

		t.Run("in the message's metadata postpone it by the database's clock", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			m := msg("m1")
			delay.Message(m, delay.For(90*time.Minute))
			require.NoError(t, newPublisher(t, store).Publish(orders, m))
			outmilltest.RequirePublished(t, store, orders, outmilltest.DueIn(90*time.Minute, 0))
		})

		t.Run("in the message's context postpone it", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			ctx := delay.WithContext(t.Context(), delay.For(time.Hour))
			require.NoError(t, newPublisher(t, store).Publish(orders, msg("m1", in(ctx)), msg("m2"), msg("m3", in(cancelled(ctx)))))
			outmilltest.RequireManyPublished(t, store, orders,
				outmilltest.DueIn(time.Hour, 0), outmilltest.DueAtOnce(), outmilltest.DueIn(time.Hour, 0))
		})

		t.Run("in a context that carries a transaction too postpone it", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			tx := begin(t, store)
			ctx := delay.WithContext(store.WithTx(t.Context(), tx), delay.For(time.Hour))
			require.NoError(t, newPublisher(t, store, requireTx).Publish(orders, msg("m1", in(ctx))))
			require.NoError(t, tx.Commit())
			outmilltest.RequirePublished(t, store, orders, outmilltest.DueIn(time.Hour, 0))
		})

		t.Run("in the view's context postpone all messages without a delay of their own", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			view := newPublisher(t, store).WithContext(delay.WithContext(t.Context(), delay.For(time.Hour)))
			marked := msg("marked")
			delay.Message(marked, delay.For(3*time.Hour))
			require.NoError(t, view.Publish(orders,
				msg("bare"),
				msg("other values", in(context.WithValue(t.Context(), ctxKey{}, "value"))),
				msg("own", in(delay.WithContext(t.Context(), delay.For(2*time.Hour)))),
				marked))
			outmilltest.RequireManyPublished(t, store, orders,
				outmilltest.DueIn(time.Hour, 0),
				outmilltest.DueIn(time.Hour, 0),
				outmilltest.DueIn(2*time.Hour, 0),
				outmilltest.DueIn(3*time.Hour, 0))
		})

		t.Run("until a time count as well", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			until := time.Now().Add(time.Hour)
			ctx := delay.WithContext(t.Context(), delay.Until(until))
			require.NoError(t, pub.Publish(orders, msg("m1", in(ctx))))
			require.NoError(t, pub.Publish(orders, msg("m2", in(delay.WithContext(t.Context(), delay.Until(time.Unix(0, 0)))))))
			only := msg("m3")
			only.Metadata.Set(delay.DelayedUntilKey, until.UTC().Format(time.RFC3339))
			require.NoError(t, pub.Publish(orders, only))
			outmilltest.RequireManyPublished(t, store, orders,
				outmilltest.DueAt(until, aboutNow), outmilltest.DueAtOnce(), outmilltest.DueAt(until, time.Second))
		})

		t.Run("that are zero postpone nothing", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			ctx := delay.WithContext(t.Context(), delay.Delay{})
			require.NoError(t, newPublisher(t, store).Publish(orders, msg("m1", in(ctx))))
			outmilltest.RequirePublished(t, store, orders, outmilltest.DueAtOnce())
		})

		t.Run("give way to Outmill's own", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			m := msg("m1", in(delay.WithContext(t.Context(), delay.For(time.Hour))))
			outmill.SetDelay(m, 2*time.Hour)
			require.NoError(t, newPublisher(t, store).Publish(orders, m))
			outmilltest.RequirePublished(t, store, orders, outmilltest.DueIn(2*time.Hour, 0))
		})

		t.Run("of delay.NewPublisher around this one postpone it, by its default too", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			wrapped, err := delay.NewPublisher(newPublisher(t, store), delay.PublisherConfig{
				DefaultDelayGenerator: func(p delay.DefaultDelayGeneratorParams) (delay.Delay, error) {
					require.Equal(t, orders, p.Topic)
					return delay.For(3 * time.Hour), nil
				},
			})
			require.NoError(t, err)
			require.NoError(t, wrapped.Publish(orders, msg("m1"), msg("m2", in(delay.WithContext(t.Context(), delay.For(time.Hour))))))
			outmilltest.RequireManyPublished(t, store, orders, outmilltest.DueIn(3*time.Hour, 0), outmilltest.DueIn(time.Hour, 0))
		})

		t.Run("in a context leave the user's message as it is, and none behind on delivery", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			m := msg("m1", in(delay.WithContext(t.Context(), delay.For(time.Hour))))
			m.Metadata.Set("region", "north")
			before := maps.Clone(m.Metadata)
			require.NoError(t, newPublisher(t, store).Publish(orders, m))
			require.Equal(t, before, m.Metadata)
			found := outmilltest.RequirePublished(t, store, orders, outmilltest.DueIn(time.Hour, 0))
			require.Equal(t, map[string]string{"region": "north"}, found.Metadata)
		})

		t.Run("work for a message that was made without a constructor", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			m := &message.Message{UUID: "m1"}
			m.SetContext(delay.WithContext(t.Context(), delay.For(time.Hour)))
			require.NoError(t, newPublisher(t, store).Publish(orders, m))
			require.Nil(t, m.Metadata)
			outmilltest.RequirePublished(t, store, orders, outmilltest.DueIn(time.Hour, 0))
		})
	})
}
