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

// IntegrationBus publishes events for other services. It takes only types with the marker
// [IntegrationEvent], so a program that publishes an internal event by mistake does not
// compile. Give internal events another bus and other topics. IntegrationBus is safe for
// concurrent use if its EventBus is, as Watermill's is.
type IntegrationBus struct {
	bus EventBus
	// takesOptions says that the bus sets the options of a call.
	takesOptions bool
}

// NewIntegrationBus makes an IntegrationBus that publishes through the bus, with its topics,
// marshaler and publisher. Its Publish takes no options: see [NewIntegrationBusWithConfig]. It
// returns outmill.ErrInvalidConfig for a nil bus.
func NewIntegrationBus(bus EventBus) (*IntegrationBus, error) {
	if outmill.IsNil(bus) {
		return nil, fmt.Errorf("%w: contracts.NewIntegrationBus: the bus is nil", outmill.ErrInvalidConfig)
	}
	return &IntegrationBus{bus: bus}, nil
}

// Publish publishes the event, in the transaction that ctx carries. It returns the errors of
// the bus; Watermill's bus returns those of its marshaler and of its publisher. With options and
// a bus of NewIntegrationBus it publishes nothing and returns outmill.ErrInvalidConfig.
func (b *IntegrationBus) Publish(ctx context.Context, event IntegrationEvent, options ...PublishOption) error {
	return b.publish(ctx, event, options)
}
