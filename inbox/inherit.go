package inbox

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// Inherit is router middleware that gives the messages which a handler returns the
// correlation id, the trace and, as their causation id, the message id of the message that
// it handled. What a message has already stays. Add it after the inbox, because the inbox
// publishes what it gets.
func Inherit(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		InheritFrom(msg, produced...)
		return produced, err
	}
}

// InheritFrom does to messages what Inherit does, for handlers that publish themselves.
func InheritFrom(handled *message.Message, published ...*message.Message) {
	for _, m := range published {
		inherit(m, handled)
	}
}

func inherit(to, from *message.Message) {
	for _, name := range []string{outmill.MetadataCorrelationID, outmill.MetadataTraceParent, outmill.MetadataTraceState} {
		if value := from.Metadata.Get(name); value != "" && to.Metadata.Get(name) == "" {
			to.Metadata.Set(name, value)
		}
	}
	if to.Metadata.Get(outmill.MetadataCausationID) == "" {
		to.Metadata.Set(outmill.MetadataCausationID, from.UUID)
	}
}
