package main

import (
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/monitor"
	outmetrics "github.com/outmill/outmill/monitor/prometheus"
)

// measurements are the metrics of a daemon, with those of its process.
type measurements struct {
	registry *prometheus.Registry
	metrics  *monitor.Metrics
}

// measure replaces the store and the publisher by ones that are measured. docs/metrics.md lists
// the metrics.
func measure(store *opened, broker *destination) (m *measurements, err error) {
	m = &measurements{registry: prometheus.NewRegistry()}
	err = errors.Join(
		m.registry.Register(collectors.NewGoCollector()),
		m.registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	)
	if err != nil {
		return nil, err
	}
	if m.metrics, err = outmetrics.New(m.registry, monitor.MetricsConfig{}, store.Store); err != nil {
		return nil, err
	}
	if store.Store, err = m.metrics.Store(store.Store); err != nil {
		return nil, err
	}
	broker.Publisher, err = m.metrics.Publisher("forward", broker.Publisher)
	return m, err
}

// register serves /metrics, with the breaker of the forwarder.
func (m *measurements) register(mux *http.ServeMux, fwd *forwarder.Forwarder) error {
	if err := m.metrics.Forwarder("", fwd); err != nil {
		return err
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	return nil
}

// close ends the questions to the store.
func (m *measurements) close() error { return m.metrics.Close() }
