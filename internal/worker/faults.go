package worker

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
)

// Faults logs errors that do not end the work, and reports them to the user's OnError.
type Faults struct {
	Log watermill.LoggerAdapter
	// Of names the component. It is the prefix of the errors that OnError gets.
	Of string
	// OnError may be nil. A panic in it is logged.
	OnError func(err error)
}

// Fault logs an error and reports it to OnError. Call it without locks, because OnError may
// call methods of the component.
func (f Faults) Fault(message string, err error, fields watermill.LogFields) {
	f.Log.Error(message, err, fields)
	f.Tell(err)
}

// Tell reports to OnError an error that is logged elsewhere.
func (f Faults) Tell(err error) {
	if f.OnError == nil || err == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			f.Log.Error("OnError panicked", fmt.Errorf("%v", p), nil)
		}
	}()
	f.OnError(fmt.Errorf("outmill: %s: %w", f.Of, err))
}
