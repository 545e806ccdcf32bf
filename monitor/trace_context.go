package monitor

import (
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/outmill/outmill"
)

// The places of the parts of a traceparent: version-traceid-parentid-flags. Later versions of
// W3C Trace Context (https://www.w3.org/TR/trace-context/) may only append to it.
const (
	traceIDAt  = 3
	spanIDAt   = 36
	flagsAt    = 53
	parentSize = 55
)

// mayBeSampled is the first check of a traceparent, because most are not sampled. It allocates
// nothing.
func mayBeSampled(traceparent string) bool {
	return len(traceparent) >= parentSize && strings.IndexByte("13579bdf", traceparent[parentSize-1]) >= 0
}

// wellFormed reports whether a traceparent has the form of W3C. It allocates nothing.
func wellFormed(traceparent string) bool {
	_, ok := parse(traceparent)
	return ok
}

// parse reads a traceparent. Ids of zeros, capital letters and the version ff are not allowed.
func parse(traceparent string) (parsed trace.SpanContextConfig, ok bool) {
	if len(traceparent) < parentSize || !dashed(traceparent) {
		return parsed, false
	}
	var version, flags [1]byte
	if !unhex(version[:], traceparent) || !unhex(flags[:], traceparent[flagsAt:]) ||
		!unhex(parsed.TraceID[:], traceparent[traceIDAt:]) || !unhex(parsed.SpanID[:], traceparent[spanIDAt:]) {
		return parsed, false
	}
	if version[0] == 0xff || version[0] == 0 && len(traceparent) > parentSize || !parsed.TraceID.IsValid() || !parsed.SpanID.IsValid() {
		return parsed, false
	}
	if mayBeSampled(traceparent) {
		parsed.TraceFlags = trace.FlagsSampled
	}
	parsed.Remote = true
	return parsed, true
}

func dashed(traceparent string) bool {
	return traceparent[traceIDAt-1] == '-' && traceparent[spanIDAt-1] == '-' && traceparent[flagsAt-1] == '-' &&
		(len(traceparent) == parentSize || traceparent[parentSize] == '-')
}

// unhex fills into from the beginning of a text of lower-case digits. The functions of package
// trace and encoding/hex allocate.
func unhex(into []byte, text string) bool {
	for i := range into {
		high, low := digit(text[2*i]), digit(text[2*i+1])
		if high > 15 || low > 15 {
			return false
		}
		into[i] = high<<4 | low
	}
	return true
}

// digit returns more than 15 for what is no digit.
func digit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 16
}

// sampledContext returns the context of a message that is sampled. A tracestate that cannot be
// read does not change that: W3C asks to drop it.
func sampledContext(traceparent, tracestate string) (trace.SpanContext, bool) {
	if !mayBeSampled(traceparent) {
		return trace.SpanContext{}, false
	}
	parsed, ok := parse(traceparent)
	if !ok {
		return trace.SpanContext{}, false
	}
	parsed.TraceState, _ = trace.ParseTraceState(tracestate)
	return trace.NewSpanContext(parsed), true
}

// maxTraceState is the size of a record's tracestate. Tracing must not make a publish fail.
const maxTraceState = 4 * outmill.MaxTextLength

// texts returns the traceparent and the tracestate of a context. A tracestate that no record can
// hold is dropped.
func texts(c trace.SpanContext) (traceparent, tracestate string) {
	traceparent = "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + (c.TraceFlags() & trace.FlagsSampled).String()
	if tracestate = c.TraceState().String(); len(tracestate) > maxTraceState {
		tracestate = ""
	}
	return traceparent, tracestate
}
