package worker

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
)

// InStore returns the log for lines about a member of a set of stores: they have its name. For "",
// which is the Store of the records of a store in no set, it returns the log itself. The log must
// come from storekit.LogWith.
func InStore(log watermill.LoggerAdapter, store string) watermill.LoggerAdapter {
	if store == "" {
		return log
	}
	return log.With(watermill.LogFields{"store": store})
}

// Faults logs errors that do not end the work, and reports them to the user's OnError.
type Faults struct {
	Log watermill.LoggerAdapter
	// Of names the component. It is the prefix of the errors that OnError gets.
	Of string
	// OnError may be nil. A panic in it is logged.
	OnError func(err error)
}

// InStore returns the faults of a member of a set of stores: see the function InStore.
func (f Faults) InStore(store string) Faults {
	f.Log = InStore(f.Log, store)
	return f
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
