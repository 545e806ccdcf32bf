package monitor

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/batching"
)

// CheckPublisher returns a problem of the kind batching_hidden if the publisher decorates one
// that takes batches (storekit.BatchPublisher) and hides that: a forwarder then publishes one
// message in each round trip. It looks at types and calls nothing but Unwrap. Only a program can
// check its publishers, so the command outmill doctor does not.
func CheckPublisher(publisher message.Publisher) []Problem {
	if outmill.IsNil(publisher) {
		return nil
	}
	route := batching.RouteOf(publisher)
	if route.Hidden == "" {
		return nil
	}
	return []Problem{{
		Kind: "batching_hidden", Severity: Warning, Subject: route.Hider,
		Text: fmt.Sprintf("The decorator %s hides that %s takes batches, so each message costs a round trip.", route.Hider, route.Hidden),
		Remedy: "Give the decorator the method PublishBatch, or Unwrap() message.Publisher if batches may bypass it. " +
			"Metrics.Publisher keeps batches.",
	}}
}
