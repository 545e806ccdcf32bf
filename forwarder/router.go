package forwarder

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// AddToRouter lets the router start and stop the forwarder: it becomes a
// handler of that name, and Run need not be called. Several forwarders may
// share a router, each under a name of its own. The router's middlewares see
// nothing of the messages, which do not pass through it; use the hooks of
// Config.
func (f *Forwarder) AddToRouter(router *message.Router, name string) *message.Handler {
	never := func(*message.Message) error { return nil }
	return router.AddConsumerHandler(name, f.cfg.Group, routed{f}, never)
}

// routed makes a forwarder look like a subscriber that has no messages.
type routed struct{ forwarder *Forwarder }

func (r routed) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	f := r.forwarder
	if err := f.start(ctx); err != nil {
		return nil, fmt.Errorf("outmill: forwarder in a router: %w", err)
	}
	out := make(chan *message.Message)
	close(f.running)
	go func() {
		defer close(out)
		if err := f.loop(ctx); err != nil {
			f.log.Error("Forwarder stopped", err, watermill.LogFields{})
		}
	}()
	return out, nil
}

func (r routed) Close() error { return r.forwarder.Close() }
