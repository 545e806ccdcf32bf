package forwarder

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// AddToRouter lets the router start and stop the forwarder, as a handler with this name; do
// not call Run. Several forwarders may share a router, each under its own name. The
// router's middlewares do not see the messages, because these do not pass through the
// router; use the hooks of Config.
//
// It returns an error for a nil router and for a name that is taken. If the router is
// running already, call its RunHandlers afterwards.
func (f *Forwarder) AddToRouter(router *message.Router, name string) (err error) {
	if router == nil {
		return fmt.Errorf("%w: Forwarder.AddToRouter: the router is nil", outmill.ErrInvalidConfig)
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: Forwarder.AddToRouter: %v", outmill.ErrInvalidConfig, r)
		}
	}()
	never := func(*message.Message) error { return nil }
	router.AddConsumerHandler(name, f.cfg.Group, routed{f}, never)
	return nil
}

// routed is a forwarder in the form of a subscriber that delivers no messages.
type routed struct{ forwarder *Forwarder }

func (r routed) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	f := r.forwarder
	p, err := f.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("outmill: forwarder in a router: %w", err)
	}
	out := make(chan *message.Message)
	if p == nil {
		close(out)
		return out, nil
	}
	go func() {
		defer close(out)
		f.run(p)
	}()
	return out, nil
}

func (r routed) Close() error { return r.forwarder.Close() }

// String is the subscriber's name in the router's logs and metrics.
func (r routed) String() string { return "outmill.forwarder" }
