package publisher_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/storekit"
)

func register(t *testing.T, store outmill.Queue, group string, topics ...string) {
	t.Helper()
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: group, Topics: outmill.Topics{Include: topics}}))
}

func TestWithReceipt(t *testing.T) {
	t.Parallel()

	t.Run("says of each message its id, groups and time", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		pub := newPublisher(t, store)
		register(t, store, "mail", orders)
		register(t, store, "bill", orders)
		ctx, receipt := publisher.WithReceipt(t.Context())
		require.NoError(t, pub.WithContext(ctx).Publish(orders, msg("m1"), msg("m2")))
		require.NoError(t, pub.Publish("others", msg("m3", in(ctx)), msg("m4")))
		published := receipt.Messages()
		require.Len(t, published, 3, "m4 has another context")
		for i, name := range []string{"m1", "m2"} {
			p := published[i]
			require.Equal(t, orders, p.Topic)
			require.Equal(t, name, p.MessageID)
			require.Len(t, p.Groups, 2)
			require.Equal(t, p.ID, p.Groups["bill"], "the first by name")
			for group, id := range p.Groups {
				stored, err := store.Get(t.Context(), id)
				require.NoError(t, err)
				require.Equal(t, group, stored.Group)
				require.Equal(t, name, stored.MessageID)
				require.Equal(t, stored.CreatedAt, p.CreatedAt)
			}
		}
		require.Equal(t, "others", published[2].Topic)
		require.Empty(t, published[2].Groups, "waits for a group")
		require.False(t, published[2].ID.IsZero())
	})

	t.Run("names duplicates, which have no record", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		pub := newPublisher(t, store)
		require.NoError(t, pub.Publish(orders, keyed("m1", "d")))
		ctx, receipt := publisher.WithReceipt(t.Context())
		require.NoError(t, pub.WithContext(ctx).Publish(orders, keyed("m2", "d"), msg("m3")))
		require.Equal(t, publisher.Published{Topic: orders, MessageID: "m2", Duplicate: true}, receipt.Messages()[0])
		require.False(t, receipt.Messages()[1].Duplicate)
	})

	t.Run("names the id that the store gave a message without one", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		ctx, receipt := publisher.WithReceipt(t.Context())
		require.NoError(t, newPublisher(t, store).WithContext(ctx).Publish(orders, &message.Message{Payload: message.Payload("p")}))
		requirePublished(t, store, orders, receipt.Messages()[0].MessageID)
	})

	t.Run("has nothing of a call that failed", func(t *testing.T) {
		t.Parallel()
		ctx, receipt := publisher.WithReceipt(t.Context())
		require.Error(t, newPublisher(t, outmilltest.NewStore(t), requireTx).WithContext(ctx).Publish(orders, msg("m1")))
		require.Empty(t, receipt.Messages())
	})

	t.Run("finds the last message with an id", func(t *testing.T) {
		t.Parallel()
		ctx, receipt := publisher.WithReceipt(t.Context())
		view := newPublisher(t, outmilltest.NewStore(t)).WithContext(ctx)
		require.NoError(t, view.Publish(orders, msg("m1")))
		require.NoError(t, view.Publish("others", msg("m1")))
		found, ok := receipt.Of("m1")
		require.True(t, ok)
		require.Equal(t, "others", found.Topic)
		_, ok = receipt.Of("m2")
		require.False(t, ok)
	})

	t.Run("in a context that has one fills both, once for each message", func(t *testing.T) {
		t.Parallel()
		pub := newPublisher(t, outmilltest.NewStore(t))
		outerCtx, outer := publisher.WithReceipt(t.Context())
		innerCtx, inner := publisher.WithReceipt(outerCtx)
		require.NoError(t, pub.WithContext(outerCtx).Publish(orders, msg("m1", in(innerCtx))))
		require.NoError(t, pub.Publish(orders, msg("m2", in(outerCtx))))
		require.Len(t, inner.Messages(), 1)
		require.Len(t, outer.Messages(), 2)
	})

	t.Run("goes through a cqrs event bus in a transaction", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		bus := newEventBus(t, newPublisher(t, store, requireTx))
		ctx, receipt := publisher.WithReceipt(t.Context())
		require.NoError(t, store.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error { return bus.Publish(ctx, orderPlaced{"o1"}) }))
		outmilltest.RequirePublished(t, store, "events", outmilltest.MessageID(receipt.Messages()[0].MessageID))
	})

	t.Run("goes through Watermill's forwarder publisher, of the envelope", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		ctx, receipt := publisher.WithReceipt(t.Context())
		pub := forwarder.NewPublisher(newPublisher(t, store), forwarder.PublisherConfig{ForwarderTopic: "forward"})
		require.NoError(t, pub.Publish(orders, msg("m1", in(ctx))))
		require.Len(t, receipt.Messages(), 1)
		requirePublished(t, store, "forward", receipt.Messages()[0].MessageID)
	})

	t.Run("goes to the messages that a handler returns, with InheritTx", func(t *testing.T) {
		t.Parallel()
		ctx, receipt := publisher.WithReceipt(t.Context())
		handler := publisher.InheritTx(func(*message.Message) ([]*message.Message, error) { return message.Messages{msg("out")}, nil })
		produced, err := handler(msg("in", in(ctx)))
		require.NoError(t, err)
		require.NoError(t, newPublisher(t, outmilltest.NewStore(t)).Publish(orders, produced...))
		require.Equal(t, "out", receipt.Messages()[0].MessageID)
	})

	t.Run("takes messages from many goroutines", func(t *testing.T) {
		t.Parallel()
		pub := newPublisher(t, outmilltest.NewStore(t))
		ctx, receipt := publisher.WithReceipt(t.Context())
		var callers errgroup.Group
		for i := range 8 {
			callers.Go(func() error {
				err := pub.WithContext(ctx).Publish(orders, msg(fmt.Sprint(i)))
				receipt.Messages()
				return err
			})
		}
		require.NoError(t, callers.Wait())
		require.Len(t, receipt.Messages(), 8)
	})
}

// What each store's Transact uses; internal/allstores has the engines.
func TestWithReceipt_FunctionsThatRunAgain(t *testing.T) {
	t.Parallel()
	store := outmilltest.NewStore(t)
	pub := newPublisher(t, store)
	ctx, receipt := publisher.WithReceipt(t.Context())
	require.NoError(t, pub.WithContext(ctx).Publish(orders, msg("before")))
	runs := 0
	run := storekit.Forgetful(ctx, func(ctx context.Context) error {
		if runs++; runs == 3 {
			return nil
		}
		return pub.WithContext(ctx).Publish(orders, msg(fmt.Sprint("m", runs)))
	})
	for range 2 {
		require.NoError(t, run(ctx))
	}
	names := func() (list []string) {
		for _, p := range receipt.Messages() {
			list = append(list, p.MessageID)
		}
		return list
	}
	require.Equal(t, []string{"before", "m2"}, names())
	require.NoError(t, run(ctx))
	require.Equal(t, []string{"before"}, names(), "a run that publishes nothing")
	require.WithinDuration(t, time.Now(), receipt.Messages()[0].CreatedAt, patience)
}
