package storekit

import (
	"context"
	"fmt"
	"strings"

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

// PublishError names the messages of a call that were not delivered; the
// others were. Publishers that batch return it, so that a forwarder retries
// just those.
type PublishError struct {
	// Total is the number of messages of the call.
	Total int
	// Failed are the messages that were not delivered, in their order.
	Failed []FailedMessage
}

// FailedMessage is one message that was not delivered.
type FailedMessage struct {
	// Index is the message's place in the call.
	Index int
	// MessageID is the message's UUID.
	MessageID string
	// Topic is where it should have gone.
	Topic string
	// Err is why. Permanent marks a message that no retry can deliver (too large,
	// a topic name that the broker never allows), ErrTopicUnavailable a topic that the broker refuses; anything else
	// is taken for trouble with the broker.
	Err error
}

func (e *PublishError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "outmill: %d of %d messages not published", len(e.Failed), e.Total)
	for i, f := range e.Failed {
		if i == 3 {
			b.WriteString("; …")
			break
		}
		fmt.Fprintf(&b, "; message %d (%s) to %q: %v", f.Index, clip(f.MessageID), clip(f.Topic), clip(fmt.Sprint(f.Err)))
	}
	return b.String()
}

// Unwrap gives errors.Is and errors.As the errors of all failed messages.
func (e *PublishError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f.Err
	}
	return errs
}
