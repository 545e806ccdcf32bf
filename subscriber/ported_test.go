package subscriber_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/subscriber"
)

// TestSubscriber_Ported shows what docs/coming-from-watermill.md says of the number of handlers.
func TestSubscriber_Ported(t *testing.T) {
	t.Parallel()
	const count = 200

	t.Run("a handler that watermill-sql ran alone runs alone with OrderTopic, and gets the messages in their order", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.Order = outmill.OrderTopic
		var running atomic.Int32
		handled := make(chan string, count)
		s.route(t, cfg, func(msg *message.Message) error {
			if running.Add(1) > 1 {
				handled <- "another handler runs"
			}
			defer running.Add(-1)
			handled <- msg.UUID
			return nil
		}, subscriber.KeepError)
		pub, err := publisher.New(s, publisher.Config{}, nil)
		require.NoError(t, err)
		for n := range count {
			require.NoError(t, pub.Publish(topic, message.NewMessage(fmt.Sprint(n), nil)))
		}
		for n := range count {
			require.Equal(t, fmt.Sprint(n), <-handled)
		}
	})

	t.Run("without a setting, the handlers of several messages run at a time", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		together, begun := make(chan struct{}), make(chan struct{}, 2)
		s.route(t, quick(), func(*message.Message) error {
			begun <- struct{}{}
			<-together
			return nil
		})
		s.publish(t, newOrder(), newOrder())
		<-begun
		<-begun
		close(together)
	})
}
