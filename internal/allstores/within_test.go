package allstores

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

// TestWithin handles messages in a transaction that an outer middleware begins. Each message fails
// once after its work, and is published twice.
func TestWithin(t *testing.T) {
	t.Parallel()
	const messages = 5
	boom := errors.New("boom")
	onEachStore(t, func(t *testing.T, s site) {
		transactor, ok := outmill.As[roles.Transactor](s.store)
		require.True(t, ok)
		within, err := inbox.Within(s.store, transactor.Transact)
		require.NoError(t, err)
		box, err := inbox.New(s.store, inbox.Config{Consumer: "billing", Publisher: s.pub})
		require.NoError(t, err)
		router := newRouter(t)
		router.AddMiddleware(subscriber.KeepError, within, box.Middleware)
		router.AddHandler("billing", "orders", s.subscriber(t, ""), "invoices", s.pub,
			func(msg *message.Message) ([]*message.Message, error) {
				if err := s.pub.WithContext(msg.Context()).Publish("effects", message.NewMessage(msg.UUID, nil)); err != nil {
					return nil, err
				}
				if delivery, _ := outmill.Delivery(msg.Context()); delivery.Attempt == 1 {
					return nil, boom
				}
				return []*message.Message{message.NewMessage(msg.UUID, nil)}, nil
			})
		run(t, router)
		for i := range 2 * messages {
			require.NoError(t, s.pub.Publish("orders", message.NewMessage(fmt.Sprint("m", i%messages), nil)))
		}
		require.Eventually(t, func() bool { return len(left(t, s.store, "orders")) == 0 }, patience, 10*time.Millisecond)
		require.Len(t, left(t, s.store, "effects"), messages)
		require.Len(t, left(t, s.store, "invoices"), messages)
	})
}

// left are the records of the topic.
func left(t *testing.T, store outmill.Inspector, topic string) []*outmill.Record {
	t.Helper()
	list, err := store.List(t.Context(), outmill.ListQuery{Content: true, Topic: topic, Limit: 1000})
	require.NoError(t, err)
	return list
}

// TestWithin_Tenants opens the transaction in the database of the tenant whose message it is.
func TestWithin_Tenants(t *testing.T) {
	t.Parallel()
	var list tenants.Static
	members := map[string]*sqlite.Store{}
	for _, key := range []string{"acme", "zenith"} {
		store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), key+".db"), sqlite.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		members[key] = store
		list = append(list, tenants.Tenant{Key: key, Store: store})
	}
	set := openSet(t, tenants.Config{Discovery: list, Ensure: true}, len(list))
	pub, err := publisher.New(set, publisher.Config{}, nil)
	require.NoError(t, err)
	var begun atomic.Int32
	within, err := inbox.Within(set, func(ctx context.Context, fn func(ctx context.Context) error) error {
		begun.Add(1)
		delivery, _ := outmill.Delivery(ctx)
		store := members[delivery.Store]
		return inbox.Begin(
			func(ctx context.Context) (*sql.Tx, error) { return store.DB().BeginTx(ctx, nil) },
			func(ctx context.Context, tx *sql.Tx) context.Context { return store.WithTx(ctx, tx) })(ctx, fn)
	})
	require.NoError(t, err)
	box, err := inbox.New(set, inbox.Config{Consumer: "billing"})
	require.NoError(t, err)
	sub, err := subscriber.New(set, quick(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	router := newRouter(t)
	router.AddMiddleware(subscriber.KeepError, within, box.Middleware)
	router.AddConsumerHandler("billing", "orders", sub, func(msg *message.Message) error {
		delivery, _ := outmill.Delivery(msg.Context())
		tx, err := set.TxOf(msg.Context())
		if err != nil || tx == nil {
			return fmt.Errorf("no transaction: %w", err)
		}
		effect := message.NewMessage(msg.UUID, []byte(delivery.Store))
		if err := pub.WithContext(msg.Context()).Publish("effects", effect); err != nil || delivery.Attempt > 1 {
			return err
		}
		return errors.New("boom")
	})
	run(t, router)
	for key := range members {
		for range 2 {
			msg := message.NewMessage("m1", nil)
			outmill.SetTenantID(msg, key)
			require.NoError(t, pub.Publish("orders", msg))
		}
	}
	for key, store := range members {
		require.Eventually(t, func() bool { return len(left(t, store, "orders")) == 0 }, patience, 10*time.Millisecond)
		effects := left(t, store, "effects")
		require.Len(t, effects, 1)
		require.Equal(t, key, string(effects[0].Payload))
	}
	require.GreaterOrEqual(t, begun.Load(), int32(6))
}
