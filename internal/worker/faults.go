package worker

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
)

// fault logs an error that the worker survives, and tells the user of it.
func (w *Worker) fault(message string, err error, fields watermill.LogFields) {
	w.log.Error(message, err, fields)
	Tell(w.cfg.OnError, fmt.Errorf("outmill: group %q: %s: %w", w.cfg.Group, message, err), w.log)
}

// Tell calls an OnError of a user's, if there is one. A panic of it is logged.
func Tell(onError func(error), err error, log watermill.LoggerAdapter) {
	if onError == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			log.Error("OnError panicked", fmt.Errorf("%v", p), nil)
		}
	}()
	onError(err)
}
