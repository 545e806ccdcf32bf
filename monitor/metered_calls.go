package monitor

import (
	"cmp"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// repeatedCalls shows for how long the calls that a program repeats by itself fail.
type repeatedCalls struct {
	failing metric.Float64ObservableGauge

	mu      sync.Mutex
	callers map[namedCaller]any
}

// namedCaller are the labels of a caller: the kind of component, and its name.
type namedCaller struct{ component, name string }

func newRepeatedCalls(meter metric.Meter) (r *repeatedCalls, err error) {
	r = &repeatedCalls{callers: map[namedCaller]any{}}
	r.failing, err = meter.Float64ObservableGauge("outmill.call.failing.age", metric.WithUnit("s"),
		metric.WithDescription("For how long a call that is repeated has failed without a success; 0 if it works."))
	return r, err
}

// add shows the calls of the caller, if it has the role storekit.FailingCaller.
func (r *repeatedCalls) add(component, name string, caller any) {
	if _, repeats := outmill.As[storekit.FailingCaller](caller); !repeats {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.callers[namedCaller{component, name}] = caller
}

func (r *repeatedCalls) observe(o metric.Observer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for of, caller := range r.callers {
		ages := make(map[string]float64, len(storekit.Calls))
		for _, call := range storekit.Calls {
			ages[call] = 0
		}
		for _, call := range storekit.FailingOf(caller) {
			ages[call.Call] = max(ages[call.Call], now.Sub(call.Since).Seconds())
		}
		for call, age := range ages {
			o.ObserveFloat64(r.failing, age, metric.WithAttributes(attribute.String("component", of.component),
				attribute.String("name", of.name), attribute.String("call", call)))
		}
	}
}

// Janitor shows under a name for how long the work of a janitor fails; "" is "janitor". It is for a process
// that runs a janitor of its own: those of subscribers and forwarders count with them. A second janitor with
// the name replaces the first. It returns ErrInvalidConfig for no janitor.
func (m *Metrics) Janitor(name string, janitor FailingCaller) error {
	if outmill.IsNil(janitor) {
		return storekit.InvalidConfig("Metrics.Janitor: the janitor is nil: pass one of package janitor")
	}
	m.calls.add("janitor", cmp.Or(name, "janitor"), janitor)
	return nil
}
