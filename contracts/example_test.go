package contracts_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/contracts"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

// Invoice is what version 2 of the contract has.
type Invoice struct {
	Number string `json:"number"`
	Cents  int    `json:"cents"`
}

// InvoiceV1 is what version 1 had.
type InvoiceV1 struct {
	Number string  `json:"number"`
	Total  float64 `json:"total"`
}

// Validate is called before an invoice is published.
func (i Invoice) Validate() error {
	if i.Number == "" {
		return errors.New("the number is empty")
	}
	return nil
}

// IntegrationEvent says that other services may get invoices.
func (Invoice) IntegrationEvent() {}

func invoices() *contracts.Registry {
	registry, err := contracts.NewRegistry(
		contracts.Of[Invoice]("billing.invoice", 2,
			contracts.UpcastFrom(1, func(old InvoiceV1) (Invoice, error) {
				return Invoice{Number: old.Number, Cents: int(old.Total * 100)}, nil
			}),
		),
		contracts.Of[Page[Invoice]]("billing.invoices", 1),
	)
	check(err)
	return registry
}

// An event is published in a transaction, and its handler gets it, together with one that an
// older program has published.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outmill")
	check(err)
	defer func() { check(os.RemoveAll(dir)) }()
	store, err := sqlite.Open(ctx, filepath.Join(dir, "billing.db"), sqlite.Config{EnsureSchema: true}, nil)
	check(err)
	defer func() { check(store.Close()) }()

	registry := invoices()
	marshaler := registry.Marshaler(contracts.MarshalerConfig{})
	pub, err := publisher.New(store, publisher.Config{}, nil)
	check(err)
	bus, err := cqrs.NewEventBusWithConfig(pub, cqrs.EventBusConfig{
		GeneratePublishTopic: func(p cqrs.GenerateEventPublishTopicParams) (string, error) { return p.EventName, nil },
		Marshaler:            marshaler,
	})
	check(err)

	router, err := message.NewRouter(message.RouterConfig{}, nil)
	check(err)
	router.AddMiddleware(subscriber.KeepError, marshaler.RefuseUnknown)
	events, err := cqrs.NewEventProcessorWithConfig(router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(p cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) {
			contract, err := registry.ContractOf(p.EventHandler.NewEvent())
			return contract.Name(), err
		},
		SubscriberConstructor: func(p cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return subscriber.New(store, subscriber.Config{Group: p.HandlerName, Order: outmill.OrderTopic}, nil)
		},
		Marshaler: marshaler,
	})
	check(err)
	handled := make(chan Invoice)
	check(events.AddHandlers(cqrs.NewEventHandler("mail", func(_ context.Context, invoice *Invoice) error {
		handled <- *invoice
		return nil
	})))
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()

	older := message.NewMessage("from an older program", []byte(`{"number":"I-1","total":19.5}`))
	older.Metadata.Set(contracts.MetadataName, "billing.invoice")
	older.Metadata.Set(contracts.MetadataVersion, "1")
	check(pub.Publish("billing.invoice", older))
	check(store.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error {
		return bus.Publish(ctx, Invoice{Number: "I-2", Cents: 500})
	}))
	fmt.Println(<-handled)
	fmt.Println(<-handled)
	check(router.Close())
	check(<-ended)
	// Output:
	// {I-1 1950}
	// {I-2 500}
}

func ExampleMarshaler() {
	marshaler := invoices().Marshaler(contracts.MarshalerConfig{})
	msg, err := marshaler.Marshal(Page[Invoice]{Items: []Invoice{{Number: "I-1", Cents: 500}}})
	check(err)
	fmt.Println(msg.Metadata[contracts.MetadataName], msg.Metadata[contracts.MetadataVersion], string(msg.Payload))

	_, err = marshaler.Marshal(Invoice{})
	fmt.Println(err)

	msg.Metadata[contracts.MetadataVersion] = "2"
	err = marshaler.Unmarshal(msg, &Page[Invoice]{})
	fmt.Println(errors.Is(err, contracts.ErrUnknownContract), outmill.IsPermanent(err))
	// Output:
	// billing.invoices 1 {"items":[{"number":"I-1","cents":500}]}
	// contracts: invalid message: billing.invoice version 2: its Validate method returned an error: the number is empty
	// true true
}

// A registry refuses what would fail later.
func ExampleNewRegistry() {
	_, err := contracts.NewRegistry(
		contracts.Of[Invoice]("billing.invoice", 2),
		contracts.Of[InvoiceV1]("billing.invoice", 1),
	)
	fmt.Println(errors.Is(err, contracts.ErrDuplicateContract))
	// Output: true
}

// Three versions of one contract, of which the second has a type that is gone from the program.
func ExampleUpcastFrom() {
	registry, err := contracts.NewRegistry(contracts.Of[Invoice]("billing.invoice", 3,
		contracts.UpcastFrom(1, func(old InvoiceV1) (map[string]any, error) {
			return map[string]any{"number": old.Number, "amount": old.Total}, nil
		}),
		contracts.UpcastFrom(2, func(old map[string]any) (Invoice, error) {
			number, _ := old["number"].(string)
			amount, _ := old["amount"].(float64)
			return Invoice{Number: number, Cents: int(amount * 100)}, nil
		}),
	))
	check(err)
	var invoice Invoice
	check(registry.Decode("billing.invoice", 1, []byte(`{"number":"I-1","total":19.5}`), &invoice))
	fmt.Println(invoice)
	check(registry.Decode("billing.invoice", 2, []byte(`{"number":"I-2","amount":5}`), &invoice))
	fmt.Println(invoice)
	// Output:
	// {I-1 1950}
	// {I-2 500}
}

// The bus for other services takes events that are marked for them.
func ExampleIntegrationBus() {
	bus, err := cqrs.NewEventBusWithConfig(printing{}, cqrs.EventBusConfig{
		GeneratePublishTopic: func(p cqrs.GenerateEventPublishTopicParams) (string, error) { return "public." + p.EventName, nil },
		Marshaler:            invoices().Marshaler(contracts.MarshalerConfig{}),
	})
	check(err)
	integration, err := contracts.NewIntegrationBus(bus)
	check(err)
	check(integration.Publish(context.Background(), Invoice{Number: "I-1", Cents: 500}))
	// integration.Publish(ctx, InvoiceV1{}) does not compile: missing method IntegrationEvent
	// Output: public.billing.invoice {"number":"I-1","cents":500}
}

// Options change the message of one call.
func ExampleNewIntegrationBusWithConfig() {
	bus, err := contracts.NewIntegrationBusWithConfig(printing{}, cqrs.EventBusConfig{
		GeneratePublishTopic: func(p cqrs.GenerateEventPublishTopicParams) (string, error) { return "public." + p.EventName, nil },
		Marshaler:            invoices().Marshaler(contracts.MarshalerConfig{}),
	})
	check(err)
	invoice := Invoice{Number: "I-1", Cents: 500}
	check(bus.Publish(context.Background(), invoice, contracts.WithMessageID("invoice/I-1"), contracts.WithTopic("partners")))
	check(bus.Publish(context.Background(), invoice, contracts.WithCorrelationID("order-7"), contracts.WithVisibleAfter(time.Minute)))
	// Output:
	// partners {"number":"I-1","cents":500}
	// public.billing.invoice {"number":"I-1","cents":500}
}

// printing stands for any publisher.
type printing struct{}

func (printing) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		fmt.Println(topic, string(msg.Payload))
	}
	return nil
}

func (printing) Close() error { return nil }

func check(err error) {
	if err != nil {
		panic(err)
	}
}
