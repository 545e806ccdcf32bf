package monitor

import (
	"context"
	"fmt"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// MeteredStore is a store whose records [Metrics] counts. Every store of Outmill is one.
type MeteredStore interface {
	outmill.Inspector
	// Name is the label "store" of the metrics.
	Name() string
}

// Metrics measures stores, publishers and handlers with OpenTelemetry. docs/metrics.md lists
// the metrics. Its methods may be called concurrently.
type Metrics struct {
	depths       []*depths
	registration metric.Registration
	publishing   publishing
	handling     handling
	storing      storing
	forwarding   *forwarding
	subscribing  *subscribing
	calls        *repeatedCalls
}

// NewMetrics makes the instruments and counts the records of the stores whenever the provider
// collects. A collection asks each store at most once per MetricsConfig.CacheFor, several stores
// at the same time, and a store that fails leaves the metrics of the others as they are. It
// returns ErrInvalidConfig for a nil provider or store, two stores with one name, and a setting
// below zero. It does not close the stores. A store that comes later needs its own Metrics.
func NewMetrics(provider metric.MeterProvider, config MetricsConfig, stores ...MeteredStore) (*Metrics, error) {
	if outmill.IsNil(provider) {
		return nil, storekit.InvalidConfig("NewMetrics: the meter provider is nil: pass the one of your OpenTelemetry SDK")
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	m := &Metrics{}
	names := map[string]bool{}
	for _, store := range stores {
		if outmill.IsNil(store) {
			return nil, storekit.InvalidConfig("NewMetrics: a store is nil: pass open stores")
		}
		if names[store.Name()] {
			return nil, storekit.InvalidConfig("NewMetrics: two stores have the name %q: set Config.Name of one of them", store.Name())
		}
		names[store.Name()] = true
		m.depths = append(m.depths, &depths{store: store, config: config})
	}
	if err := m.instruments(provider.Meter("github.com/outmill/outmill/monitor"), config.MaxSeries); err != nil {
		return nil, fmt.Errorf("outmill: metrics: %w", err)
	}
	for _, store := range stores {
		m.calls.add("store", store.Name(), store)
	}
	return m, nil
}

// Close ends the counting of records: later collections do not ask the stores. A collection in
// progress may still do so.
func (m *Metrics) Close() error { return m.registration.Unregister() }

func (m *Metrics) instruments(meter metric.Meter, maxSeries int) (err error) {
	if m.publishing, err = newPublishing(meter, maxSeries); err != nil {
		return err
	}
	if m.handling, err = newHandling(meter, maxSeries); err != nil {
		return err
	}
	if m.storing, err = newStoring(meter); err != nil {
		return err
	}
	if m.forwarding, err = newForwarding(meter); err != nil {
		return err
	}
	if m.subscribing, err = newSubscribing(meter); err != nil {
		return err
	}
	if m.calls, err = newRepeatedCalls(meter); err != nil {
		return err
	}
	g, err := newGauges(meter)
	if err != nil {
		return err
	}
	m.registration, err = meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		m.observe(ctx, o, g)
		m.forwarding.observe(o)
		m.subscribing.observe(o)
		m.calls.observe(o)
		return nil
	}, append(g.all(), m.forwarding.open, m.forwarding.held, m.subscribing.repeats, m.calls.failing)...)
	return err
}

// observe reports a store that does not answer as down, and not as an error: an error would
// end up in the SDK's log at each collection.
func (m *Metrics) observe(ctx context.Context, o metric.Observer, g gauges) {
	answers := make([]answerOfStore, len(m.depths))
	var asking sync.WaitGroup
	for i, d := range m.depths {
		asking.Go(func() { answers[i] = d.ask(ctx) })
	}
	asking.Wait()
	for i := range m.depths {
		for store, answered := range answers[i].up {
			up := int64(0)
			if answered {
				up = 1
			}
			o.ObserveInt64(g.up, up, metric.WithAttributes(attribute.String("store", store)))
		}
		for _, row := range answers[i].rows {
			g.observe(o, row, answers[i].at)
		}
	}
}
