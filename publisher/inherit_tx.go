package publisher

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// InheritTx is a router middleware that copies the context values of the incoming message,
// including its transaction, to the messages that the handler returns. Without it the
// returned messages carry no transaction, because the router publishes them with contexts
// of their own.
//
// The router publishes after all middlewares have returned, so the transaction must still
// be open then: the subscriber must commit it when the message is acked. If a middleware or
// the handler commits the transaction, publish inside it instead of returning the messages.
//
// A returned message keeps the values and the cancellation of its own context; from the
// incoming message's context it gets only values.
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

// inherited is cancelled with its own context and has the values of both contexts.
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
