package forwarder_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/sqlite"
)

// printer is a broker for the example.
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
