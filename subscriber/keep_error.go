package subscriber

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

var (
	// errNotKept replaces the handler's error if no KeepError kept it.
	errNotKept = errors.New("nacked; add the middleware subscriber.KeepError to keep the handler's error")
	// errAfterHandler exists because the router also nacks a message if it cannot publish the
	// messages that the handler returned.
	errAfterHandler = errors.New("nacked after the handler had succeeded: the router could not publish the messages that it returned")
)

// KeepError is a router middleware that passes a handler's error to the subscriber: the
// error becomes the record's last_error, and outmill.Permanent, RetryAfter and Snooze take
// effect. Add it first, so that it sees the error after the other middlewares have changed
// it. It has no effect on messages that did not come from an Outmill subscriber.
//
// A handler that returns outmill.Snooze has not failed. KeepError then nacks the message
// itself and returns no error and no messages, so the router logs nothing, and its later
// ack has no effect. Middlewares outside KeepError see a snooze as a success (Watermill's
// metrics count one); middlewares inside see it as an error. Therefore put middlewares that
// commit or roll back depending on the error inside KeepError. A Snooze that another error
// wraps takes effect too, but KeepError returns the whole error, and the router logs it.
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
			// An outer function, such as the router, recovers.
			if p := recover(); p != nil {
				kept.set(fmt.Errorf("handler panicked: %v", p), false)
				panic(p)
			}
		}()
		produced, err = h(msg)
		returned = true
		snoozed := isSnooze(err)
		if err != nil {
			kept.set(kept.delayed.until(msg, err), snoozed)
		} else {
			kept.set(nil, false)
		}
		if snoozed {
			msg.Nack()
			return nil, nil
		}
		return produced, err
	}
}

// isSnooze reports whether err is a Snooze and nothing else. It returns false for an error
// whose methods panic, such as a typed nil.
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

// keptContext keeps a handler's error until the nack.
type keptContext struct {
	messageContext

	keep sync.Mutex
	kept bool
	err  error
	// snoozed says that KeepError has nacked the message for a snooze; later calls of set have
	// no effect.
	snoozed bool
	// item is the lease of the message.
	item *worker.Item
	// delayed is the delay that the message had when its handler began.
	delayed delayed
}

func (k *keptContext) Value(key any) any {
	switch key {
	case keptKey{}:
		return k
	case storekit.MessageLeaseKey{}:
		return k.item
	}
	return k.messageContext.Value(key)
}

func (k *keptContext) set(err error, snoozed bool) {
	k.keep.Lock()
	defer k.keep.Unlock()
	if !k.snoozed {
		k.kept, k.err, k.snoozed = true, err, snoozed
	}
}

// reason is never nil.
func (k *keptContext) reason() error {
	k.keep.Lock()
	defer k.keep.Unlock()
	switch {
	case !k.kept:
		return errNotKept
	case k.err == nil:
		return errAfterHandler
	}
	return k.err
}
