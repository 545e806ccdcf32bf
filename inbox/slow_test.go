package inbox_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

// slow is a run of handlers that keep the write lock of SQLite for longer than others wait for it.
type slow struct {
	messages    int
	each, busy  time.Duration
	lease       time.Duration
	maxAttempts int
}

// TestMiddleware_SlowHandlers: SQLite runs one writing transaction at a time, so the handlers in
// an inbox wait for each other, and for longer than BusyTimeout.
func TestMiddleware_SlowHandlers(t *testing.T) {
	t.Parallel()
	t.Run("a handler that waits for the write lock loses no attempt", func(t *testing.T) {
		t.Parallel()
		slow{messages: 12, each: 150 * time.Millisecond, busy: 20 * time.Millisecond, lease: 30 * time.Second, maxAttempts: 1}.run(t)
	})
	t.Run("no lease is lost while a handler keeps the write lock for longer than a lease", func(t *testing.T) {
		t.Parallel()
		slow{messages: 3, each: 2 * time.Second, busy: 50 * time.Millisecond, lease: time.Second, maxAttempts: 1}.run(t)
	})
	t.Run("20 handlers of 6 s are handled with the default settings", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "handlers in an inbox on SQLite that take longer than its BusyTimeout, for two minutes")
		slow{messages: 20, each: 6 * time.Second}.run(t)
	})
}

func (s slow) run(t *testing.T) {
	t.Helper()
	path := "file:" + filepath.Join(t.TempDir(), "shop.db") + "?_pragma=synchronous(OFF)"
	store, err := sqlite.Open(t.Context(), path, sqlite.Config{BusyTimeout: s.busy}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pub.Close()) })
	messages := make([]*message.Message, s.messages)
	for i := range messages {
		messages[i] = order(watermill.NewUUID())
	}
	require.NoError(t, pub.Publish(orders, messages...))

	sub, err := subscriber.New(store, subscriber.Config{
		Lease: s.lease, Retry: outmill.RetryPolicy{MaxAttempts: s.maxAttempts},
		OnDead: func(rec *outmill.Record, reason string) { t.Errorf("message %s is dead: %s", rec.MessageID, reason) },
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	box, err := inbox.New(store, inbox.Config{Consumer: "billing"})
	require.NoError(t, err)
	router := newRouter(t)
	router.AddMiddleware(subscriber.KeepError, box.Middleware)
	var mu sync.Mutex
	runs := map[string]int{}
	router.AddConsumerHandler("billing", orders, sub, func(msg *message.Message) error {
		delivery, _ := outmill.Delivery(msg.Context())
		mu.Lock()
		defer mu.Unlock()
		if runs[msg.UUID]++; runs[msg.UUID] > 1 || delivery.Attempt > 1 {
			t.Errorf("run %d of a message, attempt %d", runs[msg.UUID], delivery.Attempt)
		}
		select {
		case <-time.After(s.each):
		case <-msg.Context().Done():
			t.Error("the handler's context ended: ", msg.Context().Err())
		}
		return msg.Context().Err()
	})
	run(t, router)
	require.Eventually(t, func() bool {
		left, err := store.List(t.Context(), outmill.ListQuery{Topic: orders})
		return err == nil && (len(left) == 0 || t.Failed())
	}, time.Duration(s.messages)*s.each+patience, 10*time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, runs, s.messages)
}
