package forwarder_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

// printer stands for a broker in the example.
type printer struct{}

func (printer) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		fmt.Println(topic, msg.UUID, string(msg.Payload))
	}
	return nil
}

func (printer) Close() error { return nil }

func Example() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, ":memory:", sqlite.Config{}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	if err := store.Ensure(ctx); err != nil {
		fmt.Println(err)
		return
	}
	err = store.Append(ctx,
		&outmill.Record{Topic: "orders", Key: "customer-7", MessageID: "order-1", Payload: []byte("three books")},
		&outmill.Record{Topic: "orders", Key: "customer-7", MessageID: "order-2", Payload: []byte("a chair")},
		&outmill.Record{Topic: "audit", MessageID: "login-1"},
	)
	if err != nil {
		fmt.Println(err)
		return
	}

	fwd, err := forwarder.New(store, printer{}, forwarder.Config{
		Topics:   outmill.Topics{Include: []string{"orders"}},
		MapTopic: func(topic string, _ *message.Message) string { return "shop." + topic },
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fwd.Close()
	// A service calls Run; a program that cron starts calls Once.
	n, err := fwd.Once(ctx)
	fmt.Println(n, err)
	// Output:
	// shop.orders order-1 three books
	// shop.orders order-2 a chair
	// 2 <nil>
}

// counted counts the messages that a publisher of batches accepted. It has both methods, so
// the forwarder publishes to it in batches.
type counted struct {
	storekit.BatchPublisher
	taken int
}

func (c *counted) Publish(topic string, messages ...*message.Message) error {
	err := c.BatchPublisher.Publish(topic, messages...)
	if err == nil {
		c.taken += len(messages)
	}
	return err
}

func (c *counted) PublishBatch(ctx context.Context, batch []storekit.Outgoing) error {
	err := c.BatchPublisher.PublishBatch(ctx, batch)
	c.taken += len(batch)
	var partly *storekit.PublishError
	if errors.As(err, &partly) {
		c.taken -= len(partly.Failed)
	}
	return err
}

func Example_decorator() {
	decorate := func(broker storekit.BatchPublisher) message.Publisher {
		return &counted{BatchPublisher: broker}
	}
	_, batches := decorate(nil).(storekit.BatchPublisher)
	fmt.Println("takes batches:", batches)
	// Output: takes batches: true
}
