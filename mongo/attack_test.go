package mongo_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
)

// watched is a store on the stand's collections. see is called with each of its commands before
// the command is sent.
func (s stand) watched(t *testing.T, config mongo.Config, see func(e *event.CommandStartedEvent)) *mongo.Store {
	t.Helper()
	config.Database = s.db.Name()
	store := newStore(t, clientOf(t, options.Client().ApplyURI(mongotest.Server(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) { see(e) },
	})), config)
	_, err := store.Groups(t.Context()) // the schema is checked
	require.NoError(t, err)
	return store
}

// interrupted is a store that runs do just before its first command of that name on that
// collection.
func (s stand) interrupted(t *testing.T, command, collection string, do func()) *mongo.Store {
	t.Helper()
	var once sync.Once
	return s.watched(t, mongo.Config{}, func(e *event.CommandStartedEvent) {
		if at, _ := e.Command.Lookup(command).StringValueOK(); e.CommandName == command && at == "outmill_"+collection {
			once.Do(do)
		}
	})
}

// moved moves times of the matching records to an hour ago.
func (s stand) moved(t *testing.T, filter bson.D, fields ...string) {
	t.Helper()
	var set bson.D
	for _, field := range fields {
		set = append(set, bson.E{Key: field, Value: time.Now().Add(-time.Hour).UnixMicro()})
	}
	_, err := s.records().UpdateMany(t.Context(), filter, bson.D{{Key: "$set", Value: set}})
	require.NoError(t, err)
}

func keyed(key string, names ...string) []*outmill.Record {
	var records []*outmill.Record
	for _, name := range names {
		records = append(records, &outmill.Record{Topic: "orders", Key: key, MessageID: name})
	}
	return records
}

func numbered(name string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s%02d", name, i+1))
	}
	return names
}

// got returns the names of the records that one claim returns.
func (s stand) got(t *testing.T, req outmill.ClaimRequest) []string {
	t.Helper()
	return namesOf(claimed(t, s, req))
}

func TestStore_Attack(t *testing.T) {
	t.Parallel()

	t.Run("many records of a blocked key do not break the order of another key", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		late := keyed("blocked", numbered("late", 100)...)
		for _, r := range late {
			r.Delay = time.Hour
		}
		require.NoError(t, s.Append(t.Context(), keyed("blocked", "first")...))
		require.NoError(t, s.Append(t.Context(), late...))
		require.NoError(t, s.Append(t.Context(), keyed("free", "a", "b")...))
		one, other := outmill.NewOwnerToken(), outmill.NewOwnerToken()
		held := claimed(t, s, claimOf(one, 2, outmill.OrderKey))
		require.Equal(t, []string{"first", "a"}, namesOf(held))
		require.Empty(t, s.got(t, claimOf(other, 10, outmill.OrderKey)), "both keys are held")
		require.NoError(t, s.Release(t.Context(), leasesOf(held[1:])))
		s.moved(t, bson.D{{Key: "content.message", Value: bson.D{{Key: "$regex", Value: "^late"}}}}, "wake", "next")
		require.Equal(t, []string{"a", "b"}, s.got(t, claimOf(other, 10, outmill.OrderKey)))
	})

	t.Run("a claim in the order of a topic skips expired records only", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		expiring := keyed("key", numbered("expiring", 100)...)
		for _, r := range expiring {
			r.TimeToLive = time.Hour
		}
		require.NoError(t, s.Append(t.Context(), keyed("key", "first")...))
		require.NoError(t, s.Append(t.Context(), expiring...))
		require.NoError(t, s.Append(t.Context(), keyed("key", "second")...))
		one, other := outmill.NewOwnerToken(), outmill.NewOwnerToken()
		held := claimed(t, s, claimOf(one, 1, outmill.OrderKey))
		require.Empty(t, s.got(t, claimOf(other, 10, outmill.OrderKey)), "all others are held")
		require.NoError(t, s.Append(t.Context(), keyed("", "third")...))
		require.NoError(t, s.Ack(t.Context(), "", leasesOf(held)))
		s.moved(t, bson.D{{Key: "expires", Value: bson.D{{Key: "$gt", Value: 0}}}}, "expires")
		require.Equal(t, []string{"second", "third"}, s.got(t, claimOf(other, 2, outmill.OrderTopic)))
	})

	t.Run("a record that is requeued while a claim takes it for expired is not lost", func(t *testing.T) {
		t.Parallel()
		for name, call := range map[string]func(store *mongo.Store) error{
			"claim": func(store *mongo.Store) error {
				_, err := store.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
				return err
			},
			"claim in order": func(store *mongo.Store) error {
				_, err := store.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey))
				return err
			},
			"expire": func(store *mongo.Store) error {
				_, err := store.ExpireDue(t.Context(), 10)
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newStand(t, mongo.Config{})
				record := one("requeued")
				record.TimeToLive = time.Hour
				require.NoError(t, s.Append(t.Context(), record))
				s.moved(t, bson.D{}, "expires")
				store := s.interrupted(t, "update", "records", func() {
					n, err := s.ExpireDue(t.Context(), 10)
					require.NoError(t, err)
					require.Equal(t, 1, n)
					n, err = s.Requeue(t.Context(), record.ID)
					require.NoError(t, err)
					require.Equal(t, 1, n)
				})
				require.NoError(t, call(store))
				found, err := s.Get(t.Context(), record.ID)
				require.NoError(t, err)
				if found.Status == outmill.StatusPending {
					require.Equal(t, []string{"requeued"}, s.got(t, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone)))
				} else {
					require.Equal(t, outmill.StatusLeased, found.Status)
				}
			})
		}
	})

	t.Run("a client's encoder and read settings do not affect a store", func(t *testing.T) {
		t.Parallel()
		for name, set := range map[string]func(*options.ClientOptions){
			"leaves out what is empty": func(o *options.ClientOptions) {
				o.SetBSONOptions(&options.BSONOptions{OmitEmpty: true, OmitZeroStruct: true, NilMapAsEmpty: true, NilSliceAsEmpty: true,
					IntMinSize: true, UseLocalTimeZone: true})
			},
			"has a registry of its own":   func(o *options.ClientOptions) { o.SetRegistry(odd()) },
			"reads what is linearizable":  func(o *options.ClientOptions) { o.SetReadConcern(readconcern.Linearizable()) },
			"reads what is in a snapshot": func(o *options.ClientOptions) { o.SetReadConcern(readconcern.Snapshot()) },
			"reads what is there":         func(o *options.ClientOptions) { o.SetReadConcern(readconcern.Local()) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var wrong atomic.Value
				opts := options.Client().ApplyURI(mongotest.Server(t)).SetMonitor(&event.CommandMonitor{Started: func(_ context.Context,
					e *event.CommandStartedEvent) {
					level, _ := e.Command.Lookup("readConcern", "level").StringValueOK()
					want := "local"
					if _, begins := e.Command.Lookup("startTransaction").BooleanOK(); begins {
						want = "snapshot"
					} else if _, err := e.Command.LookupErr("pipeline", "0", "$changeStream"); err == nil {
						want = "majority"
					}
					if level != "" && level != want {
						wrong.Store(fmt.Sprintf("%s reads with %s", e.CommandName, level))
					}
				}})
				set(opts)
				db := mongotest.Database(t)
				store := newStore(t, clientOf(t, opts), mongo.Config{Database: db.Name(), Retain: time.Hour})
				s := stand{store, db}
				require.NoError(t, s.Ensure(t.Context()))
				require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
				require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
				groups, err := s.Groups(t.Context())
				require.NoError(t, err)
				require.Len(t, groups[0].Registrations, 1, "it is the same registration")
				s.keepsOrderAndCounts(t)
				wake := testenv.Hints(t.Context(), s)
				told(t, wake)
				require.NoError(t, newStore(t, db.Client(), mongo.Config{Database: db.Name()}).Append(t.Context(), one("from elsewhere")))
				told(t, wake)
				require.Nil(t, wrong.Load())
			})
		}
	})

	t.Run("names of metadata may look like operators and paths", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{Retain: time.Hour})
		record := keyed("$key.a", "$set.b")[0]
		record.Topic, record.DedupKey = "$topic.x", "$dedup.y"
		record.Metadata = map[string]string{"$set": "$$NOW", "a.b": "$payload", ".": ".", "$": "$", "": "empty", "$ref": "r", "$id": "i",
			"$db": "d", "_id": "id"}
		require.NoError(t, s.Append(t.Context(), record))
		for range 2 {
			found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey))
			require.Len(t, found, 1)
			require.Equal(t, record.Metadata, found[0].Metadata)
			require.NoError(t, s.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: "$payload", Park: true}}))
			dead, err := s.Get(t.Context(), record.ID)
			require.NoError(t, err)
			require.Equal(t, "$payload", dead.LastError)
			n, err := s.Requeue(t.Context(), record.ID)
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
	})

	t.Run("records may be kept for centuries", func(t *testing.T) {
		t.Parallel()
		for _, retain := range []time.Duration{math.MaxInt64, 100 * 365 * 24 * time.Hour} {
			s := newStand(t, mongo.Config{Retain: retain, RetainJoins: retain, DedupWindow: retain})
			record := once("kept", "key")
			record.TimeToLive = retain
			require.NoError(t, s.Append(t.Context(), record))
			require.NoError(t, s.Ack(t.Context(), "", leasesOf(claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey)))))
			n, err := s.DeleteProcessed(t.Context(), 10)
			require.NoError(t, err)
			require.Zero(t, n)
			require.NoError(t, s.Ensure(t.Context()))
		}
	})

	t.Run("processes with different retentions ensure the schema at once", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		for round := range 5 {
			var all errgroup.Group
			for n := range 8 {
				config := mongo.Config{Database: db.Name(), CollectionPrefix: fmt.Sprintf("round%d_", round), Retain: time.Duration(n+1) * time.Hour}
				store := newStore(t, db.Client(), config)
				all.Go(func() error { return store.Ensure(t.Context()) })
			}
			require.NoError(t, all.Wait())
		}
	})

	t.Run("an index that another process makes at the same time is no conflict", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		for _, name := range []string{"line", "processed"} {
			require.NoError(t, s.records().Indexes().DropOne(t.Context(), name))
			store := s.watchedBefore(t, "createIndexes", mongo.Config{Retain: time.Hour}, func() {
				require.NoError(t, newStore(t, s.Client(), mongo.Config{Database: s.db.Name(), Retain: 2 * time.Hour}).Ensure(t.Context()))
			})
			require.NoError(t, store.Ensure(t.Context()), name)
		}
	})

	t.Run("an index whose numbers are of another type is the same", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.records().Indexes().DropOne(t.Context(), "line"))
		_, err := s.records().Indexes().CreateOne(t.Context(), driver.IndexModel{
			Keys: bson.D{{Key: "grp", Value: 1.0}, {Key: "stage", Value: int64(1)}, {Key: "topic", Value: 1.0}, {Key: "wake", Value: 1},
				{Key: "seq", Value: 1}},
			Options: options.Index().SetName("line"),
		})
		require.NoError(t, err, "as MongoDB's older shell does")
		require.NoError(t, s.Ensure(t.Context()))
	})

	t.Run("records that are appended while a group is dropped are deleted with it", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		for _, command := range []string{"findAndModify"} {
			store := s.interrupted(t, command, "meta", func() {
				require.NoError(t, s.RegisterGroup(t.Context(),
					outmill.Registration{Group: "other " + command, Topics: outmill.Topics{Include: []string{"else"}}}))
				require.NoError(t, s.Append(t.Context(), one("orphan")))
			})
			require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "dropped"}))
			_, err := store.DropGroup(t.Context(), "dropped")
			require.NoError(t, err)
			dropped := "dropped"
			left, err := s.List(t.Context(), outmill.ListQuery{Group: dropped})
			require.NoError(t, err)
			require.Empty(t, left)
		}
	})

	t.Run("a join that is too large is refused and leaves the transaction usable", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		for _, size := range []int{16<<20 - 32<<10, 17 << 20} {
			require.NoError(t, s.InTx(t.Context(), func(ctx context.Context) error {
				join := &roles.Join{ExpectedSteps: 1, Metadata: map[string]string{"large": strings.Repeat("x", size)}}
				var refused *outmill.InvalidRecordError
				require.ErrorAs(t, s.StartJoin(ctx, join), &refused)
				require.Equal(t, "metadata", refused.Field)
				return s.order(ctx, fmt.Sprint(size))
			}))
		}
		require.Len(t, s.ordered(t), 2)
	})

	t.Run("a change stream outlives the timeout of the client's operations", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		logger, looks := journal.New(), make(chan struct{}, 100)
		client := clientOf(t, options.Client().ApplyURI(mongotest.Server(t)).SetTimeout(2*time.Second).SetMonitor(&event.CommandMonitor{
			Started: func(_ context.Context, e *event.CommandStartedEvent) {
				if e.CommandName == "getMore" {
					looks <- struct{}{}
				}
			},
		}))
		store, err := mongo.New(client, mongo.Config{Database: s.db.Name()}, logger)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		wake := testenv.Hints(t.Context(), store)
		told(t, wake)
		for range 4 { // each waits a second
			<-looks
		}
		require.Empty(t, logger.Lines(watermill.ErrorLogLevel))
		require.NoError(t, s.Append(t.Context(), one("from elsewhere")))
		told(t, wake)
	})

	t.Run("the round trips of a call do not depend on the number of its records", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{Retain: time.Hour})
		store, kept := s.recorded(t, mongo.Config{Retain: time.Hour})
		for _, n := range []int{2, 300} {
			topic := fmt.Sprint("topic", n)
			appended := rounds(t, kept, func() error {
				return store.InTx(t.Context(), func(ctx context.Context) error {
					records := made(topic, "in a transaction", n)
					records[0].DedupKey = topic
					return store.Append(ctx, records...)
				})
			})
			assert.LessOrEqual(t, appended, 7, "append %d in a caller's transaction", n)
			assert.LessOrEqual(t, rounds(t, kept, func() error { return store.Append(t.Context(), made(topic, "alone", n)...) }), 3, "append %d", n)
			for order, bound := range map[outmill.Order]int{outmill.OrderNone: 4, outmill.OrderKey: 7, outmill.OrderTopic: 8} {
				topic := fmt.Sprint(topic, order)
				records := made(topic, "claimed", n)
				for i, r := range records {
					r.Key = fmt.Sprint("key", i)
				}
				require.NoError(t, store.Append(t.Context(), records...))
				var found []*outmill.Record
				assert.LessOrEqual(t, rounds(t, kept, func() (err error) {
					found, err = store.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), n, order, topic))
					return err
				}), bound, "claim %d in order %s", n, order)
				require.Len(t, found, n)
				half := leasesOf(found[:n/2])
				assert.LessOrEqual(t, rounds(t, kept, func() error { return store.Ack(t.Context(), "", half) }), 3, "ack %d", n)
				assert.LessOrEqual(t, rounds(t, kept, func() error { return store.Ack(t.Context(), "", half) }), 4, "ack %d again", n)
				var failures []outmill.Settlement
				for i, r := range found {
					failures = append(failures, outmill.Settlement{Lease: r.Lease(), Err: fmt.Sprint("error ", i)})
				}
				assert.LessOrEqual(t, rounds(t, kept, func() error { return store.Fail(t.Context(), failures) }), 4,
					"fail %d, half of which are settled", n)
			}
		}
	})

	t.Run("the round trips of a claim do not depend on the number of keys that become free", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		store, kept := s.recorded(t, mongo.Config{})
		for _, n := range []int{2, 40} {
			topic := fmt.Sprint("topic", n)
			records := slices.Concat(made(topic, "first", n), made(topic, "second", n))
			for i, r := range records {
				r.Key = fmt.Sprint("key", i%n)
			}
			require.NoError(t, store.Append(t.Context(), records...))
			first := claimed(t, store, claimOf(outmill.NewOwnerToken(), n, outmill.OrderKey, topic))
			other := outmill.NewOwnerToken()
			require.Empty(t, claimed(t, store, claimOf(other, n, outmill.OrderKey, topic)))
			require.NoError(t, store.Ack(t.Context(), "", leasesOf(first)))
			var found []*outmill.Record
			made := rounds(t, kept, func() (err error) {
				found, err = store.Claim(t.Context(), claimOf(other, n, outmill.OrderKey, topic))
				return err
			})
			require.Len(t, found, n)
			require.LessOrEqual(t, made, 14)
		}
	})

	t.Run("the round trips to park keys do not depend on the number of keys", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		store, kept := s.recorded(t, mongo.Config{})
		park := func(n, try int) (trips int) {
			topic := fmt.Sprint("topic", n, "-", try)
			records := slices.Concat(made(topic, "first", n), made(topic, "second", n), made(topic, "third", n))
			for i, r := range records {
				r.Key = fmt.Sprint("key", i%n)
			}
			require.NoError(t, store.Append(t.Context(), records...))
			first := claimed(t, store, claimOf(outmill.NewOwnerToken(), n, outmill.OrderKey, topic))
			require.Empty(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, topic)), "some are held")
			var failures []outmill.Settlement
			for i, r := range first {
				failures = append(failures, outmill.Settlement{Lease: r.Lease(), Err: fmt.Sprint("error ", i), Park: true})
			}
			trips = rounds(t, kept, func() error { return store.Fail(t.Context(), failures) })
			dead, err := store.List(t.Context(), outmill.ListQuery{Topic: topic, Status: outmill.StatusDead})
			require.NoError(t, err)
			require.Len(t, dead, 3*n)
			return trips
		}
		for _, n := range []int{2, 30} {
			// On a busy server one may be repeated.
			assert.LessOrEqual(t, min(park(n, 1), park(n, 2), park(n, 3)), 11, "park %d", n)
		}
	})

	t.Run("a change stream is opened again after its collection was dropped", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		listener := newStore(t, clientOf(t, options.Client().ApplyURI(mongotest.Server(t))), mongo.Config{Database: s.db.Name()})
		wake := testenv.Hints(t.Context(), listener)
		told(t, wake)
		require.NoError(t, s.records().Drop(t.Context()))
		require.NoError(t, s.Ensure(t.Context()))
		told(t, wake)
		require.NoError(t, s.Append(t.Context(), one("after")))
		told(t, wake)
	})
}

// odd is a registry that encodes times and texts in an unusual way.
func odd() *bson.Registry {
	registry := bson.NewRegistry()
	registry.RegisterTypeEncoder(reflect.TypeFor[time.Time](),
		bson.ValueEncoderFunc(func(_ bson.EncodeContext, w bson.ValueWriter, v reflect.Value) error {
			return w.WriteString(v.Interface().(time.Time).Format(time.RFC3339Nano))
		}))
	registry.RegisterKindEncoder(reflect.String, bson.ValueEncoderFunc(func(_ bson.EncodeContext, w bson.ValueWriter, v reflect.Value) error {
		return w.WriteString("odd " + v.String())
	}))
	return registry
}

// keepsOrderAndCounts makes calls of each kind on the store.
func (s stand) keepsOrderAndCounts(t *testing.T) {
	t.Helper()
	join := &roles.Join{GroupingKey: "grouped", ExpectedSteps: 1}
	require.NoError(t, s.StartJoin(t.Context(), join))
	records := keyed("key", "a", "b", "c")
	records[0].Joins = []outmill.JoinID{join.ID}
	records[1].TimeToLive = time.Hour
	require.NoError(t, s.Append(t.Context(), append(records, once("duplicate", "key"))...))
	require.NoError(t, s.Append(t.Context(), once("duplicate", "key")))
	holder, other := outmill.NewOwnerToken(), outmill.NewOwnerToken()
	held := claimed(t, s, claimOf(holder, 1, outmill.OrderKey))
	require.Equal(t, []string{"a"}, namesOf(held))
	require.Equal(t, []string{"duplicate"}, s.got(t, claimOf(other, 10, outmill.OrderKey)))
	require.NoError(t, s.Ack(t.Context(), "", leasesOf(held)))
	require.Equal(t, []string{"b", "c"}, s.got(t, claimOf(other, 10, outmill.OrderKey)))
	found, err := s.GetJoin(t.Context(), join.ID)
	require.NoError(t, err)
	require.Equal(t, 1, found.CompletedSteps)
	grouped, err := s.ListJoins(t.Context(), roles.JoinQuery{GroupingKey: join.GroupingKey})
	require.NoError(t, err)
	require.Len(t, grouped, 1)
	list, err := s.List(t.Context(), outmill.ListQuery{})
	require.NoError(t, err)
	require.Len(t, list, 4)
}

// watchedBefore is interrupted for a command on any collection.
func (s stand) watchedBefore(t *testing.T, command string, config mongo.Config, do func()) *mongo.Store {
	t.Helper()
	var once sync.Once
	return s.watched(t, config, func(e *event.CommandStartedEvent) {
		if e.CommandName == command {
			once.Do(do)
		}
	})
}

// rounds returns how many commands a call sends.
func rounds(t *testing.T, kept *recorder, call func() error) int {
	t.Helper()
	return kept.while("counted", func() { require.NoError(t, call()) })
}
