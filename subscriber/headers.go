package subscriber

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/storekit"
)

// RestoreHeaders is a router middleware for messages that an Outmill forwarder has sent to a broker.
// Metadata whose name means something to a broker or its clients, such as Nats-Rollup, travels with
// the prefix outmill-escaped- before its name. RestoreHeaders takes that prefix off.
func RestoreHeaders(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		storekit.RestoreHeaders(msg)
		return h(msg)
	}
}
