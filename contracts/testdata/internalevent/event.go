// Package internalevent publishes an event without the marker, so it must not compile.
package internalevent

import (
	"context"

	"github.com/outmill/outmill/contracts"
)

// StockCounted is for this service only.
type StockCounted struct{}

// Publish does not compile.
func Publish(ctx context.Context, bus *contracts.IntegrationBus) error {
	return bus.Publish(ctx, StockCounted{})
}
