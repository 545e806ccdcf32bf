package outmill_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Setters write metadata. On delivery the message still has the metadata that identifies
// it, but not the metadata that instructed the outbox.
func ExampleSetKey() {
	msg := message.NewMessage("m-1", []byte(`{"order":17}`))
	outmill.SetKey(msg, "order-17")
	outmill.SetCorrelationID(msg, "checkout-4")
	outmill.SetDelay(msg, time.Minute)
	outmill.SetDedupKey(msg, "order-17-placed")

	rec, err := storekit.RecordOf("orders", msg)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("record:", rec.Key, rec.CorrelationID, rec.Delay, rec.DedupKey)
	fmt.Println("delivered:", storekit.MessageOf(rec).Metadata)
	// Output:
	// record: order-17 checkout-4 1m0s order-17-placed
	// delivered: map[correlation_id:checkout-4 outmill_key:order-17]
}

func ExampleRetryPolicy() {
	var policy outmill.RetryPolicy // the default
	for failure := 1; failure <= 6; failure++ {
		fmt.Println(policy.Delay(failure))
	}
	fmt.Println("after the 10th:", policy.Exhausted(10))
	// Output:
	// 2s
	// 4s
	// 8s
	// 16s
	// 32s
	// 1m0s
	// after the 10th: true
}

// The error of a handler decides the outcome of the message.
func ExamplePermanent() {
	errMalformed, errBusy := errors.New("malformed order"), errors.New("warehouse is busy")
	handle := func(payload string) error {
		switch payload {
		case "malformed":
			return outmill.Permanent(errMalformed)
		case "busy":
			return fmt.Errorf("reserve: %w", outmill.RetryAfter(errBusy, time.Hour))
		case "early":
			return outmill.Snooze(5 * time.Second)
		}
		return errors.New("anything else")
	}
	for _, payload := range []string{"malformed", "busy", "early", "other"} {
		fmt.Printf("%-9s %+v\n", payload, storekit.Decide(outmill.RetryPolicy{}, 0, handle(payload)))
	}
	// Output:
	// malformed {Dead:true Snooze:false Delay:0s}
	// busy      {Dead:false Snooze:false Delay:1h0m0s}
	// early     {Dead:false Snooze:true Delay:5s}
	// other     {Dead:false Snooze:false Delay:2s}
}

func ExampleTopics() {
	topics := outmill.Topics{
		Include: []string{"orders.*", outmill.Exact("odd*name")},
		Exclude: []string{"*.poison"},
	}
	for _, topic := range []string{"orders.placed", "orders.placed.poison", "odd*name", "oddername"} {
		fmt.Println(topic, topics.Match(topic))
	}
	// Output:
	// orders.placed true
	// orders.placed.poison false
	// odd*name true
	// oddername false
}

// Delivery tells a handler about the record behind its message.
func ExampleDelivery() {
	handler := func(msg *message.Message) error {
		if delivery, ok := outmill.Delivery(msg.Context()); ok && delivery.Attempt > 1 {
			fmt.Println("not the first attempt:", delivery.Attempt)
		}
		return nil
	}

	msg := message.NewMessage("m-1", nil)
	// A subscriber does this.
	rec := &outmill.Record{ID: outmill.NewWorkItemID(), Topic: "orders", Attempts: 2}
	msg.SetContext(storekit.NewHandling("main", rec, nil).Context(context.Background()))

	_ = handler(msg)
	// Output: not the first attempt: 3
}

// A publisher that batches names the messages that it could not deliver.
func ExamplePublishError() {
	err := error(&storekit.PublishError{Total: 3, Failed: []storekit.FailedMessage{
		{Index: 1, MessageID: "m-2", Topic: "orders", Err: outmill.Permanent(errors.New("message too large"))},
	}})

	var partly *storekit.PublishError
	if errors.As(err, &partly) {
		for _, failed := range partly.Failed {
			fmt.Println(failed.MessageID, "permanent:", outmill.IsPermanent(failed.Err))
		}
	}
	fmt.Println(err)
	// Output:
	// m-2 permanent: true
	// outmill: 1 of 3 messages not published; message 1 (m-2) to "orders": message too large
}

// A store's package registers its provider in an init function; programs import
// the package for that.
func ExampleRegisterProvider() {
	outmill.RegisterProvider(outmill.Provider{
		Name:    "example",
		Schemes: []string{"example"},
		Open: func(_ context.Context, url string, _ watermill.LoggerAdapter) (outmill.Store, error) {
			return &openedStore{url: url}, nil // your store
		},
	})
}

func ExampleRedactURL() {
	fmt.Println(outmill.RedactURL("postgres://me:secret@db:5432/orders"))
	// Output: postgres://me:xxxxx@db:5432/orders
}
