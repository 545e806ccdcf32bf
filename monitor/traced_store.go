package monitor

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Store makes a span for each publish to a store, and for each claim that returns sampled
// records. Pass the result to publishers, subscribers and forwarders. outmill.As finds the other
// roles of the store behind it. Close closes the store. It returns ErrInvalidConfig for no store.
//
// Append gives each record without a trace context that of the publish span, whose parent is the
// span in the context of the messages. If there is none, the publish begins a trace and the
// provider's sampler decides. A record that has a context keeps it, and one that is not in the
// form of W3C is removed, so that it cannot make the publish fail.
func (t *Traces) Store(store outmill.Store) (outmill.Store, error) {
	if outmill.IsNil(store) {
		return nil, storekit.InvalidConfig("Traces.Store: the store is nil: pass an open store")
	}
	return tracedStore{store, t}, nil
}

type tracedStore struct {
	outmill.Store
	traces *Traces
}

func (s tracedStore) Unwrap() outmill.Store { return s.Store }

func (s tracedStore) Append(ctx context.Context, records ...*outmill.Record) error {
	p := publish{traces: s.traces, store: s.Name(), ambient: trace.SpanContextFromContext(ctx)}
	ctx = p.begin(ctx, records)
	err := s.Store.Append(ctx, records...)
	p.end(err)
	return err
}

// Claim begins its spans after the claim, because the claim finds out whether there are any.
func (s tracedStore) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	began := time.Now()
	found, err := s.Store.Claim(ctx, req)
	claimed := spans{messages: len(found)}
	for _, rec := range found {
		if c, sampled := sampledContext(rec.TraceParent, rec.TraceState); sampled {
			claimed.add(tracedRecord(c, rec))
		}
	}
	if claimed.parts != nil {
		claimed.start(ctx, s.traces.tracer, step{"claim", "receive", trace.SpanKindClient, s.Name(), found[0].Group}, began)
		claimed.end(err)
	}
	return found, err
}

func tracedRecord(c trace.SpanContext, rec *outmill.Record) traced {
	return traced{context: c, topic: rec.Topic, id: rec.MessageID, correlationID: rec.CorrelationID, store: rec.Store}
}
