package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// printTree prints each span below its parent, in the order in which they began.
func printTree(out io.Writer, spans tracetest.SpanStubs) {
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	var below func(parent trace.SpanID, depth int)
	below = func(parent trace.SpanID, depth int) {
		for _, span := range spans {
			if span.Parent.SpanID() == parent {
				fmt.Fprintf(out, "%s%s (%s)\n", strings.Repeat("  ", depth), span.Name, span.SpanKind)
				below(span.SpanContext.SpanID(), depth+1)
			}
		}
	}
	below(trace.SpanID{}, 0)
}
