package prometheus_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/storekit"
)

// tracing returns spans made by OpenTelemetry's SDK with that sampler.
func tracing(t *testing.T, sampler sdk.Sampler) (*monitor.Traces, *tracetest.SpanRecorder) {
	t.Helper()
	kept := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSampler(sampler), sdk.WithSpanProcessor(kept))
	t.Cleanup(func() { _ = provider.Shutdown(context.WithoutCancel(t.Context())) })
	traces, err := monitor.NewTraces(provider, monitor.TracesConfig{})
	require.NoError(t, err)
	return traces, kept
}

// taking is a broker that accepts everything, and keeps the contexts of the messages.
type taking struct{ parents []string }

func (b *taking) Publish(string, ...*message.Message) error { return nil }
func (b *taking) Close() error                              { return nil }
func (b *taking) PublishBatch(_ context.Context, batch []storekit.Outgoing) error {
	for _, out := range batch {
		b.parents = append(b.parents, out.Message.Metadata.Get(outmill.MetadataTraceParent))
	}
	return nil
}

// forwardAll publishes messages one by one and forwards them.
func forwardAll(t *testing.T, traces *monitor.Traces, n int) *taking {
	t.Helper()
	store, err := traces.Store(open(t, "main"))
	require.NoError(t, err)
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	for _, msg := range messages(n) {
		require.NoError(t, pub.Publish("orders", msg))
	}
	broker := &taking{}
	to, err := traces.Publisher("forward", broker)
	require.NoError(t, err)
	fwd, err := forwarder.New(store, to, forwarder.Config{BatchSize: 500}, nil)
	require.NoError(t, err)
	sent, err := fwd.Once(t.Context())
	require.NoError(t, err)
	require.NoError(t, fwd.Close())
	require.Equal(t, n, sent)
	return broker
}

func TestTraces(t *testing.T) {
	t.Parallel()

	t.Run("the SDK's sampler decides at the publish, and every later step follows", func(t *testing.T) {
		t.Parallel()
		const n = 300
		traces, kept := tracing(t, sdk.ParentBased(sdk.TraceIDRatioBased(.3)))
		broker := forwardAll(t, traces, n)
		steps := map[string]map[trace.TraceID]bool{}
		for _, span := range kept.Ended() {
			if steps[span.Name()] == nil {
				steps[span.Name()] = map[trace.TraceID]bool{}
			}
			steps[span.Name()][span.SpanContext().TraceID()] = true
		}
		require.NotEmpty(t, steps["publish orders"])
		require.Less(t, len(steps["publish orders"]), n)
		require.Equal(t, steps["publish orders"], steps["claim orders"])
		require.Equal(t, steps["publish orders"], steps["forward orders"])
		sampled := 0
		for _, parent := range broker.parents {
			if parent != "" {
				sampled++
			}
		}
		require.Len(t, steps["publish orders"], sampled)
	})

	t.Run("a batch larger than the SDK's limit of links keeps a span for each trace", func(t *testing.T) {
		t.Parallel()
		traces, kept := tracing(t, sdk.AlwaysSample())
		forwardAll(t, traces, 200)
		for _, span := range kept.Ended() {
			require.Zero(t, span.DroppedLinks(), span.Name())
		}
		require.Len(t, kept.Ended(), 600)
	})
}

//nolint:paralleltest // AllocsPerRun counts those of all
func TestTraces_Allocations(t *testing.T) {
	t.Run("a message that the SDK's sampler leaves out allocates nothing when it is forwarded", func(t *testing.T) {
		traces, _ := tracing(t, sdk.ParentBased(sdk.NeverSample()))
		to, err := traces.Publisher("forward", &idle{})
		require.NoError(t, err)
		batch := make([]storekit.Outgoing, 0, 100)
		for _, msg := range messages(100) {
			outmill.SetTrace(msg, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "")
			batch = append(batch, storekit.Outgoing{Topic: "orders", Message: msg})
		}
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = to.(storekit.BatchPublisher).PublishBatch(context.Background(), batch) }))
	})
}

// idle is a broker that keeps nothing.
type idle struct{ message.Publisher }

func (*idle) PublishBatch(context.Context, []storekit.Outgoing) error { return nil }
