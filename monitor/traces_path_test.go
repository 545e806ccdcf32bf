package monitor_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
)

func TestTraces_Path(t *testing.T) {
	t.Parallel()

	t.Run("the page of traces lists exactly the spans and their kinds", func(t *testing.T) {
		t.Parallel()
		by := &recorder{roots: true}
		store := traced(t, by, monitor.TracesConfig{})
		require.NoError(t, store.Append(t.Context(), records("TOPIC", 1)...))
		rec := claim(t, store, "TOPIC")[0]
		msg := storekit.MessageOf(rec)
		msg.SetContext(storekit.NewHandling("shop", rec, nil).Context(t.Context()))
		_, err := traces(t, by, monitor.TracesConfig{}).Middleware(message.PassthroughHandler)(msg)
		require.NoError(t, err)
		to, err := traces(t, by, monitor.TracesConfig{}).Publisher("forward", accepting{})
		require.NoError(t, err)
		require.NoError(t, to.Publish("TOPIC", msg))
		var made []string
		for _, span := range by.ended {
			kind := strings.ToUpper(span.config.SpanKind().String())
			made = append(made, span.name+" "+kind+" "+span.attribute(t, "messaging.operation.type"))
		}
		page, err := os.ReadFile("../docs/traces.md")
		require.NoError(t, err)
		var listed []string
		for _, row := range regexp.MustCompile("(?m)^\\| `(.+)` \\| ([A-Z]+) \\| .+ \\| `(.+)` \\|$").FindAllStringSubmatch(string(page), -1) {
			listed = append(listed, row[1]+" "+row[2]+" "+row[3])
		}
		require.Equal(t, listed, made)
	})

	t.Run("the trace of a publish goes on in the headers of Kafka, with a span for each step", func(t *testing.T) {
		t.Parallel()
		by, broker := &recorder{roots: true}, kafkatest.Fake(t)
		store := traced(t, by, monitor.TracesConfig{})
		plain, err := kafka.NewPublisher(kafka.Config{Brokers: broker.Addrs}, nil)
		require.NoError(t, err)
		defer func() { _ = plain.Close() }()
		to, err := traces(t, by, monitor.TracesConfig{}).Publisher("forward", plain)
		require.NoError(t, err)
		fwd, err := forwarder.New(store, to, forwarder.Config{}, nil)
		require.NoError(t, err)
		ctx, request := starter{by: by}.Start(t.Context(), "request")
		pub, err := publisher.New(store, publisher.Config{}, nil)
		require.NoError(t, err)
		require.NoError(t, pub.WithContext(ctx).Publish("orders", message.NewMessage("m1", nil), message.NewMessage("m2", nil)))
		n, err := fwd.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, n)
		published := by.only(t, "publish orders")
		require.Equal(t, request.SpanContext().TraceID(), published.own.TraceID())
		require.Equal(t, request.SpanContext().SpanID(), published.parent.SpanID())
		sent := kafkatest.ReadAll(t, broker.Addrs, "orders")
		require.Len(t, sent, 2)
		for _, record := range sent {
			headers := map[string]string{}
			for _, h := range record.Headers {
				headers[h.Key] = string(h.Value)
			}
			want := "00-" + request.SpanContext().TraceID().String() + "-" + published.own.SpanID().String() + "-01"
			require.Equal(t, want, headers["traceparent"])
		}
		for _, step := range []string{"claim orders", "forward orders"} {
			span := by.only(t, step)
			require.Equal(t, published.own.SpanID(), span.parent.SpanID(), step)
			require.Equal(t, published.own.TraceID(), span.own.TraceID(), step)
		}
		require.NoError(t, fwd.Close())
	})

	t.Run("a handler has its span in the context, and what it publishes belongs to the trace", func(t *testing.T) {
		t.Parallel()
		by := &recorder{roots: true}
		store := traced(t, by, monitor.TracesConfig{})
		pub, err := publisher.New(store, publisher.Config{}, nil)
		require.NoError(t, err)
		sub, err := subscriber.New(store, subscriber.Config{PollInterval: 5 * time.Millisecond}, nil)
		require.NoError(t, err)
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Minute}, watermill.NopLogger{})
		require.NoError(t, err)
		router.AddMiddleware(traces(t, by, monitor.TracesConfig{}).Middleware, subscriber.KeepError)
		inside, mails := make(chan trace.SpanContext, 1), make(chan string, 2)
		router.AddHandler("bill", "orders", sub, "mails", pub, func(msg *message.Message) ([]*message.Message, error) {
			inside <- trace.SpanContextFromContext(msg.Context())
			direct := message.NewMessage("direct", nil)
			direct.SetContext(msg.Context())
			return []*message.Message{message.NewMessage("returned", nil)}, pub.Publish("mails", direct)
		})
		router.AddConsumerHandler("mail", "mails", sub, func(msg *message.Message) error {
			mails <- msg.Metadata.Get(outmill.MetadataTraceParent)
			return nil
		})
		ran := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ran <- router.Run(ctx) }()
		<-router.Running()
		require.NoError(t, pub.Publish("orders", message.NewMessage("m1", nil)))
		handling := <-inside
		for range 2 {
			require.Contains(t, <-mails, handling.TraceID().String())
		}
		stop()
		require.NoError(t, <-ran)
		require.NoError(t, sub.Close())
		process := by.only(t, "process orders")
		require.Equal(t, handling, process.own)
		for _, span := range by.named("publish mails") {
			require.Equal(t, handling.SpanID(), span.parent.SpanID())
		}
		require.Len(t, by.named("publish mails"), 2)
	})
}
