package contracts

import (
	"context"
	"fmt"

	"github.com/outmill/outmill"
)

// IntegrationEvent marks the types that other services may get. The method does nothing:
//
//	func (OrderPlaced) IntegrationEvent() {}
type IntegrationEvent interface{ IntegrationEvent() }

// EventBus is the part of Watermill's cqrs.EventBus that an [IntegrationBus] uses.
type EventBus interface {
	Publish(ctx context.Context, event any) error
}

// IntegrationBus publishes events for other services, and nothing else: a type without the
// marker [IntegrationEvent] does not compile, so that nobody publishes an internal event by
// mistake. Give internal events a bus, and topics, of their own. It is safe for concurrent
// use if its EventBus is, as Watermill's is.
type IntegrationBus struct{ bus EventBus }

// NewIntegrationBus makes an IntegrationBus that publishes through the bus, which has the
// topics, the marshaler and the publisher. A nil bus is outmill.ErrInvalidConfig.
func NewIntegrationBus(bus EventBus) (*IntegrationBus, error) {
	if outmill.IsNil(bus) {
		return nil, fmt.Errorf("%w: contracts.NewIntegrationBus: the bus is nil", outmill.ErrInvalidConfig)
	}
	return &IntegrationBus{bus}, nil
}

// Publish publishes the event, in the transaction that ctx carries. Errors are those of the
// bus: with Watermill's, those of its marshaler and of its publisher.
func (b *IntegrationBus) Publish(ctx context.Context, event IntegrationEvent) error {
	return b.bus.Publish(ctx, event)
}
