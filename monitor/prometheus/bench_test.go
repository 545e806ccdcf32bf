package prometheus_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/storekit"
)

// standing is a store whose claims return the same records.
type standing struct {
	outmill.Store
	found []*outmill.Record
}

func (s standing) Name() string { return "standing" }
func (s standing) Claim(context.Context, outmill.ClaimRequest) ([]*outmill.Record, error) {
	return s.found, nil
}

// BenchmarkForward is the own time of the decorators and the SDK for one message of a batch of
// 500, in a claim and a publish.
func BenchmarkForward(b *testing.B) {
	for name, sampled := range map[string]int{"nothing sampled": 0, "1 % sampled": 5, "all sampled": 500} {
		b.Run("traces, "+name, func(b *testing.B) {
			provider := sdk.NewTracerProvider(sdk.WithBatcher(dropping{}))
			defer func() { _ = provider.Shutdown(context.WithoutCancel(b.Context())) }()
			traces, err := monitor.NewTraces(provider, monitor.TracesConfig{})
			require.NoError(b, err)
			list, batch := sampledBatch(500, sampled)
			store, err := traces.Store(standing{found: list})
			require.NoError(b, err)
			pub, err := traces.Publisher("forward", &idle{})
			require.NoError(b, err)
			forwardBatches(b, store, pub.(storekit.BatchPublisher), batch)
		})
	}
	b.Run("metrics", func(b *testing.B) {
		provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
		metrics, err := monitor.NewMetrics(provider, monitor.MetricsConfig{})
		require.NoError(b, err)
		list, batch := sampledBatch(500, 0)
		store, err := metrics.Store(standing{found: list})
		require.NoError(b, err)
		pub, err := metrics.Publisher("forward", &idle{})
		require.NoError(b, err)
		forwardBatches(b, store, pub.(storekit.BatchPublisher), batch)
	})
}

// sampledBatch returns records and messages, of which the first are sampled, each in a trace of
// its own.
func sampledBatch(n, sampled int) (list []*outmill.Record, batch []storekit.Outgoing) {
	for i, msg := range messages(n) {
		rec := &outmill.Record{Topic: "orders", Group: "forwarder", MessageID: msg.UUID, CreatedAt: time.Now()}
		msg.SetContext(storekit.NewHandling("standing", rec, nil).Context(context.Background()))
		if i < sampled {
			rec.TraceParent = fmt.Sprintf("00-%032x-b7ad6b7169203331-01", i+1)
			outmill.SetTrace(msg, rec.TraceParent, "")
		}
		list, batch = append(list, rec), append(batch, storekit.Outgoing{Topic: "orders", Message: msg})
	}
	return list, batch
}

func forwardBatches(b *testing.B, store outmill.Queue, pub storekit.BatchPublisher, batch []storekit.Outgoing) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = store.Claim(context.Background(), outmill.ClaimRequest{})
		_ = pub.PublishBatch(context.Background(), batch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(batch)), "ns/msg")
}

// dropping is an exporter that drops the spans.
type dropping struct{}

func (dropping) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return nil }
func (dropping) Shutdown(context.Context) error                        { return nil }
