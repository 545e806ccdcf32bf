package subscriber

import (
	"context"
	"fmt"
	"sync"
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
	// takeAtOnce limits the number of records that one Take moves from the worker.
	takeAtOnce = 32
)

// subscription is one Subscribe: one output channel, fed by the subscriber's
// worker.
type subscription struct {
	subscriber *Subscriber
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
	// patience is the timer of offer. Only the delivering goroutine uses it.
	patience *time.Timer
}

func newSubscription(ctx context.Context, s *Subscriber, topic string) *subscription {
	sub := &subscription{
		subscriber: s,
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

// run delivers until the subscription's context ends or the subscriber is closed, and then
// closes the channel. Handlers continue; see finish.
func (sub *subscription) run() {
	s := sub.subscriber
	defer sub.patience.Stop()
	ctx, stop := context.WithCancel(sub.delivery)
	defer stop()
	defer context.AfterFunc(s.ctx, stop)()
	sub.delivery = ctx
	leave := s.enter(sub)
	sub.deliverAll(ctx)
	sub.feed.Close(s.cfg.MaxInFlight)
	leave()
	close(sub.out)
	s.finishing.Go(sub.finish)
}

// finish ends the contexts of the messages that are still with handlers after CloseTimeout.
// These handlings and their leases continue.
func (sub *subscription) finish() {
	defer sub.cancel()
	done := make(chan struct{})
	go func() {
		sub.handling.Wait()
		close(done)
	}()
	if !within(done, sub.subscriber.cfg.CloseTimeout) {
		sub.cancel()
		within(done, afterCancel)
	}
}

func within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
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
	msgCtx, cancel := context.WithCancel(sub.ctx)
	msg := storekit.MessageOf(it.Record)
	kept := &keptContext{Context: msgCtx, item: it, delayed: sub.subscriber.delays.restore(it.Record, msg)}
	handling := storekit.NewHandling(sub.subscriber.queue.Name(), it.Record, it.Clock)
	msg.SetContext(handling.Context(kept))
	if !sub.offer(ctx, it, msg) {
		cancel()
		it.Release()
		sub.free(1)
		return
	}
	handling.Start()
	it.Started()
	if !sub.subscriber.quiet {
		sub.logOf(it.Record.Store).Debug("Message delivered", fieldsOf(it.Record))
	}
	sub.handling.Add(1)
	sub.subscriber.handling.Add(1)
	go sub.attend(kept, cancel, it, msg)
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

func (sub *subscription) attend(ctx *keptContext, cancel context.CancelFunc, it *worker.Item, msg *message.Message) {
	defer sub.handling.Done()
	defer sub.subscriber.handling.Add(-1)
	defer sub.free(1)
	defer cancel()
	sub.await(ctx, cancel, it, msg)
}

// await settles the item by the handler's ack or nack. After a lost lease it waits for the
// handler to end, and until then this process does not deliver the record a second time. If
// this process has claimed the record again by then, the handler's outcome counts.
func (sub *subscription) await(ctx *keptContext, cancel context.CancelFunc, it *worker.Item, msg *message.Message) {
	select {
	case <-msg.Acked():
		it.Ack()
		sub.subscriber.delays.forget(it.Record.ID)
		return
	case <-msg.Nacked():
		sub.nacked(ctx, it)
		return
	case <-it.Lost():
		cancel()
	}
	select {
	case <-msg.Acked():
		it.Ack()
	case <-msg.Nacked():
		it.Release()
	case <-sub.subscriber.ended:
		it.Release()
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
