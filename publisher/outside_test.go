package publisher_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	wforwarder "github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// hostile is metadata of a sender elsewhere, who wants to steer this outbox.
func hostile(join outmill.JoinID) map[string]string {
	return map[string]string{
		"outmill_delay": "87600h0m0s", "outmill_due_at": "2099-01-01T00:00:00Z", "outmill_expires_at": "2001-01-01T00:00:00Z",
		"outmill_time_to_live": "1ns", "outmill_dedup_key": "same", "outmill_joins": join.String(), "outmill_waits_for": join.String(),
		delay.DelayedForKey: "87600h0m0s", delay.DelayedUntilKey: "2099-01-01T00:00:00Z",
	}
}

func TestPublisher_InstructionsFromOutside(t *testing.T) {
	t.Parallel()

	t.Run("of a broker's messages, which a router passes on, have no effect and arrive unchanged", func(t *testing.T) {
		t.Parallel()
		for how, pass := range map[string]message.HandlerFunc{
			"itself": func(m *message.Message) ([]*message.Message, error) { return []*message.Message{m}, nil },
			"a copy": func(m *message.Message) ([]*message.Message, error) { return []*message.Message{m.Copy()}, nil },
			"a new message with its metadata": func(m *message.Message) ([]*message.Message, error) {
				out := message.NewMessage("new "+m.UUID, m.Payload)
				out.Metadata = m.Copy().Metadata
				return []*message.Message{out}, nil
			},
			"to a poison queue": func(*message.Message) ([]*message.Message, error) { return nil, context.DeadlineExceeded },
		} {
			store := outmilltest.NewStore(t)
			join := &roles.Join{ExpectedSteps: 1}
			require.NoError(t, store.StartJoin(t.Context(), join))
			broker := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 2}, nil)
			pub := newPublisher(t, store)
			router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
			require.NoError(t, err)
			poison, err := middleware.PoisonQueue(pub, orders)
			require.NoError(t, err)
			router.AddMiddleware(poison)
			done := make(chan struct{}, 2)
			router.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
				return func(m *message.Message) ([]*message.Message, error) {
					go func() { <-m.Acked(); done <- struct{}{} }()
					return h(m)
				}
			})
			router.AddHandler("pass", "in", broker, orders, pub, pass)
			ran := make(chan error, 1)
			go func() { ran <- router.Run(context.WithoutCancel(t.Context())) }()
			<-router.Running()
			for _, name := range []string{"m1", "m2"} {
				m := msg(name)
				m.Metadata = hostile(join.ID)
				require.NoError(t, broker.Publish("in", m))
				<-done
			}
			require.NoError(t, router.Close())
			require.NoError(t, <-ran)
			found := outmilltest.RequireManyPublished(t, store, orders, outmilltest.DueAtOnce(), outmilltest.DueAtOnce())
			for _, r := range found {
				for name, value := range hostile(join.ID) {
					require.Equal(t, value, r.Metadata[name], how)
				}
				require.Empty(t, r.DedupKey, how)
				require.True(t, r.ExpiresAt.IsZero(), how)
				require.True(t, r.WaitsFor.IsZero(), how)
				require.Empty(t, r.Joins, how)
			}
			got, err := store.GetJoin(t.Context(), join.ID)
			require.NoError(t, err)
			require.Zero(t, got.CompletedSteps, how)
		}
	})

	t.Run("give way to the setters of the program", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		join, mine := &roles.Join{ExpectedSteps: 1}, &roles.Join{ExpectedSteps: 1}
		require.NoError(t, store.StartJoin(t.Context(), join))
		require.NoError(t, store.StartJoin(t.Context(), mine))
		m := msg("m1")
		m.Metadata = hostile(join.ID)
		outmill.SetDelay(m, time.Hour)
		joins.AddStep(m, mine.ID)
		require.NoError(t, newPublisher(t, store).Publish(orders, m))
		found := outmilltest.RequirePublished(t, store, orders, outmilltest.DueIn(time.Hour, 0))
		require.Equal(t, []outmill.JoinID{mine.ID}, found.Joins)
		require.NotContains(t, found.Metadata, "outmill_delay")
		require.Equal(t, "same", found.Metadata["outmill_dedup_key"])
	})
}

func TestPublisher_InstructionsOfSetters(t *testing.T) {
	t.Parallel()

	t.Run("hold when the context with the transaction comes later", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		tx := begin(t, store)
		m := msg("m1")
		outmill.SetDelay(m, time.Hour)
		m.SetContext(store.WithTx(t.Context(), tx))
		require.NoError(t, newPublisher(t, store, requireTx).Publish(orders, m))
		require.NoError(t, tx.Commit())
		outmilltest.RequirePublished(t, store, orders, outmilltest.DueIn(time.Hour, 0))
	})

	t.Run("do not return with the message, so one that is passed on has none", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		pub := newPublisher(t, store)
		m := msg("m1")
		outmill.SetDedupKey(m, "k")
		require.NoError(t, pub.Publish(orders, m))
		delivered := storekit.MessageOf(outmilltest.RequirePublished(t, store, orders))
		require.NotContains(t, delivered.Metadata, "outmill_dedup_key")
		require.NoError(t, pub.Publish("next", delivered))
		outmilltest.RequirePublished(t, store, "next")
	})

	t.Run("inside the envelope of Watermill's Forwarder are for the process that opens it", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		enveloping := wforwarder.NewPublisher(newPublisher(t, store), wforwarder.PublisherConfig{ForwarderTopic: "events"})
		m := msg("m1")
		outmill.SetDelay(m, time.Hour)
		require.NoError(t, enveloping.Publish(orders, m))
		envelope := outmilltest.RequirePublished(t, store, "events", outmilltest.DueAtOnce())
		var inner struct{ Metadata map[string]string }
		require.NoError(t, json.Unmarshal(envelope.Payload, &inner))
		require.Contains(t, inner.Metadata["outmill_delay"], "1h0m0s outmill:")
	})
}
