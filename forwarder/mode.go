package forwarder

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/internal/batching"
)

// mode is the way in which messages reach the publisher.
type mode struct{ batching.Route }

func modeOf(publisher message.Publisher) mode { return mode{batching.RouteOf(publisher)} }

// log logs the mode, because publishing one message at a time costs a round trip for each
// message, and no other output shows this reason.
func (m mode) log(log watermill.LoggerAdapter, publisher message.Publisher, lanes int) {
	fields := watermill.LogFields{"publisher": fmt.Sprintf("%T", publisher)}
	switch {
	case m.Publisher == nil:
		fields["lanes"] = lanes
		log.Info("The forwarder publishes one message at a time in each of its lanes", fields)
	case len(m.Passed) == 0:
		log.Info("The forwarder publishes in batches", fields)
	default:
		fields["batches_through"] = fmt.Sprintf("%T", m.Publisher)
		fields["passed_by"] = m.Passed
		log.Info("The forwarder publishes in batches, which bypass the decorators without PublishBatch", fields)
	}
	if m.Hidden != "" {
		log.Error("Warning: a decorator hides a publisher that takes batches, so the forwarder publishes one message in each round trip; give "+
			"the decorator a method PublishBatch, or Unwrap() message.Publisher if batches may bypass it", nil,
			watermill.LogFields{"decorator": m.Hider, "hides": m.Hidden})
	}
}
