package sagas_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/sagas"
	"github.com/outmill/outmill/sqlite"
)

type (
	basket   struct{ Item string }
	placing  struct{ Order, Item string }
	paying   struct{ Order string }
	shipping struct{ Order, Item string }
	overdue  struct{}
)

// An order waits for its payment, and is shipped then. All types of messages are on one
// topic, by a marshaler of Watermill's cqrs. The payment comes twice.
func ExampleDefine() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, "file:sagas?mode=memory&cache=shared", sqlite.Config{}, nil)
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	marshaler := cqrs.JSONMarshaler{}
	orders, err := sagas.Define(sagas.Config{Store: store, Inbox: &inbox.Config{}, Marshaler: marshaler},
		sagas.StartedBy("orders", func(m placing) string { return m.Order }, func(c *sagas.Context[basket], m placing) error {
			c.State.Item = m.Item
			return c.Timeout("orders", time.Hour, overdue{})
		}),
		sagas.On("orders", func(m paying) string { return m.Order }, func(c *sagas.Context[basket], m paying) error {
			c.Complete()
			return c.PublishValue("shipping", shipping{m.Order, c.State.Item})
		}),
		sagas.Timeout("orders", func(c *sagas.Context[basket], _ overdue) error {
			c.Complete()
			return nil
		}))
	if err := errors.Join(err, store.Ensure(ctx)); err != nil {
		panic(err)
	}
	// A router calls the handler with each message: orders.AddHandlers(router, sub).
	handle := orders.Handler("orders")
	payment, _ := marshaler.Marshal(paying{"o1"})
	start, _ := marshaler.Marshal(placing{"o1", "book"})
	for _, msg := range []*message.Message{start, payment, payment} {
		if err := handle(msg); err != nil {
			panic(err)
		}
	}
	sent, err := store.List(ctx, outmill.ListQuery{Topic: "shipping", Content: true})
	if err != nil {
		panic(err)
	}
	for _, rec := range sent {
		fmt.Printf("%s: %s\n", rec.Topic, rec.Payload)
	}
	// Output: shipping: {"Order":"o1","Item":"book"}
}
