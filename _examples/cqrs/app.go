package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/subscriber"
)

var marshaler = cqrs.JSONMarshaler{GenerateName: cqrs.StructName}

// app is Watermill's CQRS with publishers and subscribers of Outmill.
type app struct {
	store          *postgres.Store
	shop           *shop
	commands       *cqrs.CommandBus
	billed, mailed journal

	router      *message.Router
	subscribers []*subscriber.Subscriber
	running     sync.WaitGroup
	stop        context.CancelFunc
}

func startApp(ctx context.Context, store *postgres.Store) (*app, error) {
	a := &app{store: store}
	ctx, a.stop = context.WithCancel(ctx)
	if err := errors.Join(a.addBuses(), a.addRouter(), a.addHandlers()); err != nil {
		a.close()
		return nil, err
	}
	ended := make(chan error, 1)
	a.running.Go(func() { ended <- a.router.Run(ctx) })
	select {
	case <-a.router.Running():
		return a, nil
	case err := <-ended:
		a.close()
		return nil, errors.Join(err, ctx.Err())
	}
}

// addBuses adds the buses. Commands are published outside of transactions. An event outside of a
// transaction would be a mistake.
func (a *app) addBuses() error {
	pub, err := publisher.New(a.store, publisher.Config{}, nil)
	if err != nil {
		return err
	}
	strict, err := publisher.New(a.store, publisher.Config{RequireTx: true}, nil)
	if err != nil {
		return err
	}
	a.commands, err = cqrs.NewCommandBusWithConfig(pub, cqrs.CommandBusConfig{
		GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return "commands", nil },
		Marshaler:            marshaler,
	})
	if err != nil {
		return err
	}
	events, err := cqrs.NewEventBusWithConfig(strict, cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "events", nil },
		Marshaler:            marshaler,
	})
	a.shop = &shop{store: a.store, events: events}
	return err
}

func (a *app) addRouter() (err error) {
	if a.router, err = message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}); err != nil {
		return err
	}
	a.router.AddMiddleware(
		// KeepError is the first, so that the store knows why a command is dead.
		subscriber.KeepError,
		middleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond}.Middleware,
		middleware.Recoverer,
	)
	return nil
}

func (a *app) addHandlers() error {
	commands, err := cqrs.NewCommandProcessorWithConfig(a.router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return "commands", nil },
		SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return a.subscriber("")
		},
		Marshaler: marshaler,
	})
	if err != nil {
		return err
	}
	events, err := cqrs.NewEventProcessorWithConfig(a.router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return "events", nil },
		// Each handler has its own group, so every handler gets every event.
		SubscriberConstructor: func(p cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return a.subscriber(p.HandlerName)
		},
		Marshaler: marshaler,
	})
	if err != nil {
		return err
	}
	return errors.Join(
		commands.AddHandlers(cqrs.NewCommandHandler("place", a.shop.placeOrder)),
		events.AddHandlers(cqrs.NewEventHandler("bill", a.billed.handle), cqrs.NewEventHandler("mail", a.mailed.handle)),
	)
}

func (a *app) subscriber(group string) (*subscriber.Subscriber, error) {
	sub, err := subscriber.New(a.store, subscriber.Config{Group: group}, nil)
	if err == nil {
		a.subscribers = append(a.subscribers, sub)
	}
	return sub, err
}

// settle returns when all due messages are handled: the commands first, because they publish the
// events. A service would just run.
func (a *app) settle(ctx context.Context) error {
	for _, sub := range a.subscribers {
		if _, err := sub.Once(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close ends the app; it may be called more than once.
func (a *app) close() {
	a.stop()
	a.running.Wait()
}
