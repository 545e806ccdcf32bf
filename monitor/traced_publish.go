package monitor

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/outmill/outmill"
)

// publish is one traced Append.
type publish struct {
	traces *Traces
	store  string
	// ambient is the span of the program that publishes; not valid if it has none.
	ambient trace.SpanContext
	// produced are the spans that records get as their context. sent are those of records that
	// have a context.
	produced, sent spans
	// before is what to restore if the append fails.
	before []contextBefore
}

type contextBefore struct {
	record                  *outmill.Record
	traceparent, tracestate string
}

// begin starts the spans and gives the records their contexts. The context that it returns
// carries the first span.
func (p *publish) begin(ctx context.Context, records []*outmill.Record) context.Context {
	p.produced.messages, p.sent.messages = len(records), len(records)
	for _, rec := range records {
		if rec != nil {
			p.note(rec)
		}
	}
	if p.produced.parts == nil && p.sent.parts == nil {
		p.giveUnsampled(records)
		return ctx
	}
	began := time.Now()
	tracer := p.traces.tracer
	p.produced.start(ctx, tracer, step{"publish", "send", trace.SpanKindProducer, p.store, ""}, began)
	p.sent.start(ctx, tracer, step{"publish", "send", trace.SpanKindClient, p.store, ""}, began)
	p.give(records)
	if p.produced.parts != nil {
		return trace.ContextWithSpan(ctx, p.produced.parts[0].span)
	}
	return ctx
}

// note adds a record to the spans of the call.
func (p *publish) note(rec *outmill.Record) {
	if rec.TraceParent != "" && !wellFormed(rec.TraceParent) {
		p.set(rec, "", "")
	}
	switch {
	case rec.TraceParent != "":
		if len(rec.TraceState) > maxTraceState {
			p.set(rec, rec.TraceParent, "")
		}
		if c, sampled := sampledContext(rec.TraceParent, rec.TraceState); sampled {
			p.sent.add(tracedRecord(c, rec))
		}
	case !p.ambient.IsValid() || p.ambient.IsSampled():
		p.produced.add(tracedRecord(p.ambient, rec))
	}
}

// give sets the contexts of the records that have none.
func (p *publish) give(records []*outmill.Record) {
	for i := range p.produced.parts {
		made := &p.produced.parts[i]
		if c := made.span.SpanContext(); c.IsValid() && (c.IsSampled() || p.traces.config.Unsampled) {
			made.traceparent, made.tracestate = texts(c)
		}
	}
	for _, rec := range records {
		if rec == nil || rec.TraceParent != "" {
			continue
		}
		if made := p.produced.partOf(p.ambient, rec.Topic); made != nil && made.traceparent != "" {
			p.set(rec, made.traceparent, made.tracestate)
		}
	}
	p.giveUnsampled(records)
}

// giveUnsampled gives the context of a trace that is not sampled, if the settings ask for it.
func (p *publish) giveUnsampled(records []*outmill.Record) {
	if !p.traces.config.Unsampled || !p.ambient.IsValid() || p.ambient.IsSampled() {
		return
	}
	traceparent, tracestate := texts(p.ambient)
	for _, rec := range records {
		if rec != nil && rec.TraceParent == "" {
			p.set(rec, traceparent, tracestate)
		}
	}
}

func (p *publish) set(rec *outmill.Record, traceparent, tracestate string) {
	p.before = append(p.before, contextBefore{rec, rec.TraceParent, rec.TraceState})
	rec.TraceParent, rec.TraceState = traceparent, tracestate
}

// end ends the spans. An append that failed changes no record: see outmill.Writer.
func (p *publish) end(err error) {
	p.produced.end(err)
	p.sent.end(err)
	if err == nil {
		return
	}
	// Backwards, because a record may have been changed twice.
	for i := len(p.before) - 1; i >= 0; i-- {
		p.before[i].record.TraceParent, p.before[i].record.TraceState = p.before[i].traceparent, p.before[i].tracestate
	}
}
