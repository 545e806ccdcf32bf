package tenants_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/tenants"
)

// commands counts what a client sends. A change stream that waits sends a getMore now and then.
type commands struct {
	mu      sync.Mutex
	asks    int
	streams int
	others  []string
}

func (c *commands) note(_ context.Context, e *event.CommandStartedEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch text := e.Command.String(); {
	case e.CommandName == "getMore":
		c.streams++
	case e.CommandName == "aggregate" && strings.Contains(text, "linearizable"):
		c.asks++
	default:
		c.others = append(c.others, text)
	}
}

func (c *commands) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asks, c.streams, c.others = 0, 0, nil
}

func (c *commands) sent() (asks int, others []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asks, c.others
}

// questioned is a store that counts how often the set asks it, together with others.
type questioned struct {
	*mongo.Store
	rounds *atomic.Int64
}

func (q questioned) AreIdle(ctx context.Context, stores []any) ([]bool, error) {
	q.rounds.Add(1)
	return q.Store.AreIdle(ctx, stores)
}

func (q questioned) Unwrap() outmill.Store { return q.Store }

// county is a cluster with n databases of tenants.
type county struct {
	n      int
	url    string
	sent   *commands
	rounds atomic.Int64
	// databases discovers them by a client with the name of an app.
	databases mongo.Databases
}

const countyApp = "county"

func newCounty(t *testing.T, n int) *county {
	t.Helper()
	w := &county{n: n, url: mongotest.Own(t).URL, sent: &commands{}}
	maker := w.client(t, options.Client())
	w.databases = mongo.Databases{
		Client:  w.client(t, options.Client().SetAppName(countyApp).SetMonitor(&event.CommandMonitor{Started: w.sent.note})),
		Pattern: "t*",
	}
	var work sync.WaitGroup
	for part := range 4 {
		work.Go(func() {
			for i := part; i < n; i += 4 {
				store, err := mongo.New(maker, mongo.Config{Database: name(i)}, nil)
				if err == nil {
					err = store.Ensure(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
				_ = store.Close()
			}
		})
	}
	work.Wait()
	return w
}

func (w *county) client(t *testing.T, opts *options.ClientOptions) *driver.Client {
	t.Helper()
	client, err := driver.Connect(opts.ApplyURI(w.url))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	return client
}

// open returns a set of the databases.
func (w *county) open(t *testing.T, config tenants.Config) *quiet {
	t.Helper()
	config.Discovery, config.CallTimeout = w.databases, patient
	config.Open = func(ctx context.Context, tenant tenants.Tenant) (outmill.Store, error) {
		store, err := w.databases.Open(ctx, tenant)
		if err != nil {
			return nil, err
		}
		return questioned{store.(*mongo.Store), &w.rounds}, nil
	}
	set, err := tenants.New(t.Context(), config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	awaitOpen(t, set, w.n)
	q := &quiet{T: t, set: set}
	q.register()
	return q
}

// another is a store of a tenant in another process.
func (w *county) another(t *testing.T, i int) *mongo.Store {
	t.Helper()
	store, err := mongo.New(w.client(t, options.Client()), mongo.Config{Database: name(i)}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// awaitFound claims when somebody is woken, until there is a record.
func (q *quiet) awaitFound(woken <-chan string) []*outmill.Record {
	q.Helper()
	for {
		select {
		case <-woken:
			if found := q.claim(); len(found) > 0 {
				return found
			}
		case <-time.After(soon):
			require.FailNow(q, "nobody was woken")
		}
	}
}

// awaitQuiet claims until all members are at rest.
func (q *quiet) awaitQuiet(n int) {
	q.Helper()
	require.Eventually(q, func() bool { return len(q.claim()) == 0 && q.resting() == n }, 5*time.Minute, 10*time.Millisecond)
}

func TestSet_RestOfDatabases(t *testing.T) {
	t.Parallel()
	n := 30
	if testenv.All() {
		n = 60
	}
	w := newCounty(t, n)
	admin := w.client(t, options.Client()).Database("admin")
	q := w.open(t, tenants.Config{MaxIdle: 20 * time.Millisecond})
	woken := make(chan string, 1000*n)
	q.set.Wake(t.Context(), func(topic string) {
		select {
		case woken <- topic:
		default:
		}
	})
	// idle waits until many rounds of questions have cost no command.
	idle := func() {
		t.Helper()
		q.awaitQuiet(n)
		require.Eventually(t, func() bool {
			w.sent.reset()
			w.rounds.Store(0)
			for w.rounds.Load() < int64(20*(n/roles.IdleAtOnce+1)) {
				if len(q.claim()) > 0 {
					return false
				}
				q.round()
			}
			asks, others := w.sent.sent()
			return asks == 0 && len(others) == 0 && q.resting() == n
		}, 5*time.Minute, 10*time.Millisecond, "questions, claims or upkeep go on")
	}

	t.Run("databases at rest cost no claim, no upkeep and no question while the change stream stands", func(t *testing.T) {
		idle()
	})

	t.Run("500 of them cost less than a command a second in all", func(t *testing.T) {
		// A store at rest knows the server's time no more, as a new one does not know it.
		upkeep := 0
		client := w.databases.Client
		for _, call := range []func(s *mongo.Store) error{
			func(s *mongo.Store) error { _, err := s.ReapExpired(t.Context(), 10); return err },
			func(s *mongo.Store) error { _, err := s.ExpireDue(t.Context(), 10); return err },
			func(s *mongo.Store) error { _, err := s.DeleteProcessed(t.Context(), 10); return err },
			func(s *mongo.Store) error { _, err := s.DeleteDedupKeys(t.Context(), 10); return err },
			func(s *mongo.Store) error { _, _, err := s.ExpireRegistrations(t.Context(), 10); return err },
			func(s *mongo.Store) error { _, err := s.DeleteNotes(t.Context(), 10); return err },
			func(s *mongo.Store) error { _, err := s.DeleteJoins(t.Context(), 10); return err },
			func(s *mongo.Store) error { _, err := s.DeleteOldSagas(t.Context(), 10); return err },
			func(s *mongo.Store) error { _, err := s.Maintain(t.Context()); return err },
			func(s *mongo.Store) error {
				return s.RegisterGroup(t.Context(), outmill.Registration{Worker: "a worker"})
			},
		} {
			store, err := mongo.New(client, mongo.Config{Database: name(0)}, nil)
			require.NoError(t, err)
			w.sent.reset()
			require.NoError(t, call(store))
			_, others := w.sent.sent()
			upkeep += len(others)
			require.NoError(t, store.Close())
		}
		const (
			tenantsAtRest = 500.0
			stands        = 30 * time.Minute // on average: 20 to 40
			upkeepEvery   = 9 * time.Hour    // on average: 6 to 12
			streamEvery   = 10 * time.Second
			listEvery     = 5 * time.Minute
		)
		asks, tidies := tenantsAtRest/stands.Seconds(), tenantsAtRest*float64(upkeep)/upkeepEvery.Seconds()
		stream := 1/streamEvery.Seconds() + 1/listEvery.Seconds()
		t.Logf("500 databases at rest: %.2f questions, %.2f commands of upkeep (%d for each) and %.2f of the change stream and the "+
			"discovery: %.2f a second", asks, tidies, upkeep, stream, asks+tidies+stream)
		require.Less(t, asks+tidies+stream, 1.0)
	})

	t.Run("a message that another process commits in one of them wakes this one", func(t *testing.T) {
		other := w.another(t, n/2)
		for round := range 3 {
			idle()
			for len(woken) > 0 {
				<-woken
			}
			began := time.Now()
			require.NoError(t, other.InTx(t.Context(), func(ctx context.Context) error {
				return other.Append(ctx, &outmill.Record{Topic: topic, MessageID: fmt.Sprint(round)})
			}))
			found := q.awaitFound(woken)
			t.Logf("a message in one of %d databases at rest was claimed after %s", n, time.Since(began))
			require.Equal(t, name(n/2), found[0].Store)
			require.Equal(t, n-1, q.resting())
			require.NoError(t, q.set.Ack(t.Context(), "", leasesOf(found)))
		}
	})

	t.Run("a dead letter that another process requeues wakes this one", func(t *testing.T) {
		other := w.another(t, 1)
		require.NoError(t, other.Append(t.Context(), &outmill.Record{Topic: topic}))
		found := q.awaitFound(woken)
		require.NoError(t, q.set.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease()}}))
		idle()
		for len(woken) > 0 {
			<-woken
		}
		_, err := other.Requeue(t.Context(), found[0].ID)
		require.NoError(t, err)
		found = q.awaitFound(woken)
		require.Equal(t, name(1), found[0].Store)
		require.NoError(t, q.set.Ack(t.Context(), "", leasesOf(found)))
	})

	// 286 is ChangeStreamHistoryLost.
	t.Run("records of other processes are found after the change stream has broken, and rests come back with the stream", func(t *testing.T) {
		idle()
		fail := func(mode string) {
			require.NoError(t, admin.RunCommand(t.Context(), bson.D{
				{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: mode},
				{Key: "data", Value: bson.D{{Key: "appName", Value: countyApp}, {Key: "failCommands", Value: bson.A{"getMore"}},
					{Key: "errorCode", Value: 286}}},
			}).Err())
		}
		fail("alwaysOn")
		w.sent.reset()
		require.Eventually(t, func() bool { asks, _ := w.sent.sent(); return asks >= n }, soon, tick, "all are asked again")
		require.NoError(t, w.another(t, 7).Append(t.Context(), &outmill.Record{Topic: topic}))
		var found []*outmill.Record
		require.Eventually(t, func() bool { found = q.claim(); return len(found) > 0 }, soon, tick)
		require.Equal(t, name(7), found[0].Store)
		require.NoError(t, q.set.Ack(t.Context(), "", leasesOf(found)))
		fail("off")
		idle()
	})

	t.Run("after a step-down the next message is found", func(t *testing.T) {
		other := w.another(t, 3)
		for range testenv.Steps(1, 5) {
			idle()
			_ = admin.RunCommand(t.Context(),
				bson.D{{Key: "replSetStepDown", Value: 1}, {Key: "force", Value: true}, {Key: "secondaryCatchUpPeriodSecs", Value: 0}}).Err()
			require.Eventually(t, func() bool { return other.Append(t.Context(), &outmill.Record{Topic: topic}) == nil }, soon, tick)
			for got := 0; got == 0; {
				found := q.awaitFound(woken)
				got = len(found)
				require.NoError(t, q.set.Ack(t.Context(), "", leasesOf(found)))
			}
		}
		idle()
	})

	t.Run("without wake-ups each round asks each of them", func(t *testing.T) {
		deaf := w.open(t, tenants.Config{MaxIdle: 50 * time.Millisecond, WithoutWake: true})
		deaf.awaitQuiet(n)
		require.NoError(t, w.another(t, 5).Append(t.Context(), &outmill.Record{Topic: topic}))
		found := q.awaitFound(woken)
		require.Equal(t, name(5), found[0].Store)
		require.Eventually(t, func() bool { return deaf.resting() == n-1 }, soon, tick)
		require.NoError(t, q.set.Ack(t.Context(), "", leasesOf(found)))
		w.sent.reset()
		require.Eventually(t, func() bool { asks, _ := w.sent.sent(); return asks >= 3*n }, soon, tick)
	})
}
