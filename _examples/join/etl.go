package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

var (
	extracts = []string{"extract.customers", "extract.orders", "extract.products"}

	errTimeout     = errors.New("the source does not answer")
	errNoCatalogue = errors.New("the source has no catalogue")
)

// etl extracts and transforms. In a service its router would run as long as the service.
type etl struct {
	store  *sqlite.Store
	pub    *publisher.Publisher
	sub    *subscriber.Subscriber
	router *message.Router
	// ends has the outcome for each customer.
	ends chan string

	running sync.WaitGroup
	stop    context.CancelFunc
}

func startETL(ctx context.Context, store *sqlite.Store) (*etl, error) {
	e := &etl{store: store, ends: make(chan string, 100)}
	ctx, e.stop = context.WithCancel(ctx)
	if err := e.build(); err != nil {
		e.close()
		return nil, err
	}
	ended := make(chan error, 1)
	e.running.Go(func() { ended <- e.router.Run(ctx) })
	select {
	case <-e.router.Running():
		return e, nil
	case err := <-ended:
		e.close()
		return nil, errors.Join(err, ctx.Err())
	}
}

func (e *etl) build() (err error) {
	if e.pub, err = publisher.New(e.store, publisher.Config{}, nil); err != nil {
		return err
	}
	// Failed messages are retried soon, so that the example is fast.
	quick := subscriber.Config{Retry: outmill.RetryPolicy{InitialInterval: 20 * time.Millisecond}}
	if e.sub, err = subscriber.New(e.store, quick, nil); err != nil {
		return err
	}
	if e.router, err = message.NewRouter(message.RouterConfig{}, nil); err != nil {
		return err
	}
	e.router.AddMiddleware(subscriber.KeepError)
	for _, topic := range extracts {
		e.router.AddConsumerHandler(topic, topic, e.sub, extract)
	}
	e.router.AddConsumerHandler("transform", "etl.transform", e.sub, e.transform)
	e.router.AddConsumerHandler("alert", "etl.alert", e.sub, e.alert)
	_, err = joins.AddHandlers(e.router, e.sub, joins.Config{Store: e.store})
	return err
}

// begin does all the work of the application in one transaction, so the job starts as a whole or
// not at all.
func (e *etl) begin(ctx context.Context, customer string) error {
	return e.store.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error {
		id, err := joins.Start(ctx, e.store, joins.Join{
			GroupingKey:   customer,
			ExpectedSteps: len(extracts),
			Metadata:      map[string]string{"type": "etl", "phase": "extract"},
		})
		if err != nil {
			return err
		}
		for _, topic := range extracts {
			step := message.NewMessage(watermill.NewUUID(), []byte(customer))
			joins.AddStep(step, id)
			if err := e.pub.WithContext(ctx).Publish(topic, step); err != nil {
				return err
			}
		}
		next := message.NewMessage(watermill.NewUUID(), []byte(customer))
		return joins.Wait(ctx, e.pub, joins.WaitRequest{
			Join:                id,
			FailIfAnyStepFailed: true,
			OnComplete:          joins.Next{Topic: "etl.transform", Message: next},
			OnFail:              joins.Next{Topic: "etl.alert", Message: next},
		})
	})
}

// extract is the handler of a step, and only does its work. Ada's orders fail at first, which does
// not count in the join. Bob's products fail for good.
func extract(msg *message.Message) error {
	delivery, _ := outmill.Delivery(msg.Context())
	switch what := delivery.Topic + " of " + string(msg.Payload); {
	case what == "extract.orders of Ada" && delivery.Attempt == 1:
		return errTimeout
	case what == "extract.products of Bob":
		return outmill.Permanent(errNoCatalogue)
	}
	return nil
}

// transform is called when all extracts of a customer are finished.
func (e *etl) transform(msg *message.Message) error {
	e.ends <- fmt.Sprintf("%s: transformed, %s of %s steps", msg.Payload,
		msg.Metadata[joins.MetadataCompletedSteps], msg.Metadata[joins.MetadataExpectedSteps])
	return nil
}

// alert is called when all extracts have ended and one of them has failed.
func (e *etl) alert(msg *message.Message) error {
	e.ends <- fmt.Sprintf("%s: not transformed, %s of %s steps, %s failed: %s", msg.Payload,
		msg.Metadata[joins.MetadataCompletedSteps], msg.Metadata[joins.MetadataExpectedSteps],
		msg.Metadata[joins.MetadataFailedSteps], msg.Metadata[joins.MetadataReason])
	return nil
}

// close ends the router; it may be called more than once.
func (e *etl) close() {
	e.stop()
	e.running.Wait()
}
