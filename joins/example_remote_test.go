package joins_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

// Each branch counts its stock in a database of its own. When all have done so, the head office
// prints the report.
func Example_otherStores() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outmill")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	branches := tenants.Static{}
	for _, key := range []string{"office", "oslo", "rome"} {
		store, err := sqlite.Open(ctx, filepath.Join(dir, key+".db"), sqlite.Config{}, nil)
		check(err)
		defer func() { check(store.Close()) }()
		branches = append(branches, tenants.Tenant{Key: key, Store: store})
	}
	set, err := tenants.New(ctx, tenants.Config{Discovery: branches, Ensure: true}, nil)
	check(err)
	defer func() { check(set.Close()) }()
	pub, err := publisher.New(set, publisher.Config{}, nil)
	check(err)
	sub, err := subscriber.New(set, subscriber.Config{}, nil)
	check(err)

	router, err := message.NewRouter(message.RouterConfig{}, nil)
	check(err)
	_, err = joins.AddHandlers(router, sub, joins.Config{Store: set})
	check(err)
	_, err = joins.AddRemoteHandlers(router, sub, joins.RemoteConfig{Stores: set.Outbox})
	check(err)
	router.AddConsumerHandler("count", "count", sub, func(*message.Message) error { return nil })
	printed := make(chan string, 1)
	router.AddConsumerHandler("print", "print", sub, func(msg *message.Message) error {
		printed <- fmt.Sprintf("%s: %s of %s", msg.Payload, msg.Metadata[joins.MetadataCompletedSteps], msg.Metadata[joins.MetadataExpectedSteps])
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()

	err = set.Transact(tenants.WithTenant(ctx, "office"), func(ctx context.Context) error {
		id, err := joins.Start(ctx, set, joins.Join{ExpectedSteps: 2})
		if err != nil {
			return err
		}
		for _, branch := range []string{"oslo", "rome"} {
			msg := message.NewMessage(watermill.NewUUID(), []byte("all shelves"))
			err := joins.SendSteps(ctx, set, id, joins.RemoteStep{Store: branch, Topic: "count", Message: msg})
			if err != nil {
				return err
			}
		}
		report := message.NewMessage(watermill.NewUUID(), []byte("stock"))
		return joins.Wait(ctx, pub, joins.WaitRequest{Join: id, OnComplete: joins.Next{Topic: "print", Message: report}})
	})
	check(err)
	fmt.Println(<-printed)
	check(router.Close())
	check(<-ended)
	// Output:
	// stock: 2 of 2
}
