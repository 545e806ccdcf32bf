package subscriber_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/subscriber"
)

// goroutines returns the stacks of the goroutines that a function of the package runs in.
func goroutines(of string) (stacks []string) {
	buf := make([]byte, 1<<24)
	for _, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, of) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

func publisherOf(t *testing.T, store outmill.Store) *publisher.Publisher {
	t.Helper()
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	return pub
}

func TestSubscriber_Session(t *testing.T) {
	// It is not parallel, because it counts the goroutines of the package.
	t.Run("a subscriber whose subscriptions have ended has no goroutine, and works again after another Subscribe", func(t *testing.T) {
		s := openShop(t)
		sub := s.subscriber(t, quick())
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			first, err := sub.Subscribe(ctx, topic)
			require.NoError(t, err)
			other, err := sub.Subscribe(ctx, "another topic")
			require.NoError(t, err)
			s.publishOrders(t, 1)
			next(t, first).Ack()
			cancel()
			for range first {
				require.Fail(t, "nothing is due")
			}
			for range other {
				require.Fail(t, "nothing is due")
			}
			require.Eventually(t, func() bool {
				return len(goroutines("outmill/subscriber.(*s")) == 0 && len(goroutines("internal/worker.(*Worker)")) == 0
			}, patience, time.Millisecond)
			require.Zero(t, sub.ClaimedAt())
		}
		require.Equal(t, 3, s.count(t, outmill.StatusProcessed))
	})
}

func TestSubscriber_StoreCloses(t *testing.T) {
	t.Parallel()

	t.Run("a store that is closed first has the outcomes of the handlers that finish within its patience", func(t *testing.T) {
		t.Parallel()
		database := memstore.NewDatabase()
		store := memstore.New(database, memstore.Options{Retain: time.Hour})
		require.NoError(t, store.Ensure(t.Context()))
		s := &shop{pub: publisherOf(t, store)}
		logs := journal.New()
		sub, err := subscriber.New(store, quick(), logs)
		require.NoError(t, err)
		t.Cleanup(func() { closes(t, sub) })
		messages, err := sub.Subscribe(t.Context(), topic)
		require.NoError(t, err)
		s.publish(t, newOrder(), newOrder(), newOrder())
		done, late := next(t, messages), next(t, messages)
		next(t, messages).Nack()
		closed := make(chan error, 1)
		done.Ack()
		go func() { closed <- store.Close() }()
		require.Eventually(t, func() bool {
			_, err := sub.Subscribe(t.Context(), topic)
			return err != nil
		}, patience, time.Millisecond)
		late.Ack()
		require.NoError(t, <-closed)
		_, open := <-messages
		require.False(t, open)
		records, err := memstore.New(database, memstore.Options{}).List(t.Context(), outmill.ListQuery{Content: true})
		require.NoError(t, err)
		statuses := map[outmill.Status]int{}
		for _, rec := range records {
			statuses[rec.Status]++
		}
		require.Equal(t, map[outmill.Status]int{outmill.StatusProcessed: 2, outmill.StatusPending: 1}, statuses)
		_, err = sub.Subscribe(t.Context(), topic)
		require.ErrorIs(t, err, outmill.ErrClosed)
		for _, line := range logs.Lines(watermill.ErrorLogLevel) {
			require.Contains(t, []string{"Handling failed", "Warning: two subscriptions of this process"}, strings.Split(line.Msg, " read")[0])
		}
	})

	t.Run("a handler may close the store, and then its router stops", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		sub, err := subscriber.New(s, quick(), nil)
		require.NoError(t, err)
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
		require.NoError(t, err)
		router.AddConsumerHandler("closer", topic, sub, func(*message.Message) error { return s.Close() })
		s.publishOrders(t, 1)
		require.NoError(t, router.Run(context.Background()))
		require.Eventually(t, func() bool { return sub.Close() == nil }, patience, time.Millisecond)
	})

	t.Run("what nobody has started is given back when the store closes", func(t *testing.T) {
		t.Parallel()
		database := memstore.NewDatabase()
		store := memstore.New(database, memstore.Options{})
		require.NoError(t, store.Ensure(t.Context()))
		cfg := quick()
		cfg.MaxInFlight = 1
		sub, err := subscriber.New(store, cfg, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = sub.Close() })
		messages, err := sub.Subscribe(t.Context(), topic)
		require.NoError(t, err)
		pub := publisherOf(t, store)
		for range 20 {
			require.NoError(t, pub.Publish(topic, message.NewMessage(watermill.NewUUID(), nil)))
		}
		msg := next(t, messages)
		closed := make(chan error, 1)
		go func() { closed <- store.Close() }()
		other := memstore.New(database, memstore.Options{})
		require.Eventually(t, func() bool {
			leased, err := other.List(t.Context(), outmill.ListQuery{Content: true, Status: outmill.StatusLeased})
			require.NoError(t, err)
			return len(leased) == 1
		}, patience, time.Millisecond)
		msg.Ack()
		require.NoError(t, <-closed)
		left, err := other.List(t.Context(), outmill.ListQuery{Content: true})
		require.NoError(t, err)
		require.Len(t, left, 19)
	})
}
