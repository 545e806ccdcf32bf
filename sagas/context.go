package sagas

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// Context is what a handler works with. It is a context that carries the transaction of
// the store, valid until the handler returns, and not safe for concurrent use.
type Context[State any] struct {
	context.Context
	// State is the saga's. What the handler changes is stored when it returns nil.
	State *State
	// Message is the one that is being handled.
	Message *message.Message
	// Correlation is the saga's correlation value.
	Correlation string

	publisher message.Publisher
	completed bool
}

// Complete ends the saga when the handler returns nil: it is deleted, or kept as finished
// where Config.KeepFinished is set.
func (c *Context[State]) Complete() { c.completed = true }

// Publish publishes messages in the transaction of the saga.
func (c *Context[State]) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		msg.SetContext(c.Context)
	}
	return c.publisher.Publish(topic, messages...)
}

// PublishJSON publishes the value as JSON, with the correlation value as its key.
func (c *Context[State]) PublishJSON(topic string, value any) error {
	msg, err := c.newMessage(value)
	if err != nil {
		return err
	}
	return c.Publish(topic, msg)
}

// Timeout publishes the value as JSON to the topic of a Timeout handler, to be delivered
// after the delay, counted by the database's clock. It has the correlation value as its key.
func (c *Context[State]) Timeout(topic string, after time.Duration, value any) error {
	msg, err := c.newMessage(value)
	if err != nil {
		return err
	}
	msg.Metadata.Set(MetadataCorrelation, c.Correlation)
	outmill.SetDelay(msg, after)
	return c.Publish(topic, msg)
}

func (c *Context[State]) newMessage(value any) (*message.Message, error) {
	payload, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	msg := message.NewMessage(watermill.NewUUID(), payload)
	outmill.SetKey(msg, c.Correlation)
	return msg, nil
}
