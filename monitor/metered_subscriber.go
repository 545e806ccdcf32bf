package monitor

import (
	"cmp"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// MeteredSubscriber is what [Metrics] shows of a subscriber. Package subscriber's Subscriber is one.
type MeteredSubscriber interface {
	// Repeats returns how often in a row a record has come again without an attempt, of the record
	// with the longest row; 0 if no row is too long.
	Repeats() int
}

type subscribing struct {
	repeats metric.Int64ObservableGauge

	mu          sync.Mutex
	subscribers map[string]MeteredSubscriber
}

func newSubscribing(meter metric.Meter) (s *subscribing, err error) {
	s = &subscribing{subscribers: map[string]MeteredSubscriber{}}
	s.repeats, err = meter.Int64ObservableGauge("outmill.subscriber.repeats", metric.WithUnit("{time}"),
		metric.WithDescription("How often in a row a record came again without an attempt, at most; 0 if that is not too often."))
	return s, err
}

func (s *subscribing) observe(o metric.Observer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, subscriber := range s.subscribers {
		o.ObserveInt64(s.repeats, int64(subscriber.Repeats()), metric.WithAttributes(attribute.String("subscriber", name)))
	}
}

// Subscriber shows under a name how often in a row a record of the subscriber came again without an
// attempt, and for how long its calls fail; "" is "subscriber". A second subscriber with the name replaces the
// first. It returns
// ErrInvalidConfig for no subscriber.
func (m *Metrics) Subscriber(name string, subscriber MeteredSubscriber) error {
	if outmill.IsNil(subscriber) {
		return storekit.InvalidConfig("Metrics.Subscriber: the subscriber is nil: pass one of package subscriber")
	}
	name = cmp.Or(name, "subscriber")
	m.calls.add("subscriber", name, subscriber)
	m.subscribing.mu.Lock()
	defer m.subscribing.mu.Unlock()
	m.subscribing.subscribers[name] = subscriber
	return nil
}
