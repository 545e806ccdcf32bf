package publisher_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

// A receipt says of each message whether it was a duplicate, and which groups it reaches
// under which id.
func ExampleWithReceipt() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outmill")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "shop.db"), sqlite.Config{}, nil)
	check(err)
	defer func() { check(store.Close()) }()
	check(store.Ensure(ctx))
	check(store.RegisterGroup(ctx, outmill.Registration{Group: "mail"}, outmill.Registration{Group: "billing"}))
	pub, err := publisher.New(store, publisher.Config{}, nil)
	check(err)

	placed, again := message.NewMessage("m1", nil), message.NewMessage("m2", nil)
	outmill.SetDedupKey(placed, "order 1")
	outmill.SetDedupKey(again, "order 1")

	ctx, receipt := publisher.WithReceipt(ctx)
	check(pub.WithContext(ctx).Publish("orders", placed, again))
	for _, p := range receipt.Messages() {
		fmt.Println(p.Topic, p.MessageID, "duplicate:", p.Duplicate, "groups:", len(p.Groups))
	}
	record, err := store.Get(ctx, receipt.Messages()[0].Groups["billing"])
	check(err)
	fmt.Println(record.Group, record.MessageID)
	// Output:
	// orders m1 duplicate: false groups: 2
	// orders m2 duplicate: true groups: 0
	// billing m1
}
