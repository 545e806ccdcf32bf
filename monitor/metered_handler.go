package monitor

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outmill/outmill"
)

type handling struct {
	duration, age metric.Float64Histogram
	attempts      metric.Int64Histogram
	// labels are those of handlers, and forwards those of forwarders.
	labels, forwards *labels[series]
}

func (series) rest() series { return series{other, other, other} }

func newHandling(meter metric.Meter, maxSeries int) (h handling, err error) {
	h.labels, h.forwards = handleLabels("process", maxSeries), handleLabels(forwardOperation, maxSeries)
	if h.duration, err = meter.Float64Histogram("messaging.process.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of one call of a handler."), seconds()); err != nil {
		return h, err
	}
	if h.age, err = meter.Float64Histogram("outmill.end_to_end.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the append of a record to the end of its handling or forwarding."),
		metric.WithExplicitBucketBoundaries(.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 86400)); err != nil {
		return h, err
	}
	h.attempts, err = meter.Int64Histogram("outmill.attempts", metric.WithUnit("{attempt}"),
		metric.WithDescription("Number of the attempt with which a handling or forwarding ended."),
		metric.WithExplicitBucketBoundaries(1, 2, 3, 5, 10, 20))
	return h, err
}

func handleLabels(operation string, maxSeries int) *labels[series] {
	return newLabels(maxSeries, series.rest, func(key series) []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("messaging.system", "outmill"), attribute.String("messaging.operation.name", operation),
			attribute.String("messaging.destination.name", key.topic), attribute.String("messaging.consumer.group.name", key.group),
			attribute.String("store", key.store),
		}
	})
}

// ending measures attempts that end at the same time. It looks up the labels once for
// neighbours that have the same.
type ending struct {
	handling handling
	labels   *labels[series]
	at       time.Time

	key series
	set outcomes
}

// message adds the end of the attempt of one message. It returns the labels, or nil for a
// message that did not come from Outmill.
func (e *ending) message(ctx context.Context, err error) *options {
	info, ok := outmill.Delivery(ctx)
	if !ok {
		return nil
	}
	if key := (series{info.Store, info.Group, info.Topic}); e.set.ok == nil || key != e.key {
		e.key, e.set = key, e.labels.of(key)
	}
	set := e.set.of(err)
	e.handling.age.Record(ctx, max(0, e.at.Sub(info.CreatedAt).Seconds()), set.record...)
	e.handling.attempts.Record(ctx, int64(info.Attempt), set.record...)
	return set
}

// Middleware measures the handlers of a Watermill router. Add it before Watermill's Recoverer:
// a handler that panics then counts as one that failed. It passes on messages that did not come
// from Outmill without a measurement.
func (m *Metrics) Middleware(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		began := time.Now()
		produced, err := next(msg)
		end := ending{handling: m.handling, labels: m.handling.labels, at: time.Now()}
		if set := end.message(msg.Context(), err); set != nil {
			m.handling.duration.Record(msg.Context(), end.at.Sub(began).Seconds(), set.record...)
		}
		return produced, err
	}
}
