package subscriber_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/subscriber"
)

// stopping runs a router that stops while its only handler runs.
type stopping struct {
	router *message.Router
	sub    *subscriber.Subscriber
	// began gets the message of each handling; finish lets the handlers return.
	began  chan *message.Message
	finish chan struct{}
	// ended is closed when the router's Run has returned.
	ended chan error
}

func (s *shop) stopping(t *testing.T, ctx context.Context, cfg subscriber.Config) *stopping {
	t.Helper()
	r := &stopping{began: make(chan *message.Message, 10), finish: make(chan struct{}), ended: make(chan error, 1)}
	var err error
	r.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
	require.NoError(t, err)
	r.sub = s.subscriber(t, cfg)
	r.router.AddMiddleware(subscriber.KeepError)
	r.router.AddConsumerHandler("slow", topic, r.sub, func(msg *message.Message) error {
		r.began <- msg
		<-r.finish
		return msg.Context().Err()
	})
	go func() { r.ended <- r.router.Run(ctx) }()
	<-r.router.Running()
	return r
}

func TestSubscriber_Shutdown(t *testing.T) {
	t.Parallel()

	t.Run("a router that stops lets its handlers finish", func(t *testing.T) {
		t.Parallel()
		for name, stop := range map[string]func(r *stopping, cancel func()){
			"by Close":         func(r *stopping, _ func()) { go r.router.Close() },
			"by its context":   func(_ *stopping, cancel func()) { cancel() },
			"by both together": func(r *stopping, cancel func()) { cancel(); go r.router.Close() },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := openShop(t)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				cfg := quick()
				cfg.Order, cfg.MaxInFlight, cfg.CloseTimeout = outmill.OrderKey, 1, patience
				first, second := newOrder(), newOrder()
				outmill.SetKey(first, "k")
				outmill.SetKey(second, "k")
				r := s.stopping(t, ctx, cfg)
				s.publish(t, first, second)
				running := <-r.began
				stop(r, cancel)

				// Another process gets no message of the key while the handler runs.
				others := subscribe(t, s.subscriber(t, cfg))
				nothing(t, others, "the handler of the key's first message runs")
				require.NoError(t, running.Context().Err(), "the router stops, the handling goes on")
				close(r.finish)
				require.NoError(t, <-r.ended)
				msg := next(t, others)
				require.Equal(t, second.UUID, msg.UUID)
				msg.Ack()
				require.Eventually(t, func() bool { return s.count(t, outmill.StatusProcessed) == 2 }, patience, 5*time.Millisecond)
				require.Empty(t, r.began, "each message is handled once")
			})
		}
	})
}
