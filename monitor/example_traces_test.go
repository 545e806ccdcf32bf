package monitor_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

// A program that traces publishes with the store's decorator, and forwards to a traced broker.
// The provider is that of its OpenTelemetry SDK.
func ExampleTraces() {
	store, err := sqlite.Open(context.Background(), "file::memory:", sqlite.Config{EnsureSchema: true}, nil)
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	traces, err := monitor.NewTraces(noop.NewTracerProvider(), monitor.TracesConfig{})
	if err != nil {
		panic(err)
	}
	traced, err := traces.Store(store)
	if err != nil {
		panic(err)
	}
	broker, err := traces.Publisher("forward", accepting{})
	if err != nil {
		panic(err)
	}
	pub, err := publisher.New(traced, publisher.Config{}, nil)
	if err != nil {
		panic(err)
	}
	// The context of the request carries its span.
	if err := pub.WithContext(context.Background()).Publish("orders", message.NewMessage("1", nil)); err != nil {
		panic(err)
	}
	fwd, err := forwarder.New(traced, broker, forwarder.Config{}, nil)
	if err != nil {
		panic(err)
	}
	sent, err := fwd.Once(context.Background())
	fmt.Println(sent, err)
	// Output: 1 <nil>
}
