package subscriber

import (
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// turnsFor returns the role of the store that MaxInFlightPerTenant needs; nil without it.
func turnsFor(queue outmill.Queue, cfg Config) (storekit.TenantTurns, error) {
	if cfg.MaxInFlightPerTenant == 0 {
		return nil, nil
	}
	turns, ok := outmill.As[storekit.TenantTurns](queue)
	if !ok {
		return nil, fmt.Errorf("%w: subscriber.Config.MaxInFlightPerTenant is %d, but store %q serves no tenants in turn "+
			"(storekit.TenantTurns): set it to 0, or use a store that does", outmill.ErrInvalidConfig, cfg.MaxInFlightPerTenant, queue.Name())
	}
	return turns, nil
}

// checkTurns refuses a topic in which MaxInFlightPerTenant has no effect.
func (s *Subscriber) checkTurns(topic string) error {
	if s.turns == nil || s.turns.ServesTurns(topic) {
		return nil
	}
	return fmt.Errorf("%w: subscriber.Config.MaxInFlightPerTenant is %d, but store %q does not serve the tenants of topic %q in turn: "+
		"name the topic in FairTopics of the store, or set MaxInFlightPerTenant to 0",
		outmill.ErrInvalidConfig, s.cfg.MaxInFlightPerTenant, s.queue.Name(), topic)
}
