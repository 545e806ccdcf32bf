package sagas

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/internal/crash"
)

// Metadata of the messages that Context.Timeout publishes.
const (
	// MetadataCorrelation names the metadata with the saga's correlation value.
	MetadataCorrelation = "outmill_saga"
	// MetadataID names the metadata with the saga's id.
	MetadataID = "outmill_saga_id"
)

// Context gives a handler the saga and the message. It is also a context.Context, which
// carries the transaction of the store. It is valid until the handler returns, and not safe
// for concurrent use.
type Context[State any] struct {
	context.Context
	// State is the state of the saga. The handler may change it; it is stored if the handler
	// returns nil.
	State *State
	// Message is a copy of the handled message. Each run of the transaction gets a new copy.
	// To ack or nack the copy has no effect: the error of the handler decides.
	Message *message.Message
	// Correlation is the saga's correlation value.
	Correlation string
	// ID identifies this saga. A later saga with the same correlation value has another ID.
	ID outmill.WorkItemID

	publisher message.Publisher
	marshaler Marshaler
	completed bool
}

// Complete ends the saga if the handler returns nil: the store deletes it, or keeps it as
// finished if Config.KeepFinished is set.
func (c *Context[State]) Complete() { c.completed = true }

// Publish publishes messages in the transaction of the saga. A message without a correlation
// id, tenant id, trace or causation id gets these from Message, as with inbox.Inherit.
func (c *Context[State]) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		msg.SetContext(c.Context)
		inbox.InheritFrom(c.Message, msg)
	}
	err := c.publisher.Publish(topic, messages...)
	crash.At("sent")
	return err
}

// PublishValue encodes the value with Config.Marshaler, and publishes the message with the
// correlation value as its key.
func (c *Context[State]) PublishValue(topic string, value any) error {
	msg, err := c.newMessage(value)
	if err != nil {
		return err
	}
	return c.Publish(topic, msg)
}

// Timeout publishes the value, as PublishValue does, to the topic of a Timeout reaction. The
// message is due when the duration after has passed, by the database's clock. It is handled
// only by this saga, and acked without a handler if this saga has ended by then.
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
