package subscriber

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

const (
	// afterCancel is the time that handlers have to return after their message's context has
	// ended.
	afterCancel = time.Second
	// toStore is the time for storing outcomes at the end, if less is left of CloseTimeout.
	toStore = afterCancel / 2
	// takeAtOnce limits the number of records that one Take moves from the worker.
	takeAtOnce = 32
)

// subscription is one Subscribe: one output channel, fed by the session's worker. It ends in
// these steps:
//
//	delivering ── its context ends, Close begins, or the store is about to close ──► finishing
//	finishing  ── all handlers have returned, and all outcomes are stored ─────────► closed
//	finishing  ── CloseTimeout has passed, and handlers run ────────────► messages' contexts end
//	           ── CloseTimeout has passed, and the store takes no outcomes ────────► closed
//	contexts end ── all handlers have returned, and all outcomes are stored ───────► closed
//	             ── a second has passed ───────────────────────────────────────────► closed
//
// In finishing, nothing is claimed or delivered, and records that no handler has started are
// given back. In closed, the channel is closed. Handlers that run on then keep their leases until
// they return; see session.end.
type subscription struct {
	subscriber *Subscriber
	session    *session
	topic      string
	feed       *worker.Feed
	log        watermill.LoggerAdapter
	// logs has the loggers of the members of a set of stores.
	logs sync.Map
	out  chan *message.Message

	// delivery ends when the subscription stops delivering.
	delivery context.Context
	// ctx is the parent of all messages' contexts. It has the values of Subscribe's context
	// but ends later, so that handlers can finish.
	ctx    context.Context
	cancel context.CancelFunc
	// slots holds a token for each message that is with a handler.
	slots    chan struct{}
	handling sync.WaitGroup
	// attended has the messages that the attendant waits for; nil before the first. Only the delivering goroutine
	// uses it. slow is the number of further messages that get a goroutine each. See attend.
	attended chan handed
	slow     atomic.Int32
	// patience is the timer of offer. Only the delivering goroutine uses it.
	patience *time.Timer
}

func newSubscription(ctx context.Context, ses *session, topic string) *subscription {
	s := ses.subscriber
	sub := &subscription{
		subscriber: s,
		session:    ses,
		topic:      topic,
		log:        s.log.With(watermill.LogFields{"topic": topic}),
		out:        make(chan *message.Message),
		slots:      make(chan struct{}, s.cfg.MaxInFlight),
		delivery:   ctx,
		patience:   time.NewTimer(time.Hour),
	}
	sub.ctx, sub.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return sub
}

// run goes through the steps of the subscription.
func (sub *subscription) run() {
	s := sub.subscriber
	defer close(sub.out)
	defer sub.patience.Stop()
	ctx, stop := context.WithCancel(sub.delivery)
	defer stop()
	defer context.AfterFunc(sub.session.working, stop)()
	sub.delivery = ctx
	leave := s.enter(sub)
	sub.deliverAll(ctx)
	if sub.attended != nil {
		close(sub.attended)
	}
	stop()
	sub.feed.Close(s.cfg.MaxInFlight)
	leave()
	sub.session.leaves(sub)
	sub.finish()
}

// finish waits for the handlers and for their outcomes. Handlers that do not return in time go on,
// and so do their leases.
func (sub *subscription) finish() {
	defer sub.cancel()
	returned := ended(&sub.handling)
	end := time.Now().Add(sub.subscriber.cfg.CloseTimeout)
	last := end.Add(afterCancel)
	if !before(end, returned) {
		sub.cancel()
		before(last, returned)
	}
	if soon := time.Now().Add(toStore); soon.After(end) {
		end = soon
	}
	if end.After(last) {
		end = last
	}
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	// The session's end reports what could not be stored.
	_ = sub.session.worker.WaitStored(ctx)
	before(end, sub.session.finished())
}

// ended returns a channel that is closed when the group is done.
func ended(group *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	return done
}

// before reports whether done is closed before the end. It waits for a nil channel no time.
func before(end time.Time, done <-chan struct{}) bool {
	if done == nil {
		return true
	}
	timer := time.NewTimer(time.Until(end))
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

func (sub *subscription) deliverAll(ctx context.Context) {
	for {
		n := sub.acquire(ctx)
		if n == 0 {
			return
		}
		items, err := sub.feed.Take(ctx, n)
		sub.free(n - len(items))
		if err != nil {
			return
		}
		for _, it := range items {
			sub.deliver(ctx, it)
		}
	}
}

// acquire waits for one slot and takes all other free slots, up to takeAtOnce. It returns 0
// when ctx has ended.
func (sub *subscription) acquire(ctx context.Context) int {
	select {
	case sub.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for n := 1; n < takeAtOnce; n++ {
		select {
		case sub.slots <- struct{}{}:
		default:
			return n
		}
	}
	return takeAtOnce
}

func (sub *subscription) free(n int) {
	for range n {
		<-sub.slots
	}
}

// deliver passes one message to the channel, unless the subscription or the lease ends
// first.
func (sub *subscription) deliver(ctx context.Context, it *worker.Item) {
	msg := storekit.MessageOf(it.Record)
	kept := &keptContext{item: it, delayed: sub.subscriber.delays.restore(it.Record, msg)}
	kept.Context = sub.ctx
	handling := storekit.NewHandling(sub.subscriber.queue.Name(), it.Record, it.Clock)
	msg.SetContext(handling.Context(kept))
	it.Answers(msg.Acked(), msg.Nacked())
	if !sub.offer(ctx, it, msg) {
		kept.end()
		it.Release()
		sub.free(1)
		return
	}
	handling.Start()
	it.Started()
	if !sub.subscriber.quiet {
		sub.logOf(it.Record.Store).Debug("Message delivered", fieldsOf(it.Record))
	}
	sub.attend(handed{kept, it, msg})
}

// logOf is worker.InStore, which costs too much for each message.
func (sub *subscription) logOf(store string) watermill.LoggerAdapter {
	log, known := sub.logs.Load(store)
	if !known {
		log, _ = sub.logs.LoadOrStore(store, worker.InStore(sub.log, store))
	}
	return log.(watermill.LoggerAdapter)
}

// offer waits until the channel takes the message, at most until the lease ends.
func (sub *subscription) offer(ctx context.Context, it *worker.Item, msg *message.Message) bool {
	for {
		left := it.Left()
		if left <= 0 || ctx.Err() != nil {
			return false
		}
		select {
		case sub.out <- msg:
			return true
		default:
			// What follows makes a channel and sets a timer.
		}
		sub.patience.Reset(left)
		select {
		case sub.out <- msg:
			return true
		case <-it.Lost():
			return false
		case <-ctx.Done():
			return false
		case <-sub.patience.C:
			// The lease may have been extended.
		}
	}
}

// nacked releases the record if the subscription is stopping, because the stop may have
// caused the failure; the attempt then does not count. An error that itself decides the
// outcome, such as Permanent, is still obeyed.
func (sub *subscription) nacked(ctx *keptContext, it *worker.Item) {
	err := ctx.reason()
	stopping := ctx.Err() != nil || sub.delivery.Err() != nil
	if stopping && !worker.Explicit(err) {
		it.Release()
		return
	}
	sub.subscriber.delays.failed(it.Record.ID, err)
	if verdict := it.Judge(err); !verdict.Snooze {
		fields := fieldsOf(it.Record)
		fields["dead"] = verdict.Dead
		worker.InStore(sub.log, it.Record.Store).Error("Handling failed", handlerError{err}, fields)
	}
}

// handlerError protects loggers from errors whose Error method panics, such as a typed nil:
// they must not end the process.
type handlerError struct{ err error }

func (e handlerError) Error() string { return fmt.Sprint(e.err) }
func (e handlerError) Unwrap() error { return e.err }

func fieldsOf(rec *outmill.Record) watermill.LogFields {
	return watermill.LogFields{
		"message_uuid":   rec.MessageID,
		"work_item_id":   rec.ID.String(),
		"correlation_id": rec.CorrelationID,
		"attempt":        rec.Attempts + 1,
	}
}
