package publisher_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

// A message is published together with the business data, or not at all.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outmill")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "shop.db"), sqlite.Config{}, nil)
	check(err)
	defer func() { check(store.Close()) }()
	check(store.Ensure(ctx))
	_, err = store.DB().ExecContext(ctx, "CREATE TABLE shop (id TEXT PRIMARY KEY)")
	check(err)
	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, watermill.NopLogger{})
	check(err)

	place := func(id string) error {
		return store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			placed := message.NewMessage(watermill.NewUUID(), message.Payload(id))
			outmill.SetKey(placed, id)
			if err := pub.WithContext(ctx).Publish("orders", placed); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO shop (id) VALUES (?)", id)
			return err
		})
	}
	fmt.Println("first:", place("o1") == nil)
	fmt.Println("again:", place("o1") == nil)
	fmt.Println("without a transaction:", errors.Is(pub.Publish("orders", message.NewMessage("m", nil)), outmill.ErrNoTx))

	records, err := store.List(ctx, outmill.ListQuery{Topic: "orders"})
	check(err)
	fmt.Println("published:", len(records))
	// Output:
	// first: true
	// again: false
	// without a transaction: true
	// published: 1
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
