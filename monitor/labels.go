package monitor

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// labels keeps the label sets of a histogram, so that a measurement makes none. Beyond the
// bound it answers with those of rest.
type labels[Key comparable] struct {
	bound int
	rest  func(Key) Key
	make  func(Key) []attribute.KeyValue

	mu   sync.RWMutex
	sets map[Key]outcomes
}

// outcomes are the label sets of success and of failure.
type outcomes struct{ ok, failed *options }

// options are one label set as the arguments of a measurement. A call that lists its options
// allocates a slice for them; Record(…, set.record...) does not.
type options struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

func optionsOf(pairs []attribute.KeyValue) *options {
	set := metric.WithAttributeSet(attribute.NewSet(pairs...))
	return &options{record: []metric.RecordOption{set}, add: []metric.AddOption{set}}
}

func (o outcomes) of(err error) *options {
	if err != nil {
		return o.failed
	}
	return o.ok
}

func newLabels[Key comparable](bound int, rest func(Key) Key, from func(Key) []attribute.KeyValue) *labels[Key] {
	return &labels[Key]{bound: bound, rest: rest, make: from, sets: map[Key]outcomes{}}
}

func (l *labels[Key]) of(key Key) outcomes {
	l.mu.RLock()
	set, found := l.sets[key]
	l.mu.RUnlock()
	if found {
		return set
	}
	return l.add(key)
}

func (l *labels[Key]) add(key Key) outcomes {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, found := l.sets[key]; !found && len(l.sets) >= l.bound {
		key = l.rest(key)
	}
	if set, found := l.sets[key]; found {
		return set
	}
	pairs := l.make(key)
	set := outcomes{
		ok: optionsOf(pairs),
		// _OTHER is the value of the conventions for an error without a class.
		failed: optionsOf(append(pairs, attribute.String("error.type", "_OTHER"))),
	}
	l.sets[key] = set
	return set
}
