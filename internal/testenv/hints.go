package testenv

import (
	"context"

	"github.com/outmill/outmill/roles"
)

// Hints returns a channel that receives after each hint of the store about one of the
// topics; without topics, after each hint.
func Hints(ctx context.Context, store roles.Waker, topics ...string) <-chan struct{} {
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
