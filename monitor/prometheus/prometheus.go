// Package prometheus gives the metrics of package monitor to a Prometheus registry. It is a
// module of its own, so that a program without it compiles neither Prometheus nor the SDK of
// OpenTelemetry.
package prometheus

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
)

// New registers a collector for the metrics of monitor.NewMetrics, with names that begin with
// outmill_. Use the result for publishers and handlers. Call it once per registry: a second call
// makes the registry report equal metrics twice, which is an error of each scrape. Close stops
// the queries to the stores; the collector stays registered. It returns the errors of NewMetrics,
// and ErrInvalidConfig for a nil registry. It starts no goroutine.
func New(registry prometheus.Registerer, config monitor.MetricsConfig, stores ...monitor.MeteredStore) (*monitor.Metrics, error) {
	if outmill.IsNil(registry) {
		return nil, fmt.Errorf("%w: prometheus.New: the registry is nil: pass prometheus.DefaultRegisterer", outmill.ErrInvalidConfig)
	}
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("outmill: prometheus: %w", err)
	}
	provider := metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(resource.Empty()), metric.WithView(
		named("messaging.client.operation.duration", "outmill.publish.duration"),
		named("messaging.client.sent.messages", "outmill.publish.messages"),
		named("messaging.process.duration", "outmill.handle.duration"),
	))
	return monitor.NewMetrics(provider, config, stores...)
}

// named gives an instrument the house's prefix, so that one query finds all metrics.
func named(from, to string) metric.View {
	return metric.NewView(metric.Instrument{Name: from}, metric.Stream{Name: to})
}
