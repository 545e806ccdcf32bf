package subscriber

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
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
//
// A handler that returns outmill.Snooze has not failed, so KeepError nacks the
// message itself and returns no error and no messages: the router logs nothing,
// and its ack comes too late. Middlewares outside of KeepError take a snooze for
// a success (Watermill's metrics count one), so those that commit or roll back by
// the error belong inside. Those inside see the Snooze as an error. A Snooze that
// another error wraps takes effect too, but is returned and logged as the error
// that it is part of.
func KeepError(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		kept, ok := msg.Context().Value(keptKey{}).(*keptContext)
		if !ok {
			return h(msg)
		}
		returned := false
		defer func() {
			if returned {
				return
			}
			// Somebody further out recovers (the router does).
			if p := recover(); p != nil {
				kept.set(fmt.Errorf("handler panicked: %v", p), false)
				panic(p)
			}
		}()
		produced, err = h(msg)
		returned = true
		snoozed := isSnooze(err)
		kept.set(err, snoozed)
		if snoozed {
			msg.Nack()
			return nil, nil
		}
		return produced, err
	}
}

// isSnooze tells whether err says nothing else. An error that panics when it is
// asked, as a typed nil does, is none.
func isSnooze(err error) (is bool) {
	defer func() {
		if recover() != nil {
			is = false
		}
	}()
	_, snoozed := outmill.SnoozeDelay(err)
	_, several := err.(interface{ Unwrap() []error })
	return snoozed && !several && errors.Unwrap(err) == nil
}

type keptKey struct{}

// keptContext is where a handler's error is kept for the nack that follows it.
type keptContext struct {
	context.Context
	mu   sync.Mutex
	kept bool
	err  error
	// snoozed: the message is nacked, and nothing changes that any more.
	snoozed bool
	// item acks the message in a transaction.
	item *worker.Item
}

func (k *keptContext) Value(key any) any {
	switch key {
	case keptKey{}:
		return k
	case storekit.TxHandlingKey{}:
		return k.item
	}
	return k.Context.Value(key)
}

func (k *keptContext) set(err error, snoozed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.snoozed {
		k.kept, k.err, k.snoozed = true, err, snoozed
	}
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
