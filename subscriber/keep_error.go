package subscriber

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

var (
	// errNotKept stands in where nobody kept the handler's error.
	errNotKept = errors.New("nacked; add the middleware subscriber.KeepError to keep the handler's error")
	// errAfterHandler: the router nacks too when it cannot publish what a
	// handler returned.
	errAfterHandler = errors.New("nacked after the handler had succeeded: what it returned could not be published")
)

// KeepError is a router middleware that lets the subscriber know why a handler
// failed: the error becomes the record's last_error, and outmill.Permanent,
// RetryAfter and Snooze take effect. Add it first, so that it sees what the
// other middlewares make of the error; it changes nothing for messages that
// did not come from an Outmill subscriber.
func KeepError(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		kept, ok := msg.Context().Value(keptKey{}).(*keptContext)
		if !ok {
			return h(msg)
		}
		returned := false
		defer func() {
			if returned {
				kept.set(err)
				return
			}
			// Somebody further out recovers (the router does).
			if p := recover(); p != nil {
				kept.set(fmt.Errorf("handler panicked: %v", p))
				panic(p)
			}
		}()
		produced, err = h(msg)
		returned = true
		return produced, err
	}
}

type keptKey struct{}

// keptContext is where a handler's error is kept for the nack that follows it.
type keptContext struct {
	context.Context
	mu   sync.Mutex
	kept bool
	err  error
}

func (k *keptContext) Value(key any) any {
	if key == (keptKey{}) {
		return k
	}
	return k.Context.Value(key)
}

func (k *keptContext) set(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept, k.err = true, err
}

// reason is never nil.
func (k *keptContext) reason() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !k.kept:
		return errNotKept
	case k.err == nil:
		return errAfterHandler
	}
	return k.err
}
