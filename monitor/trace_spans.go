package monitor

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// origin is the context and the topic of messages that share a span.
type origin struct {
	trace trace.TraceID
	span  trace.SpanID
	topic string
}

func originOf(c trace.SpanContext, topic string) origin {
	return origin{c.TraceID(), c.SpanID(), topic}
}

// traced is one message that has a span.
type traced struct {
	// context is that of the message.
	context       trace.SpanContext
	topic, id     string
	correlationID string
	// store is that of a record of several stores; "" is that of the step.
	store string
}

// part is the messages of one origin.
type part struct {
	first    traced
	messages int
	span     trace.Span
	// traceparent and tracestate are the span's context, for records that get it.
	traceparent, tracestate string
}

// spans are the spans of one call for many messages: one for each origin, because a span has one
// parent. The first has links to the contexts of the others, and the others to the first. The
// zero value has none and allocates nothing.
type spans struct {
	parts []part
	index map[origin]int
	// messages is the number of all messages of the call.
	messages int
}

func (s *spans) add(message traced) {
	key := originOf(message.context, message.topic)
	if i, found := s.index[key]; found {
		s.parts[i].messages++
		return
	}
	if s.index == nil {
		s.index = map[origin]int{}
	}
	s.index[key] = len(s.parts)
	s.parts = append(s.parts, part{first: message, messages: 1})
}

// partOf returns nil for an origin without a span.
func (s *spans) partOf(c trace.SpanContext, topic string) *part {
	if i, found := s.index[originOf(c, topic)]; found {
		return &s.parts[i]
	}
	return nil
}

// maxLinks is the number of links that the SDK keeps of a span by default.
const maxLinks = 128

// start begins the spans at a time. A span is a child of the messages' context: that of the
// record, or the one that ctx carries.
func (s *spans) start(ctx context.Context, tracer trace.Tracer, step step, began time.Time) {
	ambient := trace.SpanContextFromContext(ctx)
	for i := range s.parts {
		p := &s.parts[i]
		parent := ctx
		if !p.first.context.Equal(ambient) {
			parent = trace.ContextWithSpanContext(ctx, p.first.context)
		}
		_, p.span = tracer.Start(parent, step.name+" "+p.first.topic, trace.WithTimestamp(began), trace.WithSpanKind(step.span),
			trace.WithAttributes(append(step.at(p.first.store).attributes(p.first.topic), s.describe(p)...)...), trace.WithLinks(s.links(i)...))
	}
}

func (s *spans) describe(p *part) (list []attribute.KeyValue) {
	if s.messages > 1 {
		list = append(list, attribute.Int("messaging.batch.message_count", s.messages))
	}
	if p.messages > 1 {
		return list
	}
	list = append(list, attribute.String("messaging.message.id", p.first.id))
	if p.first.correlationID != "" {
		list = append(list, attribute.String("messaging.message.conversation_id", p.first.correlationID))
	}
	return list
}

func (s *spans) links(i int) []trace.Link {
	if i > 0 {
		return []trace.Link{{SpanContext: s.parts[0].span.SpanContext()}}
	}
	var list []trace.Link
	for _, other := range s.parts[1:min(len(s.parts), maxLinks+1)] {
		if other.first.context.IsValid() {
			list = append(list, trace.Link{SpanContext: other.first.context})
		}
	}
	return list
}

// end ends the spans; err is that of the whole call.
func (s *spans) end(err error) {
	for i := range s.parts {
		if err != nil {
			fail(s.parts[i].span, err)
		}
		s.parts[i].span.End()
	}
}

// maxErrorText keeps a span small.
const maxErrorText = 1_000

// fail marks a span. The text is that of the error, which a program must keep free of payloads,
// as for its log. _OTHER is the value of the conventions for an error without a class.
func fail(span trace.Span, err error) {
	// An error may be a typed nil, whose Error panics; fmt survives that.
	text := fmt.Sprint(err)
	span.SetStatus(codes.Error, text[:min(len(text), maxErrorText)])
	span.SetAttributes(attribute.String("error.type", "_OTHER"))
}
