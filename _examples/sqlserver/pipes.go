package main

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/subscriber"
)

// pipes are what the messages go through once they are committed.
type pipes struct {
	brokers []string
	ends    []func()
	work    sync.WaitGroup
}

func startPipes(ctx context.Context, store outmill.Store, count *count) (*pipes, error) {
	p := &pipes{}
	if err := errors.Join(p.startKafka(ctx, count), p.startForwarder(ctx, store), p.startRouter(ctx, store, count)); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// startRouter is the program of a Watermill user: only the subscriber is
// Outmill's.
func (p *pipes) startRouter(ctx context.Context, store outmill.Store, count *count) error {
	sub, err := subscriber.New(store, subscriber.Config{Group: "warehouse"}, nil)
	if err != nil {
		return err
	}
	p.atEnd(sub.Close)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddConsumerHandler("ship", topic, sub, func(msg *message.Message) error {
		count.handled(msg.Payload)
		return nil
	})
	p.atEnd(router.Close)
	return p.start(ctx, router.Run, router.Running())
}

func (p *pipes) startForwarder(ctx context.Context, store outmill.Store) error {
	pub, err := kafka.NewPublisher(wkafka.PublisherConfig{Brokers: p.brokers, Marshaler: wkafka.DefaultMarshaler{}}, kafka.Config{}, nil)
	if err != nil {
		return err
	}
	p.atEnd(pub.Close)
	fwd, err := forwarder.New(store, pub, forwarder.Config{Topics: outmill.Topics{Include: []string{topic}}}, nil)
	if err != nil {
		return err
	}
	p.atEnd(fwd.Close)
	return p.start(ctx, fwd.Run, fwd.Running())
}

// startKafka makes a broker in this process, and reads what arrives there.
func (p *pipes) startKafka(ctx context.Context, count *count) error {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		return err
	}
	p.brokers = cluster.ListenAddrs()
	p.atEnd(func() error { cluster.Close(); return nil })
	client, err := kgo.NewClient(kgo.SeedBrokers(p.brokers...), kgo.ConsumeTopics(topic))
	if err != nil {
		return err
	}
	p.work.Go(func() {
		for {
			fetches := client.PollFetches(ctx)
			if fetches.IsClientClosed() || ctx.Err() != nil {
				return
			}
			fetches.EachRecord(func(r *kgo.Record) { count.forwarded(r.Value) })
		}
	})
	p.atEnd(func() error { client.Close(); return nil })
	return nil
}

// start returns when run is up, or has ended before it was.
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

func (p *pipes) atEnd(end func() error) {
	p.ends = append(p.ends, func() { _ = end() })
}

// close ends what was started last first. It may be called again.
func (p *pipes) close() {
	for i := len(p.ends) - 1; i >= 0; i-- {
		p.ends[i]()
	}
	p.ends = nil
	p.work.Wait()
}
