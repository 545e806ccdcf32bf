// Package integrationevent publishes an event that has the marker: it compiles.
package integrationevent

import (
	"context"

	"github.com/outmill/outmill/contracts"
)

// OrderPlaced is for other services.
type OrderPlaced struct{}

// IntegrationEvent implements contracts.IntegrationEvent.
func (OrderPlaced) IntegrationEvent() {}

// Publish publishes it by value and by pointer.
func Publish(ctx context.Context, bus *contracts.IntegrationBus) error {
	if err := bus.Publish(ctx, OrderPlaced{}); err != nil {
		return err
	}
	return bus.Publish(ctx, &OrderPlaced{})
}
