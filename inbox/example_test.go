package inbox_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/sqlite"
)

// A handler runs once for a message that is delivered twice.
func ExampleInbox_Middleware() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, "file:example?mode=memory&cache=shared", sqlite.Config{}, nil)
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	if err := store.Ensure(ctx); err != nil {
		panic(err)
	}
	box, err := inbox.New(store, inbox.Config{Consumer: "billing"})
	if err != nil {
		panic(err)
	}
	handler := box.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		_, inTx := store.Tx(msg.Context())
		fmt.Printf("%s, in a transaction: %t\n", msg.Payload, inTx)
		return nil, nil
	})
	for range 2 {
		if _, err := handler(message.NewMessage("order-1", message.Payload("an order"))); err != nil {
			panic(err)
		}
	}
	// Output: an order, in a transaction: true
}

// The application begins the transaction. Its own key gives handlers the *sql.Tx.
func ExampleWithin() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, "file:within?mode=memory&cache=shared", sqlite.Config{}, nil)
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	if err := store.Ensure(ctx); err != nil {
		panic(err)
	}
	type txKey struct{}
	within, err := inbox.Within(store, inbox.Begin(
		func(ctx context.Context) (*sql.Tx, error) { return store.DB().BeginTx(ctx, nil) },
		func(ctx context.Context, tx *sql.Tx) context.Context {
			return context.WithValue(store.WithTx(ctx, tx), txKey{}, tx)
		}))
	if err != nil {
		panic(err)
	}
	box, err := inbox.New(store, inbox.Config{Consumer: "billing"})
	if err != nil {
		panic(err)
	}
	// In a router: AddMiddleware(subscriber.KeepError, within, box.Middleware).
	handler := within(box.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		_, inTx := msg.Context().Value(txKey{}).(*sql.Tx)
		fmt.Printf("%s, in a transaction: %t\n", msg.Payload, inTx)
		return nil, nil
	}))
	for range 2 {
		if _, err := handler(message.NewMessage("order-1", message.Payload("an order"))); err != nil {
			panic(err)
		}
	}
	// Output: an order, in a transaction: true
}

// The id of the order identifies a message, instead of its UUID.
func ExampleByMetadata() {
	_ = inbox.Config{Consumer: "billing", Key: inbox.ByMetadata("order_id")}
}

// Inherit is added after the inbox, which publishes the messages that it gets.
func ExampleInherit() {
	handler := inbox.Inherit(func(*message.Message) ([]*message.Message, error) {
		return []*message.Message{message.NewMessage("invoice-1", nil)}, nil
	})
	msg := message.NewMessage("order-1", nil)
	outmill.SetCorrelationID(msg, "customer-7")
	produced, _ := handler(msg)
	fmt.Println(produced[0].Metadata.Get(outmill.MetadataCorrelationID), produced[0].Metadata.Get(outmill.MetadataCausationID))
	// Output: customer-7 order-1
}
