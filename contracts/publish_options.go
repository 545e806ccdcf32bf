package contracts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// PublishOption changes the message of one call of IntegrationBus.Publish. A later option
// overrides an earlier one of the same kind.
type PublishOption func(*publishCall)

// publishCall is one call of IntegrationBus.Publish.
type publishCall struct {
	topic  string
	change []func(msg *message.Message)
}

func (c *publishCall) set(change func(msg *message.Message)) { c.change = append(c.change, change) }

// WithMessageID gives the message this UUID in place of the marshaler's; "" keeps that one. An
// inbox knows a message by it, so an event that may be published twice needs an id that is the
// same both times.
func WithMessageID(id string) PublishOption {
	return func(c *publishCall) {
		if id != "" {
			c.set(func(msg *message.Message) { msg.UUID = id })
		}
	}
}

// WithTopic publishes to this topic in place of the one that the bus generates; "" keeps that one.
func WithTopic(topic string) PublishOption {
	return func(c *publishCall) { c.topic = topic }
}

// WithCorrelationID sets the correlation id (outmill.SetCorrelationID); "" sets none.
func WithCorrelationID(id string) PublishOption {
	return func(c *publishCall) {
		if id != "" {
			c.set(func(msg *message.Message) { outmill.SetCorrelationID(msg, id) })
		}
	}
}

// WithVisibleAfter makes the message due when this time has passed, by the database's clock
// (outmill.SetDelay); 0 or less makes it due at once.
func WithVisibleAfter(delay time.Duration) PublishOption {
	return func(c *publishCall) { c.set(func(msg *message.Message) { outmill.SetDelay(msg, max(delay, 0)) }) }
}

// NewIntegrationBusWithConfig makes an IntegrationBus of what cqrs.NewEventBusWithConfig takes.
// Its Publish takes options: they are set before the config's OnPublish is called, which sees
// them. It returns outmill.ErrInvalidConfig for a nil publisher and an invalid config.
func NewIntegrationBusWithConfig(publisher message.Publisher, config cqrs.EventBusConfig) (*IntegrationBus, error) {
	const call = "contracts.NewIntegrationBusWithConfig"
	if outmill.IsNil(publisher) {
		return nil, fmt.Errorf("%w: %s: the publisher is nil", outmill.ErrInvalidConfig, call)
	}
	then := config.OnPublish
	config.OnPublish = func(params cqrs.OnEventSendParams) error {
		for _, change := range callOf(params.Message).change {
			change(params.Message)
		}
		if then == nil {
			return nil
		}
		return then(params)
	}
	bus, err := cqrs.NewEventBusWithConfig(toTopic{publisher}, config)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", outmill.ErrInvalidConfig, call, err)
	}
	return &IntegrationBus{bus: bus, takesOptions: true}, nil
}

var errOptions = errors.New("options need a bus that NewIntegrationBusWithConfig has made")

type callKey struct{}

func callOf(msg *message.Message) publishCall {
	call, _ := msg.Context().Value(callKey{}).(publishCall)
	return call
}

func (b *IntegrationBus) publish(ctx context.Context, event IntegrationEvent, options []PublishOption) error {
	if !b.takesOptions {
		if len(options) > 0 {
			return fmt.Errorf("%w: contracts.IntegrationBus: %w", outmill.ErrInvalidConfig, errOptions)
		}
		return b.bus.Publish(ctx, event)
	}
	var call publishCall
	for _, option := range options {
		option(&call)
	}
	return b.bus.Publish(context.WithValue(ctx, callKey{}, call), event)
}

// toTopic publishes to the topic of the call, if it names one.
type toTopic struct{ message.Publisher }

func (p toTopic) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if named := callOf(msg).topic; named != "" {
			topic = named
		}
	}
	return p.Publisher.Publish(topic, messages...)
}
