package publisher

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// InheritTx is a router middleware that gives the messages which a handler
// returns the context values of the incoming message, and so the transaction
// that the handler (or a middleware closer to it) put there with SetContext.
// Without it they carry none: the router publishes them with contexts of their
// own.
//
// The transaction must still be open when the router publishes, so it is a
// middleware outside of this one's caller that commits it:
//
//	router.AddMiddleware(myTxMiddleware, publisher.InheritTx)
//
// where myTxMiddleware publishes what the handler returned before it commits,
// or the handler's subscriber commits on ack, as watermill-sql's does.
//
// Values that a returned message's own context has are kept.
func InheritTx(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		incoming := msg.Context()
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
