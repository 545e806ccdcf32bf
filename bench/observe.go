package main

import (
	"context"
	"errors"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/storekit"
)

const observeAbout = `n messages wait in PostgreSQL (fsync on), and Outmill's forwarder, ordered by key, moves them to a real Kafka
(acks=all), as in the scenario forward: bare, and observed with OpenTelemetry's SDK. Metrics are collected every second. One message of
100 is sampled and has a trace of its own. The SDK hands the spans in batches to an exporter that drops them, so the cost of an exporter
is not in the numbers. A ratio is the median of those of the rounds. Metrics count the records of a store every 5 seconds, first after
one, so a run must last some seconds: in a short one the first count, with a connection of its own, counts too much.

  bare_msgs_per_s        without metrics and traces
  bare_again_msgs_per_s  the same once more: its difference to bare is the noise
  quiet_msgs_per_s       traced, and no message is sampled
  metrics_msgs_per_s     with metrics
  traced_msgs_per_s      with metrics, and traces of 1 % of the messages
  noise                  bare again / bare
  quiet_ratio            quiet / bare
  metrics_ratio          metrics / bare
  traced_ratio           traced / bare: the aim is 0.90 or more
  bare_cpu_us            the processor time of a message, of this process and of PostgreSQL, where both run on this Linux machine,
                         and the same for the other sides: other programs of the machine disturb it less than the rate
  noise_cpu_ratio        bare again / bare, by the processor time
  quiet_cpu_ratio        quiet / bare
  metrics_cpu_ratio      metrics / bare
  traced_cpu_ratio       traced / bare: the aim is 1.10 or less`

func init() {
	scenarios = append(scenarios, scenario{
		name: "observe", help: "what metrics and traces cost the forwarder",
		about: observeAbout, n: 400_000, short: 2_000, measure: measureObserve,
	})
}

// tracedShare is the share of the messages that are sampled.
const tracedShare = 0.01

func measureObserve(ctx context.Context, b *bench) error {
	broker, err := b.engines.kafka(ctx)
	if err != nil {
		return err
	}
	pool, err := b.database(ctx, "observe")
	if err != nil {
		return err
	}
	f := &forwarding{b: b, pool: pool, broker: broker}
	defer func() { _ = f.close() }()
	var sides []side
	for _, o := range []observation{
		{name: "bare", title: "bare"},
		{name: "traced", title: "metrics, and traces of 1 %", metrics: true, traces: true, share: tracedShare},
		{name: "bare_again", title: "bare, once more"},
		{name: "metrics", title: "metrics", metrics: true},
		{name: "quiet", title: "traced, nothing sampled", traces: true},
	} {
		o.forwarding = f
		sides = append(sides, side{field: o.name + "_msgs_per_s", title: o.title, prepare: o.prepare, run: o.run})
	}
	if err := b.compare(ctx, sides...); err != nil {
		return err
	}
	b.results.compareWithBare()
	return nil
}

func (r *results) compareWithBare() {
	for _, c := range []struct{ side, title, ratio, cpuRatio string }{
		{"bare_again", "bare again", "noise", "noise_cpu_ratio"},
		{"quiet", "nothing sampled", "quiet_ratio", "quiet_cpu_ratio"},
		{"metrics", "metrics", "metrics_ratio", "metrics_cpu_ratio"},
		{"traced", "metrics and traces", "traced_ratio", "traced_cpu_ratio"},
	} {
		r.pairs(c.ratio, c.title+" / bare", c.side+"_msgs_per_s", "bare_msgs_per_s")
		r.pairs(c.cpuRatio, c.title+" / bare, by processor time", c.side+"_cpu_us", "bare_cpu_us")
	}
}

// observation is a way to observe the forwarder.
type observation struct {
	*forwarding
	name, title     string
	metrics, traces bool
	// share is that of the messages that are sampled.
	share float64
}

func (o observation) prepare(ctx context.Context) error {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.TraceIDRatioBased(o.share)))
	defer func() { _ = provider.Shutdown(context.WithoutCancel(ctx)) }()
	return o.prepareWith(ctx, true, func(store outmill.Store) outmill.Store {
		return requests{store, provider.Tracer("bench")}
	})
}

// requests appends each record as a request of its own would do, without the time that single
// appends take.
type requests struct {
	outmill.Store
	tracer trace.Tracer
}

func (r requests) Append(ctx context.Context, records ...*outmill.Record) error {
	for _, rec := range records {
		_, span := r.tracer.Start(ctx, "request")
		if c := span.SpanContext(); c.IsSampled() {
			rec.TraceParent = "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-01"
		}
		span.End()
	}
	return r.Store.Append(ctx, records...)
}

func (o observation) run(ctx context.Context) (took time.Duration, err error) {
	plain, err := newKafkaPublisher(o.broker, kafka.Config{})
	if err != nil {
		return 0, err
	}
	defer func() { _ = plain.Close() }()
	var queue outmill.Store = o.store
	var pub storekit.BatchPublisher = plain
	if o.traces {
		provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(dropping{}))
		defer func() { err = errors.Join(err, provider.Shutdown(context.WithoutCancel(ctx))) }()
		if queue, pub, err = traced(provider, queue, pub); err != nil {
			return 0, err
		}
	}
	if o.metrics {
		var end func()
		if queue, pub, end, err = metered(ctx, queue, pub); err != nil {
			return 0, err
		}
		defer end()
	}
	return o.drainMeasured(ctx, queue, pub)
}

// drainMeasured adds the processor time of a message, where this system reports it.
func (o observation) drainMeasured(ctx context.Context, queue outmill.Queue, pub storekit.BatchPublisher) (time.Duration, error) {
	first, remote := postmaster(ctx, o.pool)
	_, unknown := ownTime()
	used := func() time.Duration {
		own, _ := ownTime()
		server, _ := serverTime(first)
		return own + server
	}
	before := used()
	took, err := o.drainFrom(ctx, queue, pub)
	if err == nil && remote == nil && unknown == nil {
		// A run with -short may take less than the unit of the system.
		spent := max(used()-before, tick)
		o.b.results.add(o.name+"_cpu_us", o.title+": processor time, µs", float64(spent.Microseconds())/float64(o.b.n))
	}
	return took, err
}

func traced(provider trace.TracerProvider, store outmill.Store, pub storekit.BatchPublisher) (outmill.Store, storekit.BatchPublisher, error) {
	traces, err := monitor.NewTraces(provider, monitor.TracesConfig{})
	if err != nil {
		return nil, nil, err
	}
	if store, err = traces.Store(store); err != nil {
		return nil, nil, err
	}
	decorated, err := traces.Publisher("forward", pub)
	if err != nil {
		return nil, nil, err
	}
	return store, decorated.(storekit.BatchPublisher), nil
}

// metered collects the metrics every second until end.
func metered(ctx context.Context, store outmill.Store, pub storekit.BatchPublisher) (
	outmill.Store, storekit.BatchPublisher, func(), error,
) {
	reader := sdkmetric.NewManualReader()
	metrics, err := monitor.NewMetrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), monitor.MetricsConfig{}, store)
	if err != nil {
		return nil, nil, nil, err
	}
	if store, err = metrics.Store(store); err != nil {
		return nil, nil, nil, err
	}
	decorated, err := metrics.Publisher("forward", pub)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for sleep(ctx, time.Second) == nil {
			var found metricdata.ResourceMetrics
			_ = reader.Collect(ctx, &found)
		}
	}()
	return store, decorated.(storekit.BatchPublisher), func() { stop(); <-ended }, nil
}

// dropping is an exporter that drops the spans.
type dropping struct{}

func (dropping) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (dropping) Shutdown(context.Context) error                             { return nil }
