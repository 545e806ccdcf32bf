// Command traces follows one order with OpenTelemetry. A request publishes the order, a router
// handler gets it and publishes a mail, and a forwarder moves the mail to a broker. It prints the
// spans of the trace, and the W3C trace context that the broker gets.
//
// It runs on SQLite in memory and with a broker in this process, so it needs Go only:
//
//	go run ./traces
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "traces:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	// A service has an exporter to its tracing backend here, and a sampler such as
	// sdk.ParentBased(sdk.TraceIDRatioBased(0.01)).
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	defer func() { err = errors.Join(err, provider.Shutdown(context.WithoutCancel(ctx))) }()
	traces, err := monitor.NewTraces(provider, monitor.TracesConfig{})
	if err != nil {
		return err
	}
	plain, err := sqlite.Open(ctx, "file::memory:", sqlite.Config{Name: "shop", EnsureSchema: true}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plain.Close()) }()
	// The store makes the spans of publishes and claims.
	store, err := traces.Store(plain)
	if err != nil {
		return err
	}
	pub, err := publisher.New(store, publisher.Config{}, nil)
	if err != nil {
		return err
	}

	request, span := provider.Tracer("shop").Start(ctx, "POST /orders")
	err = pub.WithContext(request).Publish("orders", message.NewMessage("order-1", []byte(`{"order":1}`)))
	span.End()
	if err != nil {
		return err
	}
	if err := handle(ctx, store, pub, traces); err != nil {
		return err
	}
	got, err := forward(ctx, store, traces)
	if err != nil {
		return err
	}
	printTree(out, spans.GetSpans())
	fmt.Fprintf(out, "the broker got the traceparent %s\n", got)
	return nil
}

// handle runs a router until its handler has published a mail for the order.
func handle(ctx context.Context, store outmill.Store, pub *publisher.Publisher, traces *monitor.Traces) (err error) {
	sub, err := subscriber.New(store, subscriber.Config{}, nil)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	router.AddMiddleware(
		// The outermost middleware ends last, when the span has ended.
		func(next message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				defer stop()
				return next(msg)
			}
		},
		traces.Middleware, subscriber.KeepError)
	router.AddConsumerHandler("confirm", "orders", sub, func(order *message.Message) error {
		// The message's context carries the span of the handling.
		mail := message.NewMessage("mail-1", []byte(`{"to":"ada"}`))
		mail.SetContext(order.Context())
		return pub.Publish("mails", mail)
	})
	return router.Run(ctx)
}

// forward moves the mail to the broker, and returns the trace context that the broker got.
func forward(ctx context.Context, store outmill.Store, traces *monitor.Traces) (string, error) {
	broker := &broker{}
	to, err := traces.Publisher("forward", broker)
	if err != nil {
		return "", err
	}
	fwd, err := forwarder.New(store, to, forwarder.Config{Topics: outmill.Topics{Include: []string{"mails"}}}, nil)
	if err != nil {
		return "", err
	}
	if _, err := fwd.Once(ctx); err != nil {
		return "", err
	}
	return broker.traceParent, fwd.Close()
}

// broker stands for Kafka, where the metadata becomes headers.
type broker struct{ traceParent string }

func (b *broker) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		b.traceParent = msg.Metadata.Get(outmill.MetadataTraceParent)
	}
	return nil
}

func (b *broker) Close() error { return nil }
