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
)

const (
	// afterCancel is how long handlers get to notice that their message's
	// context has ended.
	afterCancel = time.Second
	// storeOutcomes is how long a closing subscription tries to store acks.
	storeOutcomes = 10 * time.Second
	// takeAtOnce bounds how many records move from the worker at a time.
	takeAtOnce = 32
)

// subscription is one Subscribe: one claim loop, one output channel.
type subscription struct {
	subscriber *Subscriber
	topic      string
	worker     *worker.Worker
	log        watermill.LoggerAdapter
	out        chan *message.Message

	// ctx is the parent of all messages' contexts.
	ctx    context.Context
	cancel context.CancelFunc
	// slots holds a token for each message that is with a handler.
	slots    chan struct{}
	handling sync.WaitGroup
	// giveUp is closed when handlers are no longer waited for.
	giveUp chan struct{}
	// patience is for the only goroutine that delivers.
	patience *time.Timer
}

func newSubscription(ctx context.Context, s *Subscriber, topic string) *subscription {
	sub := &subscription{
		subscriber: s,
		topic:      topic,
		log:        s.log.With(watermill.LogFields{"store": s.queue.Name(), "topic": topic, "group": s.cfg.Group}),
		out:        make(chan *message.Message),
		slots:      make(chan struct{}, s.cfg.MaxInFlight),
		giveUp:     make(chan struct{}),
		patience:   time.NewTimer(time.Hour),
	}
	sub.ctx, sub.cancel = context.WithCancel(ctx)
	sub.worker = worker.New(worker.Config{
		Queue:           s.queue,
		Logger:          s.log,
		Group:           s.cfg.Group,
		Topics:          topicOnly(topic),
		Order:           s.cfg.Order,
		KeyPolicy:       s.cfg.KeyPolicy,
		Retry:           s.cfg.Retry,
		BatchSize:       s.cfg.BatchSize,
		MaxItems:        s.cfg.MaxInFlight + s.cfg.BatchSize,
		MaxBytes:        s.cfg.MaxInFlightBytes,
		Lease:           s.cfg.Lease,
		MaxProcessing:   s.cfg.MaxProcessing,
		PollInterval:    s.cfg.PollInterval,
		MaxErrorBackoff: s.cfg.MaxErrorBackoff,
		FlushInterval:   s.cfg.AckFlushInterval,
		AwaitStart:      true,
		OnDead:          s.cfg.OnDead,
		Running:         s.running,
	})
	return sub
}

// run delivers until the subscription's context ends or the subscriber is
// closed, then sees to it that everything claimed is settled.
func (sub *subscription) run() {
	defer sub.cancel()
	defer sub.patience.Stop()
	ctx, stop := context.WithCancel(sub.ctx)
	defer stop()
	defer context.AfterFunc(sub.subscriber.ctx, stop)()
	sub.worker.Start(ctx)
	sub.deliverAll(ctx)
	sub.worker.Stop()
	close(sub.out)
	sub.finish()
}

// finish waits for the handlers, not for ever, and stores what they did.
func (sub *subscription) finish() {
	done := make(chan struct{})
	go func() {
		sub.handling.Wait()
		close(done)
	}()
	if !within(done, sub.subscriber.cfg.CloseTimeout) {
		sub.cancel()
		if !within(done, afterCancel) {
			close(sub.giveUp)
			sub.log.Error("Handlers did not finish in time; their records are given back", nil, watermill.LogFields{"close_timeout": sub.subscriber.cfg.CloseTimeout.String()})
		}
	}
	<-done
	ctx, cancel := context.WithTimeout(context.WithoutCancel(sub.ctx), storeOutcomes)
	defer cancel()
	if err := sub.worker.Close(ctx); err != nil {
		sub.log.Error("Subscription closed with outcomes that could not be stored", err, nil)
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
		items, err := sub.worker.Take(ctx, n)
		sub.free(n - len(items))
		if err != nil {
			return
		}
		for _, it := range items {
			sub.deliver(ctx, it)
		}
	}
}

// acquire waits for one slot and takes what else is free; 0 says that ctx
// ended.
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

// deliver hands one message over, unless the subscription ends first, or the
// lease.
func (sub *subscription) deliver(ctx context.Context, it *worker.Item) {
	msgCtx, cancel := context.WithCancel(sub.ctx)
	kept := &keptContext{Context: msgCtx}
	msg := outmill.MessageOf(it.Record)
	delivery := outmill.WithDelivery(kept, sub.subscriber.queue.Name(), it.Record, it.Clock)
	msg.SetContext(delivery)
	if !sub.offer(ctx, it, msg) {
		cancel()
		it.Release()
		sub.free(1)
		return
	}
	outmill.StartDelivery(delivery)
	it.Started()
	if !sub.subscriber.quiet {
		sub.log.Info("Message delivered", fieldsOf(it.Record))
	}
	sub.handling.Add(1)
	go sub.attend(kept, cancel, it, msg)
}

// offer waits for somebody to take the message, for as long as the lease
// stands.
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
	defer sub.free(1)
	defer cancel()
	sub.await(ctx, cancel, it, msg)
}

// await settles the item as the handler decides. After a lost lease it only
// waits for the handler to end: its outcome counts if this process has got the
// record again, and until then the record is not delivered here a second time.
func (sub *subscription) await(ctx *keptContext, cancel context.CancelFunc, it *worker.Item, msg *message.Message) {
	select {
	case <-msg.Acked():
		it.Ack()
		return
	case <-msg.Nacked():
		sub.nacked(ctx, it)
		return
	case <-it.Lost():
		cancel()
	case <-ctx.Done():
	}
	select {
	case <-msg.Acked():
		it.Ack()
	case <-msg.Nacked():
		it.Release()
	case <-sub.giveUp:
		it.GiveUp()
		sub.subscriber.closing.Go(func() { sub.awaitEnd(it, msg) })
	}
}

// awaitEnd waits for a handler that was given up, so that other subscriptions
// of this subscriber do not get its record before it has ended.
func (sub *subscription) awaitEnd(it *worker.Item, msg *message.Message) {
	select {
	case <-msg.Acked():
		it.Ack()
	case <-msg.Nacked():
		it.Release()
	case <-sub.subscriber.ctx.Done():
		it.Release()
	}
}

// nacked: what ends because the subscription does was not the message's fault.
func (sub *subscription) nacked(ctx *keptContext, it *worker.Item) {
	if ctx.Err() != nil {
		it.Release()
		return
	}
	err := ctx.reason()
	if verdict := it.Judge(err); !verdict.Snooze {
		fields := fieldsOf(it.Record)
		fields["dead"] = verdict.Dead
		sub.log.Error("Handling failed", handlerError{err}, fields)
	}
}

// handlerError is for loggers: a typed nil or another error whose text panics
// must not end the process.
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
