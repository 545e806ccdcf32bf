package testenv

import (
	"context"

	"github.com/outmill/outmill/storekit"
)

// Hints is a channel that receives after the store's hints of the topics, of all
// where none is named.
func Hints(ctx context.Context, store storekit.Waker, topics ...string) <-chan struct{} {
	hints := make(chan struct{}, 1)
	wanted := map[string]bool{"": true}
	for _, topic := range topics {
		wanted[topic] = true
	}
	store.Wake(ctx, func(topic string) {
		if len(topics) > 0 && !wanted[topic] {
			return
		}
		select {
		case hints <- struct{}{}:
		default:
		}
	})
	return hints
}
