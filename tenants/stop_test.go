package tenants_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

const callTimeout = 30 * time.Second

// stopping are three tenants, of each of which a handler has a message.
type stopping struct {
	set       *tenants.Set
	databases map[string]*memstore.Database
	stores    map[string]outmill.Store
	messages  <-chan *message.Message
	// handled are the messages by tenant.
	handled map[string]*message.Message
	cancel  context.CancelFunc
	sub     *subscriber.Subscriber
}

func newStopping(t *testing.T, closeTimeout time.Duration) *stopping {
	t.Helper()
	s := &stopping{databases: map[string]*memstore.Database{}, stores: map[string]outmill.Store{}, handled: map[string]*message.Message{}}
	var list tenants.Static
	for _, key := range []string{"ada", "bob", "cyd"} {
		s.databases[key] = memstore.NewDatabase()
		store := memstore.New(s.databases[key], memstore.Options{Name: key})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.Append(t.Context(), &outmill.Record{
			ID: outmill.NewWorkItemID(), Topic: "orders", MessageID: "order of " + key, Payload: []byte("{}"),
		}))
		s.stores[key] = store
		list = append(list, tenants.Tenant{Key: key, Store: store})
	}
	set, err := tenants.New(t.Context(), tenants.Config{Discovery: list, CallTimeout: callTimeout}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	s.set = set
	s.sub, err = subscriber.New(set, subscriber.Config{CloseTimeout: closeTimeout}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.sub.Close() })
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(t.Context())
	t.Cleanup(s.cancel)
	s.messages, err = s.sub.Subscribe(ctx, "orders")
	require.NoError(t, err)
	for range list {
		msg := <-s.messages
		info, _ := outmill.Delivery(msg.Context())
		s.handled[info.Store] = msg
	}
	require.Len(t, s.handled, 3)
	return s
}

// left are the tenants that have a record.
func (s *stopping) left(t *testing.T) (keys []string) {
	t.Helper()
	for key, database := range s.databases {
		records, err := memstore.New(database, memstore.Options{}).List(t.Context(), outmill.ListQuery{})
		require.NoError(t, err)
		if len(records) > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

func TestSet_Stop(t *testing.T) {
	t.Parallel()

	t.Run("a set that is closed first has the outcomes of all members", func(t *testing.T) {
		t.Parallel()
		s := newStopping(t, time.Minute)
		for _, msg := range s.handled {
			msg.Ack()
		}
		require.NoError(t, s.set.Close())
		require.Empty(t, s.left(t))
		_, open := <-s.messages
		require.False(t, open)
	})

	t.Run("a member whose store is closed first has its outcomes, and the others go on", func(t *testing.T) {
		t.Parallel()
		s := newStopping(t, time.Minute)
		s.handled["bob"].Ack()
		require.NoError(t, s.stores["bob"].Close())
		require.NotContains(t, s.left(t), "bob")
		s.handled["ada"].Ack()
		s.handled["cyd"].Ack()
		s.cancel()
		_, open := <-s.messages
		require.False(t, open)
		require.Empty(t, s.left(t))
	})

	t.Run("a member that does not answer keeps no outcome of the others from being stored", func(t *testing.T) {
		t.Parallel()
		s := newStopping(t, 5*time.Second)
		s.databases["bob"].Delay(time.Hour)
		for _, msg := range s.handled {
			msg.Ack()
		}
		began := time.Now()
		s.cancel()
		_, open := <-s.messages
		require.False(t, open)
		require.Less(t, time.Since(began), callTimeout, "it waits for CloseTimeout, not for CallTimeout")
		s.databases["bob"].Delay(0)
		require.Equal(t, []string{"bob"}, s.left(t))
	})
}
