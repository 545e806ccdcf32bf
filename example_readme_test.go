package outmill_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

// An order and its message commit together, and a router handler gets the message.
func Example_readme() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "shop")
	must(err)
	defer func() { must(os.RemoveAll(dir)) }()

	store, err := sqlite.Open(ctx, filepath.Join(dir, "shop.db"), sqlite.Config{EnsureSchema: true}, nil)
	must(err)
	_, err = store.DB().ExecContext(ctx, `CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT)`)
	must(err)

	// Consume: any Watermill router.
	sub, err := subscriber.New(store, subscriber.Config{Group: "billing"}, nil)
	must(err)
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	must(err)
	router.AddMiddleware(subscriber.KeepError) // keeps the error of a handler that failed
	router.AddConsumerHandler("bill", "orders", sub, func(msg *message.Message) error {
		fmt.Printf("billed %s\n", msg.Payload)
		stop()
		return nil
	})

	// Publish: any Watermill publisher, inside your transaction, and never without one.
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, nil)
	must(err)
	tx, err := store.DB().BeginTx(ctx, nil)
	must(err)
	_, err = tx.ExecContext(ctx, `INSERT INTO orders (customer) VALUES ('Ada')`)
	must(err)
	must(pub.WithContext(store.WithTx(ctx, tx)).Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("Ada's order"))))
	must(tx.Commit()) // both, or neither

	must(router.Run(ctx))
	must(store.Close())
	// Output: billed Ada's order
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
