package worker

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
)

// Faults logs errors that are survived, and tells the user's OnError of them.
type Faults struct {
	Log watermill.LoggerAdapter
	// Of names what survives them: it begins the errors that OnError gets.
	Of string
	// OnError may be nil. A panic of it is logged.
	OnError func(err error)
}

// Fault logs an error and tells OnError of it. It is called without locks, because
// OnError may call what survives the error.
func (f Faults) Fault(message string, err error, fields watermill.LogFields) {
	f.Log.Error(message, err, fields)
	f.Tell(err)
}

// Tell tells OnError of an error that is logged elsewhere.
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
