package forwarder

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
)

// afterCancel is how long a publisher gets to notice that its context has
// ended.
const afterCancel = time.Second

// Forwarder moves records from a store to a publisher. It closes neither.
type Forwarder struct {
	queue outmill.Queue
	send  sender
	cfg   Config
	log   watermill.LoggerAdapter

	running chan struct{}
	closing chan struct{}

	mu      sync.Mutex
	started bool
	closed  bool
	done    chan struct{}
	worker  *worker.Worker
	flow    *flow
}

// New makes a forwarder. A nil logger logs nothing. Nothing is read or
// published before Run, Once, or the start of the router that it was added to.
func New(queue outmill.Queue, publisher message.Publisher, cfg Config, logger watermill.LoggerAdapter) (*Forwarder, error) {
	if outmill.IsNil(queue) {
		return nil, fmt.Errorf("%w: forwarder.New: the store is nil", outmill.ErrInvalidConfig)
	}
	if outmill.IsNil(publisher) {
		return nil, fmt.Errorf("%w: forwarder.New: the publisher is nil", outmill.ErrInvalidConfig)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	return &Forwarder{
		queue:   queue,
		send:    newSender(publisher, cfg),
		cfg:     cfg,
		log:     logger.With(watermill.LogFields{"store": queue.Name(), "group": cfg.Group}),
		running: make(chan struct{}),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}, nil
}

// Run forwards until ctx ends or Close is called, and then returns nil; or an
// error if it cannot begin. A forwarder runs once.
func (f *Forwarder) Run(ctx context.Context) error {
	if err := f.start(ctx); err != nil {
		return err
	}
	close(f.running)
	return f.loop(ctx)
}

// Running is closed when the forwarder has begun to forward.
func (f *Forwarder) Running() chan struct{} { return f.running }

// Close stops the forwarder: it waits for the publish under way, at most for
// CloseTimeout, stores the acks and gives back the rest. It may be called more
// than once.
func (f *Forwarder) Close() error {
	f.mu.Lock()
	if !f.closed {
		f.closed = true
		close(f.closing)
	}
	started := f.started
	f.mu.Unlock()
	if started {
		<-f.done
	}
	return nil
}

// Once forwards what is due and returns when all of it is settled: how many
// records that were. It returns an error, with what was not delivered given
// back, when the broker is away or refuses a topic. Beside Run it waits for
// what Run does; without, it runs just for this.
func (f *Forwarder) Once(ctx context.Context) (int, error) {
	f.mu.Lock()
	w, fl, closed := f.worker, f.flow, f.closed
	f.mu.Unlock()
	if closed {
		return 0, fmt.Errorf("outmill: forwarder: %w", outmill.ErrClosed)
	}
	if w != nil {
		return drain(ctx, w, fl)
	}
	once, err := f.again()
	if err != nil {
		return 0, err
	}
	if err := once.start(ctx); err != nil {
		return 0, err
	}
	loopCtx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { err = once.loop(loopCtx) })
	n, drainErr := drain(ctx, once.worker, once.flow)
	stop()
	wg.Wait()
	return n, errors.Join(drainErr, err)
}

// again makes a forwarder like this one for a single pass.
func (f *Forwarder) again() (*Forwarder, error) {
	cfg := f.cfg
	cfg.UpkeepInterval = -1
	once := &Forwarder{
		queue: f.queue, send: f.send, cfg: cfg, log: f.log,
		running: make(chan struct{}), closing: f.closing, done: make(chan struct{}),
	}
	ctx, cancel := context.WithTimeout(context.Background(), cfg.Lease)
	defer cancel()
	return once, worker.Tidy(ctx, f.queue, f.log)
}

func drain(ctx context.Context, w *worker.Worker, fl *flow) (int, error) {
	before := w.Settled()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := fl.onTrouble(cancel)
	defer stop()
	err := w.Drain(ctx)
	if err != nil {
		err = context.Cause(ctx)
	}
	return w.Settled() - before, err
}

func (f *Forwarder) start(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return fmt.Errorf("outmill: forwarder: %w", outmill.ErrClosed)
	case f.started:
		return errors.New("outmill: forwarder: Run was called before; make a new forwarder")
	}
	if err := f.register(ctx); err != nil {
		return err
	}
	order := outmill.OrderKey
	if f.cfg.Unordered {
		order = outmill.OrderNone
	}
	f.worker = worker.New(worker.Config{
		Queue:           f.queue,
		Logger:          f.log,
		Group:           f.cfg.Group,
		Topics:          f.cfg.Topics,
		Order:           order,
		KeyPolicy:       f.cfg.KeyPolicy,
		Retry:           f.cfg.Retry,
		BatchSize:       f.cfg.BatchSize,
		MaxItems:        3 * f.cfg.BatchSize,
		MaxBytes:        f.cfg.MaxInFlightBytes,
		Lease:           f.cfg.Lease,
		MaxProcessing:   2*f.cfg.PublishTimeout + f.cfg.Lease,
		PollInterval:    f.cfg.PollInterval,
		MaxErrorBackoff: f.cfg.MaxErrorBackoff,
		FlushInterval:   f.cfg.AckFlushInterval,
		Pipelined:       true,
		OnDead:          f.cfg.OnDead,
		Running:         worker.NewRegistry(),
	})
	f.flow = newFlow(f.cfg, f.worker, f.log)
	f.started = true
	return nil
}

func (f *Forwarder) register(ctx context.Context) error {
	if err := f.queue.RegisterGroup(ctx, f.cfg.Group, f.cfg.Topics); err != nil {
		return fmt.Errorf("outmill: forwarder group %q: %w", f.cfg.Group, err)
	}
	return nil
}

func (f *Forwarder) loop(ctx context.Context) error {
	defer close(f.done)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var background sync.WaitGroup
	background.Go(func() {
		select {
		case <-f.closing:
			stop()
		case <-ctx.Done():
		}
	})
	if f.cfg.UpkeepInterval > 0 {
		background.Go(func() {
			worker.Upkeep(ctx, f.queue, f.cfg.UpkeepInterval, f.log, f.round)
		})
	}
	background.Go(func() { f.flow.run(ctx) })
	f.worker.Start(ctx)
	f.forward(ctx)
	f.worker.Stop()
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cfg.CloseTimeout)
	defer cancel()
	if err := f.worker.Close(closeCtx); err != nil {
		f.log.Error("Forwarder closed with outcomes that could not be stored", err, nil)
	}
	background.Wait()
	return nil
}

func (f *Forwarder) round(ctx context.Context) error {
	return errors.Join(
		f.register(ctx),
		worker.WarnUnread(ctx, f.queue, f.log, f.cfg.Group, f.cfg.Topics.Match, f.cfg.UpkeepInterval),
	)
}

// forward publishes one batch after the other, so that the order of keys needs
// no bookkeeping between batches; the worker claims the next one meanwhile.
func (f *Forwarder) forward(ctx context.Context) {
	for {
		items, err := f.worker.Take(ctx, f.cfg.BatchSize)
		if err != nil {
			return
		}
		f.forwardBatch(ctx, items)
	}
}

func (f *Forwarder) forwardBatch(ctx context.Context, items []*worker.Item) {
	parcels := f.prepare(items)
	sendCtx, cancel := f.sendContext(ctx)
	defer cancel()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		f.send.send(sendCtx, parcels)
	}()
	select {
	case <-sent:
		f.flow.settle(parcels)
	case <-sendCtx.Done():
		f.awaitSend(ctx, sent, parcels)
	}
}

// sendContext ends with the publish timeout, or with the close timeout after
// the forwarder was told to stop.
func (f *Forwarder) sendContext(ctx context.Context) (context.Context, context.CancelFunc) {
	sendCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.cfg.PublishTimeout)
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(f.cfg.CloseTimeout, cancel)
		context.AfterFunc(sendCtx, func() { timer.Stop() })
	})
	return sendCtx, func() { stop(); cancel() }
}

// awaitSend waits for a plain publisher that knows nothing of contexts, but not
// once the forwarder is to stop: then the records are left to their leases,
// since nobody knows what became of them.
func (f *Forwarder) awaitSend(ctx context.Context, sent <-chan struct{}, parcels []*parcel) {
	select {
	case <-sent:
		f.flow.settle(parcels)
		return
	case <-ctx.Done():
	}
	grace := time.NewTimer(afterCancel)
	defer grace.Stop()
	select {
	case <-sent:
		f.flow.settle(parcels)
	case <-grace.C:
		f.log.Error("The publisher did not return in time; records may be published again", nil, watermill.LogFields{"count": len(parcels)})
	}
}
