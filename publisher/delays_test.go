package publisher_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
)

// aboutNow is the tolerance for delays until a time of day. Watermill counts them from the
// client's clock, in whole seconds.
const aboutNow = time.Minute

func delaysInMetadata(c *publisher.Config) { c.DelaysInMetadata = true }

func TestPublisher_Delays(t *testing.T) {
	t.Parallel()

	t.Run("Watermills delays", func(t *testing.T) {
		t.Parallel()

		t.Run("in the message's metadata postpone it by the database's clock, where that is set", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			m := msg("m1")
			delay.Message(m, delay.For(90*time.Minute))
			require.NoError(t, newPublisher(t, store, delaysInMetadata).Publish(orders, m))
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
			view := newPublisher(t, store, delaysInMetadata).WithContext(delay.WithContext(t.Context(), delay.For(time.Hour)))
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
			pub := newPublisher(t, store, delaysInMetadata)
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

		t.Run("of delay.NewPublisher around this one postpone it, by its default too where that is set", func(t *testing.T) {
			t.Parallel()
			for _, trusted := range []bool{false, true} {
				store := outmilltest.NewStore(t)
				wrapped, err := delay.NewPublisher(newPublisher(t, store, func(c *publisher.Config) { c.DelaysInMetadata = trusted }),
					delay.PublisherConfig{
						DefaultDelayGenerator: func(p delay.DefaultDelayGeneratorParams) (delay.Delay, error) {
							require.Equal(t, orders, p.Topic)
							return delay.For(3 * time.Hour), nil
						},
					})
				require.NoError(t, err)
				byContext := delay.WithContext(t.Context(), delay.For(time.Hour))
				require.NoError(t, wrapped.Publish(orders, msg("m1"), msg("m2", in(byContext))))
				ofDefault := outmilltest.DueIn(3*time.Hour, 0)
				if !trusted {
					ofDefault = outmilltest.DueAtOnce()
				}
				outmilltest.RequireManyPublished(t, store, orders, ofDefault, outmilltest.DueIn(time.Hour, 0))
			}
		})

		t.Run("that came in with a message are data, also around a delay of the program, and the first one is a warning", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			logger := journal.New()
			pub, err := publisher.New(store, publisher.Config{AllowNoTx: true}, logger)
			require.NoError(t, err)
			wrapped, err := delay.NewPublisher(pub, delay.PublisherConfig{AllowNoDelay: true})
			require.NoError(t, err)
			late := map[string]string{delay.DelayedForKey: "87600h0m0s", delay.DelayedUntilKey: "2099-01-01T00:00:00Z"}
			came := func(name string, options ...func(*message.Message)) *message.Message {
				m := msg(name, options...)
				m.Metadata = maps.Clone(late)
				return m
			}
			own := in(delay.WithContext(t.Context(), delay.For(time.Hour)))
			require.NoError(t, pub.Publish(orders, came("m1"), came("m2", own)))
			require.NoError(t, wrapped.Publish(orders, came("m3"), came("m4", own)))
			found := outmilltest.RequireManyPublished(t, store, orders, outmilltest.DueAtOnce(), outmilltest.DueIn(time.Hour, 0),
				outmilltest.DueAtOnce(), outmilltest.DueIn(time.Hour, 0))
			for _, r := range found {
				require.Equal(t, late, r.Metadata)
			}
			warned := logger.Lines(watermill.ErrorLogLevel)
			require.Len(t, warned, 1)
			require.Contains(t, warned[0].Msg, "publisher.Config.DelaysInMetadata")
			require.Equal(t, "m1", warned[0].Fields["message_uuid"])
			require.NoError(t, pub.Close())
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
