package outmill

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Outgoing is one message on its way to a broker.
type Outgoing struct {
	Topic   string
	Message *message.Message
}

// BatchPublisher is a publisher that sends messages of many topics in one
// call, at the speed of the broker and not of its round trips. A forwarder
// uses it where it finds it; with any other publisher it runs many lanes that
// publish one message at a time each. Package kafka implements it.
//
// A decorator that embeds a message.Publisher hides the method. It should have a
// PublishBatch of its own, which does for each message what its Publish does. A
// decorator may have the method Unwrap() message.Publisher instead, which says
// that batches may go past it: the forwarder then calls PublishBatch of what the
// decorator wraps, and the decorator sees no message. That suits one that only
// closes or shares a publisher, and does not suit one that changes messages.
type BatchPublisher interface {
	message.Publisher
	// PublishBatch returns when every message is acknowledged or has failed;
	// *PublishError names those that failed. Messages of one topic and key are
	// delivered in their order: when one of them fails for a reason that may
	// pass, the later ones of its key fail with it. It returns soon after ctx
	// ends, and then counts as failed what is not known to be delivered.
	PublishBatch(ctx context.Context, batch []Outgoing) error
}
