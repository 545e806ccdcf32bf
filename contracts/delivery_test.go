package contracts_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/contracts"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

// patience bounds each wait for something that is going to happen.
const patience = time.Minute

// service is a program that publishes and handles through one outbox.
type service struct {
	*testing.T
	store     *sqlite.Store
	registry  *contracts.Registry
	marshaler *contracts.Marshaler
	router    *message.Router
	pub       *publisher.Publisher
	bus       *cqrs.EventBus
	// handled has the values that handlers got, dead the records that went dead.
	handled chan any
	dead    chan *outmill.Record
}

func newService(t *testing.T, registry *contracts.Registry) *service {
	t.Helper()
	s := &service{T: t, store: outmilltest.NewStore(t), registry: registry, marshaler: registry.Marshaler(contracts.MarshalerConfig{})}
	s.handled, s.dead = make(chan any, 100), make(chan *outmill.Record, 100)
	var err error
	s.pub, err = publisher.New(s.store, publisher.Config{}, nil)
	require.NoError(t, err)
	s.bus, err = cqrs.NewEventBusWithConfig(s.pub, cqrs.EventBusConfig{
		GeneratePublishTopic: func(p cqrs.GenerateEventPublishTopicParams) (string, error) { return p.EventName, nil },
		Marshaler:            s.marshaler,
	})
	require.NoError(t, err)
	s.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
	require.NoError(t, err)
	s.router.AddMiddleware(subscriber.KeepError)
	return s
}

func (s *service) subscriber(group string) (message.Subscriber, error) {
	return subscriber.New(s.store, subscriber.Config{
		Group:        group,
		Retry:        outmill.RetryPolicy{MaxAttempts: 3, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond},
		PollInterval: 50 * time.Millisecond,
		OnDead:       func(rec *outmill.Record, _ string) { s.dead <- rec },
	}, nil)
}

// handle adds the handlers, each in a group of its own, by the topic of its contract.
func (s *service) handle(handlers ...cqrs.EventHandler) error {
	processor, err := cqrs.NewEventProcessorWithConfig(s.router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(p cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) {
			contract, err := s.registry.ContractOf(p.EventHandler.NewEvent())
			return contract.Name(), err
		},
		SubscriberConstructor: func(p cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.subscriber(p.HandlerName)
		},
		Marshaler: s.marshaler,
	})
	require.NoError(s, err)
	return processor.AddHandlers(handlers...)
}

func (s *service) run() {
	s.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.router.Run(context.WithoutCancel(s.Context())) }()
	s.Cleanup(func() {
		require.NoError(s, s.router.Close())
		require.NoError(s, <-ended)
	})
	<-s.router.Running()
}

// deadRecord waits for the one record that goes dead, and returns what the store has of it.
func (s *service) deadRecord() *outmill.Record {
	s.Helper()
	next(s.T, s.dead)
	kept, err := s.store.List(s.Context(), outmill.ListQuery{Status: outmill.StatusDead})
	require.NoError(s, err)
	require.Len(s, kept, 1)
	return kept[0]
}

func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func to[T any](s *service, name string) cqrs.EventHandler {
	return cqrs.NewEventHandler(name, func(_ context.Context, event *T) error {
		s.handled <- *event
		return nil
	})
}

func TestDelivery(t *testing.T) {
	t.Parallel()
	t.Run("brings what commits to the handlers of each type, and nothing else", func(t *testing.T) {
		t.Parallel()
		s := newService(t, shop(t))
		require.NoError(t, s.handle(to[OrderPlaced](s, "bill"), to[OrderPlaced](s, "mail")))
		require.NoError(t, s.handle(to[Page[Coupon]](s, "coupons"), to[Page[OrderPlaced]](s, "orders")))
		s.run()
		errNoStock := errors.New("no stock")
		require.ErrorIs(t, s.store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			return errors.Join(s.bus.Publish(ctx, OrderPlaced{ID: "rolled back"}), errNoStock)
		}), errNoStock)
		order, page := OrderPlaced{ID: "7", Cents: 1}, Page[Coupon]{Items: []Coupon{{Code{"a"}}}}
		require.NoError(t, s.store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			return errors.Join(s.bus.Publish(ctx, order), s.bus.Publish(ctx, &page), s.bus.Publish(ctx, Page[OrderPlaced]{}))
		}))
		got := []any{next(t, s.handled), next(t, s.handled), next(t, s.handled), next(t, s.handled)}
		require.ElementsMatch(t, []any{order, order, page, Page[OrderPlaced]{}}, got)
		rec := outmilltest.RequirePublished(t, s.store, orderPlaced)
		require.Equal(t, map[string]string{contracts.MetadataName: orderPlaced, contracts.MetadataVersion: "3"}, rec.Metadata)
		require.Empty(t, s.dead)
	})

	t.Run("upcasts what an older program has published", func(t *testing.T) {
		t.Parallel()
		s := newService(t, shop(t))
		require.NoError(t, s.handle(to[OrderPlaced](s, "bill")))
		s.run()
		older := newRegistry(t, contracts.Of[OrderPlacedV1](orderPlaced, 1)).Marshaler(contracts.MarshalerConfig{})
		msg, err := older.Marshal(OrderPlacedV1{ID: "7", Total: 19.99})
		require.NoError(t, err)
		require.NoError(t, s.pub.Publish(orderPlaced, msg))
		require.Equal(t, OrderPlaced{ID: "7", Cents: 1999, Currency: "EUR"}, next(t, s.handled))
	})

	t.Run("makes a record of an unknown version dead at once, with the reason", func(t *testing.T) {
		t.Parallel()
		s := newService(t, shop(t))
		require.NoError(t, s.handle(to[OrderPlaced](s, "bill")))
		s.run()
		require.NoError(t, s.pub.Publish(orderPlaced, arrive(orderPlaced, "4", "{}")))
		rec := s.deadRecord()
		require.Contains(t, rec.LastError, `"orders.order-placed" has no version 4 in this program, which knows 1, 2, 3`)
		require.Equal(t, 1, rec.Claims)
		require.Empty(t, s.handled)
	})

	t.Run("makes a record of an unknown name dead at once, where RefuseUnknown is a middleware", func(t *testing.T) {
		t.Parallel()
		s := newService(t, shop(t))
		s.router.AddMiddleware(s.marshaler.RefuseUnknown)
		require.NoError(t, s.handle(to[OrderPlaced](s, "bill")))
		s.run()
		require.NoError(t, s.pub.Publish(orderPlaced, arrive("orders.lost", "1", "{}")))
		rec := s.deadRecord()
		require.Contains(t, rec.LastError, `"orders.lost" is not registered`)
		require.Equal(t, 1, rec.Claims)
	})

	t.Run("brings an unknown version to Watermill's poison queue", func(t *testing.T) {
		t.Parallel()
		s := newService(t, shop(t))
		poison, err := middleware.PoisonQueueWithFilter(s.pub, "poison", func(err error) bool {
			return errors.Is(err, contracts.ErrUnknownContract)
		})
		require.NoError(t, err)
		s.router.AddMiddleware(poison)
		require.NoError(t, s.handle(to[OrderPlaced](s, "bill")))
		poisoned, err := s.subscriber("poison")
		require.NoError(t, err)
		s.router.AddConsumerHandler("poison", "poison", poisoned, func(msg *message.Message) error {
			s.handled <- msg.Metadata[middleware.ReasonForPoisonedKey]
			return nil
		})
		s.run()
		require.NoError(t, s.pub.Publish(orderPlaced, arrive(orderPlaced, "4", "{}")))
		require.Contains(t, next(t, s.handled), "has no version 4")
	})

	t.Run("refuses a handler of an unregistered type at start", func(t *testing.T) {
		t.Parallel()
		s := newService(t, shop(t))
		require.ErrorIs(t, s.handle(to[OrderPlacedV1](s, "old")), contracts.ErrUnknownContract)
		require.NoError(t, s.router.Close())
	})

	t.Run("writes nothing that Validate refuses", func(t *testing.T) {
		t.Parallel()
		s := newService(t, shop(t))
		integration, err := contracts.NewIntegrationBus(s.bus)
		require.NoError(t, err)
		require.NoError(t, s.store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			require.ErrorIs(t, s.bus.Publish(ctx, OrderPlaced{Cents: -1}), errNegative)
			require.ErrorIs(t, integration.Publish(ctx, &OrderPlaced{Cents: -1}), contracts.ErrInvalidMessage)
			return nil
		}))
		outmilltest.RequireNotPublished(t, s.store, orderPlaced)
		require.NoError(t, s.router.Close())
	})

	t.Run("gives each handler of a group its type", func(t *testing.T) {
		t.Parallel()
		s := newService(t, shop(t))
		groups, err := cqrs.NewEventGroupProcessorWithConfig(s.router, cqrs.EventGroupProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) { return "events", nil },
			SubscriberConstructor: func(p cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return s.subscriber(p.EventGroupName)
			},
			Marshaler: s.marshaler,
		})
		require.NoError(t, err)
		require.NoError(t, groups.AddHandlersGroup("finance",
			cqrs.NewGroupEventHandler(func(_ context.Context, event *OrderPlaced) error { s.handled <- *event; return nil }),
			cqrs.NewGroupEventHandler(func(_ context.Context, event *OrderCancelled) error { s.handled <- *event; return nil }),
		))
		s.run()
		for _, msg := range []*message.Message{arrive(orderPlaced, "3", `{"id":"1"}`), arrive("orders.order-cancelled", "1", `{"id":"2"}`)} {
			require.NoError(t, s.pub.Publish("events", msg))
		}
		require.ElementsMatch(t, []any{OrderPlaced{ID: "1"}, OrderCancelled{"2"}}, []any{next(t, s.handled), next(t, s.handled)})
	})

	t.Run("brings commands to their handler", func(t *testing.T) {
		t.Parallel()
		s := newService(t, shop(t))
		commands, err := cqrs.NewCommandProcessorWithConfig(s.router, cqrs.CommandProcessorConfig{
			GenerateSubscribeTopic: func(p cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return p.CommandName, nil },
			SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return s.subscriber("")
			},
			Marshaler: s.marshaler,
		})
		require.NoError(t, err)
		require.NoError(t, commands.AddHandlers(cqrs.NewCommandHandler("cancel", func(_ context.Context, command *OrderCancelled) error {
			s.handled <- *command
			return nil
		})))
		bus, err := cqrs.NewCommandBusWithConfig(s.pub, cqrs.CommandBusConfig{
			GeneratePublishTopic: func(p cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return p.CommandName, nil },
			Marshaler:            s.marshaler,
		})
		require.NoError(t, err)
		s.run()
		require.NoError(t, bus.Send(t.Context(), &OrderCancelled{"7"}))
		require.Equal(t, OrderCancelled{"7"}, next(t, s.handled))
	})

	t.Run("leaves all other metadata alone", func(t *testing.T) {
		t.Parallel()
		s := newService(t, shop(t))
		metadata := make(chan message.Metadata, 1)
		s.router.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				metadata <- msg.Copy().Metadata
				return next(msg)
			}
		})
		require.NoError(t, s.handle(to[OrderCancelled](s, "mail")))
		s.run()
		msg, err := s.marshaler.Marshal(OrderCancelled{"7"})
		require.NoError(t, err)
		outmill.SetKey(msg, "key")
		outmill.SetCorrelationID(msg, "correlation")
		outmill.SetOccurredAt(msg, time.Unix(0, 0))
		require.NoError(t, s.pub.Publish("orders.order-cancelled", msg))
		require.Equal(t, OrderCancelled{"7"}, next(t, s.handled))
		want := message.Metadata{
			outmill.MetadataKey: "key", outmill.MetadataCorrelationID: "correlation", outmill.MetadataOccurredAt: "1970-01-01T00:00:00Z",
			contracts.MetadataName: "orders.order-cancelled", contracts.MetadataVersion: "1",
		}
		require.Equal(t, want, <-metadata)
	})
}
