package inbox_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

// slow is a run of handlers that keep the write lock of SQLite for longer than others wait for it.
type slow struct {
	messages    int
	each, lease time.Duration
	maxAttempts int
	store       func(t *testing.T) outmill.Store
	// atMost is the longest time for all messages; 0 is no limit.
	atMost time.Duration
	// together is how many handlers run at the same time at least.
	together int
}

// busyAfter opens a store on SQLite that waits for the write lock for so long; 0 is its default.
func busyAfter(busy time.Duration) func(t *testing.T) outmill.Store {
	return func(t *testing.T) outmill.Store {
		t.Helper()
		path := "file:" + filepath.Join(t.TempDir(), "shop.db") + "?_pragma=synchronous(OFF)"
		store, err := sqlite.Open(t.Context(), path, sqlite.Config{BusyTimeout: busy, EnsureSchema: true}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}
}

// poolOf opens a store on PostgreSQL with a pool of so many connections.
func poolOf(conns int) func(t *testing.T) outmill.Store {
	return func(t *testing.T) outmill.Store {
		t.Helper()
		u := fmt.Sprintf("%s&pool_max_conns=%d", postgrestest.Database(t), conns)
		store, err := postgres.Open(t.Context(), u, postgres.Config{EnsureSchema: true}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}
}

// TestMiddleware_SlowHandlers: SQLite runs one writing transaction at a time, so the handlers in
// an inbox wait for each other, and for longer than BusyTimeout.
func TestMiddleware_SlowHandlers(t *testing.T) {
	t.Parallel()
	t.Run("a handler that waits for the write lock loses no attempt", func(t *testing.T) {
		t.Parallel()
		slow{messages: 12, each: 150 * time.Millisecond, maxAttempts: 1, store: busyAfter(20 * time.Millisecond)}.run(t)
	})
	t.Run("handlers that keep the write lock for longer than a lease lose no lease", func(t *testing.T) {
		t.Parallel()
		slow{messages: 3, each: 2 * time.Second, lease: time.Second, maxAttempts: 1, store: busyAfter(50 * time.Millisecond)}.run(t)
	})
	t.Run("20 handlers of 6 s are handled with the default settings", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "handlers in an inbox on SQLite that take longer than its BusyTimeout, for two minutes")
		slow{messages: 20, each: 6 * time.Second, store: busyAfter(0)}.run(t)
	})
	t.Run("handlers that wait for a connection of a small pool lose no lease", func(t *testing.T) {
		t.Parallel()
		for conns, each := range map[int]time.Duration{1: 160 * time.Millisecond, 2: 300 * time.Millisecond, 4: 600 * time.Millisecond} {
			t.Run(fmt.Sprintf("%d connections", conns), func(t *testing.T) {
				t.Parallel()
				// A lease is longer than a busy machine stands still, and shorter than the handlers take together.
				slow{messages: 50, each: each, lease: 3 * time.Second, maxAttempts: 1, store: poolOf(conns)}.run(t)
			})
		}
	})
	t.Run("a pool of 2 connections to MongoDB serves many handlers, because a transaction keeps none", func(t *testing.T) {
		t.Parallel()
		slow{messages: 30, each: time.Second, maxAttempts: 1, store: mongoPoolOf(t, 2), together: 3}.run(t)
	})
	t.Run("300 handlers of 2 s are handled with a pool of 4 and the default settings", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "100 handlers in flight in an inbox on PostgreSQL with a pool of 4 connections, for four minutes")
		slow{messages: 300, each: 2 * time.Second, store: poolOf(4), atMost: 400 * time.Second}.run(t)
	})
}

// mongoPoolOf opens a store on MongoDB with a pool of so many connections.
func mongoPoolOf(t *testing.T, conns uint64) func(t *testing.T) outmill.Store {
	t.Helper()
	server := mongotest.Server(t)
	return func(t *testing.T) outmill.Store {
		t.Helper()
		client, err := driver.Connect(options.Client().ApplyURI(server).SetMaxPoolSize(conns))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, client.Disconnect(context.WithoutCancel(t.Context()))) })
		name := "outmill_inbox_" + strings.ReplaceAll(watermill.NewShortUUID(), "-", "")
		store, err := mongo.New(client, mongo.Config{Database: name, EnsureSchema: true}, nil)
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, store.Close())
			require.NoError(t, client.Database(name).Drop(context.WithoutCancel(t.Context())))
		})
		require.NoError(t, store.Ensure(t.Context()))
		return store
	}
}

func (s slow) run(t *testing.T) {
	t.Helper()
	store := s.store(t)
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
	running, most := 0, 0
	began := time.Now()
	router.AddConsumerHandler("billing", orders, sub, func(msg *message.Message) error {
		delivery, _ := outmill.Delivery(msg.Context())
		mu.Lock()
		runs[msg.UUID]++
		run := runs[msg.UUID]
		running++
		most = max(most, running)
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			running--
		}()
		if delivery.Attempt > 1 || run > 1 || delivery.Claims > 1 {
			t.Errorf("run %d of a message, attempt %d, claim %d", run, delivery.Attempt, delivery.Claims)
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
	took := time.Since(began)
	t.Logf("%d handlers of %s took %s", s.messages, s.each, took)
	if s.atMost > 0 {
		require.Less(t, took, s.atMost)
	}
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, runs, s.messages)
	require.GreaterOrEqual(t, most, s.together, "handlers at the same time")
}
