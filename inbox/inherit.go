package inbox

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// Inherit is router middleware that copies metadata from the handled message to the messages
// that the handler returns: the correlation id, the tenant id, the trace and, as their causation
// id, the message id. It does not replace metadata that a message has already, so set the tenant
// id (outmill.SetTenantID) of a message that is for another tenant. Add Inherit after the inbox,
// because the inbox publishes the messages that inner middleware returns.
func Inherit(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		InheritFrom(msg, produced...)
		return produced, err
	}
}

// InheritFrom copies the metadata as Inherit does, for handlers that publish messages
// instead of returning them.
func InheritFrom(handled *message.Message, published ...*message.Message) {
	for _, m := range published {
		inherit(m, handled)
	}
}

var inherited = []string{
	outmill.MetadataCorrelationID, outmill.MetadataTenantID, outmill.MetadataTraceParent, outmill.MetadataTraceState,
}

func inherit(to, from *message.Message) {
	for _, name := range inherited {
		if value := from.Metadata.Get(name); value != "" && to.Metadata.Get(name) == "" {
			to.Metadata.Set(name, value)
		}
	}
	if to.Metadata.Get(outmill.MetadataCausationID) == "" {
		to.Metadata.Set(outmill.MetadataCausationID, from.UUID)
	}
}
