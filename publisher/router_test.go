package publisher_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

func newRouter(t *testing.T) *message.Router {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, watermill.NopLogger{})
	require.NoError(t, err)
	return router
}

// start runs the router until the test ends.
func start(t *testing.T, router *message.Router) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		require.NoError(t, router.Close())
		require.NoError(t, receive(t, ended))
	})
	receive(t, router.Running())
}

func newSubscriber(t *testing.T, store outmill.Queue, group string) *subscriber.Subscriber {
	t.Helper()
	sub, err := subscriber.New(store, subscriber.Config{Group: group, PollInterval: 10 * time.Millisecond}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	return sub
}

// handing returns a handler that passes its messages to the test.
func handing(to chan<- *message.Message) message.NoPublishHandlerFunc {
	return func(m *message.Message) error {
		to <- m
		return nil
	}
}

func TestPublisher_Router(t *testing.T) {
	t.Parallel()

	t.Run("As the routers publisher", func(t *testing.T) {
		t.Parallel()

		t.Run("it appends what handlers return", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			router := newRouter(t)
			router.AddMiddleware(middleware.CorrelationID)
			router.AddHandler("bill", orders, newSubscriber(t, store, ""), "invoices", pub,
				func(m *message.Message) ([]*message.Message, error) {
					return []*message.Message{msg("invoice of " + m.UUID), msg("copy for " + m.UUID)}, nil
				})
			got := make(chan *message.Message, 2)
			router.AddConsumerHandler("post", "invoices", newSubscriber(t, store, ""), handing(got))
			start(t, router)
			m := msg("o1")
			outmill.SetCorrelationID(m, "c1")
			require.NoError(t, pub.Publish(orders, m))
			names := []string{receive(t, got).UUID, receive(t, got).UUID}
			require.ElementsMatch(t, []string{"invoice of o1", "copy for o1"}, names)
			outmilltest.RequireManyPublished(t, store, "invoices",
				outmilltest.All(outmilltest.MessageID("invoice of o1"), outmilltest.Metadata(middleware.CorrelationIDMetadataKey, "c1")),
				outmilltest.All(outmilltest.MessageID("copy for o1"), outmilltest.Metadata(middleware.CorrelationIDMetadataKey, "c1")))
		})

		t.Run("it takes a message that a handler passes on, without the instructions of its publish", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			router := newRouter(t)
			router.AddHandler("pass", orders, newSubscriber(t, store, ""), "archive", pub,
				func(m *message.Message) ([]*message.Message, error) {
					return []*message.Message{m}, nil
				})
			got := make(chan *message.Message, 1)
			router.AddConsumerHandler("keep", "archive", newSubscriber(t, store, ""), handing(got))
			start(t, router)
			m := keyed("o1", "d1")
			m.Metadata.Set("region", "north")
			outmill.SetKey(m, "k1")
			outmill.SetTimeToLive(m, time.Hour)
			require.NoError(t, pub.Publish(orders, m))
			require.Equal(t, "payload of o1", string(receive(t, got).Payload))
			found := outmilltest.RequirePublished(t, store, "archive", outmilltest.Metadata("region", "north"), outmilltest.Key("k1"))
			require.Zero(t, found.ExpiresAt)
			require.Empty(t, found.DedupKey)
		})

		t.Run("it publishes for a handler that still runs when the router has closed it for another one", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := &closing{Publisher: newPublisher(t, store), closed: make(chan bool, 2)}
			began, finish := make(chan bool), make(chan bool)
			router := newRouter(t)
			router.AddHandler("idle", "a", newSubscriber(t, store, ""), "b", pub,
				func(*message.Message) ([]*message.Message, error) { return nil, nil })
			router.AddHandler("slow", orders, newSubscriber(t, store, ""), "invoices", pub,
				func(m *message.Message) ([]*message.Message, error) {
					began <- true
					<-finish
					if err := pub.Publish("mails", msg("mail of "+m.UUID)); err != nil {
						return nil, err
					}
					return []*message.Message{msg("invoice of " + m.UUID)}, nil
				})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- router.Run(ctx) }()
			<-router.Running()
			require.NoError(t, pub.Publish(orders, msg("o1")))
			receive(t, began)
			cancel()
			receive(t, pub.closed)
			close(finish)
			require.NoError(t, receive(t, ended))
			requirePublished(t, store, "invoices", "invoice of o1")
			requirePublished(t, store, "mails", "mail of o1")
			left, err := store.List(t.Context(), outmill.ListQuery{Topic: orders, Status: outmill.StatusPending})
			require.NoError(t, err)
			require.Empty(t, left, "the handler's message comes again")
		})
	})

	t.Run("As the poison queues publisher", func(t *testing.T) {
		t.Parallel()

		// salvaged runs a handler behind a poison queue and other middlewares, and
		// returns the message that the poison queue published.
		salvaged := func(t *testing.T, store *sqlite.Store, handler message.NoPublishHandlerFunc, m *message.Message,
			inside ...message.HandlerMiddleware) *message.Message {
			t.Helper()
			pub := newPublisher(t, store)
			poison, err := middleware.PoisonQueue(pub, "poison")
			require.NoError(t, err)
			router := newRouter(t)
			handle := router.AddConsumerHandler("handle", orders, newSubscriber(t, store, ""), handler)
			handle.AddMiddleware(append([]message.HandlerMiddleware{poison}, inside...)...)
			got := make(chan *message.Message, 1)
			router.AddConsumerHandler("salvage", "poison", newSubscriber(t, store, ""), handing(got))
			start(t, router)
			require.NoError(t, pub.Publish(orders, m))
			return receive(t, got)
		}

		t.Run("it takes a message whose handler failed", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			failing := func(*message.Message) error { return errors.New("out of stock") }
			got := salvaged(t, store, failing, keyed("o1", "d1"))
			require.Equal(t, "o1", got.UUID)
			require.Equal(t, "out of stock", got.Metadata.Get(middleware.ReasonForPoisonedKey))
			outmilltest.RequirePublished(t, store, "poison", outmilltest.MessageID("o1"))
		})

		t.Run("it takes a message whose handler ran into a timeout", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			stuck := func(m *message.Message) error {
				<-m.Context().Done()
				return m.Context().Err()
			}
			got := salvaged(t, store, stuck, msg("o1"), middleware.Timeout(5*time.Millisecond))
			require.Equal(t, "o1", got.UUID)
			require.Equal(t, context.DeadlineExceeded.Error(), got.Metadata.Get(middleware.ReasonForPoisonedKey))
		})
	})
}

// closing tells when the router has closed it.
type closing struct {
	*publisher.Publisher
	closed chan bool
}

func (c *closing) Close() error {
	err := c.Publisher.Close()
	c.closed <- true
	return err
}
