package subscriber_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/publisher"
)

func TestSubscriber_String(t *testing.T) {
	t.Parallel()

	t.Run("a router knows publisher and subscriber by the librarys name", func(t *testing.T) {
		t.Parallel()
		for name, view := range map[string]func(pub *publisher.Publisher) message.Publisher{
			"the publisher": func(pub *publisher.Publisher) message.Publisher { return pub },
			"a view of a context": func(pub *publisher.Publisher) message.Publisher {
				return pub.WithContext(t.Context())
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := openShop(t)
				s.publish(t, newOrder())
				router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
				require.NoError(t, err)
				names := make(chan []string, 1)
				router.AddHandler("handler", topic, s.subscriber(t, quick()), "handled", view(s.pub),
					func(msg *message.Message) ([]*message.Message, error) {
						names <- []string{message.SubscriberNameFromCtx(msg.Context()), message.PublisherNameFromCtx(msg.Context())}
						return nil, nil
					})
				run(t, router)
				require.Equal(t, []string{"outmill", "outmill"}, <-names)
			})
		}
	})
}
