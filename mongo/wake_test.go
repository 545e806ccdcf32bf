package mongo_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongoengine"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/subscriber"
)

func ownStand(t *testing.T, config mongo.Config) (stand, *mongoengine.Engine) {
	t.Helper()
	server := mongotest.Own(t)
	client := clientOf(t, options.Client().ApplyURI(server.URL))
	return newStandIn(t, client.Database("test"), config), server
}

func TestStore_Wake(t *testing.T) {
	t.Parallel()

	t.Run("a caller's commit wakes the readers of other processes", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		other := s.second(t, mongotest.Server(t), mongo.Config{})
		wake := testenv.Hints(t.Context(), other)
		told(t, wake) // the stream is there
		for name, commit := range map[string]func(records ...*outmill.Record) error{
			"in a transaction": func(records ...*outmill.Record) error {
				return s.InTx(t.Context(), func(ctx context.Context) error {
					if err := s.Append(ctx, records...); err != nil {
						return err
					}
					require.Empty(t, wake, "woken before the commit")
					return nil
				})
			},
			"in one of the driver's": func(records ...*outmill.Record) error {
				_, err := s.session(t).WithTransaction(t.Context(), func(ctx context.Context) (any, error) { return nil, s.Append(ctx, records...) })
				return err
			},
			"alone": func(records ...*outmill.Record) error { return s.Append(t.Context(), records...) },
		} {
			batches := [][]*outmill.Record{{one("one")}, made("orders", name, 50)}
			if name == "alone" {
				// The limits of a document apply to an event.
				batches = append(batches, []*outmill.Record{{Topic: "orders", Payload: make([]byte, mongo.DefaultMaxPayload)}})
			}
			for n, records := range batches {
				require.NoError(t, commit(records...))
				told(t, wake)
				found := claimed(t, other, claimOf(outmill.NewOwnerToken(), 100, outmill.OrderNone))
				require.Len(t, found, len(records), "%s %d", name, n)
				require.NoError(t, other.Ack(t.Context(), "", leasesOf(found)))
			}
		}
	})

	t.Run("a reader's own process is woken without a change stream", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{WithoutChangeStream: true})
		wake := testenv.Hints(t.Context(), s)
		wakes := func(name string, err error) {
			require.NoError(t, err, name)
			told(t, wake)
		}
		wakes("append", s.Append(t.Context(), one("one"), one("two")))
		wakes("InTx", s.InTx(t.Context(), func(ctx context.Context) error { return s.Append(ctx, one("three")) }))
		found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 4, outmill.OrderNone))
		require.Len(t, found, 3)
		wakes("release", s.Release(t.Context(), leasesOf(found[:1])))
		wakes("abandon", s.Abandon(t.Context(), []outmill.Settlement{{Lease: found[1].Lease()}}))
		require.NoError(t, s.Fail(t.Context(), []outmill.Settlement{{Lease: found[2].Lease()}}))
		_, err := s.Requeue(t.Context(), found[2].ID)
		wakes("requeue", err)
	})

	t.Run("a reader that only listens misses nothing when the server is killed or stopped", func(t *testing.T) {
		testenv.Long(t, "servers that are killed and stopped")
		t.Parallel()
		s, server := ownStand(t, mongo.Config{})
		other := s.second(t, server.URL, mongo.Config{})
		ctx, stop := context.WithCancel(t.Context())
		var work sync.WaitGroup
		defer work.Wait()
		defer stop()
		wake := testenv.Hints(ctx, other)
		told(t, wake)
		l := &listener{seen: map[string]int{}}
		work.Go(func() { l.listen(ctx, other, wake) })
		var want []string
		for round, end := range []func() error{
			func() error { return server.Kill(t.Context()) },
			func() error { return server.Stop(t.Context()) },
			func() error { return server.Kill(t.Context()) },
		} {
			for n := range 5 {
				name := fmt.Sprintf("%d-%d", round, n)
				require.NoError(t, s.Append(t.Context(), one(name)))
				want = append(want, name)
			}
			require.NoError(t, end())
			require.NoError(t, server.Start(t.Context()))
			// A client that has not noticed the stop writes before the reader is back.
			name := fmt.Sprintf("%d-back", round)
			require.NoError(t, s.second(t, server.URL, mongo.Config{}).Append(t.Context(), one(name)))
			want = append(want, name)
			require.True(t, eventually(t.Context(), 2*patience, func() bool { return len(l.names()) == len(want) }), "seen %q", l.names())
		}
		require.Equal(t, want, l.names())
	})

	t.Run("a stream that has ended for good is opened again", func(t *testing.T) {
		t.Parallel()
		const app = "listening"
		s, server := ownStand(t, mongo.Config{})
		heard := &errorsHeard{told: make(chan struct{}, 100)}
		other, err := mongo.New(victimOf(t, server.URL, app), mongo.Config{Database: s.db.Name()}, heard)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, other.Close()) })
		wake := testenv.Hints(t.Context(), other)
		told(t, wake)
		// 286 is ChangeStreamHistoryLost: the oplog no longer has the stream's position.
		failing(t, s.Client(), app, 1, bson.D{{Key: "failCommands", Value: bson.A{"getMore"}}, {Key: "errorCode", Value: 286}})
		told(t, heard.told)
		told(t, wake) // it is there again
		require.NoError(t, s.InTx(t.Context(), func(ctx context.Context) error { return s.Append(ctx, one("one")) }))
		told(t, wake)
		require.Equal(t, []string{"one"}, namesOf(claimed(t, other, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone))))
	})

	t.Run("what comes after a stream has ended is read when a handler is free again, though all were busy at the end", func(t *testing.T) {
		t.Parallel()
		for name, end := range map[string]func(admin *driver.Database){
			"history lost": func(admin *driver.Database) {
				failing(t, admin.Client(), fullApp, 1, bson.D{{Key: "failCommands", Value: bson.A{"getMore"}}, {Key: "errorCode", Value: 286}})
			},
			"killed": func(admin *driver.Database) { killStream(t, admin) },
		} {
			t.Run(name, func(t *testing.T) { t.Parallel(); readsWhenFree(t, end) })
		}
	})

	t.Run("a stream that ends as soon as it is open is logged once, and opened less and less often", func(t *testing.T) {
		t.Parallel()
		const app = "ends"
		s, server := ownStand(t, mongo.Config{})
		heard := &errorsHeard{told: make(chan struct{}, 100)}
		var n streamsOf
		client := clientOf(t, options.Client().ApplyURI(server.URL).SetAppName(app).SetMonitor(n.monitor()))
		store, err := mongo.New(client, mongo.Config{Database: s.db.Name()}, heard)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		failing(t, s.Client(), app, 5, bson.D{{Key: "failCommands", Value: bson.A{"getMore"}}, {Key: "errorCode", Value: 286}})
		began := time.Now()
		_ = testenv.Hints(t.Context(), store)
		require.True(t, eventually(t.Context(), patience, func() bool { return n.opened.Load() == 6 }))
		require.Greater(t, time.Since(began), 1500*time.Millisecond)
		require.Len(t, heard.told, 1)
	})

	t.Run("a change stream that cannot be opened is logged once", func(t *testing.T) {
		t.Parallel()
		other, heard, _ := withoutStream(t, 4, 286)
		told(t, testenv.Hints(t.Context(), other)) // it has come about
		require.Len(t, heard.told, 1)
		require.Positive(t, heard.debugged.Load())
	})

	t.Run("a change stream without the right to it is not tried again", func(t *testing.T) {
		t.Parallel()
		other, heard, _ := withoutStream(t, 1, 13)
		wake := testenv.Hints(t.Context(), other)
		told(t, heard.told)
		select {
		case <-wake:
			require.Fail(t, "a stream was opened")
		case <-time.After(4 * firstReconnect):
		}
	})

	t.Run("readers poll if the server allows no change stream", func(t *testing.T) {
		t.Parallel()
		other, heard, s := withoutStream(t, 1, 13)
		_ = testenv.Hints(t.Context(), other)
		told(t, heard.told)
		sub, err := subscriber.New(other, subscriber.Config{Group: readers, PollInterval: 50 * time.Millisecond}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, sub.Close()) }()
		messages, err := sub.Subscribe(t.Context(), "orders")
		require.NoError(t, err)
		for i := range 3 {
			require.NoError(t, s.Append(t.Context(), one(fmt.Sprint(i))))
			select {
			case msg := <-messages:
				require.Equal(t, fmt.Sprint(i), msg.UUID)
				msg.Ack()
			case <-time.After(patience):
				require.FailNow(t, "nothing was read")
			}
		}
	})

	t.Run("a store that waits for a change stream it never gets can be closed", func(t *testing.T) {
		t.Parallel()
		other, heard, _ := withoutStream(t, 1, 13)
		wake := testenv.Hints(t.Context(), other)
		told(t, heard.told)
		require.NoError(t, other.Append(t.Context(), one("one")))
		told(t, wake)
		require.NoError(t, other.Close())
		require.NotErrorIs(t, other.Client().Ping(t.Context(), nil), driver.ErrClientDisconnected)
	})

	t.Run("stores of a client share a change stream until the last one is closed", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		var n streamsOf
		client := clientOf(t, options.Client().ApplyURI(mongotest.Server(t)).SetMonitor(n.monitor()))
		first, second := newStore(t, client, mongo.Config{Database: s.db.Name()}), newStore(t, client, mongo.Config{Database: s.db.Name()})
		one1, two := testenv.Hints(t.Context(), first), testenv.Hints(t.Context(), second)
		told(t, one1)
		told(t, two)
		require.NoError(t, s.Append(t.Context(), one("one")))
		told(t, one1)
		told(t, two)
		require.NoError(t, first.Close())
		require.NoError(t, s.Append(t.Context(), one("two")))
		told(t, two)
		require.EqualValues(t, 1, n.opened.Load())
	})
}

// listener claims whenever it is woken, and at no other time, except for records that a claim may
// have leased whose answer was lost: the end of such a lease wakes nobody.
type listener struct {
	mu   sync.Mutex
	seen map[string]int
}

func (l *listener) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for name := range l.seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (l *listener) listen(ctx context.Context, store *mongo.Store, wake <-chan struct{}) {
	req := claimOf(outmill.NewOwnerToken(), 100, outmill.OrderNone)
	req.Lease = time.Second
	lost := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		for ctx.Err() == nil {
			found, err := store.Claim(ctx, req)
			if err == nil && len(found) == 0 {
				if !lost || pause(ctx, 2*req.Lease) != nil {
					break
				}
				lost = false
				continue
			}
			lost = lost || err != nil
			l.mu.Lock()
			for _, r := range found {
				l.seen[r.MessageID]++
			}
			l.mu.Unlock()
			_ = store.Ack(ctx, "", leasesOf(found))
		}
	}
}

// withoutStream is a store whose first tries to open a change stream fail.
func withoutStream(t *testing.T, tries, code int) (*mongo.Store, *errorsHeard, stand) {
	t.Helper()
	const app = "deaf"
	s, server := ownStand(t, mongo.Config{})
	heard := &errorsHeard{told: make(chan struct{}, 100)}
	store, err := mongo.New(victimOf(t, server.URL, app), mongo.Config{Database: s.db.Name()}, heard)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	_, err = store.Groups(t.Context()) // the schema is checked
	require.NoError(t, err)
	failing(t, s.Client(), app, tries, bson.D{{Key: "failCommands", Value: bson.A{"aggregate"}}, {Key: "errorCode", Value: code}})
	return store, heard, s
}

// firstReconnect is slightly more than the longest pause of the store before its first attempt to
// open a stream again.
const firstReconnect = 200 * time.Millisecond

// errorsHeard is a logger that reports errors.
type errorsHeard struct {
	watermill.NopLogger
	told     chan struct{}
	debugged atomic.Int32
}

func (l *errorsHeard) Debug(string, watermill.LogFields) { l.debugged.Add(1) }

func (l *errorsHeard) Error(string, error, watermill.LogFields)         { l.told <- struct{}{} }
func (l *errorsHeard) With(watermill.LogFields) watermill.LoggerAdapter { return l }

// streamsOf counts the change streams that a client has opened.
type streamsOf struct{ opened atomic.Int64 }

func (n *streamsOf) monitor() *event.CommandMonitor {
	var streams sync.Map
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if _, err := e.Command.LookupErr("pipeline", "0", "$changeStream"); err == nil {
				streams.Store(e.RequestID, true)
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if _, is := streams.LoadAndDelete(e.RequestID); is {
				n.opened.Add(1)
			}
		},
	}
}
