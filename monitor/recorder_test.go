package monitor_test

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// recorder is a tracer provider that keeps the spans that have ended. It follows the decision of
// the parent, and roots decides for traces that begin here. monitor/prometheus has tests with
// OpenTelemetry's SDK.
type recorder struct {
	noop.TracerProvider
	roots bool

	mu    sync.Mutex
	last  uint64
	ended []*recorded
}

type recorded struct {
	noop.Span
	by     *recorder
	name   string
	parent trace.SpanContext
	own    trace.SpanContext
	config trace.SpanConfig
	attrs  map[attribute.Key]attribute.Value
	status codes.Code
	text   string
}

func (r *recorder) Tracer(string, ...trace.TracerOption) trace.Tracer { return starter{by: r} }

type starter struct {
	noop.Tracer
	by *recorder
}

func (s starter) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	span := &recorded{by: s.by, name: name, parent: trace.SpanContextFromContext(ctx), config: trace.NewSpanStartConfig(options...)}
	own := trace.SpanContextConfig{TraceID: span.parent.TraceID(), TraceFlags: span.parent.TraceFlags(), TraceState: span.parent.TraceState()}
	s.by.mu.Lock()
	s.by.last++
	binary.BigEndian.PutUint64(own.SpanID[:], s.by.last)
	if !span.parent.IsValid() {
		binary.BigEndian.PutUint64(own.TraceID[8:], s.by.last)
		own.TraceFlags = own.TraceFlags.WithSampled(s.by.roots)
	}
	s.by.mu.Unlock()
	span.own, span.attrs = trace.NewSpanContext(own), map[attribute.Key]attribute.Value{}
	span.SetAttributes(span.config.Attributes()...)
	return trace.ContextWithSpan(ctx, span), span
}

func (s *recorded) SpanContext() trace.SpanContext { return s.own }
func (s *recorded) SetAttributes(list ...attribute.KeyValue) {
	for _, a := range list {
		s.attrs[a.Key] = a.Value
	}
}
func (s *recorded) SetStatus(status codes.Code, text string) { s.status, s.text = status, text }
func (s *recorded) End(...trace.SpanEndOption) {
	s.by.mu.Lock()
	defer s.by.mu.Unlock()
	if s.own.IsSampled() {
		s.by.ended = append(s.by.ended, s)
	}
}

// named returns the ended spans of a name.
func (r *recorder) named(name string) (found []*recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, span := range r.ended {
		if span.name == name {
			found = append(found, span)
		}
	}
	return found
}

// only returns the one span of a name.
func (r *recorder) only(t *testing.T, name string) *recorded {
	t.Helper()
	found := r.named(name)
	require.Len(t, found, 1, name)
	return found[0]
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ended)
}

func (s *recorded) attribute(t *testing.T, name string) string {
	t.Helper()
	value, found := s.attrs[attribute.Key(name)]
	require.True(t, found, "%s has no attribute %s", s.name, name)
	return value.Emit()
}
