package storekit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// PartialError is the error of a call for leases or records of several stores, of which
// some have failed. What is of the others was done, and need not be repeated.
type PartialError struct {
	// Failed are the errors by the name of the store, as Lease.Store has it.
	Failed map[string]error
	// Asked is how many stores the call was for; 0 is unknown.
	Asked int
}

// Stores are the names of those that failed, sorted.
func (e *PartialError) Stores() []string { return slices.Sorted(maps.Keys(e.Failed)) }

// SomeAnswered reports whether err is that of a call for several stores, of which some failed and
// at least one did not. The result of the call is then that of the others.
func SomeAnswered(err error) bool {
	var partial *PartialError
	return errors.As(err, &partial) && len(partial.Failed) < partial.Asked
}

// NoneAnswered reports whether err is that of a single store, or of all stores that were asked. The call
// then has no result.
func NoneAnswered(err error) bool { return err != nil && !SomeAnswered(err) }

// Of returns the error of the store; nil where it did what it was told.
func (e *PartialError) Of(store string) error { return e.Failed[store] }

// Add takes over the failures of another PartialError, and returns any other error.
func (e *PartialError) Add(err error) error {
	var other *PartialError
	if !errors.As(err, &other) {
		return err
	}
	maps.Copy(e.Failed, other.Failed)
	return nil
}

// OrNil returns the error, nil where no store has failed.
func (e *PartialError) OrNil() error {
	if len(e.Failed) == 0 {
		return nil
	}
	return e
}

func (e *PartialError) Error() string {
	const most = 3
	var b strings.Builder
	noun := "stores"
	if len(e.Failed) == 1 {
		noun = "store"
	}
	fmt.Fprintf(&b, "outmill: %d %s failed", len(e.Failed), noun)
	for i, name := range e.Stores() {
		if i == most {
			b.WriteString("; …")
			break
		}
		fmt.Fprintf(&b, "; %v", e.Failed[name])
	}
	return b.String()
}

// Unwrap gives errors.Is and errors.As the errors of all stores that failed.
func (e *PartialError) Unwrap() []error {
	errs := make([]error, 0, len(e.Failed))
	for _, name := range e.Stores() {
		errs = append(errs, e.Failed[name])
	}
	return errs
}
