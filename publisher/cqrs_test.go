package publisher_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

type placeOrder struct{ ID string }

type orderPlaced struct{ ID string }

var (
	errNoStock = errors.New("no stock")
	marshaler  = cqrs.JSONMarshaler{GenerateName: cqrs.StructName}
)

func newEventBus(t *testing.T, pub message.Publisher) *cqrs.EventBus {
	t.Helper()
	bus, err := cqrs.NewEventBusWithConfig(pub, cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "events", nil },
		Marshaler:            marshaler,
	})
	require.NoError(t, err)
	return bus
}

func newCommandBus(t *testing.T, pub message.Publisher) *cqrs.CommandBus {
	t.Helper()
	bus, err := cqrs.NewCommandBusWithConfig(pub, cqrs.CommandBusConfig{
		GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return "commands", nil },
		Marshaler:            marshaler,
	})
	require.NoError(t, err)
	return bus
}

// announce publishes an event in a transaction that rolls back, and one in a
// transaction that commits.
func announce(t *testing.T, store *sqlite.Store, bus *cqrs.EventBus) {
	t.Helper()
	require.ErrorIs(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
		return errors.Join(bus.Publish(ctx, orderPlaced{"rolled back"}), errNoStock)
	}), errNoStock)
	require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
		return bus.Publish(ctx, orderPlaced{"committed"})
	}))
}

func handle[T any](name string, to chan<- string, id func(*T) string) cqrs.EventHandler {
	return cqrs.NewEventHandler(name, func(_ context.Context, event *T) error {
		to <- name + ": " + id(event)
		return nil
	})
}

func idOf(event *orderPlaced) string { return event.ID }

func TestPublisher_Cqrs(t *testing.T) {
	t.Parallel()

	t.Run("An event published through cqrs in a transaction", func(t *testing.T) {
		t.Parallel()

		t.Run("reaches every event handler's group once if it commits, and none if not", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			router := newRouter(t)
			events, err := cqrs.NewEventProcessorWithConfig(router, cqrs.EventProcessorConfig{
				GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return "events", nil },
				SubscriberConstructor: func(p cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
					return newSubscriber(t, store, p.HandlerName), nil
				},
				Marshaler: marshaler,
			})
			require.NoError(t, err)
			handled := make(chan string, 10)
			require.NoError(t, events.AddHandlers(handle("bill", handled, idOf), handle("mail", handled, idOf)))
			start(t, router)
			announce(t, store, newEventBus(t, newPublisher(t, store, requireTx)))
			require.ElementsMatch(t, []string{"bill: committed", "mail: committed"}, []string{receive(t, handled), receive(t, handled)})
			outmilltest.RequirePublished(t, store, "events", outmilltest.PayloadJSON(orderPlaced{"committed"}))
			requireAllProcessed(t, store, 2)
			require.Empty(t, handled)
		})

		t.Run("reaches every group of an event group processor once if it commits, and none if not", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			router := newRouter(t)
			groups, err := cqrs.NewEventGroupProcessorWithConfig(router, cqrs.EventGroupProcessorConfig{
				GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) { return "events", nil },
				SubscriberConstructor: func(p cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
					return newSubscriber(t, store, p.EventGroupName), nil
				},
				Marshaler: marshaler,
			})
			require.NoError(t, err)
			handled := make(chan string, 10)
			grouped := func(name string) cqrs.GroupEventHandler {
				return cqrs.NewGroupEventHandler(func(_ context.Context, event *orderPlaced) error {
					handled <- name + ": " + event.ID
					return nil
				})
			}
			require.NoError(t, groups.AddHandlersGroup("finance", grouped("bill"), grouped("book")))
			require.NoError(t, groups.AddHandlersGroup("service", grouped("mail")))
			start(t, router)
			announce(t, store, newEventBus(t, newPublisher(t, store, requireTx)))
			got := []string{receive(t, handled), receive(t, handled), receive(t, handled)}
			require.ElementsMatch(t, []string{"bill: committed", "book: committed", "mail: committed"}, got)
			requireAllProcessed(t, store, 2)
			require.Empty(t, handled)
		})
	})

	t.Run("A command sent through cqrs in a transaction is handled in one that publishes an event", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		pub := newPublisher(t, store, requireTx)
		commandBus, eventBus := newCommandBus(t, pub), newEventBus(t, pub)
		execute(t, store.DB(), "CREATE TABLE shop (id TEXT)")

		router := newRouter(t)
		commands, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return "commands", nil },
			SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return newSubscriber(t, store, ""), nil
			},
			Marshaler:                marshaler,
			AckCommandHandlingErrors: true,
		})
		require.NoError(t, err)
		handled := make(chan string, 10)
		require.NoError(t, commands.AddHandlers(cqrs.NewCommandHandler("place", func(ctx context.Context, command *placeOrder) error {
			defer func() { handled <- command.ID }()
			return store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO shop VALUES (?)", command.ID)
				err = errors.Join(err, eventBus.Publish(ctx, orderPlaced(*command)))
				if command.ID == "too many" {
					err = errors.Join(err, errNoStock)
				}
				return err
			})
		})))
		start(t, router)

		require.ErrorIs(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			return errors.Join(commandBus.Send(ctx, placeOrder{"rolled back"}), errNoStock)
		}), errNoStock)
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			return errors.Join(commandBus.Send(ctx, placeOrder{"o1"}), commandBus.Send(ctx, placeOrder{"too many"}))
		}))
		require.ElementsMatch(t, []string{"o1", "too many"}, []string{receive(t, handled), receive(t, handled)})
		requireAllProcessed(t, store, 2)
		outmilltest.RequireManyPublished(t, store, "commands", outmilltest.PayloadJSON(placeOrder{"o1"}),
			outmilltest.PayloadJSON(placeOrder{"too many"}))
		outmilltest.RequireManyPublished(t, store, "events", outmilltest.PayloadJSON(orderPlaced{"o1"}))
		require.Equal(t, 1, count(t, store, "SELECT count(*) FROM shop"))
	})

	t.Run("An event published through cqrs without a transaction", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		require.NoError(t, newEventBus(t, newPublisher(t, store)).Publish(t.Context(), orderPlaced{"o1"}))
		outmilltest.RequirePublished(t, store, "events", outmilltest.PayloadJSON(orderPlaced{"o1"}))
		strict := newPublisher(t, store, func(c *publisher.Config) { c.RequireTx = true })
		require.ErrorIs(t, newEventBus(t, strict).Publish(t.Context(), orderPlaced{"o2"}), outmill.ErrNoTx)
	})
}

// requireAllProcessed waits until n records are acked and no other record of a group
// remains.
func requireAllProcessed(t *testing.T, store *sqlite.Store, n int) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		records, err := store.List(t.Context(), outmill.ListQuery{Status: outmill.StatusProcessed})
		assert.NoError(c, err)
		assert.Len(c, records, n)
	}, patience, tick)
}
