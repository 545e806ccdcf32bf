package storekit

import (
	"context"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/roles"
)

// Outgoing is one message to publish to a broker.
type Outgoing struct {
	Topic   string
	Message *message.Message
}

// Pinger is a role of publishers. A forwarder of a new group asks Ping before it takes what waits for a first
// group, so that a forwarder with a wrong address takes nothing; a publisher without the role takes it at once.
// A decorator keeps the role by its own Ping, or by Unwrap() message.Publisher.
type Pinger interface {
	// Ping returns nil if the destination answers and accepts this publisher. It ends with ctx.
	Ping(ctx context.Context) error
}

// SizeLimited is a role of publishers that know the largest message that they can take. A forwarder without a
// Transform then has its store make larger records dead without reading them (outmill.ClaimRequest.MaxRecord). A
// decorator has the role only if it declares it, because it may make messages smaller; those of package monitor do.
type SizeLimited interface {
	// MaxMessageBytes is the largest size of a message in bytes, payload and metadata; 0 is unknown, such as before the
	// first connection. A forwarder asks before each claim, also concurrently with publishing.
	MaxMessageBytes() int
}

// BatchPublisher is a publisher that sends messages of many topics in one call, so that its
// speed does not depend on round trips. A forwarder uses it if the publisher implements it.
// With any other publisher the forwarder runs several lanes (goroutines), each of which
// publishes one message at a time. Package kafka implements it.
//
// A decorator that embeds a message.Publisher hides the method. It should have its own
// PublishBatch, which treats each message as its Publish does. Instead, a decorator may
// have the method Unwrap() message.Publisher, which says that batches may bypass it: the
// forwarder then calls PublishBatch of the wrapped publisher, and the decorator sees no
// message. That suits a decorator that only closes or shares a publisher, but not one that
// changes messages.
type BatchPublisher interface {
	message.Publisher
	// PublishBatch returns when every message is acknowledged or has failed; *PublishError
	// lists those that failed. Messages of one topic and key are delivered in their order:
	// when one of them fails for a transient reason, the later ones of its key fail with it.
	// PublishBatch returns soon after ctx ends; messages that are not known to be delivered
	// then count as failed.
	PublishBatch(ctx context.Context, batch []Outgoing) error
}

// RawPublisher is a role of publishers of batches that can publish records without making messages of them. A forwarder without
// hooks uses it.
type RawPublisher interface {
	BatchPublisher
	// PublishesRaw returns PublishBatch for records: it publishes each to its topic, as PublishBatch does with the message that
	// MessageOf makes of it, with the same errors. It does not change the records, and reads them only until it returns; what it
	// has sent on may share their texts. It returns nil if there is none, and unless the publisher is this one itself: a type that embeds
	// the publisher has the method too, and its own PublishBatch must not be passed by.
	PublishesRaw(publisher message.Publisher) func(ctx context.Context, batch []roles.RawRecord) error
}

// PublishError lists the messages of a call that were not delivered; the others were.
// Publishers of batches return it, so that a forwarder retries only the failed messages.
type PublishError struct {
	// Total is the number of messages of the call.
	Total int
	// Failed are the messages that were not delivered, in their order.
	Failed []FailedMessage
}

// FailedMessage is one message that was not delivered.
type FailedMessage struct {
	// Index is the message's index in the call.
	Index int
	// MessageID is the message's UUID.
	MessageID string
	// Topic is the topic of the publish.
	Topic string
	// Err is the reason. Permanent marks a message that no retry can deliver (too large, a
	// topic name that the broker never allows), and ErrTopicUnavailable a topic that the
	// broker refuses; any other error counts as a failure of the broker.
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
