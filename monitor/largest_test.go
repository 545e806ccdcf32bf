package monitor_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"

	metrics "go.opentelemetry.io/otel/metric/noop"

	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/storekit"
)

// narrow is a publisher that knows the largest message that it can take.
type narrow struct {
	message.Publisher
	most int
}

func (p narrow) MaxMessageBytes() int { return p.most }

func TestPublisher_KeepsTheLargestMessage(t *testing.T) {
	t.Parallel()
	measure, err := monitor.NewMetrics(metrics.NewMeterProvider(), monitor.MetricsConfig{})
	require.NoError(t, err)
	traces, err := monitor.NewTraces(noop.NewTracerProvider(), monitor.TracesConfig{})
	require.NoError(t, err)
	decorators := []func(string, message.Publisher) (message.Publisher, error){measure.Publisher, traces.Publisher}
	for _, decorate := range decorators {
		for _, of := range []message.Publisher{narrow{accepting{}, 5000}, narrow{&batches{}, 5000}, accepting{}, narrow{accepting{}, -1}} {
			got, err := decorate("forward", of)
			require.NoError(t, err)
			want := 0
			if n, ok := of.(narrow); ok {
				want = max(0, n.most)
			}
			require.Equal(t, want, got.(storekit.SizeLimited).MaxMessageBytes())
		}
	}
}
