package sagas

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/internal/crash"
)

// Metadata of timeouts.
const (
	// MetadataCorrelation has the saga's correlation value.
	MetadataCorrelation = "outmill_saga"
	// MetadataID has the saga's id.
	MetadataID = "outmill_saga_id"
)

// Context is what a handler works with. It is a context that carries the transaction of
// the store, valid until the handler returns, and not safe for concurrent use.
type Context[State any] struct {
	context.Context
	// State is the saga's. What the handler changes is stored when it returns nil.
	State *State
	// Message is a copy of the one that is being handled: each run of the transaction has
	// its own, and nothing acks the message but the end of its handling.
	Message *message.Message
	// Correlation is the saga's correlation value.
	Correlation string
	// ID identifies this saga: one that is started later with the same correlation value has
	// another.
	ID outmill.WorkItemID

	publisher message.Publisher
	marshaler Marshaler
	completed bool
}

// Complete ends the saga when the handler returns nil: it is deleted, or kept as finished
// where Config.KeepFinished is set.
func (c *Context[State]) Complete() { c.completed = true }

// Publish publishes messages in the transaction of the saga. Messages that have no
// correlation id, trace or causation id of their own get those of Message, as with
// inbox.Inherit.
func (c *Context[State]) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		msg.SetContext(c.Context)
		inbox.InheritFrom(c.Message, msg)
	}
	err := c.publisher.Publish(topic, messages...)
	crash.At("sent")
	return err
}

// PublishValue publishes a message that Config.Marshaler makes of the value, with the
// correlation value as its key.
func (c *Context[State]) PublishValue(topic string, value any) error {
	msg, err := c.newMessage(value)
	if err != nil {
		return err
	}
	return c.Publish(topic, msg)
}

// Timeout publishes the value to the topic of a Timeout handler, as PublishValue does, to be
// delivered after the time, counted by the database's clock. It reaches this saga only, if
// it has not ended by then.
func (c *Context[State]) Timeout(topic string, after time.Duration, value any) error {
	msg, err := c.newMessage(value)
	if err != nil {
		return err
	}
	msg.Metadata.Set(MetadataCorrelation, c.Correlation)
	msg.Metadata.Set(MetadataID, c.ID.String())
	outmill.SetDelay(msg, max(after, 0))
	return c.Publish(topic, msg)
}

func (c *Context[State]) newMessage(value any) (*message.Message, error) {
	msg, err := c.marshaler.Marshal(value)
	if err != nil {
		return nil, err
	}
	outmill.SetKey(msg, c.Correlation)
	return msg, nil
}
