package inbox

import (
	"context"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/storekit"
)

// original is a message as it came: each run of a handler begins with its payload and metadata.
type original struct {
	msg *message.Message
	// ctx is the context without the transaction.
	ctx      context.Context
	payload  message.Payload
	metadata message.Metadata
}

func keep(msg *message.Message) original {
	return original{msg, msg.Context(), msg.Payload, maps.Clone(msg.Metadata)}
}

// give makes the message as it came, with the context of a transaction.
func (o original) give(ctx context.Context) {
	o.msg.Payload, o.msg.Metadata = o.payload, maps.Clone(o.metadata)
	o.msg.SetContext(ctx)
}

// handlingOf returns the handling of the message of ctx, and true if the store of the acker has
// delivered it. acker may be nil.
func handlingOf(ctx context.Context, acker storekit.TxAcker) (storekit.TxHandling, bool) {
	handling, ok := storekit.TxHandlingOf(ctx)
	if !ok || acker == nil || handling.Acker() != acker {
		return nil, false
	}
	return handling, true
}
