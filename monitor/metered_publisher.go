package monitor

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/batching"
	"github.com/outmill/outmill/storekit"
)

type publishing struct {
	duration metric.Float64Histogram
	sent     metric.Int64Counter
	labels   *labels[published]
}

// published are the labels of a publish. A batch has no topic, because it may be of many.
type published struct{ operation, topic string }

func (p published) rest() published { return published{p.operation, other} }

func newPublishing(meter metric.Meter, maxSeries int) (p publishing, err error) {
	p.labels = newLabels(maxSeries, published.rest, func(key published) []attribute.KeyValue {
		pairs := []attribute.KeyValue{
			attribute.String("messaging.system", "outmill"), attribute.String("messaging.operation.name", key.operation),
		}
		if key.topic == "" {
			return pairs
		}
		return append(pairs, attribute.String("messaging.destination.name", key.topic))
	})
	if p.sent, err = meter.Int64Counter("messaging.client.sent.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages that were passed to a publisher.")); err != nil {
		return p, err
	}
	p.duration, err = meter.Float64Histogram("messaging.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of one call of a publisher."), seconds())
	return p, err
}

func seconds() metric.HistogramOption {
	return metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)
}

// record adds one call to the metrics.
func (p publishing) record(ctx context.Context, key published, began time.Time, messages int, err error) {
	set := p.labels.of(key)
	p.duration.Record(ctx, time.Since(began).Seconds(), set.of(err).record...)
	failed := messages
	if err == nil {
		failed = 0
	} else if partial, ok := errors.AsType[*storekit.PublishError](err); ok {
		failed = len(partial.Failed)
	}
	if failed > 0 {
		p.sent.Add(ctx, int64(failed), set.failed.add...)
	}
	if messages > failed {
		p.sent.Add(ctx, int64(messages-failed), set.ok.add...)
	}
}

// Publisher measures each call of a publisher. operation is the label that tells publishers
// apart: "publish" for the outbox, "forward" for the broker of a forwarder. With "forward" the
// attempts and the time since the append of each record that a forwarder passes on are measured
// too. A call stays one call, and if the publisher takes batches (storekit.BatchPublisher), so does the result. Close
// closes the publisher. It returns ErrInvalidConfig for no publisher and for no operation.
func (m *Metrics) Publisher(operation string, publisher message.Publisher) (message.Publisher, error) {
	if outmill.IsNil(publisher) {
		return nil, storekit.InvalidConfig("Metrics.Publisher: the publisher is nil: pass the one to measure")
	}
	if operation == "" {
		return nil, storekit.InvalidConfig("Metrics.Publisher: the operation is empty: pass a name such as publish or forward")
	}
	metered := meteredPublisher{Publisher: publisher, metrics: m.publishing, handling: m.handling, operation: operation}
	if route := batching.RouteOf(publisher); route.Publisher != nil {
		return meteredBatches{metered, route.Publisher}, nil
	}
	return metered, nil
}

type meteredPublisher struct {
	message.Publisher
	metrics   publishing
	handling  handling
	operation string
}

// forwardOperation is the operation of a forwarder's publisher. The messages of other publishers
// are not measured one by one: those that a handler publishes may have the context of the message
// that it handles.
const forwardOperation = "forward"

// forwarded measures the attempt and the age of each message that a forwarder has passed on. A
// call that failed as a whole has failed for all of them.
func (p meteredPublisher) forwarded(n int, at func(i int) *message.Message, err error) {
	if p.operation != forwardOperation {
		return
	}
	var failed map[int]bool
	if partial, some := errors.AsType[*storekit.PublishError](err); some {
		failed = make(map[int]bool, len(partial.Failed))
		for _, f := range partial.Failed {
			failed[f.Index] = true
		}
	}
	end := ending{handling: p.handling, labels: p.handling.forwards, at: time.Now()}
	for i := range n {
		result := err
		if failed != nil && !failed[i] {
			result = nil
		}
		end.message(at(i).Context(), result)
	}
}

// Unwrap lets a forwarder find the role storekit.Pinger. Batches do not bypass the decorator, because it takes
// them where the publisher does.
func (p meteredPublisher) Unwrap() message.Publisher { return p.Publisher }

// MaxMessageBytes implements storekit.SizeLimited for the publisher: the decorator leaves messages as they are.
func (p meteredPublisher) MaxMessageBytes() int { return batching.LargestOf(p.Publisher) }

func (p meteredPublisher) Publish(topic string, messages ...*message.Message) error {
	began := time.Now()
	err := p.Publisher.Publish(topic, messages...)
	p.metrics.record(context.Background(), published{p.operation, topic}, began, len(messages), err)
	p.forwarded(len(messages), func(i int) *message.Message { return messages[i] }, err)
	return err
}

type meteredBatches struct {
	meteredPublisher
	batching storekit.BatchPublisher
}

func (p meteredBatches) PublishBatch(ctx context.Context, batch []storekit.Outgoing) error {
	began := time.Now()
	err := p.batching.PublishBatch(ctx, batch)
	p.metrics.record(ctx, published{operation: p.operation}, began, len(batch), err)
	p.forwarded(len(batch), func(i int) *message.Message { return batch[i].Message }, err)
	return err
}
