package subscriber

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/internal/worker"
)

const (
	// attendFor is how long the attendant waits for an ack.
	attendFor = time.Millisecond
	// mostAttended limits the messages that wait for the attendant.
	mostAttended = 256
	// afterSlow is the number of messages that the attendant does not get after a slow handler.
	afterSlow = 32
)

// handed is a message that is with a handler.
type handed struct {
	ctx *keptContext
	it  *worker.Item
	msg *message.Message
}

// attend waits for the ack of a message that was delivered. The attendant does that for handlers that return
// at once, for which a goroutine for each message would cost more than the rest of the delivery. Messages of
// slow handlers get a goroutine each.
func (sub *subscription) attend(m handed) {
	sub.handling.Add(1)
	sub.session.handling.Add(1)
	if sub.slow.Load() > 0 {
		sub.slow.Add(-1)
		go sub.attendAlone(m)
		return
	}
	if sub.attended == nil {
		sub.attended = make(chan handed, mostAttended)
		go sub.attendAll(sub.attended)
	}
	select {
	case sub.attended <- m:
	default:
		go sub.attendAlone(m)
	}
}

// attendAll is the attendant. It waits for the acks in the order of the deliveries, and leaves to a goroutine
// of its own what takes longer, with all that waits behind that, and what the handler nacks, because the
// error and the logger are the user's.
func (sub *subscription) attendAll(attended <-chan handed) {
	patience := time.NewTimer(time.Hour)
	defer patience.Stop()
	behind := 0
	for m := range attended {
		select {
		case <-m.msg.Acked():
			sub.acked(m)
			behind = max(behind-1, 0)
			continue
		default:
		}
		if behind > 0 {
			behind--
			go sub.attendAlone(m)
			continue
		}
		patience.Reset(attendFor)
		select {
		case <-m.msg.Acked():
			sub.acked(m)
			continue
		case <-m.msg.Nacked():
		case <-patience.C:
			behind = len(attended)
			sub.slow.Store(afterSlow)
		}
		go sub.attendAlone(m)
	}
}

// acked settles a message that was acked while its lease stood.
func (sub *subscription) acked(m handed) {
	m.it.Ack()
	sub.subscriber.delays.forget(m.it.Record.ID)
	sub.returned(m)
}

// returned notes that the handler of the message has returned.
func (sub *subscription) returned(m handed) {
	m.ctx.end()
	sub.free(1)
	sub.session.returned()
	sub.handling.Done()
}

// attendAlone settles the item by the handler's ack or nack. After a lost lease it waits for the handler to
// end, and until then this process does not deliver the record a second time. If this process has claimed the
// record again by then, the handler's outcome counts.
func (sub *subscription) attendAlone(m handed) {
	it := m.it
	select {
	case <-m.msg.Acked():
		sub.acked(m)
		return
	case <-m.msg.Nacked():
		sub.nacked(m.ctx, it)
		sub.returned(m)
		return
	case <-it.Lost():
		m.ctx.end()
	}
	defer sub.returned(m)
	select {
	case <-m.msg.Acked():
		it.Ack()
	case <-m.msg.Nacked():
		it.Release()
	case <-sub.session.over:
		it.Release()
	}
}
