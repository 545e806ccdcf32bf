package monitor

import (
	"cmp"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// schema is the version of OpenTelemetry's semantic conventions for messaging that the names,
// kinds and attributes of the spans follow.
const schema = "https://opentelemetry.io/schemas/1.44.0"

// TracesConfig are the settings of [Traces]. The zero value is ready to use.
type TracesConfig struct {
	// Unsampled also gives records the context of a trace that is not sampled, so that consumers
	// behind a broker repeat the decision and make none of their own. It costs each such record
	// 55 bytes and an allocation. By default such a record has no trace context.
	Unsampled bool
}

// Traces makes spans with OpenTelemetry: for publishes and claims of a store, for handlers, and
// for what a forwarder sends. The record keeps the W3C trace context of its publish, in
// traceparent and tracestate: handlers find it in the metadata and consumers behind Kafka in the
// headers. The spans of a message are children of the span of its publish. docs/traces.md lists
// the spans.
//
// The publish decides whether a message is sampled. A message that is not sampled has no spans,
// and its record costs no allocation. Traces has no goroutine and nothing to close. Its methods
// may be called concurrently.
type Traces struct {
	tracer trace.Tracer
	config TracesConfig
}

// NewTraces makes the spans with the provider. It returns ErrInvalidConfig for a nil provider.
func NewTraces(provider trace.TracerProvider, config TracesConfig) (*Traces, error) {
	if outmill.IsNil(provider) {
		return nil, storekit.InvalidConfig("NewTraces: the tracer provider is nil: pass the one of your OpenTelemetry SDK")
	}
	tracer := provider.Tracer("github.com/outmill/outmill/monitor", trace.WithSchemaURL(schema))
	return &Traces{tracer: tracer, config: config}, nil
}

// step is a part of a message's way, and names its spans.
type step struct {
	// name is the operation in the words of Outmill, kind is that of the conventions.
	name, kind string
	span       trace.SpanKind
	// store and group are "" where the step has none.
	store, group string
}

// at names the store, unless that is "".
func (s step) at(store string) step {
	s.store = cmp.Or(store, s.store)
	return s
}

// attributes has room for those of a message, so that to append them allocates nothing.
func (s step) attributes(topic string) []attribute.KeyValue {
	list := append(make([]attribute.KeyValue, 0, 9),
		attribute.String("messaging.system", "outmill"),
		attribute.String("messaging.operation.name", s.name),
		attribute.String("messaging.operation.type", s.kind),
		attribute.String("messaging.destination.name", topic),
	)
	if s.store != "" {
		list = append(list, attribute.String("store", s.store))
	}
	if s.group != "" {
		list = append(list, attribute.String("messaging.consumer.group.name", s.group))
	}
	return list
}
