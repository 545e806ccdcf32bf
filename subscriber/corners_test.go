package subscriber_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/subscriber"
)

// nothing checks for a short time that no message comes. It cannot prove that none comes
// later.
func nothing(t *testing.T, messages <-chan *message.Message, why string) {
	t.Helper()
	select {
	case _, open := <-messages:
		require.False(t, open, why)
	case <-time.After(100 * time.Millisecond):
	}
}

func (s *shop) publishOrders(t *testing.T, n int) []string {
	t.Helper()
	uuids := make([]string, n)
	batch := make([]*message.Message, n)
	for i := range batch {
		batch[i] = newOrder()
		uuids[i] = batch[i].UUID
	}
	s.publish(t, batch...)
	return uuids
}

func TestSubscriber_Corners(t *testing.T) {
	t.Parallel()

	t.Run("records are claimed ahead of their use", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		const rounds = 50
		s.publishOrders(t, 6*rounds+1)
		cfg := quick()
		cfg.MaxInFlight, cfg.BatchSize = 1, 5
		messages := subscribe(t, s.subscriber(t, cfg))
		// The handlers are fast, but a busy machine can slow down a whole round, so the test
		// tries several.
		for ahead, round := false, 0; !ahead; round++ {
			require.Less(t, round, rounds, "nothing was claimed ahead")
			for range 5 {
				next(t, messages).Ack()
			}
			msg := next(t, messages)
			leased := s.count(t, outmill.StatusLeased)
			require.LessOrEqual(t, leased, 6, "MaxInFlight and one batch")
			if ahead = leased > 1; ahead {
				nothing(t, messages, "one is with a handler")
			}
			msg.Ack()
		}
		next(t, messages).Ack()
	})

	t.Run("a handler that has not returned yet leaves the other records to other processes", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			t.Run(order.String(), func(t *testing.T) {
				t.Parallel()
				s := openShop(t)
				cfg := quick()
				cfg.MaxInFlight, cfg.Order = 1, order
				slow := subscribe(t, s.subscriber(t, cfg))
				const jobs = 20
				s.publishOrders(t, jobs)
				job := next(t, slow)
				others := subscribe(t, s.subscriber(t, cfg))
				for range jobs - 1 {
					next(t, others).Ack()
				}
				job.Ack()
			})
		}
	})

	t.Run("records that no reader takes are released after one lease without an attempt", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.Lease = 2 * time.Second // long enough that a busy machine extends it in time
		unread := subscribe(t, s.subscriber(t, cfg))
		s.publishOrders(t, 20)
		require.Eventually(t, func() bool { return s.count(t, outmill.StatusLeased) == 1 }, patience, time.Millisecond, "one is offered on")
		others := subscribe(t, s.subscriber(t, quick()))
		for range 19 {
			msg := next(t, others)
			info, _ := outmill.Delivery(msg.Context())
			require.Equal(t, 1, info.Attempt)
			msg.Ack()
		}
		last := next(t, unread)
		info, _ := outmill.Delivery(last.Context())
		require.Equal(t, 1, info.Attempt)
		last.Ack()
		require.Eventually(t, func() bool { return s.count(t, outmill.StatusProcessed) == 20 }, patience, 5*time.Millisecond)
	})

	t.Run("a topic whose handlers are busy does not delay another topic", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.MaxInFlight = 1
		sub := s.subscriber(t, cfg)
		busy := subscribe(t, sub)
		quiet, err := sub.Subscribe(t.Context(), "quiet")
		require.NoError(t, err)
		s.publishOrders(t, 300)
		running := next(t, busy)
		for range 50 {
			want := newOrder()
			require.NoError(t, s.pub.Publish("quiet", want))
			msg := next(t, quiet)
			require.Equal(t, want.UUID, msg.UUID)
			msg.Ack()
		}
		require.Equal(t, 1, s.count(t, outmill.StatusLeased), "the busy topic holds what its handler has, and no more")
		running.Ack()
	})

	t.Run("two subscriptions to one group and topic are warned of once", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		logger := journal.New()
		for _, group := range []string{"a", "a", "a", "b"} {
			cfg := quick()
			cfg.Group = group
			sub, err := subscriber.New(s, cfg, logger)
			require.NoError(t, err)
			t.Cleanup(func() { closes(t, sub) })
			subscribe(t, sub)
		}
		const warning = "two subscriptions of this process read this topic in the same group"
		require.Eventually(t, func() bool { return logger.Count(warning) > 0 }, patience, time.Millisecond)
		require.Equal(t, 1, logger.Count("ERROR", warning, "group:a", topic))
	})

	t.Run("a message's context outlives the end of its subscription", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		sub := s.subscriber(t, quick())
		ctx, cancel := context.WithCancel(t.Context())
		messages, err := sub.Subscribe(ctx, topic)
		require.NoError(t, err)
		s.publishOrders(t, 1)
		msg := next(t, messages)
		cancel()
		select {
		case <-messages:
			require.Fail(t, "nothing is delivered any more, and the channel stays open for the handler")
		case <-time.After(100 * time.Millisecond):
		}
		require.NoError(t, msg.Context().Err())
		msg.Ack()
		<-msg.Context().Done()
		_, open := <-messages
		require.False(t, open)
		s.only(t, topic, outmill.StatusProcessed)
	})

	t.Run("logged errors reach OnError too", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		told := make(chan error, 100)
		cfg.OnError = func(err error) {
			select {
			case told <- err:
			default:
			}
			panic("OnError must not end the process")
		}
		sub := s.subscriber(t, cfg)
		subscribe(t, sub)
		require.NoError(t, s.DB().Close())
		require.ErrorContains(t, <-told, "database is closed")
	})

	t.Run("a skipped key continues while its failed record waits", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.Order, cfg.KeyPolicy = outmill.OrderKey, outmill.KeySkip
		cfg.Retry.InitialInterval, cfg.Retry.MaxInterval = time.Hour, time.Hour
		messages := subscribe(t, s.subscriber(t, cfg))
		first, second := newOrder(), newOrder()
		outmill.SetKey(first, "k")
		outmill.SetKey(second, "k")
		s.publish(t, first, second)
		failing := next(t, messages)
		require.Equal(t, first.UUID, failing.UUID)
		nothing(t, messages, "a key is handled one by one")
		failing.Nack()
		passing := next(t, messages)
		require.Equal(t, second.UUID, passing.UUID)
		passing.Ack()
	})

	t.Run("a group gets the messages that are published after SubscribeInitialize", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		early, late := quick(), quick()
		early.Group, late.Group = "early", "late"
		first := s.subscriber(t, early)
		require.NoError(t, first.SubscribeInitialize(topic))
		s.publishOrders(t, 1)
		nothing(t, subscribe(t, s.subscriber(t, late)), "the message went to the group that was there")
		next(t, subscribe(t, first)).Ack()
		require.NoError(t, first.Close())
		require.ErrorIs(t, first.SubscribeInitialize(topic), outmill.ErrClosed)
	})

	t.Run("a subscription whose context has ended does not begin", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.subscriber(t, quick()).Subscribe(ended, topic)
		require.ErrorIs(t, err, context.Canceled)
	})

	t.Run("Close and Subscribe may meet", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		for range 20 {
			sub := s.subscriber(t, quick())
			var meeting sync.WaitGroup
			for range 3 {
				meeting.Go(func() {
					messages, err := sub.Subscribe(context.Background(), topic)
					if err != nil {
						if !errors.Is(err, outmill.ErrClosed) {
							t.Error(err)
						}
						return
					}
					for range messages {
						t.Error("a message came")
					}
				})
				meeting.Go(func() {
					if err := sub.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			meeting.Wait()
		}
	})

	t.Run("a channel without a reader costs no attempt", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		// Much shorter than the records wait, much longer than a busy machine takes for an ack.
		cfg.Lease, cfg.MaxProcessing = time.Second, time.Second
		cfg.MaxInFlight, cfg.BatchSize = 2, 2
		s.publishOrders(t, 5)
		messages := subscribe(t, s.subscriber(t, cfg))
		oldest := func() *outmill.Record {
			records, err := s.List(t.Context(), outmill.ListQuery{Content: true, Topic: topic, Limit: 1})
			require.NoError(t, err)
			return records[0]
		}
		require.Eventually(t, func() bool { return oldest().Claims >= 3 }, patience, 5*time.Millisecond, "others get a chance at it")
		for range 5 {
			msg := next(t, messages)
			info, _ := outmill.Delivery(msg.Context())
			require.Equal(t, 1, info.Attempt)
			msg.Ack()
		}
		require.Eventually(t, func() bool { return s.count(t, outmill.StatusProcessed) == 5 }, patience, 5*time.Millisecond)
		require.Zero(t, oldest().Expiries)
	})

	t.Run("a handler that outlives its subscription keeps its record from the next one", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.CloseTimeout = 10 * time.Millisecond
		sub := s.subscriber(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		messages, err := sub.Subscribe(ctx, topic)
		require.NoError(t, err)
		want := s.publishOrders(t, 1)[0]
		running := next(t, messages)
		cancel()
		<-running.Context().Done()

		again := subscribe(t, sub)
		other := s.subscriber(t, quick())
		elsewhere := subscribe(t, other)
		nothing(t, again, "the handler still runs")
		nothing(t, elsewhere, "the handler still runs, and its lease is kept")
		require.NoError(t, other.Close())
		running.Nack()
		msg := next(t, again)
		require.Equal(t, want, msg.UUID)
		msg.Ack()
		require.Zero(t, s.only(t, topic, outmill.StatusProcessed).Attempts)
	})

	t.Run("Close waits for handlers and stores their outcomes", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.CloseTimeout = patience
		sub := s.subscriber(t, cfg)
		messages := subscribe(t, sub)
		s.publishOrders(t, 2)
		acked, nacked := next(t, messages), next(t, messages)
		closed := make(chan error)
		go func() { closed <- sub.Close() }()
		require.Eventually(t, func() bool {
			_, err := sub.Subscribe(t.Context(), topic)
			return errors.Is(err, outmill.ErrClosed)
		}, patience, time.Millisecond)
		select {
		case <-messages:
			require.Fail(t, "the channel is closed while handlers run")
		case <-time.After(100 * time.Millisecond):
		}
		require.NoError(t, acked.Context().Err(), "handlers may finish")
		acked.Ack()
		nacked.Nack()
		_, open := <-messages
		require.False(t, open)
		require.Equal(t, 1, s.count(t, outmill.StatusProcessed), "the outcomes are stored before the channel is closed")
		require.NoError(t, <-closed)
		pending, err := s.List(t.Context(), outmill.ListQuery{Content: true, Topic: topic, Status: outmill.StatusPending})
		require.NoError(t, err)
		require.Zero(t, pending[0].Attempts, "what fails while the subscriber stops may fail because of that")
	})

	t.Run("Close ends the contexts of handlers that take too long", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.CloseTimeout = 10 * time.Millisecond
		sub := s.subscriber(t, cfg)
		messages := subscribe(t, sub)
		s.publishOrders(t, 1)
		msg := next(t, messages)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			<-msg.Context().Done()
			msg.Nack()
		}()
		closes(t, sub)
		<-answered
		rec := s.only(t, topic, outmill.StatusPending)
		require.Zero(t, rec.Attempts, "what ends because the subscription does was not the message's fault")
	})

	t.Run("a handler that returns a typed nil has failed", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		sub, err := subscriber.New(s, quick(), journal.New())
		require.NoError(t, err)
		t.Cleanup(func() { closes(t, sub) })
		messages := subscribe(t, sub)
		s.publishOrders(t, 1)
		handle := subscriber.KeepError(func(*message.Message) ([]*message.Message, error) {
			var typedNil *nilError
			return nil, typedNil
		})
		for range 3 {
			msg := next(t, messages)
			_, err := handle(msg)
			require.True(t, err != nil, "as the router sees it")
			msg.Nack()
		}
		s.only(t, topic, outmill.StatusDead)
	})

	t.Run("two subscriptions of one subscriber share a topic", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		sub := s.subscriber(t, quick())
		one, two := subscribe(t, sub), subscribe(t, sub)
		want := s.publishOrders(t, 40)
		var got []string
		for range want {
			var msg *message.Message
			select {
			case msg = <-one:
			case msg = <-two:
			case <-time.After(patience):
				require.FailNow(t, "no message came")
			}
			got = append(got, msg.UUID)
			msg.Ack()
		}
		require.ElementsMatch(t, want, got)
	})

	t.Run("routers that start and stop lose no message and repeat no acked one", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		const total = 300
		var mu sync.Mutex
		acked := map[string]int{}
		handle := func(msg *message.Message) error {
			if rand.IntN(10) == 0 || msg.Context().Err() != nil {
				return errBroken
			}
			mu.Lock()
			defer mu.Unlock()
			acked[msg.UUID]++
			return nil
		}
		cfg := quick()
		cfg.Retry.MaxAttempts = -1
		s.publishOrders(t, total)
		for before := 0; before < total; before = s.count(t, outmill.StatusProcessed) {
			router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
			require.NoError(t, err)
			router.AddMiddleware(subscriber.KeepError)
			router.AddConsumerHandler("handler", topic, s.subscriber(t, cfg), handle)
			ended := make(chan error, 1)
			go func() { ended <- router.Run(context.Background()) }()
			<-router.Running()
			require.Eventually(t, func() bool { return s.count(t, outmill.StatusProcessed) > before }, patience, time.Millisecond)
			require.NoError(t, router.Close())
			require.NoError(t, <-ended)
		}
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, acked, total)
		for uuid, times := range acked {
			require.Equal(t, 1, times, uuid)
		}
	})

	t.Run("deliveries and failures are logged with the ids of the message (OBX-105)", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		logger := journal.New()
		sub, err := subscriber.New(s, quick(), logger)
		require.NoError(t, err)
		t.Cleanup(func() { closes(t, sub) })
		messages := subscribe(t, sub)
		msg := newOrder()
		outmill.SetCorrelationID(msg, "conversation-1")
		s.publish(t, msg)
		next(t, messages).Nack()
		next(t, messages).Ack()
		s.only(t, topic, outmill.StatusProcessed)
		known := []string{msg.UUID, topic, "conversation-1", s.Name()}
		require.Equal(t, 2, logger.Count(append(known, "DEBUG", "Message delivered")...))
		require.Equal(t, 1, logger.Count(append(known, "ERROR", "Handling failed", "dead:false")...))
		require.Zero(t, logger.Count("laimed"), "the store logs its claims")
	})
}

// nilError is an error type whose methods panic on a nil receiver.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }
func (e *nilError) Unwrap() error { return errors.New(e.text) }
