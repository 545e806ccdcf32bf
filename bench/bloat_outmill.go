package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/publisher"
)

// outmillBloat is Outmill's side. It commits in the same way as the latency scenario.
type outmillBloat struct {
	outmillLive
	b *bench
}

func (o *outmillBloat) schema() string { return "outmill" }

func (o *outmillBloat) reset(ctx context.Context) (err error) {
	if err := o.close(); err != nil {
		return err
	}
	if o.store, err = outbox(ctx, o.pool); err != nil {
		return err
	}
	if o.publisher, err = publisher.New(o.store, publisher.Config{RequireTx: true}, nil); err != nil {
		return err
	}
	return o.store.RegisterGroup(ctx, outmill.Registration{Group: forwarder.DefaultGroup})
}

func (o *outmillBloat) close() error {
	if o.store == nil {
		return nil
	}
	return o.store.Close()
}

func (o *outmillBloat) append(ctx context.Context, n int) error {
	return o.b.fill(ctx, o.store, forwarder.DefaultGroup, o.topic, n, true)
}

func (o *outmillBloat) drain(ctx context.Context, n int) (time.Duration, error) {
	f := &forwarding{b: o.b.with(n), pool: o.pool, store: o.store, topic: o.topic}
	return f.drain(ctx, discard{})
}

func (o *outmillBloat) tidy(ctx context.Context) error {
	return o.b.tidy(ctx, o.store, forwarder.DefaultGroup)
}

func (o *outmillBloat) work(ctx context.Context, n int) (finish func() error, err error) {
	acked := newAckCount(n)
	fwd, err := forwarder.New(o.store, watch(discard{}, acked.note), forwarder.Config{BatchSize: o.b.forwards}, nil)
	if err != nil {
		return nil, err
	}
	var running errgroup.Group
	running.Go(func() error { return fwd.Run(ctx) })
	return func() error {
		err := acked.wait(ctx)
		return errors.Join(err, fwd.Close(), running.Wait())
	}, nil
}

func (o *outmillBloat) commit(ctx context.Context, i int) error {
	return o.outmillLive.commit(ctx, i, o.b.size)
}
