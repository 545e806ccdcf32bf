package subscriber_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

const (
	patience = time.Minute
	topic    = "orders"
	poison   = "orders.poison"
)

var errBroken = errors.New("the machine is broken")

// shop is a store with a publisher; tests add a router.
type shop struct {
	*sqlite.Store
	pub *publisher.Publisher
}

func openShop(t *testing.T) *shop {
	t.Helper()
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=synchronous(OFF)"
	store, err := sqlite.Open(t.Context(), file, sqlite.Config{Retain: time.Hour}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	return &shop{Store: store, pub: pub}
}

// quick is a configuration with short retry waits.
func quick() subscriber.Config {
	return subscriber.Config{
		Retry:        outmill.RetryPolicy{MaxAttempts: 3, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond},
		PollInterval: 10 * time.Millisecond,
		CloseTimeout: patience,
	}
}

func (s *shop) subscriber(t *testing.T, cfg subscriber.Config) *subscriber.Subscriber {
	t.Helper()
	sub, err := subscriber.New(s, cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { closes(t, sub) })
	return sub
}

// closes closes the subscriber, and waits until its handlers have returned, whatever its CloseTimeout is.
func closes(t *testing.T, sub *subscriber.Subscriber) {
	t.Helper()
	for end := time.Now().Add(patience); ; <-time.After(10 * time.Millisecond) {
		err := sub.Close()
		if err == nil {
			return
		}
		require.ErrorIs(t, err, outmill.ErrHandlersRunning)
		require.True(t, time.Now().Before(end), "%v", err)
	}
}

func (s *shop) publish(t *testing.T, messages ...*message.Message) {
	t.Helper()
	require.NoError(t, s.pub.Publish(topic, messages...))
}

// route runs a router with the middlewares, the first one outermost, until the
// test ends.
func (s *shop) route(t *testing.T, cfg subscriber.Config, handle message.NoPublishHandlerFunc, middlewares ...message.HandlerMiddleware) {
	t.Helper()
	s.routeTopic(t, topic, cfg, handle, middlewares...)
}

func (s *shop) routeTopic(t *testing.T, from string, cfg subscriber.Config, handle message.NoPublishHandlerFunc,
	middlewares ...message.HandlerMiddleware) {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
	require.NoError(t, err)
	router.AddMiddleware(middlewares...)
	router.AddConsumerHandler("handler", from, s.subscriber(t, cfg), handle)
	run(t, router)
}

// run runs the router until the test ends.
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

// only returns the only record of the topic once it has the status.
func (s *shop) only(t *testing.T, of string, status outmill.Status) *outmill.Record {
	t.Helper()
	var found []*outmill.Record
	require.Eventually(t, func() bool {
		var err error
		found, err = s.List(t.Context(), outmill.ListQuery{Content: true, Topic: of})
		require.NoError(t, err)
		return len(found) == 1 && found[0].Status == status
	}, patience, 5*time.Millisecond, "no single %s record in %s", status, of)
	return found[0]
}

func newOrder() *message.Message { return message.NewMessage(watermill.NewUUID(), []byte("{}")) }

// stack is one middleware of Watermill's together with KeepError.
type stack struct {
	name string
	make func(t *testing.T, s *shop) message.HandlerMiddleware
	// tries is the number of handler calls in one delivery that fails.
	tries int
	// poisons says that a message that fails goes to the poison queue and counts as handled.
	poisons bool
}

func watermillMiddlewares() []stack {
	plain := func(m message.HandlerMiddleware) func(*testing.T, *shop) message.HandlerMiddleware {
		return func(*testing.T, *shop) message.HandlerMiddleware { return m }
	}
	return []stack{
		{name: "none", make: plain(func(h message.HandlerFunc) message.HandlerFunc { return h }), tries: 1},
		{name: "Retry", tries: 3, make: plain(middleware.Retry{
			MaxRetries: 2, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond, Multiplier: 1,
		}.Middleware)},
		{name: "Timeout", tries: 1, make: plain(middleware.Timeout(time.Minute))},
		{name: "CorrelationID", tries: 1, make: plain(middleware.CorrelationID)},
		{name: "Recoverer", tries: 1, make: plain(middleware.Recoverer)},
		{name: "PoisonQueue", tries: 1, poisons: true, make: func(t *testing.T, s *shop) message.HandlerMiddleware {
			t.Helper()
			queue, err := middleware.PoisonQueue(s.pub, poison)
			require.NoError(t, err)
			return queue
		}},
	}
}

// withKeepError returns the middlewares with KeepError outermost, or innermost.
func withKeepError(outermost bool, middlewares ...message.HandlerMiddleware) []message.HandlerMiddleware {
	if outermost {
		return slices.Concat([]message.HandlerMiddleware{subscriber.KeepError}, middlewares)
	}
	return slices.Concat(middlewares, []message.HandlerMiddleware{subscriber.KeepError})
}

func eachStack(t *testing.T, test func(t *testing.T, m stack, outermost bool)) {
	t.Helper()
	for _, m := range watermillMiddlewares() {
		for _, outermost := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, KeepError outermost %t", m.name, outermost), func(t *testing.T) {
				t.Parallel()
				test(t, m, outermost)
			})
		}
	}
}

func TestSubscriber_Middleware(t *testing.T) {
	t.Parallel()

	t.Run("a message that is handled is acked once through each of Watermill's middlewares (OBX-054)", func(t *testing.T) {
		t.Parallel()
		eachStack(t, func(t *testing.T, m stack, outermost bool) {
			s := openShop(t)
			var calls atomic.Int32
			s.route(t, quick(), func(*message.Message) error { calls.Add(1); return nil }, withKeepError(outermost, m.make(t, s))...)
			s.publish(t, newOrder())
			rec := s.only(t, topic, outmill.StatusProcessed)
			require.EqualValues(t, 1, calls.Load())
			require.Zero(t, rec.Attempts)
		})
	})

	t.Run("a failing handler is tried again until the record is dead and keeps the error (OBX-056)", func(t *testing.T) {
		t.Parallel()
		eachStack(t, func(t *testing.T, m stack, outermost bool) {
			s := openShop(t)
			var calls atomic.Int32
			fail := func(*message.Message) error { calls.Add(1); return errBroken }
			s.route(t, quick(), fail, withKeepError(outermost, m.make(t, s))...)
			s.publish(t, newOrder())
			if m.poisons {
				s.only(t, topic, outmill.StatusProcessed)
				require.Equal(t, errBroken.Error(), s.only(t, poison, outmill.StatusPending).Metadata[middleware.ReasonForPoisonedKey])
				require.EqualValues(t, 1, calls.Load())
				return
			}
			rec := s.only(t, topic, outmill.StatusDead)
			require.Contains(t, rec.LastError, errBroken.Error())
			require.EqualValues(t, 3*m.tries, calls.Load())
		})
	})

	t.Run("Permanent makes the record dead after one call", func(t *testing.T) {
		t.Parallel()
		eachStack(t, func(t *testing.T, m stack, outermost bool) {
			s := openShop(t)
			var calls atomic.Int32
			fail := func(*message.Message) error { calls.Add(1); return outmill.Permanent(errBroken) }
			s.route(t, quick(), fail, withKeepError(outermost, m.make(t, s))...)
			s.publish(t, newOrder())
			if m.poisons {
				s.only(t, poison, outmill.StatusPending)
			} else {
				require.Contains(t, s.only(t, topic, outmill.StatusDead).LastError, errBroken.Error())
			}
			require.EqualValues(t, 1, calls.Load())
		})
	})

	t.Run("Snooze brings the message again without counting an attempt", func(t *testing.T) {
		t.Parallel()
		eachStack(t, func(t *testing.T, m stack, outermost bool) {
			if m.poisons && outermost {
				t.Skip("a PoisonQueue inside of KeepError takes every error for a failure, as Snooze's doc says; with IsPermanent as filter it is " +
					"tested below")
			}
			s := openShop(t)
			var calls atomic.Int32
			later := func(*message.Message) error {
				if calls.Add(1) < 6 {
					return outmill.Snooze(time.Millisecond)
				}
				return nil
			}
			s.route(t, quick(), later, withKeepError(outermost, m.make(t, s))...)
			s.publish(t, newOrder())
			rec := s.only(t, topic, outmill.StatusProcessed)
			require.EqualValues(t, 6, calls.Load())
			require.Zero(t, rec.Attempts)
			require.Equal(t, 6, rec.Claims)
		})
	})

	t.Run("RetryAfter sets the wait and counts the attempt", func(t *testing.T) {
		t.Parallel()
		eachStack(t, func(t *testing.T, m stack, outermost bool) {
			if m.poisons {
				t.Skip("PoisonQueue takes every error for a failure; with IsPermanent as filter it is tested below")
			}
			s := openShop(t)
			wait := func(*message.Message) error { return outmill.RetryAfter(errBroken, time.Hour) }
			s.route(t, quick(), wait, withKeepError(outermost, m.make(t, s))...)
			s.publish(t, newOrder())
			require.Eventually(t, func() bool {
				found, err := s.List(t.Context(), outmill.ListQuery{Content: true, Topic: topic})
				require.NoError(t, err)
				return found[0].Attempts == 1 && time.Until(found[0].NextAttemptAt) > 50*time.Minute
			}, patience, 5*time.Millisecond)
		})
	})

	t.Run("a filtered poison queue takes permanent errors and leaves others to the retry policy", func(t *testing.T) {
		t.Parallel()
		for _, retryOutside := range []bool{true, false} {
			t.Run(fmt.Sprintf("Retry outside of it %t", retryOutside), func(t *testing.T) {
				t.Parallel()
				s := openShop(t)
				queue, err := middleware.PoisonQueueWithFilter(s.pub, poison, outmill.IsPermanent)
				require.NoError(t, err)
				stacked := []message.HandlerMiddleware{
					middleware.Retry{MaxRetries: 1, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond, Multiplier: 1}.Middleware,
					queue,
				}
				if !retryOutside {
					slices.Reverse(stacked)
				}
				var calls atomic.Int32
				handle := func(*message.Message) error {
					switch calls.Add(1) {
					case 1, 2:
						return errBroken
					case 3:
						return outmill.Snooze(time.Millisecond)
					}
					return outmill.Permanent(errBroken)
				}
				s.route(t, quick(), handle, withKeepError(true, stacked...)...)
				s.publish(t, newOrder())
				require.Equal(t, 1, s.only(t, topic, outmill.StatusProcessed).Attempts, "the two calls of one delivery")
				s.only(t, poison, outmill.StatusPending)
				require.EqualValues(t, 4, calls.Load())
			})
		}
	})

	t.Run("a poison queue publishes a message whose time is over in either order", func(t *testing.T) {
		t.Parallel()
		for _, timeoutOutside := range []bool{true, false} {
			t.Run(fmt.Sprintf("Timeout outside of it %t", timeoutOutside), func(t *testing.T) {
				t.Parallel()
				s := openShop(t)
				queue, err := middleware.PoisonQueue(s.pub, poison)
				require.NoError(t, err)
				stacked := []message.HandlerMiddleware{middleware.Timeout(10 * time.Millisecond), queue}
				if !timeoutOutside {
					slices.Reverse(stacked)
				}
				tooSlow := func(msg *message.Message) error {
					<-msg.Context().Done()
					return msg.Context().Err()
				}
				s.route(t, quick(), tooSlow, withKeepError(true, stacked...)...)
				s.publish(t, newOrder())
				s.only(t, topic, outmill.StatusProcessed)
				s.only(t, poison, outmill.StatusPending)
			})
		}
	})

	t.Run("a handler that times out is a failure and not a release", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		tooSlow := func(msg *message.Message) error {
			<-msg.Context().Done()
			return msg.Context().Err()
		}
		s.route(t, quick(), tooSlow, withKeepError(true, middleware.Timeout(time.Millisecond))...)
		s.publish(t, newOrder())
		require.Contains(t, s.only(t, topic, outmill.StatusDead).LastError, context.DeadlineExceeded.Error())
	})

	t.Run("a panic is a failure, no matter which code recovers", func(t *testing.T) {
		t.Parallel()
		stacks := map[string][]message.HandlerMiddleware{
			"the router recovers":            {subscriber.KeepError},
			"Recoverer inside of KeepError":  {subscriber.KeepError, middleware.Recoverer},
			"Recoverer outside of KeepError": {middleware.Recoverer, subscriber.KeepError},
			"Retry between Recoverer and KeepError": {subscriber.KeepError,
				middleware.Retry{MaxRetries: 1, InitialInterval: time.Millisecond}.Middleware, middleware.Recoverer},
			"Recoverer outside, Retry inside of both": {middleware.Recoverer, subscriber.KeepError,
				middleware.Retry{MaxRetries: 1, InitialInterval: time.Millisecond}.Middleware},
		}
		for name, stacked := range stacks {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := openShop(t)
				s.route(t, quick(), func(*message.Message) error { panic("kaboom") }, stacked...)
				s.publish(t, newOrder())
				require.Contains(t, s.only(t, topic, outmill.StatusDead).LastError, "kaboom")
			})
		}
	})

	t.Run("without KeepError the record says how to keep the error", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		s.route(t, quick(), func(*message.Message) error { return errBroken })
		s.publish(t, newOrder())
		require.Contains(t, s.only(t, topic, outmill.StatusDead).LastError, "subscriber.KeepError")
	})

	t.Run("the Deduplicator drops a second message in either order with Retry", func(t *testing.T) {
		t.Parallel()
		for _, retryOutside := range []bool{true, false} {
			t.Run(fmt.Sprintf("Retry outside of it %t", retryOutside), func(t *testing.T) {
				t.Parallel()
				s := openShop(t)
				known, err := middleware.NewMapExpiringKeyRepository(time.Minute)
				require.NoError(t, err)
				deduplicator := &middleware.Deduplicator{
					KeyFactory: middleware.NewMessageHasherFromMetadataField("order"),
					Repository: known,
					Timeout:    time.Second,
				}
				stacked := []message.HandlerMiddleware{middleware.Retry{MaxRetries: 1, InitialInterval: time.Millisecond}.Middleware,
					deduplicator.Middleware}
				if !retryOutside {
					slices.Reverse(stacked)
				}
				var calls atomic.Int32
				s.route(t, quick(), func(*message.Message) error { calls.Add(1); return nil }, withKeepError(true, stacked...)...)
				first, second := newOrder(), newOrder()
				first.Metadata.Set("order", "7")
				second.Metadata.Set("order", "7")
				s.publish(t, first, second)
				require.Eventually(t, func() bool { return s.count(t, outmill.StatusProcessed) == 2 }, patience, 5*time.Millisecond)
				require.EqualValues(t, 1, calls.Load())
			})
		}
	})

	t.Run("the CorrelationID is copied from the message to the returned messages", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
		require.NoError(t, err)
		router.AddMiddleware(subscriber.KeepError, middleware.CorrelationID)
		router.AddHandler("handler", topic, s.subscriber(t, quick()), "shipments", s.pub,
			func(*message.Message) ([]*message.Message, error) {
				return []*message.Message{newOrder()}, nil
			})
		ended := make(chan error, 1)
		go func() { ended <- router.Run(context.Background()) }()
		<-router.Running()
		msg := newOrder()
		outmill.SetCorrelationID(msg, "conversation-1")
		s.publish(t, msg)
		require.Equal(t, "conversation-1", s.only(t, "shipments", outmill.StatusPending).CorrelationID)
		require.NoError(t, router.Close())
		require.NoError(t, <-ended)
	})
}

// count returns how many records of the topic have the status.
func (s *shop) count(t *testing.T, status outmill.Status) int {
	t.Helper()
	found, err := s.List(t.Context(), outmill.ListQuery{Content: true, Topic: topic, Status: status, Limit: 10_000})
	require.NoError(t, err)
	return len(found)
}
