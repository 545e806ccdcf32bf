package forwarder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// witness records for Once the errors of its round. The flow's lock guards it.
type witness struct {
	// giveUp is called when the broker is unavailable.
	giveUp context.CancelCauseFunc
	holds  map[string]error
}

// watch adds a witness, and reports the current state of the breaker and the holds to it.
func (fl *flow) watch(giveUp context.CancelCauseFunc) *witness {
	w := &witness{giveUp: giveUp, holds: map[string]error{}}
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.witnesses[w] = struct{}{}
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

// dismiss removes the witness and returns the errors of the topics that were held.
func (fl *flow) dismiss(w *witness) error {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	delete(fl.witnesses, w)
	var errs []error
	for _, topic := range slices.Sorted(maps.Keys(w.holds)) {
		errs = append(errs, fmt.Errorf("outmill: topic %q is held: %w", topic, w.holds[topic]))
	}
	return errors.Join(errs...)
}

func (w *witness) sawAway(err error) {
	w.giveUp(fmt.Errorf("outmill: the broker accepted no message: %w", err))
}

func (w *witness) sawHold(topic string, err error) { w.holds[topic] = err }
