package publisher

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// InheritTx is a router middleware that gives the messages which a handler
// returns the context values of the incoming message, and with them its
// transaction. Without it they carry none: the router publishes them with
// contexts of their own.
//
// The router publishes after all middlewares have returned, so the transaction
// must be one that is committed later still: by the subscriber, when the
// message is acked. With a transaction that a middleware or the handler
// commits, publish inside of it instead of returning the messages.
//
// Values that a returned message's own context has are kept, and so is its
// end; the incoming message's context lends its values only.
func InheritTx(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		incoming := context.WithoutCancel(msg.Context())
		for _, out := range produced {
			if out != nil && out != msg {
				out.SetContext(inherited{out.Context(), incoming})
			}
		}
		return produced, err
	}
}

// inherited ends with its own context and has the values of both.
type inherited struct {
	context.Context
	incoming context.Context
}

func (c inherited) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.incoming.Value(key)
}
