package storekit

import (
	"errors"
	"fmt"
	"slices"

	"github.com/outmill/outmill"
)

// MaxHandling is the most handlers that a registration reports.
const MaxHandling = 20

// Stopped takes the registrations of workers that have stopped out of the list. A store only notes their
// names, if it has them.
func Stopped(regs []outmill.Registration) (stopped, others []outmill.Registration) {
	if !slices.ContainsFunc(regs, func(reg outmill.Registration) bool { return reg.Stopped }) {
		return nil, regs
	}
	for _, reg := range regs {
		if reg.Stopped {
			stopped = append(stopped, reg)
		} else {
			others = append(others, reg)
		}
	}
	return stopped, others
}

func checkHandling(reg outmill.Registration) error {
	var errs []error
	if reg.Stopped && reg.Worker == "" {
		errs = append(errs, InvalidConfig("Registration.Stopped is set without Worker: want the name of the worker that has stopped"))
	}
	if len(reg.Handling) > MaxHandling {
		errs = append(errs, fmt.Errorf("%w: Registration.Handling has %d handlers: want at most %d", outmill.ErrInvalidConfig, len(reg.Handling),
			MaxHandling))
	}
	for _, h := range reg.Handling {
		reason := checkTime(h.Since)
		if h.Record.IsZero() {
			reason = "has no Record"
		}
		if reason == "" {
			reason = checkText(h.Store, MaxProblemText)
		}
		if reason != "" {
			errs = append(errs, &outmill.InvalidRecordError{Index: -1, Field: "handling", Reason: reason})
		}
		errs = append(errs, CheckTopic(h.Topic))
	}
	return errors.Join(errs...)
}
