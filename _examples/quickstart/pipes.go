package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

const (
	ordersTopic = "orders"
	poisonTopic = "orders.poison"
)

// pipes is everything that moves committed messages on.
type pipes struct {
	router    *message.Router
	forwarder *forwarder.Forwarder
	kafkaPub  *kafka.Publisher
	kafkaSub  *wkafka.Subscriber
	work      sync.WaitGroup
}

func startPipes(ctx context.Context, store *sqlite.Store, broker *broker, audit *audit, logger watermill.LoggerAdapter) (*pipes, error) {
	p := &pipes{}
	if err := errors.Join(
		p.startRouter(ctx, store, audit, logger),
		p.startForwarder(ctx, store, broker, logger),
		p.readBack(ctx, broker, audit, logger),
	); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// startRouter is the program of a Watermill user: only the constructors of
// publisher and subscriber are Outmill's.
func (p *pipes) startRouter(ctx context.Context, store *sqlite.Store, audit *audit, logger watermill.LoggerAdapter) (err error) {
	if p.router, err = message.NewRouter(message.RouterConfig{}, logger); err != nil {
		return err
	}
	sub, err := subscriber.New(store, subscriber.Config{}, logger)
	if err != nil {
		return err
	}
	pub, err := publisher.New(store, publisher.Config{}, logger)
	if err != nil {
		return err
	}
	poison, err := middleware.PoisonQueueWithFilter(pub.Shared(), poisonTopic, outmill.IsPermanent)
	if err != nil {
		return err
	}
	p.router.AddMiddleware(
		subscriber.KeepError,
		poison,
		middleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond, MaxInterval: 10 * time.Millisecond, Multiplier: 2}.Middleware,
		middleware.Recoverer,
	)
	shop := &warehouse{audit: audit}
	p.router.AddConsumerHandler("ship", ordersTopic, sub, shop.ship)
	p.router.AddConsumerHandler("apologise", poisonTopic, sub, shop.apologise)
	p.work.Go(func() { _ = p.router.Run(ctx) })
	<-p.router.Running()
	return nil
}

func (p *pipes) startForwarder(ctx context.Context, store *sqlite.Store, broker *broker, logger watermill.LoggerAdapter) (err error) {
	p.kafkaPub, err = kafka.NewPublisher(wkafka.PublisherConfig{
		Brokers:   broker.brokers,
		Marshaler: wkafka.DefaultMarshaler{},
	}, kafka.Config{}, logger)
	if err != nil {
		return err
	}
	p.forwarder, err = forwarder.New(store, p.kafkaPub, forwarder.Config{
		Topics:    outmill.Topics{Include: []string{outmill.Exact(ordersTopic)}},
		MapTopic:  func(string, *message.Message) string { return broker.topic },
		BatchSize: 500,
	}, logger)
	if err != nil {
		return err
	}
	p.work.Go(func() { _ = p.forwarder.Run(ctx) })
	<-p.forwarder.Running()
	return nil
}

// readBack is somebody else's service, on plain watermill-kafka.
func (p *pipes) readBack(ctx context.Context, broker *broker, audit *audit, logger watermill.LoggerAdapter) (err error) {
	p.kafkaSub, err = wkafka.NewSubscriber(wkafka.SubscriberConfig{
		Brokers:               broker.brokers,
		Unmarshaler:           wkafka.DefaultMarshaler{},
		OverwriteSaramaConfig: saramaConfig(),
	}, logger)
	if err != nil {
		return err
	}
	messages, err := p.kafkaSub.Subscribe(ctx, broker.topic)
	if err != nil {
		return err
	}
	p.work.Go(func() {
		for msg := range messages {
			audit.forwarded(decode(msg))
			msg.Ack()
		}
	})
	return nil
}

func (p *pipes) close() error {
	var errs []error
	if p.router != nil {
		errs = append(errs, p.router.Close())
	}
	if p.forwarder != nil {
		errs = append(errs, p.forwarder.Close())
	}
	if p.kafkaPub != nil {
		errs = append(errs, p.kafkaPub.Close())
	}
	if p.kafkaSub != nil {
		errs = append(errs, p.kafkaSub.Close())
	}
	p.work.Wait()
	return errors.Join(errs...)
}

// warehouse handles orders; some trip it up once, a few always.
type warehouse struct {
	audit   *audit
	tripped sync.Map
}

var errForkliftStuck = errors.New("forklift stuck")

func (w *warehouse) ship(msg *message.Message) error {
	o, err := decode(msg)
	if err != nil {
		return outmill.Permanent(err)
	}
	if o.ID%101 == 0 {
		return outmill.Permanent(fmt.Errorf("order %d is out of stock", o.ID))
	}
	if _, before := w.tripped.LoadOrStore(o.ID, true); !before && o.ID%13 == 0 {
		return errForkliftStuck
	}
	w.audit.handled(o, nil)
	return nil
}

// apologise reads the poison queue.
func (w *warehouse) apologise(msg *message.Message) error {
	w.audit.handled(decode(msg))
	return nil
}

func decode(msg *message.Message) (order, error) {
	var o order
	err := json.Unmarshal(msg.Payload, &o)
	return o, err
}
