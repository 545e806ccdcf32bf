package joins_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

// Two reports are written, in any order; when both are there, they are sent.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outmill")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "office.db"), sqlite.Config{}, nil)
	check(err)
	defer func() { check(store.Close()) }()
	check(store.Ensure(ctx))
	pub, err := publisher.New(store, publisher.Config{}, nil)
	check(err)
	sub, err := subscriber.New(store, subscriber.Config{}, nil)
	check(err)

	router, err := message.NewRouter(message.RouterConfig{}, nil)
	check(err)
	router.AddConsumerHandler("write", "write", sub, func(*message.Message) error { return nil })
	sent := make(chan string, 1)
	router.AddConsumerHandler("send", "send", sub, func(msg *message.Message) error {
		sent <- fmt.Sprintf("%s: %s of %s", msg.Payload, msg.Metadata[joins.MetadataCompletedSteps], msg.Metadata[joins.MetadataExpectedSteps])
		return nil
	})
	_, err = joins.AddHandlers(router, sub, joins.Config{Store: store})
	check(err)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()

	err = store.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error {
		id, err := joins.Start(ctx, store, joins.Join{ExpectedSteps: 2})
		if err != nil {
			return err
		}
		for _, report := range []string{"costs", "sales"} {
			msg := message.NewMessage(watermill.NewUUID(), []byte(report))
			joins.AddStep(msg, id)
			if err := pub.WithContext(ctx).Publish("write", msg); err != nil {
				return err
			}
		}
		reports := message.NewMessage(watermill.NewUUID(), []byte("reports"))
		return joins.Wait(ctx, pub, joins.WaitRequest{
			Join:       id,
			OnComplete: joins.Next{Topic: "send", Message: reports},
		})
	})
	check(err)
	fmt.Println(<-sent)
	check(router.Close())
	check(<-ended)
	// Output:
	// reports: 2 of 2
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
