package example

import (
	"context"
	"fmt"
	"sync"

	"github.com/outmill/outmill/subscriber"
)

// Listen returns the payloads of all waiting messages of the topic, and acks them. It closes sub,
// unless it returns an error. A service would read the channel, or let a router read it, as long
// as it runs.
func Listen(ctx context.Context, sub *subscriber.Subscriber, topic string) ([]string, error) {
	messages, err := sub.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	var told []string
	var listening sync.WaitGroup
	listening.Go(func() {
		for msg := range messages {
			told = append(told, string(msg.Payload))
			msg.Ack()
		}
	})
	if _, err := sub.Once(ctx); err != nil {
		return nil, fmt.Errorf("deliver: %w", err)
	}
	if err := sub.Close(); err != nil {
		return nil, err
	}
	listening.Wait()
	return told, nil
}
