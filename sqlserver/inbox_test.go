package sqlserver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlserver"
	"github.com/outmill/outmill/subscriber"
)

func TestStore_inbox(t *testing.T) {
	t.Parallel()
	t.Run("has work, outgoing messages, note and ack commit together, in the order of each key", func(t *testing.T) {
		t.Parallel()
		store, effects := withOrders(t)
		sub, err := subscriber.New(store, subscriber.Config{Group: readers, Order: outmill.OrderKey, PollInterval: 50 * time.Millisecond}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sub.Close()) })
		messages, err := sub.Subscribe(t.Context(), "orders")
		require.NoError(t, err)
		// The second is the same message again, with a record of its own.
		names := []string{"a", "a", "b", "c", "d", "e"}
		records := make([]*outmill.Record, len(names))
		for i, name := range names {
			records[i] = keyed(fmt.Sprint("k", i%2), name)
		}
		require.NoError(t, store.Append(t.Context(), records...))
		handler := handlerOf(t, store, effects)
		failed := false
		for range len(names) + 1 {
			msg := <-messages
			if msg.UUID == "c" && !failed {
				failed = true
				msg.SetContext(context.WithValue(msg.Context(), failing{}, true))
			}
			if _, err := handler(msg); err != nil {
				require.ErrorIs(t, err, errHandler)
				msg.Nack()
				continue
			}
			msg.Ack()
		}
		require.Equal(t, 5, valueOf[int](t, store.DB(), "SELECT COUNT(*) FROM "+effects))
		waiting, err := store.List(t.Context(), outmill.ListQuery{Topic: "orders"})
		require.NoError(t, err)
		require.Empty(t, waiting, "each ack has committed with its work")
		outgoing, err := store.List(t.Context(), outmill.ListQuery{Topic: "invoices"})
		require.NoError(t, err)
		require.Len(t, outgoing, 5)
	})
}

type failing struct{}

var errHandler = errors.New("the handler fails")

// handlerOf writes a row and publishes a message in the transaction of the message that it
// handles. It fails if its context says so.
func handlerOf(t *testing.T, store *sqlserver.Store, effects string) message.HandlerFunc {
	t.Helper()
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pub.Close()) })
	box, err := inbox.New(store, inbox.Config{Consumer: "billing", Publisher: pub})
	require.NoError(t, err)
	return box.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		tx, is := store.Tx(msg.Context())
		require.True(t, is)
		if _, err := tx.ExecContext(msg.Context(), "INSERT "+effects+" (Name) VALUES (@name)", sql.Named("name", msg.UUID)); err != nil {
			return nil, err
		}
		invoice := message.NewMessage("invoice of "+msg.UUID, nil)
		if err := pub.WithContext(msg.Context()).Publish("invoices", invoice); err != nil {
			return nil, err
		}
		if msg.Context().Value(failing{}) != nil {
			return nil, errHandler
		}
		return nil, nil
	})
}
