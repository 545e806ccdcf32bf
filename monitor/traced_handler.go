package monitor

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/outmill/outmill"
)

// Middleware makes a span for each handling of a sampled message by a Watermill router. The span
// is a child of the message's publish and is in the context of the message, so that what the
// handler does and publishes with this context belongs to the trace. Messages that the handler
// returns get the span as their context, unless they have one of their own. Add the middleware first, so that
// it sees the errors that the router sees. It passes on messages that did not come from Outmill
// without a span.
func (t *Traces) Middleware(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		c, sampled := contextOfMessage(msg)
		if !sampled {
			return next(msg)
		}
		info, ok := outmill.Delivery(msg.Context())
		if !ok {
			return next(msg)
		}
		return t.handle(msg, next, c, info)
	}
}

func (t *Traces) handle(
	msg *message.Message, next message.HandlerFunc, publish trace.SpanContext, info outmill.DeliveryInfo,
) (produced []*message.Message, err error) {
	before := msg.Context()
	step := step{"process", "process", trace.SpanKindConsumer, info.Store, info.Group}
	attributes := append(step.attributes(info.Topic),
		attribute.String("messaging.message.id", msg.UUID), attribute.Int("outmill.attempt", info.Attempt))
	if id := msg.Metadata.Get(outmill.MetadataCorrelationID); id != "" {
		attributes = append(attributes, attribute.String("messaging.message.conversation_id", id))
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(step.span), trace.WithAttributes(attributes...)}
	if ambient := trace.SpanContextFromContext(before); ambient.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: ambient}))
	}
	ctx, span := t.tracer.Start(trace.ContextWithSpanContext(before, publish), "process "+info.Topic, options...)
	msg.SetContext(ctx)
	returned := false
	defer func() {
		msg.SetContext(before)
		if !returned {
			fail(span, errPanicked)
		}
		span.End()
	}()
	produced, err = next(msg)
	returned = true
	if err != nil && !isSnooze(err) {
		fail(span, err)
	}
	inherit(produced, msg.Metadata.Get(outmill.MetadataTraceParent), span.SpanContext())
	return produced, err
}

var errPanicked = errors.New("the handler panicked")

// isSnooze returns false for an error whose methods panic, such as a typed nil.
func isSnooze(err error) (is bool) {
	defer func() { _ = recover() }()
	_, is = outmill.SnoozeDelay(err)
	return is
}

// inherit gives messages the context of a handling. The router publishes them after it. They
// keep a context of their own, but not a copy of the handled message's, which middleware such as
// inbox.Inherit makes.
func inherit(produced []*message.Message, handled string, c trace.SpanContext) {
	if len(produced) == 0 || !c.IsSampled() {
		return
	}
	traceparent, tracestate := texts(c)
	for _, msg := range produced {
		if msg == nil {
			continue
		}
		if before := msg.Metadata.Get(outmill.MetadataTraceParent); before == "" || before == handled {
			outmill.SetTrace(msg, traceparent, tracestate)
		}
	}
}
