package inbox

import (
	"context"
	"errors"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"
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

// pass calls the handler with a copy of the message as it came, and the context. An Ack of the
// handler's own must not reach the subscriber, because the transaction may still fail.
func (o original) pass(ctx context.Context, handler message.HandlerFunc) ([]*message.Message, error) {
	own := o.msg.Copy()
	own.Payload, own.Metadata = o.payload, maps.Clone(o.metadata)
	own.SetContext(ctx)
	// The handler may return the copy, which outlives the transaction.
	defer own.SetContext(o.ctx)
	produced, err := handler(own)
	// Middleware around the inbox, such as PoisonQueue, sees what the handler has changed.
	o.msg.Payload, o.msg.Metadata = own.Payload, own.Metadata
	if err == nil && nacked(own) {
		// KeepError nacks a message for a Snooze and returns no error. It does so here if it was
		// added after the inbox.
		err = errNacked
	}
	return produced, err
}

var errNacked = errors.New(
	"outmill/inbox: the handler returned no error, but the message was nacked: add subscriber.KeepError before the inbox")

func nacked(msg *message.Message) bool {
	select {
	case <-msg.Nacked():
		return true
	default:
		return false
	}
}
