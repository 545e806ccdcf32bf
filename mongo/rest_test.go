package mongo_test

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
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongoengine"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
)

func restOf(t *testing.T, stores ...*mongo.Store) []bool {
	t.Helper()
	selves := make([]any, len(stores))
	for i, store := range stores {
		_, selves[i] = store.IdleWith()
	}
	resting, err := stores[0].AreIdle(t.Context(), selves)
	require.NoError(t, err)
	return resting
}

// asks counts the questions for rest of a client. during is called while one is under way: the
// server has answered, and the store has not read the answer.
type asks struct {
	n      atomic.Int64
	mu     sync.Mutex
	ids    map[int64]bool
	during func()
	// level is the read concern of the last question.
	level string
}

func (a *asks) monitor() *event.CommandMonitor {
	a.ids = map[int64]bool{}
	return &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if in, _ := e.Command.Lookup("aggregate").StringValueOK(); in == "outmill_meta" && strings.Contains(e.Command.String(), `"processed"`) {
				a.n.Add(1)
				a.mu.Lock()
				defer a.mu.Unlock()
				a.ids[e.RequestID] = true
				a.level, _ = e.Command.Lookup("readConcern", "level").StringValueOK()
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			a.mu.Lock()
			during := a.during
			is := a.ids[e.RequestID]
			if is {
				a.during = nil
			}
			a.mu.Unlock()
			if is && during != nil {
				during()
			}
		},
	}
}

func (a *asks) whileAsked(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.during = do
}

// restful is a store that listens, on a client of its own, whose questions are counted.
type restful struct {
	*mongo.Store
	hints <-chan struct{}
	asks  *asks
}

func listensForRest(t *testing.T, opts *options.ClientOptions, config mongo.Config) restful {
	t.Helper()
	r := restful{asks: &asks{}}
	r.Store = newStore(t, clientOf(t, opts.SetMonitor(r.asks.monitor())), config)
	r.hints = testenv.Hints(t.Context(), r.Store)
	told(t, r.hints)
	return r
}

// awaitRest waits until an answer stands.
func (r restful) awaitRest(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		before := r.asks.n.Load()
		return restOf(t, r.Store)[0] && r.asks.n.Load() == before
	}, patience, 5*time.Millisecond)
}

// missesNothing appends records one after the other. A reader claims only when it is told that the
// store is not at rest.
func (r restful) missesNothing(t *testing.T, s stand, n int, before func(i int)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop()
	seen := make(chan string, n)
	reading.Go(func() {
		req := claimOf(outmill.NewOwnerToken(), 100, outmill.OrderNone)
		req.Lease = 5 * time.Second // a lost answer of a claim holds its records up
		_, self := r.IdleWith()
		for pause(ctx, time.Millisecond) == nil {
			if resting, err := r.AreIdle(ctx, []any{self}); err == nil && resting[0] {
				continue
			}
			found, err := r.Claim(ctx, req)
			if err != nil || r.Ack(ctx, "", leasesOf(found)) != nil {
				continue
			}
			for _, record := range found {
				seen <- record.MessageID
			}
		}
	})
	for i := range n {
		before(i)
		// The append meets all states of the reader: asked, asking, at rest.
		_ = pause(ctx, time.Duration(i%20)*time.Millisecond)
		name := fmt.Sprint(i)
		require.Eventually(t, func() bool { return s.Append(ctx, once(name, name)) == nil }, patience, 5*time.Millisecond)
		for got := ""; got != name; {
			select {
			case got = <-seen:
			case <-time.After(patience):
				require.FailNow(t, "a record was missed", name)
			}
		}
	}
}

func (r restful) awaitNoRest(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return !restOf(t, r.Store)[0] }, patience, 5*time.Millisecond)
}

func TestStore_Rest(t *testing.T) {
	t.Parallel()
	shared := func(t *testing.T) *options.ClientOptions { return options.Client().ApplyURI(mongotest.Server(t)) }

	t.Run("while its change stream stands, a store at rest is asked once", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		r := listensForRest(t, shared(t), mongo.Config{Database: s.db.Name()})
		r.awaitRest(t)
		before := r.asks.n.Load()
		for range 10 {
			require.Equal(t, []bool{true}, restOf(t, r.Store))
		}
		require.Equal(t, before, r.asks.n.Load())
		require.Equal(t, "linearizable", r.asks.level, "an answer that stands must survive a failover")
	})

	t.Run("a store without a change stream is asked each time", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		a := &asks{}
		store := newStore(t, clientOf(t, shared(t).SetMonitor(a.monitor())), mongo.Config{Database: s.db.Name(), WithoutChangeStream: true})
		_ = testenv.Hints(t.Context(), store)
		for range 3 {
			require.Equal(t, []bool{true}, restOf(t, store))
		}
		require.Equal(t, int64(3), a.n.Load())
	})

	t.Run("an append, a commit and a requeue of another process end the rest, and wake", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		r := listensForRest(t, shared(t), mongo.Config{Database: s.db.Name()})
		var dead []*outmill.Record
		for name, do := range map[string]func() error{
			"append": func() error { return s.Append(t.Context(), made("orders", "r", 3)...) },
			"delay":  func() error { return s.Append(t.Context(), &outmill.Record{Topic: "orders", Delay: time.Hour}) },
			"commit": func() error {
				return s.InTx(t.Context(), func(ctx context.Context) error { return s.Append(ctx, one("one")) })
			},
		} {
			r.awaitRest(t)
			for len(r.hints) > 0 {
				<-r.hints
			}
			require.NoError(t, do(), name)
			if name != "delay" {
				told(t, r.hints)
			}
			r.awaitNoRest(t)
			found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone))
			for _, record := range found {
				require.NoError(t, s.Fail(t.Context(), []outmill.Settlement{{Lease: record.Lease()}}))
			}
			dead = append(dead, found...)
			if name == "delay" {
				list, err := s.List(t.Context(), outmill.ListQuery{Limit: 100, Status: outmill.StatusPending})
				require.NoError(t, err)
				_, err = s.Delete(t.Context(), list[0].ID)
				require.NoError(t, err)
			}
		}
		r.awaitRest(t)
		for len(r.hints) > 0 {
			<-r.hints
		}
		n, err := s.Requeue(t.Context(), dead[0].ID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		told(t, r.hints)
		r.awaitNoRest(t)
	})

	t.Run("a change that comes before the answer is read lets no answer stand", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		r := listensForRest(t, shared(t), mongo.Config{Database: s.db.Name()})
		r.awaitRest(t)
		for round := range testenv.Steps(5, 50) {
			// The rest ends, so that the store is asked again.
			require.NoError(t, s.Append(t.Context(), one("first")))
			r.awaitNoRest(t)
			found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone))
			require.NoError(t, s.Ack(t.Context(), "", leasesOf(found)))
			for len(r.hints) > 0 {
				<-r.hints
			}
			var answer sync.WaitGroup
			r.asks.whileAsked(func() {
				if err := s.Append(context.WithoutCancel(t.Context()), one(fmt.Sprint(round))); err != nil {
					t.Error(err)
				}
				if round%2 == 0 {
					// The stream has reported the append by now; otherwise it reports it later.
					told(t, r.hints)
				}
			})
			answer.Go(func() { restOf(t, r.Store) })
			answer.Wait()
			r.awaitNoRest(t)
			found = claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone))
			require.Len(t, found, 1)
			require.NoError(t, s.Ack(t.Context(), "", leasesOf(found)))
			r.awaitRest(t)
		}
	})

	t.Run("a reader that claims only when the store is not at rest misses nothing", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		r := listensForRest(t, shared(t), mongo.Config{Database: s.db.Name()})
		r.missesNothing(t, s, testenv.Steps(30, 500), func(int) {})
	})

	t.Run("the rest ends when something is past its retention, and the store is asked again then", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		r := listensForRest(t, shared(t), mongo.Config{Database: s.db.Name()})
		require.NoError(t, s.InTx(t.Context(), func(ctx context.Context) error {
			_, err := s.PutNote(ctx, roles.Note{Consumer: "c", Key: "k", Retention: 3 * time.Second}, time.Second)
			return err
		}))
		require.Equal(t, []bool{true}, restOf(t, r.Store))
		r.awaitNoRest(t)
		n, err := s.DeleteNotes(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		r.awaitRest(t)
	})

	t.Run("a database that is dropped, and made again, is not at rest until it was asked again", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		neighbour := newStand(t, mongo.Config{})
		prefix := testenv.DatabaseName()
		a := &asks{}
		client := clientOf(t, shared(t).SetMonitor(a.monitor()))
		for _, name := range []string{prefix + "_1", prefix + "_2"} {
			require.NoError(t, newStore(t, s.Client(), mongo.Config{Database: name}).Ensure(t.Context()))
			t.Cleanup(func() { _ = neighbour.Client().Database(name).Drop(context.WithoutCancel(t.Context())) })
		}
		stores, _ := openAll(t, mongo.Databases{Client: client, Pattern: prefix + "_*"}, 2)
		first := restful{Store: stores[0], asks: a}
		first.awaitRest(t)
		restful{Store: stores[1], asks: a}.awaitRest(t)
		require.NoError(t, s.Client().Database(prefix+"_1").Drop(t.Context()))
		first.awaitNoRest(t)
		require.Equal(t, []bool{false, true}, restOf(t, stores[0], stores[1]))
		again := newStore(t, s.Client(), mongo.Config{Database: prefix + "_1"})
		require.NoError(t, again.Ensure(t.Context()))
		first.awaitRest(t)
		require.NoError(t, again.Append(t.Context(), one("one")))
		first.awaitNoRest(t)
	})

	t.Run("the own stream of a store ends with its collection, and nothing is at rest", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		r := listensForRest(t, shared(t), mongo.Config{Database: s.db.Name()})
		r.awaitRest(t)
		require.NoError(t, s.db.Drop(t.Context()))
		r.awaitNoRest(t)
	})

	t.Run("a closed store and a value that is no store of MongoDB", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		r := listensForRest(t, shared(t), mongo.Config{Database: s.db.Name()})
		r.awaitRest(t)
		other := newStore(t, r.Client(), mongo.Config{Database: s.db.Name()})
		require.NoError(t, r.Close())
		require.Equal(t, []bool{true, false}, restOf(t, other, r.Store))
		_, err := r.AreIdle(t.Context(), nil)
		require.ErrorIs(t, err, outmill.ErrClosed)
		_, err = other.AreIdle(t.Context(), []any{"a store"})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})
}

func TestStore_RestIn(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, server *mongoengine.Engine) (stand, restful) {
		s := newStandIn(t, clientOf(t, options.Client().ApplyURI(server.URL)).Database("test"), mongo.Config{})
		opts := options.Client().ApplyURI(server.URL).SetAppName("resting").
			SetServerMonitoringMode(options.ServerMonitoringModePoll).SetHeartbeatInterval(500 * time.Millisecond)
		r := listensForRest(t, opts, mongo.Config{Database: "test"})
		r.awaitRest(t)
		return s, r
	}

	// 286 is ChangeStreamHistoryLost: the oplog no longer has the stream's position.
	t.Run("when the oplog has lost the stream's position, the store is asked again", func(t *testing.T) {
		t.Parallel()
		s, r := open(t, mongotest.Own(t))
		before := r.asks.n.Load()
		failing(t, s.Client(), "resting", 1, bson.D{{Key: "failCommands", Value: bson.A{"getMore"}}, {Key: "errorCode", Value: 286}})
		require.Eventually(t, func() bool { restOf(t, r.Store); return r.asks.n.Load() > before }, patience, 5*time.Millisecond)
		r.awaitRest(t)
		require.NoError(t, s.Append(t.Context(), one("one")))
		r.awaitNoRest(t)
	})

	t.Run("while no stream can be opened, a record is found by the next question", func(t *testing.T) {
		t.Parallel()
		s, r := open(t, mongotest.Own(t))
		admin := s.Client().Database("admin")
		require.NoError(t, admin.RunCommand(t.Context(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "alwaysOn"},
			{Key: "data", Value: bson.D{{Key: "appName", Value: "resting"}, {Key: "errorCode", Value: 286},
				{Key: "failCommands", Value: bson.A{"getMore"}}}},
		}).Err())
		require.Eventually(t, func() bool { return !mongo.Listens(r.Store) }, patience, 5*time.Millisecond)
		require.NoError(t, s.Append(t.Context(), one("one")))
		require.Equal(t, []bool{false}, restOf(t, r.Store))
		require.NoError(t, admin.RunCommand(t.Context(),
			bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "off"}}).Err())
	})

	t.Run("a stream that gives no answer lets no answer stand, and is opened again", func(t *testing.T) {
		testenv.Long(t, "a change stream without an answer for 30 s")
		t.Parallel()
		s, r := open(t, mongotest.Own(t))
		before := mongo.Heard(r.Store)
		failing(t, s.Client(), "resting", 1, bson.D{{Key: "failCommands", Value: bson.A{"getMore"}},
			{Key: "blockConnection", Value: true}, {Key: "blockTimeMS", Value: 10 * patience.Milliseconds()}})
		// The next stream may be open before a look at the state of this one. So this counts.
		require.Eventually(t, func() bool { return mongo.Heard(r.Store) > before }, 2*patience, 5*time.Millisecond)
		require.NoError(t, s.Append(t.Context(), one("one")))
		require.Equal(t, []bool{false}, restOf(t, r.Store))
		found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone))
		require.NoError(t, s.Ack(t.Context(), "", leasesOf(found)))
		r.awaitRest(t)
	})

	t.Run("after a step-down the answer stands, and the next append ends it", func(t *testing.T) {
		t.Parallel()
		s, r := open(t, mongotest.Own(t))
		admin := s.Client().Database("admin")
		for range testenv.Steps(2, 10) {
			_ = admin.RunCommand(t.Context(),
				bson.D{{Key: "replSetStepDown", Value: 1}, {Key: "force", Value: true}, {Key: "secondaryCatchUpPeriodSecs", Value: 0}}).Err()
			require.Eventually(t, func() bool { return s.Append(t.Context(), one("one")) == nil }, patience, 5*time.Millisecond)
			r.awaitNoRest(t)
			found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone))
			require.NotEmpty(t, found)
			require.NoError(t, s.Ack(t.Context(), "", leasesOf(found)))
			r.awaitRest(t)
		}
	})

	t.Run("a reader that claims only when the store is not at rest misses nothing over step-downs", func(t *testing.T) {
		testenv.Long(t, "step-downs")
		t.Parallel()
		s, r := open(t, mongotest.Own(t))
		admin := s.Client().Database("admin")
		r.missesNothing(t, s, 100, func(i int) {
			if i%10 == 5 {
				_ = admin.RunCommand(t.Context(),
					bson.D{{Key: "replSetStepDown", Value: 1}, {Key: "force", Value: true}, {Key: "secondaryCatchUpPeriodSecs", Value: 0}}).Err()
			}
		})
	})

	t.Run("a server that is killed and restarted loses no record", func(t *testing.T) {
		testenv.Long(t, "servers that are killed")
		t.Parallel()
		server := mongotest.Own(t)
		s, r := open(t, server)
		require.NoError(t, s.Append(t.Context(), one("one")))
		require.NoError(t, server.Kill(t.Context()))
		require.NoError(t, server.Start(t.Context()))
		r.awaitNoRest(t)
	})
}
