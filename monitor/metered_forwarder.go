package monitor

import (
	"cmp"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// MeteredForwarder is what [Metrics] shows of a forwarder. Package forwarder's Forwarder is one.
type MeteredForwarder interface {
	// BreakerOpen reports whether records wait because the broker accepts none.
	BreakerOpen() bool
	// HeldTopics are the topics that wait because the broker refuses them.
	HeldTopics() []string
}

type forwarding struct {
	open, held metric.Int64ObservableGauge

	mu         sync.Mutex
	forwarders map[string]MeteredForwarder
}

func newForwarding(meter metric.Meter) (f *forwarding, err error) {
	f = &forwarding{forwarders: map[string]MeteredForwarder{}}
	if f.open, err = meter.Int64ObservableGauge("outmill.forwarder.breaker.open",
		metric.WithDescription("1 if records wait because the broker accepts none, 0 if not.")); err != nil {
		return nil, err
	}
	f.held, err = meter.Int64ObservableGauge("outmill.forwarder.topics.held", metric.WithUnit("{topic}"),
		metric.WithDescription("Topics that wait because the broker refuses them."))
	return f, err
}

func (f *forwarding) observe(o metric.Observer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, forwarder := range f.forwarders {
		labels := metric.WithAttributes(attribute.String("forwarder", name))
		open := int64(0)
		if forwarder.BreakerOpen() {
			open = 1
		}
		o.ObserveInt64(f.open, open, labels)
		o.ObserveInt64(f.held, int64(len(forwarder.HeldTopics())), labels)
	}
}

// Forwarder shows the breaker, the held topics and failing calls of a forwarder under a name; "" is
// "forwarder". A second forwarder with the name replaces the first. It returns ErrInvalidConfig
// for no forwarder.
func (m *Metrics) Forwarder(name string, forwarder MeteredForwarder) error {
	if outmill.IsNil(forwarder) {
		return storekit.InvalidConfig("Metrics.Forwarder: the forwarder is nil: pass one of package forwarder")
	}
	name = cmp.Or(name, "forwarder")
	m.calls.add("forwarder", name, forwarder)
	m.forwarding.mu.Lock()
	defer m.forwarding.mu.Unlock()
	m.forwarding.forwarders[name] = forwarder
	return nil
}
