package monitor

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/trace"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/batching"
	"github.com/outmill/outmill/storekit"
)

// Publisher makes spans for the sampled messages that a forwarder publishes. operation is the
// name of the spans, such as "forward". The context of a message is read from its metadata and
// goes on to the broker as it is. A call stays one call, and if the publisher takes batches
// (storekit.BatchPublisher), so does the result. Close closes the publisher. It returns
// ErrInvalidConfig for no publisher and for no operation.
//
// It is not for a publisher of the outbox: there, Store makes the spans.
func (t *Traces) Publisher(operation string, publisher message.Publisher) (message.Publisher, error) {
	if outmill.IsNil(publisher) {
		return nil, storekit.InvalidConfig("Traces.Publisher: the publisher is nil: pass the one to trace")
	}
	if operation == "" {
		return nil, storekit.InvalidConfig("Traces.Publisher: the operation is empty: pass a name such as forward")
	}
	// The broker's consumers have the context of the publish, so this span is that of a client.
	step := step{name: operation, kind: "send", span: trace.SpanKindClient}
	one := tracedPublisher{publisher, t, step}
	if route := batching.RouteOf(publisher); route.Publisher != nil {
		return tracedBatches{one, route.Publisher}, nil
	}
	return one, nil
}

type tracedPublisher struct {
	message.Publisher
	traces *Traces
	step   step
}

// Unwrap lets a forwarder find the role storekit.Pinger. Batches do not bypass the decorator, because it takes
// them where the publisher does.
func (p tracedPublisher) Unwrap() message.Publisher { return p.Publisher }

// MaxMessageBytes implements storekit.SizeLimited for the publisher: the decorator leaves messages as they are.
func (p tracedPublisher) MaxMessageBytes() int { return batching.LargestOf(p.Publisher) }

func (p tracedPublisher) Publish(topic string, messages ...*message.Message) error {
	sent := spans{messages: len(messages)}
	for _, msg := range messages {
		sent.addMessage(topic, msg)
	}
	if sent.parts == nil {
		return p.Publisher.Publish(topic, messages...)
	}
	sent.start(context.Background(), p.traces.tracer, p.step, time.Now())
	err := p.Publisher.Publish(topic, messages...)
	sent.end(err)
	return err
}

// addMessage adds a message that is sampled.
func (s *spans) addMessage(topic string, msg *message.Message) {
	if c, sampled := contextOfMessage(msg); sampled {
		s.add(traced{context: c, topic: topic, id: msg.UUID, correlationID: msg.Metadata.Get(outmill.MetadataCorrelationID)})
	}
}

func contextOfMessage(msg *message.Message) (trace.SpanContext, bool) {
	if msg == nil {
		return trace.SpanContext{}, false
	}
	return sampledContext(msg.Metadata.Get(outmill.MetadataTraceParent), msg.Metadata.Get(outmill.MetadataTraceState))
}

type tracedBatches struct {
	tracedPublisher
	batching storekit.BatchPublisher
}

func (p tracedBatches) PublishBatch(ctx context.Context, batch []storekit.Outgoing) error {
	sent := spans{messages: len(batch)}
	for _, out := range batch {
		sent.addMessage(out.Topic, out.Message)
	}
	if sent.parts == nil {
		return p.batching.PublishBatch(ctx, batch)
	}
	sent.start(ctx, p.traces.tracer, p.step, time.Now())
	err := p.batching.PublishBatch(ctx, batch)
	sent.endBatch(batch, err)
	return err
}

// endBatch marks only the spans of messages that failed, if the error lists these.
func (s *spans) endBatch(batch []storekit.Outgoing, err error) {
	partial, ok := errors.AsType[*storekit.PublishError](err)
	if !ok || len(partial.Failed) == 0 {
		s.end(err)
		return
	}
	for _, failed := range partial.Failed {
		if failed.Index < 0 || failed.Index >= len(batch) {
			continue
		}
		if c, sampled := contextOfMessage(batch[failed.Index].Message); sampled {
			fail(s.partOf(c, batch[failed.Index].Topic).span, failed.Err)
		}
	}
	s.end(nil)
}
