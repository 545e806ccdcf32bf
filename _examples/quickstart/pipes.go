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
	"github.com/outmill/outmill/subscriber"
)

// pipes has the router and the forwarder, which move committed messages on.
type pipes struct {
	router    *message.Router
	sub       *subscriber.Subscriber
	forwarder *forwarder.Forwarder
	kafkaPub  *kafka.Publisher
	kafkaSub  *wkafka.Subscriber
	work      sync.WaitGroup
}

func startPipes(ctx context.Context, names names, store outmill.Store, broker *broker, audit *audit,
	logger watermill.LoggerAdapter) (*pipes, error) {
	p := &pipes{}
	if err := errors.Join(
		p.startRouter(ctx, names, store, audit, logger),
		p.startForwarder(ctx, names, store, broker, logger),
		p.readBack(ctx, broker, audit, logger),
	); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// startRouter runs a usual Watermill program. Only the constructors of its publisher and its
// subscriber are Outmill's.
func (p *pipes) startRouter(ctx context.Context, names names, store outmill.Store, audit *audit,
	logger watermill.LoggerAdapter) (err error) {
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}
	if p.sub, err = subscriber.New(store, subscriber.Config{Group: names.handlers}, logger); err != nil {
		return err
	}
	// What handlers and the poison queue publish belongs to no transaction of the shop.
	pub, err := publisher.New(store, publisher.Config{AllowNoTx: true}, logger)
	if err != nil {
		return err
	}
	poison, err := middleware.PoisonQueueWithFilter(pub, names.poison, outmill.IsPermanent)
	if err != nil {
		return err
	}
	router.AddMiddleware(
		subscriber.KeepError,
		poison,
		middleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond, MaxInterval: 10 * time.Millisecond, Multiplier: 2}.Middleware,
		middleware.Recoverer,
	)
	shop := &warehouse{audit: audit}
	router.AddConsumerHandler("ship", names.orders, p.sub, shop.ship)
	router.AddConsumerHandler("apologise", names.poison, p.sub, shop.apologise)
	if err := p.start(ctx, router.Run, router.Running()); err != nil {
		return err
	}
	p.router = router
	return nil
}

func (p *pipes) startForwarder(ctx context.Context, names names, store outmill.Store, broker *broker,
	logger watermill.LoggerAdapter) (err error) {
	p.kafkaPub, err = kafka.NewPublisher(kafka.Config{Brokers: broker.brokers}, logger)
	if err != nil {
		return err
	}
	p.forwarder, err = forwarder.New(store, p.kafkaPub, forwarder.Config{
		Group:     names.forwarder,
		Topics:    outmill.Topics{Include: []string{outmill.Exact(names.orders)}},
		MapTopic:  func(string, *message.Message) string { return broker.topic },
		BatchSize: 500,
	}, logger)
	if err != nil {
		return err
	}
	return p.start(ctx, p.forwarder.Run, p.forwarder.Running())
}

// start returns when run is ready, or when it has ended before that.
func (p *pipes) start(ctx context.Context, run func(context.Context) error, running <-chan struct{}) error {
	ended := make(chan error, 1)
	p.work.Go(func() { ended <- run(ctx) })
	select {
	case <-running:
		return nil
	case err := <-ended:
		return errors.Join(err, ctx.Err())
	}
}

// readBack is another team's service, which uses plain watermill-kafka.
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

// warehouse handles orders. It fails once for some orders, and always for a few.
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
