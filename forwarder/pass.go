package forwarder

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

const (
	// afterCancel is the time that a publisher has to return after its context has ended.
	afterCancel = time.Second
	// storeOutcomes is the time that a pass spends on storing acks when it ends.
	storeOutcomes = 30 * time.Second
	// leaveMargin is the part of the time for leaving a store that is kept for storing outcomes.
	leaveMargin = time.Second
	// slowAfter is the number of leases after which a registration reports a record that is being
	// published.
	slowAfter = 2
)

// pass is one period of forwarding: that of Run, or of a single Once.
type pass struct {
	forwarder *Forwarder
	worker    *worker.Worker
	flow      *flow
	// failing knows which of the repeated calls fail; unname ends that.
	failing *worker.Failing
	unname  func()
	// presence knows whether the pass is the last reader of its name in the process.
	presence *worker.Presence

	// ctx ends when the pass must stop; stop ends it. detach removes the pass from the store's
	// workers, and over is closed when it has ended.
	ctx    context.Context
	stop   func()
	detach func()
	over   chan struct{}
	// sendCtx ends CloseTimeout after ctx, and giveUp ends afterCancel later.
	sendCtx context.Context
	giveUp  context.Context
}

func (f *Forwarder) newPass(ctx context.Context) *pass {
	p := &pass{forwarder: f, detach: func() {}, over: make(chan struct{})}
	passCtx, stop := context.WithCancel(ctx)
	detach := context.AfterFunc(f.life, stop)
	p.ctx, p.stop = passCtx, func() { stop(); detach() }
	p.failing, p.unname = worker.NewFailing(f.queue, f.cfg.Group, f.cfg.Worker, f.janitor)
	running := worker.NewRegistry()
	p.presence = worker.Enter(f.queue, f.cfg.Group, f.cfg.Worker, running, slowAfter*f.cfg.Lease, f.reads)
	p.worker = worker.New(f.workerConfig(p.failing, running))
	p.flow = newFlow(f.cfg, p.worker, f.fails)
	p.flow.failing, p.flow.presence = p.failing, p.presence
	// The registration tells of a store that is closed.
	if detach, err := storekit.Attach(f.queue, p.leave); err == nil {
		p.detach = detach
	}
	return p
}

// end ends the pass, which has no goroutine any more.
func (p *pass) end() {
	p.stop()
	p.presence.Forget()
	p.detach()
	p.unname()
	close(p.over)
}

// sayStopped tells the store that Run has ended. After Once the next Once may come soon.
func (p *pass) sayStopped() {
	if err := p.presence.Leave(context.WithoutCancel(p.ctx)); err != nil && !errors.Is(err, outmill.ErrClosed) {
		// Doctor misses the forwarder some minutes later.
		p.forwarder.log.Info("Could not tell the store that the forwarder has stopped", watermill.LogFields{"error": err.Error()})
	}
}

// leave stops the pass because the store is about to close, and waits for the publish in progress.
func (p *pass) leave(ctx context.Context) {
	p.stop()
	deadline, _ := ctx.Deadline()
	late := time.NewTimer(time.Until(deadline) - leaveMargin)
	defer late.Stop()
	select {
	case <-p.over:
	case <-late.C:
		if err := p.worker.Leave(ctx); err != nil {
			p.forwarder.log.Error("The store closes before the outcomes of all publishes are stored", err, nil)
		}
	}
}

func (f *Forwarder) order() outmill.Order {
	if f.cfg.Unordered {
		return outmill.OrderNone
	}
	return outmill.OrderKey
}

// reads says how the forwarder reads.
func (f *Forwarder) reads() []outmill.Reading {
	return []outmill.Reading{{Topics: f.cfg.Topics, Order: f.order(), KeyPolicy: f.cfg.KeyPolicy}}
}

func (f *Forwarder) workerConfig(failing *worker.Failing, running *worker.Registry) worker.Config {
	return worker.Config{
		Queue:     f.queue,
		Logger:    f.log,
		Group:     f.cfg.Group,
		Topics:    f.cfg.Topics,
		Order:     f.order(),
		KeyPolicy: f.cfg.KeyPolicy,
		Retry:     f.cfg.Retry,
		BatchSize: f.cfg.BatchSize,
		MostBatch: f.mostBatch,
		MaxItems:  3 * f.cfg.BatchSize,
		MaxBytes:  f.cfg.MaxInFlightBytes,
		MaxRecord: f.largest(),
		Lease:     f.cfg.Lease,
		// awaitLate gives up a slow batch before this time.
		MaxProcessing:   4*f.cfg.PublishTimeout + f.cfg.Lease,
		PollInterval:    f.cfg.PollInterval,
		MaxErrorBackoff: f.cfg.MaxErrorBackoff,
		FlushInterval:   f.cfg.AckFlushInterval,
		Raw:             f.raw != nil,
		Whole:           f.whole,
		Pipelined:       true,
		OnDead:          f.cfg.OnDead,
		Name:            f.cfg.Worker,
		OnError:         f.cfg.OnError,
		Running:         running,
		Failing:         failing,
	}
}

// forward claims, publishes and settles until the pass must stop, and then stores the
// remaining outcomes.
func (p *pass) forward() {
	if !p.awaitDestination() {
		return
	}
	p.forwarder.announce()
	endSends := p.prepareEnd()
	defer endSends()
	var background sync.WaitGroup
	background.Go(func() { p.flow.run(p.ctx) })
	p.worker.Start(p.ctx)
	p.forwardAll()
	p.worker.Stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), storeOutcomes)
	defer cancel()
	if err := p.worker.Close(ctx); err != nil {
		p.forwarder.fails.Fault("Forwarder closed, but could not store all outcomes", err, nil)
	}
	background.Wait()
}

// prepareEnd makes sendCtx and giveUp, which end some time after ctx.
func (p *pass) prepareEnd() (stop func()) {
	closeTimeout := p.forwarder.cfg.CloseTimeout
	sendCtx, endSends := context.WithCancel(context.WithoutCancel(p.ctx))
	giveUp, giveUpNow := context.WithCancel(context.WithoutCancel(p.ctx))
	p.sendCtx, p.giveUp = sendCtx, giveUp
	context.AfterFunc(p.ctx, func() {
		soon := time.AfterFunc(closeTimeout, endSends)
		later := time.AfterFunc(closeTimeout+afterCancel, giveUpNow)
		context.AfterFunc(giveUp, func() { soon.Stop(); later.Stop() })
	})
	return func() { endSends(); giveUpNow() }
}

// forwardAll publishes one batch after the other, so that the order of keys needs no
// bookkeeping between batches. During a publish the worker claims the next batch and stores
// the outcomes of the previous one.
func (p *pass) forwardAll() {
	for !p.ending() {
		items, batches, err := p.worker.TakeBatches(p.ctx, p.forwarder.mostBatch)
		if err != nil {
			return
		}
		parcels, published := wrap(items), false
		if len(batches) > 0 {
			parcels, published = p.forwardBatches(batches)
		}
		if !published {
			p.flow.admit(parcels)
			p.publish(parcels)
		}
		if len(parcels) == 0 {
			continue
		}
		if p.ending() {
			p.flow.settleLast(parcels)
		} else {
			p.flow.settle(parcels)
		}
	}
}

// ending reports whether the pass must stop. It also reads the forwarder's life, because
// the context of the pass ends a moment later.
func (p *pass) ending() bool { return p.ctx.Err() != nil || p.forwarder.life.Err() != nil }

// publish runs the hooks and publishes, and returns when the fates of the parcels are
// known. It waits for a hook or a plain publisher that does not return, because publishing
// other messages would break the order. When the forwarder must stop, publish no longer
// waits: the fates of the remaining parcels are unknown, so their records stay leased until
// the leases end.
func (p *pass) publish(parcels []*parcel) {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		p.within(func(ctx context.Context) { p.forwarder.prepare(ctx, parcels) })
		p.within(func(ctx context.Context) { p.forwarder.send.send(ctx, parcels) })
	}()
	late := time.NewTimer(p.forwarder.late())
	defer late.Stop()
	select {
	case <-sent:
	case <-p.giveUp.Done():
		p.abandon(parcels)
	case <-late.C:
		p.awaitLate(parcels, sent)
	}
}

// late is the time after which a publisher, or a hook, hangs.
func (f *Forwarder) late() time.Duration { return 2*f.cfg.PublishTimeout + afterCancel }

func (p *pass) within(do func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(p.sendCtx, p.forwarder.cfg.PublishTimeout)
	defer cancel()
	do(ctx)
}

// awaitLate lets other processes claim the records: those that were claimed ahead at once,
// and those of the hanging call after a further PublishTimeout.
func (p *pass) awaitLate(parcels []*parcel, sent <-chan struct{}) {
	timeout := p.forwarder.cfg.PublishTimeout
	p.forwarder.log.Error("The publisher, or a hook, has not returned; the forwarder publishes nothing until it does. "+
		"Give it a timeout of its own", nil,
		watermill.LogFields{"count": len(stillUnderway(parcels)), "publish_timeout": timeout.String()})
	p.forwarder.fails.Tell(errors.New("the publisher, or a hook, has not returned; the forwarder publishes nothing until it does"))
	p.flow.stall()
	defer p.flow.resume()
	tooLate := time.NewTimer(timeout)
	defer tooLate.Stop()
	for {
		select {
		case <-sent:
			return
		case <-p.giveUp.Done():
			p.abandon(parcels)
			return
		case <-tooLate.C:
			for _, parcel := range stillUnderway(parcels) {
				parcel.item.GiveUp()
			}
		}
	}
}

func (p *pass) abandon(parcels []*parcel) {
	p.forwarder.log.Error("The publisher did not return in time; records may be published again", nil,
		watermill.LogFields{"count": len(stillUnderway(parcels))})
	p.forwarder.fails.Tell(errors.New("the publisher did not return in time; records may be published again"))
}

// drain returns when all due records have been settled.
func (p *pass) drain(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	observer := p.flow.watch(cancel)
	err := p.worker.Drain(ctx)
	held := p.flow.dismiss(observer)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	switch {
	case err == nil:
		return held
	case held == nil:
		return err
	}
	return fmt.Errorf("%w (%w)", err, held)
}

// published returns the number of messages that the publisher has accepted.
func (p *pass) published() int { return int(p.flow.published.Load()) }
