package subscriber

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// mostDelays limits the number of records whose delays are remembered. Beyond it, some records
// begin with DelayOnError's first delay again.
const mostDelays = 10_000

// delays makes Watermill's middleware DelayOnError work. The middleware writes the delay of the
// next delivery into the message, and multiplies the delay that it finds there. A nack changes no
// metadata in the store, so this process remembers the delay of each record that failed, and puts
// it into the message that comes again. Another process begins with the first delay.
type delays struct {
	// some is the number of delays, so that messages that did not fail need no lock.
	some atomic.Int64
	mu   sync.Mutex
	of   map[outmill.WorkItemID]string
}

// restore puts the delay of the last failure into the message, and returns what the message has
// when its handler begins.
func (d *delays) restore(rec *outmill.Record, msg *message.Message) delayed {
	if d.some.Load() > 0 {
		d.mu.Lock()
		text, known := d.of[rec.ID]
		d.mu.Unlock()
		if known {
			msg.Metadata.Set(delay.DelayedForKey, text)
			return delayed{ours: true}
		}
	}
	return delayed{before: msg.Metadata.Get(delay.DelayedForKey)}
}

// delayed is the delay that a message has when its handler begins.
type delayed struct {
	// before came with the message, so it is data and no instruction.
	before string
	// ours says that restore wrote the delay, so DelayOnError is in use.
	ours bool
}

// until returns an error that asks for the delay that a middleware has written into the message
// during its handling. An error that names a wait of its own, or that no wait helps, stays as it is.
func (d delayed) until(msg *message.Message, err error) error {
	text := msg.Metadata.Get(delay.DelayedForKey)
	if text == "" || (!d.ours && text == d.before) {
		return err
	}
	wait, parseErr := time.ParseDuration(text)
	if parseErr != nil || wait < 0 || decides(err) {
		return err
	}
	return delayedError{outmill.RetryAfter(err, wait), text}
}

// delayedError is the RetryAfter of until, with the delay as DelayOnError wrote it.
type delayedError struct {
	error
	text string
}

func (e delayedError) Unwrap() error { return e.error }

// asDelayed finds the delay in an error. The methods of a handler's error may panic.
func asDelayed(err error) (later delayedError, found bool) {
	defer func() { _ = recover() }()
	found = errors.As(err, &later)
	return later, found
}

// decides reports whether the handler's error decides about the next delivery. It returns true for
// an error whose methods panic, such as a typed nil.
func decides(err error) (does bool) {
	defer func() {
		if recover() != nil {
			does = true
		}
	}()
	_, snoozed := outmill.SnoozeDelay(err)
	_, later := outmill.RetryAfterDelay(err)
	return snoozed || later || outmill.IsPermanent(err)
}

// failed remembers the delay of a record that failed, or forgets the record.
func (d *delays) failed(id outmill.WorkItemID, err error) {
	later, ok := asDelayed(err)
	if !ok {
		d.forget(id)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[outmill.WorkItemID]string{}
	}
	if len(d.of) >= mostDelays {
		for other := range d.of {
			delete(d.of, other)
			break
		}
	}
	d.of[id] = later.text
	d.some.Store(int64(len(d.of)))
}

// forget forgets a record that is settled.
func (d *delays) forget(id outmill.WorkItemID) {
	if d.some.Load() == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, id)
	d.some.Store(int64(len(d.of)))
}
