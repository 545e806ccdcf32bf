package allstores

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/components/fanin"
	"github.com/ThreeDotsLabs/watermill/components/requestreply"
	"github.com/ThreeDotsLabs/watermill/components/requeuer"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/subscriber"
)

// site is a store with the publisher and subscribers that Watermill's components need.
type site struct {
	store outmill.Store
	pub   *publisher.Publisher
}

// onEachStore runs the test on every store, and on SQL Server if a server is available.
func onEachStore(t *testing.T, test func(t *testing.T, s site)) {
	t.Helper()
	for name, open := range stores {
		t.Run("on "+name, func(t *testing.T) {
			t.Parallel()
			store := open(t)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			require.NoError(t, store.Ensure(t.Context()))
			pub, err := publisher.New(store, publisher.Config{}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, pub.Close()) })
			test(t, site{store, pub})
		})
	}
}

func (s site) subscriber(t *testing.T, group string) *subscriber.Subscriber {
	t.Helper()
	cfg := quick()
	cfg.Group = group
	sub, err := subscriber.New(s.store, cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	return sub
}

// newRouter makes a router, which run runs until the test ends.
func newRouter(t *testing.T) *message.Router {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
	require.NoError(t, err)
	return router
}

// quick is a configuration with short retry waits.
func quick() subscriber.Config {
	return subscriber.Config{
		Retry:        outmill.RetryPolicy{MaxAttempts: 3, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond},
		PollInterval: 10 * time.Millisecond,
		CloseTimeout: patience,
	}
}

func run(t *testing.T, router *message.Router) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		require.NoError(t, router.Close())
		require.NoError(t, <-ended)
	})
}

// requireNothingLeft waits until every message is acked.
func (s site) requireNothingLeft(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		left, err := s.store.List(t.Context(), outmill.ListQuery{Content: true})
		require.NoError(t, err)
		return len(left) == 0
	}, patience, 5*time.Millisecond, "messages are left in the store")
}

// book is a command; booked is the reply.
type (
	book   struct{ Room string }
	booked struct{ Number string }
)

func TestComponents(t *testing.T) {
	t.Parallel()

	t.Run("Watermills requestreply gets each reply on every store", func(t *testing.T) {
		t.Parallel()
		onEachStore(t, func(t *testing.T, s site) {
			json := cqrs.JSONMarshaler{GenerateName: cqrs.StructName}
			replies := func(id requestreply.OperationID) (string, error) { return "replies-" + string(id), nil }
			backend, err := requestreply.NewPubSubBackend(requestreply.PubSubBackendConfig{
				Publisher: s.pub,
				SubscriberConstructor: func(requestreply.PubSubBackendSubscribeParams) (message.Subscriber, error) {
					return s.subscriber(t, ""), nil
				},
				GeneratePublishTopic: func(p requestreply.PubSubBackendPublishParams) (string, error) {
					return replies(p.OperationID)
				},
				GenerateSubscribeTopic: func(p requestreply.PubSubBackendSubscribeParams) (string, error) {
					return replies(p.OperationID)
				},
				AckCommandErrors: true,
			}, requestreply.BackendPubsubJSONMarshaler[booked]{})
			require.NoError(t, err)

			router := newRouter(t)
			commands, err := cqrs.NewCommandProcessorWithConfig(router, cqrs.CommandProcessorConfig{
				GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return "commands", nil },
				SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
					return s.subscriber(t, "hotel"), nil
				},
				Marshaler: json,
			})
			require.NoError(t, err)
			require.NoError(t, commands.AddHandlers(requestreply.NewCommandHandlerWithResult("book", backend,
				func(_ context.Context, cmd *book) (booked, error) {
					if cmd.Room == "full" {
						return booked{}, errors.New("no room")
					}
					return booked{"number of " + cmd.Room}, nil
				})))
			run(t, router)
			bus, err := cqrs.NewCommandBusWithConfig(s.pub, cqrs.CommandBusConfig{
				GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return "commands", nil },
				Marshaler:            json,
			})
			require.NoError(t, err)

			var wg sync.WaitGroup
			for i := range 5 {
				wg.Go(func() {
					room := strconv.Itoa(i)
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					reply, err := requestreply.SendWithReply(ctx, bus, backend, &book{room})
					if err == nil {
						err = reply.Error
					}
					if err != nil || reply.HandlerResult.Number != "number of "+room {
						t.Errorf("reply to %s: %v, %v", room, reply.HandlerResult, err)
					}
				})
			}
			wg.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			reply, err := requestreply.SendWithReply(ctx, bus, backend, &book{"full"})
			require.NoError(t, err)
			require.ErrorContains(t, reply.Error, "no room")
			s.requireNothingLeft(t)
		})
	})

	t.Run("Watermills requeuer brings poisoned messages back on every store", func(t *testing.T) {
		t.Parallel()
		onEachStore(t, func(t *testing.T, s site) {
			poison, err := middleware.PoisonQueue(s.pub, "poisoned")
			require.NoError(t, err)
			again := newRouter(t)
			_, err = requeuer.NewRequeuer(requeuer.Config{
				Subscriber:           s.subscriber(t, "requeuer"),
				SubscribeTopic:       "poisoned",
				Publisher:            s.pub,
				GeneratePublishTopic: func(requeuer.GeneratePublishTopicParams) (string, error) { return topic, nil },
				Router:               again,
			}, watermill.NopLogger{})
			require.NoError(t, err)
			run(t, again)

			router := newRouter(t)
			router.AddMiddleware(poison)
			handled := make(chan string, 10)
			router.AddConsumerHandler("handler", topic, s.subscriber(t, ""), func(msg *message.Message) error {
				if msg.Metadata.Get(requeuer.RetriesKey) != "2" {
					return errors.New("not yet")
				}
				handled <- msg.UUID
				return nil
			})
			run(t, router)

			var want, got []string
			for range 5 {
				order := message.NewMessage(watermill.NewUUID(), []byte("order"))
				outmill.SetKey(order, "customer")
				want = append(want, order.UUID)
				require.NoError(t, s.pub.Publish(topic, order))
			}
			for range want {
				got = append(got, receive(t, handled))
			}
			require.ElementsMatch(t, want, got)
			s.requireNothingLeft(t)
		})
	})

	t.Run("Watermills fanin brings each message to its topic once on every store", func(t *testing.T) {
		t.Parallel()
		onEachStore(t, func(t *testing.T, s site) {
			sources := []string{"north", "east", "south"}
			fan, err := fanin.NewFanIn(s.subscriber(t, "fan"), s.pub,
				fanin.Config{SourceTopics: sources, TargetTopic: topic, CloseTimeout: patience}, nil)
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- fan.Run(context.Background()) }()
			<-fan.Running()
			defer func() {
				require.NoError(t, fan.Close())
				require.NoError(t, <-ended)
			}()
			messages := subscribe(t, s.subscriber(t, ""))
			var want, got []string
			for i := range 10 {
				for _, source := range sources {
					order := message.NewMessage(watermill.NewUUID(), []byte("order"))
					order.UUID = fmt.Sprint(source, i)
					want = append(want, order.UUID)
					require.NoError(t, s.pub.Publish(source, order))
				}
			}
			for range want {
				msg := next(t, messages)
				got = append(got, msg.UUID)
				require.True(t, msg.Ack())
			}
			require.ElementsMatch(t, want, got)
			s.requireNothingLeft(t)
		})
	})

	t.Run("Watermills delays hold messages back on every store", func(t *testing.T) {
		t.Parallel()
		onEachStore(t, func(t *testing.T, s site) {
			const wait = 300 * time.Millisecond
			trusting, err := publisher.New(s.store, publisher.Config{DelaysInMetadata: true}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, trusting.Close()) })
			messages := subscribe(t, s.subscriber(t, ""))
			for _, c := range []struct {
				of         string
				pub        message.Publisher
				ofContext  bool
				ofDefaults bool
			}{
				{of: "a context", pub: s.pub, ofContext: true},
				{of: "a context, through Watermill's publisher", pub: s.pub, ofContext: true, ofDefaults: true},
				{of: "the defaults of Watermill's publisher", pub: trusting, ofDefaults: true},
			} {
				late := message.NewMessage(watermill.NewUUID(), []byte("order"))
				if c.ofContext {
					late.SetContext(delay.WithContext(t.Context(), delay.For(wait)))
				}
				if c.ofDefaults {
					c.pub = delaying(t, c.pub, wait)
				}
				appended := time.Now()
				require.NoError(t, c.pub.Publish(topic, late), c.of)
				got := next(t, messages)
				// SQLite's clock has milliseconds.
				require.GreaterOrEqual(t, time.Since(appended), wait-5*time.Millisecond, c.of)
				require.Equal(t, late.UUID, got.UUID, c.of)
				got.Ack()
			}
			s.requireNothingLeft(t)
		})
	})
}

// delaying puts Watermill's publisher with a default delay around another one.
func delaying(t *testing.T, around message.Publisher, wait time.Duration) message.Publisher {
	t.Helper()
	pub, err := delay.NewPublisher(around, delay.PublisherConfig{
		DefaultDelayGenerator: func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) { return delay.For(wait), nil },
	})
	require.NoError(t, err)
	return pub
}

func receive(t *testing.T, from <-chan string) string {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		return ""
	}
}

func subscribe(t *testing.T, sub *subscriber.Subscriber) <-chan *message.Message {
	t.Helper()
	messages, err := sub.Subscribe(context.Background(), topic)
	require.NoError(t, err)
	return messages
}

// next returns the next message, and fails the test if none comes.
func next(t *testing.T, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, open := <-messages:
		require.True(t, open, "the channel was closed")
		return msg
	case <-time.After(patience):
		require.FailNow(t, "no message came")
		return nil
	}
}
