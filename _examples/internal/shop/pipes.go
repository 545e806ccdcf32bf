package shop

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

// Pipes are what the messages go through once they are committed.
type Pipes struct {
	// Brokers are the addresses of Kafka.
	Brokers []string
	ends    []func()
	work    sync.WaitGroup
}

// StartPipes starts a broker, a forwarder and a router. They end with Close.
func StartPipes(ctx context.Context, store outmill.Store, count *Count) (*Pipes, error) {
	p := &Pipes{}
	if err := errors.Join(p.startKafka(ctx, count), p.startForwarder(ctx, store), p.startRouter(ctx, store, count)); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// startRouter is the program of a Watermill user: only the subscriber is
// Outmill's.
func (p *Pipes) startRouter(ctx context.Context, store outmill.Store, count *Count) error {
	sub, err := subscriber.New(store, subscriber.Config{Group: "warehouse"}, nil)
	if err != nil {
		return err
	}
	p.atEnd(sub.Close)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddConsumerHandler("ship", Topic, sub, func(msg *message.Message) error {
		count.Handled(msg.Payload)
		return nil
	})
	p.atEnd(router.Close)
	return p.start(ctx, router.Run, router.Running())
}

func (p *Pipes) startForwarder(ctx context.Context, store outmill.Store) error {
	pub, err := kafka.NewPublisher(wkafka.PublisherConfig{Brokers: p.Brokers, Marshaler: wkafka.DefaultMarshaler{}}, kafka.Config{}, nil)
	if err != nil {
		return err
	}
	p.atEnd(pub.Close)
	fwd, err := forwarder.New(store, pub, forwarder.Config{Topics: outmill.Topics{Include: []string{Topic}}}, nil)
	if err != nil {
		return err
	}
	p.atEnd(fwd.Close)
	return p.start(ctx, fwd.Run, fwd.Running())
}

// startKafka makes a broker in this process, and reads what arrives there.
func (p *Pipes) startKafka(ctx context.Context, count *Count) error {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, Topic))
	if err != nil {
		return err
	}
	p.Brokers = cluster.ListenAddrs()
	p.atEnd(func() error { cluster.Close(); return nil })
	client, err := kgo.NewClient(kgo.SeedBrokers(p.Brokers...), kgo.ConsumeTopics(Topic))
	if err != nil {
		return err
	}
	p.work.Go(func() {
		for {
			fetches := client.PollFetches(ctx)
			if fetches.IsClientClosed() || ctx.Err() != nil {
				return
			}
			fetches.EachRecord(func(r *kgo.Record) { count.Forwarded(r.Value) })
		}
	})
	p.atEnd(func() error { client.Close(); return nil })
	return nil
}

// start returns when run is up, or has ended before it was.
func (p *Pipes) start(ctx context.Context, run func(context.Context) error, running <-chan struct{}) error {
	ended := make(chan error, 1)
	p.work.Go(func() { ended <- run(ctx) })
	select {
	case <-running:
		return nil
	case err := <-ended:
		return errors.Join(err, ctx.Err())
	}
}

func (p *Pipes) atEnd(end func() error) {
	p.ends = append(p.ends, func() { _ = end() })
}

// Close ends what was started last first. It may be called again.
func (p *Pipes) Close() {
	for i := len(p.ends) - 1; i >= 0; i-- {
		p.ends[i]()
	}
	p.ends = nil
	p.work.Wait()
}
