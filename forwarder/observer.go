package forwarder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// observer records for Once the errors of its round. The flow's lock guards it.
type observer struct {
	// giveUp is called when the broker is unavailable.
	giveUp context.CancelCauseFunc
	holds  map[string]error
}

// watch adds an observer, and reports the current state of the breaker and the holds to it.
func (fl *flow) watch(giveUp context.CancelCauseFunc) *observer {
	w := &observer{giveUp: giveUp, holds: map[string]error{}}
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.observers[w] = struct{}{}
	if fl.state == open {
		w.sawAway(fl.away)
	}
	for topic, h := range fl.held {
		if !h.lifted {
			w.sawHold(topic, h.err)
		}
	}
	return w
}

// dismiss removes the observer and returns the errors of the topics that were held.
func (fl *flow) dismiss(w *observer) error {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	delete(fl.observers, w)
	var errs []error
	for _, topic := range slices.Sorted(maps.Keys(w.holds)) {
		errs = append(errs, fmt.Errorf("outmill: topic %q is held: %w", topic, w.holds[topic]))
	}
	return errors.Join(errs...)
}

func (w *observer) sawAway(err error) {
	w.giveUp(fmt.Errorf("outmill: the broker accepted no message: %w", err))
}

func (w *observer) sawHold(topic string, err error) { w.holds[topic] = err }
