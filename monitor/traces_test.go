package monitor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

const (
	sampledParent   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampledParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func traces(t *testing.T, by *recorder, config monitor.TracesConfig) *monitor.Traces {
	t.Helper()
	made, err := monitor.NewTraces(by, config)
	require.NoError(t, err)
	return made
}

// traced returns a store whose publishes and claims make spans.
func traced(t *testing.T, by *recorder, config monitor.TracesConfig) outmill.Store {
	t.Helper()
	store, err := traces(t, by, config).Store(open(t, sqlite.Config{Name: "shop", EnsureSchema: true}))
	require.NoError(t, err)
	return store
}

// remote returns a context of a trace that another program began.
func remote(traceparent string) context.Context {
	id, _ := trace.TraceIDFromHex(traceparent[3:35])
	span, _ := trace.SpanIDFromHex(traceparent[36:52])
	flags := trace.TraceFlags(0).WithSampled(strings.HasSuffix(traceparent, "1"))
	state, _ := trace.ParseTraceState("vendor=a")
	config := trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: flags, TraceState: state}
	return trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(config))
}

func records(topic string, n int) []*outmill.Record {
	list := make([]*outmill.Record, n)
	for i := range list {
		list[i] = &outmill.Record{Topic: topic, MessageID: watermill.NewUUID(), Payload: []byte("{}")}
	}
	return list
}

func claim(t *testing.T, store outmill.Queue, topics ...string) []*outmill.Record {
	t.Helper()
	selected := outmill.Topics{Include: topics}
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Topics: selected}))
	request := outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Topics: selected, Limit: 100, Lease: time.Minute}
	found, err := store.Claim(t.Context(), request)
	require.NoError(t, err)
	return found
}

func TestTraces_Publish(t *testing.T) {
	t.Parallel()

	t.Run("a publish is a span, and its records keep its context", func(t *testing.T) {
		t.Parallel()
		by := &recorder{}
		store := traced(t, by, monitor.TracesConfig{})
		pub, err := publisher.New(store, publisher.Config{}, nil)
		require.NoError(t, err)
		one, two := message.NewMessage("m1", nil), message.NewMessage("m2", nil)
		require.NoError(t, pub.WithContext(remote(sampledParent)).Publish("orders", one, two))
		span := by.only(t, "publish orders")
		require.Equal(t, trace.SpanKindProducer, span.config.SpanKind())
		require.Equal(t, "b7ad6b7169203331", span.parent.SpanID().String())
		require.Equal(t, "outmill", span.attribute(t, "messaging.system"))
		require.Equal(t, "publish", span.attribute(t, "messaging.operation.name"))
		require.Equal(t, "send", span.attribute(t, "messaging.operation.type"))
		require.Equal(t, "orders", span.attribute(t, "messaging.destination.name"))
		require.Equal(t, "2", span.attribute(t, "messaging.batch.message_count"))
		require.Equal(t, "shop", span.attribute(t, "store"))
		found := claim(t, store, "orders")
		require.Len(t, found, 2)
		for _, rec := range found {
			require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-"+span.own.SpanID().String()+"-01", rec.TraceParent)
			require.Equal(t, "vendor=a", rec.TraceState)
		}
	})

	t.Run("a publish outside of any span begins a trace, if the sampler says so", func(t *testing.T) {
		t.Parallel()
		for _, roots := range []bool{true, false} {
			by := &recorder{roots: roots}
			store := traced(t, by, monitor.TracesConfig{})
			require.NoError(t, store.Append(t.Context(), records("orders", 1)...))
			require.Equal(t, roots, by.count() == 1)
			require.Equal(t, roots, claim(t, store, "orders")[0].TraceParent != "")
		}
	})

	t.Run("a record keeps a context of its own", func(t *testing.T) {
		t.Parallel()
		by := &recorder{}
		store := traced(t, by, monitor.TracesConfig{})
		rec := records("orders", 1)[0]
		rec.TraceParent, rec.TraceState = sampledParent, "other=b"
		require.NoError(t, store.Append(remote(strings.ReplaceAll(sampledParent, "0af7", "ffff")), rec))
		require.Equal(t, sampledParent, claim(t, store, "orders")[0].TraceParent)
		span := by.only(t, "publish orders")
		require.Equal(t, trace.SpanKindClient, span.config.SpanKind(), "nobody continues from this span")
		require.Equal(t, "b7ad6b7169203331", span.parent.SpanID().String())
	})

	t.Run("a context that is not of W3C does not stop a publish, and is dropped", func(t *testing.T) {
		t.Parallel()
		for _, bad := range []string{
			"x", strings.Repeat("0", 55), "00-" + strings.Repeat("x", 52), sampledParent + "-more", "ff" + sampledParent[2:],
			strings.ToUpper(sampledParent), strings.Repeat("a", 4000), "00-00000000000000000000000000000000-b7ad6b7169203331-01",
			strings.Replace(sampledParent, "b7ad6b7169203331", "0000000000000000", 1), sampledParent[:53] + "0x",
		} {
			by := &recorder{}
			store := traced(t, by, monitor.TracesConfig{})
			rec := records("orders", 1)[0]
			rec.TraceParent = bad
			require.NoError(t, store.Append(t.Context(), rec), bad)
			require.Empty(t, claim(t, store, "orders")[0].TraceParent, bad)
		}
	})

	t.Run("a tracestate that no record can hold is dropped, and the trace goes on", func(t *testing.T) {
		t.Parallel()
		by := &recorder{}
		store := traced(t, by, monitor.TracesConfig{})
		rec := records("orders", 1)[0]
		rec.TraceParent, rec.TraceState = sampledParent, strings.Repeat("a=b,", 2000)
		require.NoError(t, store.Append(t.Context(), rec))
		require.Equal(t, sampledParent, claim(t, store, "orders")[0].TraceParent)
	})

	t.Run("a context of a later version of W3C is kept and read", func(t *testing.T) {
		t.Parallel()
		by := &recorder{}
		store := traced(t, by, monitor.TracesConfig{})
		rec := records("orders", 1)[0]
		rec.TraceParent = "01" + sampledParent[2:53] + "03-more"
		require.NoError(t, store.Append(t.Context(), rec))
		require.Equal(t, rec.TraceParent, claim(t, store, "orders")[0].TraceParent)
		by.only(t, "publish orders")
	})

	t.Run("a failed publish is a failed span, and leaves its records as they were", func(t *testing.T) {
		t.Parallel()
		by := &recorder{}
		store := traced(t, by, monitor.TracesConfig{})
		require.NoError(t, store.Close())
		list := records("orders", 2)
		list[1].TraceParent, list[1].TraceState = "bad", "kept=1"
		require.ErrorIs(t, store.Append(remote(sampledParent), list...), outmill.ErrClosed)
		require.Equal(t, codes.Error, by.only(t, "publish orders").status)
		require.Empty(t, list[0].TraceParent)
		require.Empty(t, list[0].TraceState)
		require.Equal(t, "bad", list[1].TraceParent)
		require.Equal(t, "kept=1", list[1].TraceState)
	})

	t.Run("a record of a trace that is not sampled has no context, or that context if the settings ask for it", func(t *testing.T) {
		t.Parallel()
		for want, config := range map[string]monitor.TracesConfig{"": {}, unsampledParent: {Unsampled: true}} {
			by := &recorder{}
			store := traced(t, by, config)
			require.NoError(t, store.Append(remote(unsampledParent), records("orders", 1)...))
			require.Equal(t, want, claim(t, store, "orders")[0].TraceParent)
			require.Zero(t, by.count())
		}
	})

	t.Run("the context of a root that is not sampled is kept if the settings ask for it", func(t *testing.T) {
		t.Parallel()
		store := traced(t, &recorder{}, monitor.TracesConfig{Unsampled: true})
		require.NoError(t, store.Append(t.Context(), records("orders", 1)...))
		require.Regexp(t, "^00-.*-00$", claim(t, store, "orders")[0].TraceParent)
	})
}

func TestTraces_Claim(t *testing.T) {
	t.Parallel()

	t.Run("a claim is a span in the trace of each publish, and links lead from one to the others", func(t *testing.T) {
		t.Parallel()
		by := &recorder{roots: true}
		store := traced(t, by, monitor.TracesConfig{})
		for range 3 {
			require.NoError(t, store.Append(t.Context(), records("orders", 2)...))
		}
		require.Len(t, claim(t, store, "orders"), 6)
		published, claimed := by.named("publish orders"), by.named("claim orders")
		require.Len(t, claimed, 3, "one for each publish, not for each record")
		for _, span := range claimed {
			require.Equal(t, trace.SpanKindClient, span.config.SpanKind())
			require.Equal(t, "receive", span.attribute(t, "messaging.operation.type"))
			require.Equal(t, "6", span.attribute(t, "messaging.batch.message_count"))
			require.Equal(t, outmill.DefaultGroup, span.attribute(t, "messaging.consumer.group.name"))
			require.False(t, span.config.Timestamp().IsZero())
		}
		var linked []trace.SpanID
		for _, link := range claimed[0].config.Links() {
			linked = append(linked, link.SpanContext.SpanID())
		}
		var others []trace.SpanID
		for _, span := range published {
			if span.own.SpanID() != claimed[0].parent.SpanID() {
				others = append(others, span.own.SpanID())
			}
		}
		require.ElementsMatch(t, others, linked)
		for _, span := range claimed[1:] {
			require.Equal(t, claimed[0].own.SpanID(), span.config.Links()[0].SpanContext.SpanID())
		}
	})

	t.Run("a claim that finds nothing that is sampled makes no span", func(t *testing.T) {
		t.Parallel()
		by := &recorder{}
		store := traced(t, by, monitor.TracesConfig{Unsampled: true})
		require.Empty(t, claim(t, store, "orders"))
		require.NoError(t, store.Append(remote(unsampledParent), records("orders", 1)...))
		require.Len(t, claim(t, store, "orders"), 1)
		require.Zero(t, by.count())
	})

	t.Run("a record of a store that is made of several has the name of its own", func(t *testing.T) {
		t.Parallel()
		by := &recorder{}
		rec := records("orders", 1)[0]
		rec.TraceParent, rec.Store = sampledParent, "tenant-a"
		store, err := traces(t, by, monitor.TracesConfig{}).Store(&still{found: []*outmill.Record{rec}})
		require.NoError(t, err)
		_, err = store.Claim(t.Context(), outmill.ClaimRequest{})
		require.NoError(t, err)
		require.Equal(t, "tenant-a", by.only(t, "claim orders").attribute(t, "store"))
	})

	t.Run("the other roles of the store stay", func(t *testing.T) {
		t.Parallel()
		_, found := outmill.As[roles.Inbox](traced(t, &recorder{}, monitor.TracesConfig{}))
		require.True(t, found)
	})
}

// delivered is a message as a subscriber delivers it.
func delivered(traceparent string) *message.Message {
	rec := &outmill.Record{Topic: "orders", Group: "billing", MessageID: "m1", TraceParent: traceparent, Attempts: 1, CorrelationID: "c1"}
	msg := storekit.MessageOf(rec)
	msg.SetContext(storekit.NewHandling("shop", rec, nil).Context(context.Background()))
	return msg
}

func TestTraces_Middleware(t *testing.T) {
	t.Parallel()

	t.Run("a handling is a span of the publish's trace, in the handler's context and in what it returns", func(t *testing.T) {
		t.Parallel()
		by := &recorder{}
		msg, out, own := delivered(sampledParent), message.NewMessage("out", nil), message.NewMessage("own", nil)
		outmill.SetTrace(own, unsampledParent, "")
		copied := message.NewMessage("copied", nil)
		outmill.SetTrace(copied, sampledParent, "")
		before := msg.Context()
		var inside trace.SpanContext
		_, err := traces(t, by, monitor.TracesConfig{}).Middleware(func(m *message.Message) ([]*message.Message, error) {
			inside = trace.SpanContextFromContext(m.Context())
			_, isDelivery := outmill.Delivery(m.Context())
			require.True(t, isDelivery)
			return []*message.Message{out, own, copied, nil}, nil
		})(msg)
		require.NoError(t, err)
		span := by.only(t, "process orders")
		require.Equal(t, span.own, inside)
		require.Equal(t, before, msg.Context())
		require.Equal(t, trace.SpanKindConsumer, span.config.SpanKind())
		require.Equal(t, "b7ad6b7169203331", span.parent.SpanID().String())
		require.Equal(t, "process", span.attribute(t, "messaging.operation.type"))
		require.Equal(t, "billing", span.attribute(t, "messaging.consumer.group.name"))
		require.Equal(t, "shop", span.attribute(t, "store"))
		require.Equal(t, "m1", span.attribute(t, "messaging.message.id"))
		require.Equal(t, "c1", span.attribute(t, "messaging.message.conversation_id"))
		require.Equal(t, "2", span.attribute(t, "outmill.attempt"))
		require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-"+span.own.SpanID().String()+"-01", out.Metadata.Get("traceparent"))
		require.Equal(t, unsampledParent, own.Metadata.Get("traceparent"))
		require.Equal(t, out.Metadata.Get("traceparent"), copied.Metadata.Get("traceparent"), "as inbox.Inherit leaves it")
	})

	t.Run("an error fails the span, and a snooze does not", func(t *testing.T) {
		t.Parallel()
		for result, want := range map[error]codes.Code{
			errors.New("no stock"): codes.Error, outmill.Snooze(time.Minute): codes.Unset, error((*storekit.PublishError)(nil)): codes.Error,
		} {
			by := &recorder{}
			_, err := traces(t, by, monitor.TracesConfig{}).Middleware(func(*message.Message) ([]*message.Message, error) {
				return nil, result
			})(delivered(sampledParent))
			require.True(t, err == result) //nolint:errorlint,testifylint // the same error, which may be a typed nil
			require.Equal(t, want, by.only(t, "process orders").status)
		}
	})

	t.Run("a panic fails the span and goes on", func(t *testing.T) {
		t.Parallel()
		by := &recorder{}
		handle := traces(t, by, monitor.TracesConfig{}).Middleware(func(*message.Message) ([]*message.Message, error) { panic("boom") })
		require.PanicsWithValue(t, "boom", func() { _, _ = handle(delivered(sampledParent)) })
		require.Equal(t, codes.Error, by.only(t, "process orders").status)
	})

	t.Run("a message that is not sampled, not of W3C or not from Outmill is handled without a span", func(t *testing.T) {
		t.Parallel()
		by := &recorder{roots: true}
		foreign := message.NewMessage("m", nil)
		outmill.SetTrace(foreign, sampledParent, "")
		handled := 0
		handle := traces(t, by, monitor.TracesConfig{}).Middleware(func(*message.Message) ([]*message.Message, error) {
			handled++
			return nil, nil
		})
		bad := sampledParent[:40] + "zz" + sampledParent[42:]
		for _, msg := range []*message.Message{foreign, delivered(unsampledParent), delivered(""), delivered(bad)} {
			_, err := handle(msg)
			require.NoError(t, err)
		}
		require.Equal(t, 4, handled)
		require.Zero(t, by.count())
	})
}

// batches is a publisher of batches that refuses the message "bad".
type batches struct{ got [][]storekit.Outgoing }

func (b *batches) Publish(string, ...*message.Message) error { return errors.New("not in a batch") }
func (b *batches) Close() error                              { return nil }
func (b *batches) PublishBatch(_ context.Context, batch []storekit.Outgoing) error {
	b.got = append(b.got, batch)
	partial := &storekit.PublishError{Total: len(batch)}
	for i, out := range batch {
		if out.Message.UUID == "bad" {
			partial.Failed = append(partial.Failed, storekit.FailedMessage{Index: i, Err: errors.New("refused")})
		}
	}
	if partial.Failed == nil {
		return nil
	}
	return partial
}

func outgoing(id, traceparent string) storekit.Outgoing {
	msg := message.NewMessage(id, nil)
	outmill.SetTrace(msg, traceparent, "")
	return storekit.Outgoing{Topic: "orders", Message: msg}
}

func TestTraces_Publisher(t *testing.T) {
	t.Parallel()

	t.Run("a batch stays a batch, each trace has a span, and only that of the failed message fails", func(t *testing.T) {
		t.Parallel()
		by, to := &recorder{}, &batches{}
		pub, err := traces(t, by, monitor.TracesConfig{}).Publisher("forward", to)
		require.NoError(t, err)
		other := strings.ReplaceAll(sampledParent, "b7ad", "cccc")
		batch := []storekit.Outgoing{outgoing("a", sampledParent), outgoing("b", sampledParent),
			outgoing("quiet", unsampledParent), outgoing("bad", other)}
		require.ErrorContains(t, pub.(storekit.BatchPublisher).PublishBatch(t.Context(), batch), "refused")
		require.Equal(t, [][]storekit.Outgoing{batch}, to.got)
		require.Equal(t, sampledParent, to.got[0][0].Message.Metadata.Get("traceparent"), "the broker gets the context of the publish")
		spans := by.named("forward orders")
		require.Len(t, spans, 2)
		require.Equal(t, codes.Unset, spans[0].status)
		require.Equal(t, codes.Error, spans[1].status)
		require.Equal(t, "refused", spans[1].text)
		require.Equal(t, "bad", spans[1].attribute(t, "messaging.message.id"))
		require.Equal(t, "4", spans[1].attribute(t, "messaging.batch.message_count"))
		require.Equal(t, "cccc6b7169203331", spans[0].config.Links()[0].SpanContext.SpanID().String())
		require.Equal(t, spans[0].own.SpanID(), spans[1].config.Links()[0].SpanContext.SpanID())
	})

	t.Run("a publisher without batches stays one, and a failed call fails its spans", func(t *testing.T) {
		t.Parallel()
		by := &recorder{}
		pub, err := traces(t, by, monitor.TracesConfig{}).Publisher("forward", struct{ message.Publisher }{&batches{}})
		require.NoError(t, err)
		_, is := pub.(storekit.BatchPublisher)
		require.False(t, is)
		require.ErrorContains(t, pub.Publish("orders", outgoing("a", sampledParent).Message), "not in a batch")
		require.Equal(t, codes.Error, by.only(t, "forward orders").status)
	})
}

func TestTraces_Settings(t *testing.T) {
	t.Parallel()

	t.Run("wrong ones are refused with the name of the field", func(t *testing.T) {
		t.Parallel()
		made := traces(t, &recorder{}, monitor.TracesConfig{})
		for want, try := range map[string]func() error{
			"provider":      func() error { _, err := monitor.NewTraces(nil, monitor.TracesConfig{}); return err },
			"store":         func() error { _, err := made.Store(nil); return err },
			"the publisher": func() error { _, err := made.Publisher("forward", nil); return err },
			"operation":     func() error { _, err := made.Publisher("", &batches{}); return err },
		} {
			err := try()
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, want)
		}
	})
}

// still is a store that does nothing, so that only the allocations of the tracing count.
type still struct {
	outmill.Store
	found []*outmill.Record
}

func (s *still) Name() string                                     { return "still" }
func (s *still) Append(context.Context, ...*outmill.Record) error { return nil }
func (s *still) Claim(context.Context, outmill.ClaimRequest) ([]*outmill.Record, error) {
	return s.found, nil
}

// accepting is a broker that accepts everything.
type accepting struct{}

func (accepting) Publish(string, ...*message.Message) error               { return nil }
func (accepting) PublishBatch(context.Context, []storekit.Outgoing) error { return nil }
func (accepting) Close() error                                            { return nil }

//nolint:paralleltest // AllocsPerRun counts those of all
func TestTraces_Allocations(t *testing.T) {
	made := traces(t, &recorder{}, monitor.TracesConfig{})
	for name, traceparent := range map[string]string{"without a context": "", "of a trace that is not sampled": unsampledParent} {
		t.Run("a record "+name+" allocates nothing when it is published in such a trace, claimed, handled and forwarded", func(t *testing.T) {
			list := records("orders", 100)
			var batch []storekit.Outgoing
			for _, rec := range list {
				rec.TraceParent = traceparent
				batch = append(batch, outgoing("m", traceparent))
			}
			store, err := made.Store(&still{found: list})
			require.NoError(t, err)
			pub, err := made.Publisher("forward", accepting{})
			require.NoError(t, err)
			ctx, msg := remote(unsampledParent), delivered(traceparent)
			alone := []*message.Message{msg}
			handle := made.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })
			for part, run := range map[string]func(){
				"publish":     func() { _ = store.Append(ctx, list...) },
				"claim":       func() { _, _ = store.Claim(ctx, outmill.ClaimRequest{}) },
				"handle":      func() { _, _ = handle(msg) },
				"forward":     func() { _ = pub.(storekit.BatchPublisher).PublishBatch(ctx, batch) },
				"forward one": func() { _ = pub.Publish("orders", alone...) },
			} {
				require.Zero(t, testing.AllocsPerRun(100, run), part)
			}
		})
	}
}
