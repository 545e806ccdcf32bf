package forwarder

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// AddToRouter lets the router start and stop the forwarder: it becomes a
// handler of that name, and Run need not be called. Several forwarders may
// share a router, each under a name of its own. The router's middlewares see
// nothing of the messages, which do not pass through it; use the hooks of
// Config.
//
// It returns an error for a nil router and for a name that is taken. To a
// router that runs already, call its RunHandlers afterwards.
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

// routed makes a forwarder look like a subscriber that has no messages.
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

// String is what the router's logs and metrics have for the subscriber.
func (r routed) String() string { return "outmill.forwarder" }
