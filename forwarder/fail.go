package forwarder

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
)

// failures logs errors and passes them on to Config.OnError.
type failures struct {
	log  watermill.LoggerAdapter
	tell func(err error)
}

// fail is for an error that the message of the log line explains.
func (f failures) fail(msg string, err error, fields watermill.LogFields) {
	f.log.Error(msg, err, fields)
	if err != nil {
		f.report(fmt.Errorf("outmill: forwarder: %w", err))
	}
}

// report is called without locks, because OnError may call the forwarder.
func (f failures) report(err error) {
	if f.tell == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			f.log.Error("OnError panicked", fmt.Errorf("%v", p), nil)
		}
	}()
	f.tell(err)
}
