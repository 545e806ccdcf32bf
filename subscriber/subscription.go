package subscriber

import (
	"context"
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
	storeOutcomes = 30 * time.Second
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
}

func newSubscription(ctx context.Context, s *Subscriber, topic string) *subscription {
	sub := &subscription{
		subscriber: s,
		topic:      topic,
		log:        s.log.With(watermill.LogFields{"store": s.queue.Name(), "topic": topic, "group": s.cfg.Group}),
		out:        make(chan *message.Message),
		slots:      make(chan struct{}, s.cfg.MaxInFlight),
		giveUp:     make(chan struct{}),
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
		OnDead:          s.cfg.OnDead,
		Running:         s.running,
	})
	return sub
}

// run delivers until the subscription's context ends or closing is closed,
// then sees to it that everything claimed is settled.
func (sub *subscription) run(closing <-chan struct{}) {
	defer sub.cancel()
	deliverCtx, stop := context.WithCancel(sub.ctx)
	defer stop()
	go func() {
		select {
		case <-closing:
			stop()
		case <-deliverCtx.Done():
		}
	}()
	sub.worker.Start(deliverCtx)
	sub.deliverAll(deliverCtx)
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

// deliver hands one message over, unless the subscription ends first.
func (sub *subscription) deliver(ctx context.Context, it *worker.Item) {
	if ctx.Err() != nil || !it.Started() {
		it.Release()
		sub.free(1)
		return
	}
	msgCtx, cancel := context.WithCancel(sub.ctx)
	msgCtx, kept := withKeptError(msgCtx)
	msg := outmill.MessageOf(it.Record)
	msg.SetContext(outmill.WithDelivery(msgCtx, sub.subscriber.queue.Name(), it.Record, it.Clock))
	sub.log.Info("Delivering message", fieldsOf(it.Record))
	select {
	case sub.out <- msg:
		sub.handling.Go(func() {
			defer sub.free(1)
			defer cancel()
			sub.await(it, msg, msgCtx, cancel, kept)
		})
		return
	case <-ctx.Done():
	case <-it.Lost():
	}
	cancel()
	it.Release()
	sub.free(1)
}

// await settles the item as the handler decides. After a lost lease it only
// waits for the handler to end, so that the record is not delivered here a
// second time meanwhile.
func (sub *subscription) await(it *worker.Item, msg *message.Message, ctx context.Context, cancel context.CancelFunc, kept *keptError) {
	select {
	case <-msg.Acked():
		it.Ack()
		return
	case <-msg.Nacked():
		sub.nacked(it, ctx, kept)
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
		it.Release()
	}
}

// nacked: what ends because the subscription does was not the message's fault.
func (sub *subscription) nacked(it *worker.Item, ctx context.Context, kept *keptError) {
	if ctx.Err() != nil {
		it.Release()
		return
	}
	err := kept.reason()
	if _, snoozed := outmill.SnoozeDelay(err); !snoozed {
		fields := fieldsOf(it.Record)
		fields["dead"] = sub.subscriber.cfg.Retry.Decide(it.Record.Attempts, err).Dead
		sub.log.Error("Handling failed", err, fields)
	}
	it.Judge(err)
}

func fieldsOf(rec *outmill.Record) watermill.LogFields {
	return watermill.LogFields{
		"message_uuid":   rec.MessageID,
		"work_item_id":   rec.ID.String(),
		"correlation_id": rec.CorrelationID,
		"attempt":        rec.Attempts + 1,
	}
}
