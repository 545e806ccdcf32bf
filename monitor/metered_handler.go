package monitor

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outmill/outmill"
)

type handling struct {
	duration, age metric.Float64Histogram
	attempts      metric.Int64Histogram
	labels        *labels[series]
}

func (series) rest() series { return series{other, other, other} }

func newHandling(meter metric.Meter, maxSeries int) (h handling, err error) {
	h.labels = newLabels(maxSeries, series.rest, func(key series) []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("messaging.system", "outmill"), attribute.String("messaging.operation.name", "process"),
			attribute.String("messaging.destination.name", key.topic), attribute.String("messaging.consumer.group.name", key.group),
			attribute.String("store", key.store),
		}
	})
	if h.duration, err = meter.Float64Histogram("messaging.process.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of one call of a handler."), seconds()); err != nil {
		return h, err
	}
	if h.age, err = meter.Float64Histogram("outmill.end_to_end.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the append of a record to the end of its handling."),
		metric.WithExplicitBucketBoundaries(.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 86400)); err != nil {
		return h, err
	}
	h.attempts, err = meter.Int64Histogram("outmill.attempts", metric.WithUnit("{attempt}"),
		metric.WithDescription("Number of the attempt with which a handling ended."),
		metric.WithExplicitBucketBoundaries(1, 2, 3, 5, 10, 20))
	return h, err
}

// Middleware measures the handlers of a Watermill router. Add it before Watermill's Recoverer:
// a handler that panics then counts as one that failed. It passes on messages that did not come
// from Outmill without a measurement.
func (m *Metrics) Middleware(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		began := time.Now()
		produced, err := next(msg)
		if info, ok := outmill.Delivery(msg.Context()); ok {
			set := m.handling.labels.of(series{info.Store, info.Group, info.Topic}).of(err)
			ended := time.Now()
			m.handling.duration.Record(msg.Context(), ended.Sub(began).Seconds(), set)
			m.handling.age.Record(msg.Context(), max(0, ended.Sub(info.CreatedAt).Seconds()), set)
			m.handling.attempts.Record(msg.Context(), int64(info.Attempt), set)
		}
		return produced, err
	}
}
