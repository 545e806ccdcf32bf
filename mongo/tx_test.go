package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/storekit"
)

var errRefused = errors.New("no credit")

// waysIn are the ways in which a transaction reaches the store.
var waysIn = map[string]func(t *testing.T, s stand, ctx context.Context, fn func(ctx context.Context) error) error{
	"the driver's context": func(t *testing.T, s stand, ctx context.Context, fn func(ctx context.Context) error) error {
		t.Helper()
		_, err := s.session(t).WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, fn(ctx) })
		return err
	},
	"WithTx": func(t *testing.T, s stand, ctx context.Context, fn func(ctx context.Context) error) error {
		t.Helper()
		session := s.session(t)
		_, err := session.WithTransaction(ctx, func(context.Context) (any, error) { return nil, fn(s.WithTx(ctx, session)) })
		return err
	},
	"InTx": func(_ *testing.T, s stand, ctx context.Context, fn func(ctx context.Context) error) error {
		return s.InTx(ctx, fn)
	},
	"a transaction begun by hand": func(t *testing.T, s stand, ctx context.Context, fn func(ctx context.Context) error) error {
		t.Helper()
		session := s.session(t)
		require.NoError(t, session.StartTransaction())
		if err := fn(driver.NewSessionContext(ctx, session)); err != nil {
			return errors.Join(err, session.AbortTransaction(ctx))
		}
		return session.CommitTransaction(ctx)
	},
}

func TestStore_Tx(t *testing.T) {
	t.Parallel()

	t.Run("records are committed or aborted with the user's own writes", func(t *testing.T) {
		t.Parallel()
		for name, in := range waysIn {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := newStand(t, mongo.Config{})
				both := func(name string, end error) func(ctx context.Context) error {
					return func(ctx context.Context) error {
						require.NoError(t, s.order(ctx, name))
						require.NoError(t, s.Append(ctx, one(name), once(name+" too", name)))
						require.Empty(t, claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone)), "what is not committed is claimed")
						return end
					}
				}
				require.ErrorIs(t, in(t, s, t.Context(), both("aborted", errRefused)), errRefused)
				require.Empty(t, s.ordered(t))
				require.Empty(t, listed(t, s))
				require.NoError(t, in(t, s, t.Context(), both("committed", nil)))
				require.Equal(t, []string{"committed"}, s.ordered(t))
				require.Equal(t, []string{"committed", "committed too"}, listed(t, s))
			})
		}
	})

	t.Run("a publisher takes part in the transaction of a session", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		pub := newPublisher(t, s, publisher.Config{RequireTx: true})
		for name, publish := range map[string]func(ctx context.Context, msg *message.Message) error{
			"WithContext": func(ctx context.Context, msg *message.Message) error {
				return pub.WithContext(ctx).Publish("orders", msg)
			},
			"SetContext": func(ctx context.Context, msg *message.Message) error {
				msg.SetContext(ctx)
				return pub.Publish("orders", msg)
			},
		} {
			for _, end := range []error{errRefused, nil} {
				_, err := s.session(t).WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
					require.NoError(t, s.order(ctx, name))
					return nil, errors.Join(publish(ctx, message.NewMessage(name, nil)), end)
				})
				require.ErrorIs(t, err, end)
			}
		}
		require.Equal(t, []string{"SetContext", "WithContext"}, s.ordered(t))
		require.Equal(t, []string{"SetContext", "WithContext"}, listed(t, s))
	})

	t.Run("a publisher that requires a transaction takes no session without one", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		pub := newPublisher(t, s, publisher.Config{RequireTx: true})
		session := s.session(t)
		msg := message.NewMessage("never", nil)
		require.ErrorIs(t, pub.Publish("orders", msg), outmill.ErrNoTx)
		require.ErrorIs(t, pub.WithContext(driver.NewSessionContext(t.Context(), session)).Publish("orders", msg), outmill.ErrNoTx)
		require.NoError(t, session.StartTransaction())
		require.NoError(t, session.AbortTransaction(t.Context()))
		require.ErrorIs(t, pub.WithContext(driver.NewSessionContext(t.Context(), session)).Publish("orders", msg), outmill.ErrNoTx)
		require.Empty(t, listed(t, s))
	})

	t.Run("a callback that the driver repeats after a write conflict appends once", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.order(t.Context(), "contended"))
		bump := func(ctx context.Context) error {
			_, err := s.orders().UpdateOne(ctx, bson.D{{Key: "_id", Value: "contended"}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}})
			return err
		}
		for name, in := range waysIn {
			if name == "a transaction begun by hand" {
				continue
			}
			runs := 0
			records := []*outmill.Record{one(name), once(name+" once", name), once(name+" twice", name)}
			err := in(t, s, t.Context(), func(ctx context.Context) error {
				runs++
				if err := s.Append(ctx, records...); err != nil {
					return err
				}
				require.Equal(t, []bool{false, false, true}, duplicates(records))
				if runs == 1 {
					// Another session is faster.
					require.NoError(t, bump(t.Context()))
				}
				return bump(ctx)
			})
			require.NoError(t, err)
			require.Equal(t, 2, runs, name)
			require.Equal(t, []bool{false, false, true}, duplicates(records))
			for _, r := range records[:2] {
				found, err := s.Get(t.Context(), r.ID)
				require.NoError(t, err)
				require.Equal(t, r.MessageID, found.MessageID)
			}
		}
		require.Len(t, listed(t, s), 2*3)
	})

	t.Run("a callback that is repeated sees the present state of a dedup key", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		pub := newPublisher(t, s, publisher.Config{})
		runs := 0
		mine := once("mine", "key")
		err := s.InTx(t.Context(), func(ctx context.Context) error {
			// The first read fixes the snapshot. A later insert of the key by another session is
			// a conflict.
			if _, err := s.orders().CountDocuments(ctx, bson.D{}); err != nil {
				return err
			}
			if runs++; runs == 1 {
				require.NoError(t, s.Append(t.Context(), once("others", "key")))
			}
			if err := s.Append(ctx, mine); err != nil {
				return err
			}
			return pub.WithContext(ctx).Publish("orders", message.NewMessage("beside", nil))
		})
		require.NoError(t, err)
		require.Equal(t, 2, runs)
		require.True(t, mine.Duplicate)
		require.Equal(t, []string{"beside", "others"}, listed(t, s))
	})

	t.Run("the driver's repeats have the same effect through a publisher", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		var told []string
		pub := newPublisher(t, s, publisher.Config{OnDuplicate: func(_ string, msg *message.Message) { told = append(told, msg.UUID) }})
		runs := 0
		_, err := s.session(t).WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
			if _, err := s.orders().CountDocuments(ctx, bson.D{}); err != nil {
				return nil, err
			}
			if runs++; runs == 1 {
				require.NoError(t, s.Append(t.Context(), once("others", "key")))
			}
			msg := message.NewMessage("mine", nil)
			outmill.SetDedupKey(msg, "key")
			return nil, pub.WithContext(ctx).Publish("orders", msg)
		})
		require.NoError(t, err)
		require.Equal(t, 2, runs)
		require.Equal(t, []string{"mine"}, told)
		require.Equal(t, []string{"others"}, listed(t, s))
	})

	t.Run("a commit with an unknown result is repeated and appends once", func(t *testing.T) {
		t.Parallel()
		const app = "unknown"
		server := mongotest.Own(t)
		s := newStandIn(t, victimOf(t, server.URL, app).Database("test"), mongo.Config{})
		admin := clientOf(t, options.Client().ApplyURI(server.URL))
		// In the second case the server commits, and reports that the result is unknown.
		for name, failure := range map[string]bson.D{
			"not done": {{Key: "errorCode", Value: 91}},
			"done":     {{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 91}, {Key: "errmsg", Value: "shutting down"}}}},
			"cut":      {{Key: "closeConnection", Value: true}},
		} {
			for way, in := range map[string]func(records ...*outmill.Record) error{
				"InTx": func(records ...*outmill.Record) error {
					return s.InTx(t.Context(), func(ctx context.Context) error { return s.Append(ctx, records...) })
				},
				"own": func(records ...*outmill.Record) error { return s.Append(t.Context(), records...) },
			} {
				at := name + " " + way
				failing(t, admin, app, 2, append(bson.D{{Key: "failCommands", Value: bson.A{"commitTransaction"}}}, failure...))
				records := []*outmill.Record{once(at, at), one(at + " too")}
				require.NoError(t, in(records...), at)
				require.Equal(t, []bool{false, false}, duplicates(records))
				require.Equal(t, []string{at, at + " too"}, listed(t, s), at)
				_, err := s.Delete(t.Context(), records[0].ID, records[1].ID)
				require.NoError(t, err)
			}
		}
	})

	t.Run("a session of another client and another store's transaction are foreign", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		other := newStand(t, mongo.Config{})
		session := other.session(t)
		require.NoError(t, session.StartTransaction())
		for name, ctx := range map[string]context.Context{
			"the session of another client":   driver.NewSessionContext(t.Context(), session),
			"WithTx of another store":         other.WithTx(t.Context(), session),
			"a transaction of another engine": storekit.ContextWithTx(t.Context(), "sqlite", "tx"),
		} {
			require.ErrorIs(t, s.Append(ctx, one("never")), outmill.ErrForeignTx, name)
			tx, err := s.TxOf(ctx)
			require.ErrorIs(t, err, outmill.ErrForeignTx, name)
			require.Nil(t, tx)
		}
		require.Empty(t, listed(t, s))
	})

	t.Run("stores of one client take part in the same transaction", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		other := newStandIn(t, s.db, mongo.Config{CollectionPrefix: "other_"})
		for _, end := range []error{errRefused, nil} {
			err := s.InTx(t.Context(), func(ctx context.Context) error {
				require.NoError(t, s.Append(ctx, one("here")))
				require.NoError(t, other.Append(ctx, one("there")))
				return end
			})
			require.ErrorIs(t, err, end)
		}
		require.Equal(t, []string{"here"}, listed(t, s))
		require.Equal(t, []string{"there"}, listed(t, other))
	})

	t.Run("a context carries the sessions of several stores", func(t *testing.T) {
		t.Parallel()
		s, other := newStand(t, mongo.Config{}), newStand(t, mongo.Config{})
		err := s.InTx(t.Context(), func(ctx context.Context) error {
			mine := ctx
			return other.InTx(ctx, func(ctx context.Context) error {
				require.NoError(t, s.Append(ctx, one("outer")))
				require.NoError(t, other.Append(ctx, one("inner")))
				require.ErrorIs(t, other.Append(mine, one("never")), outmill.ErrForeignTx)
				outer, err := s.TxOf(ctx)
				require.NoError(t, err)
				again, err := s.TxOf(mine)
				require.NoError(t, err)
				require.Equal(t, again, outer)
				return nil
			})
		})
		require.NoError(t, err)
		require.Equal(t, []string{"outer"}, listed(t, s))
		require.Equal(t, []string{"inner"}, listed(t, other))
	})

	t.Run("a session without a transaction is refused before anything is sent", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		foreign := newStand(t, mongo.Config{}).session(t)
		require.NoError(t, foreign.StartTransaction())
		committed, aborted, over := s.session(t), s.session(t), s.session(t)
		require.NoError(t, committed.StartTransaction())
		require.NoError(t, s.order(driver.NewSessionContext(t.Context(), committed), "committed"))
		require.NoError(t, committed.CommitTransaction(t.Context()))
		require.NoError(t, aborted.StartTransaction())
		require.NoError(t, aborted.AbortTransaction(t.Context()))
		require.NoError(t, over.StartTransaction())
		over.EndSession(t.Context())
		for name, session := range map[string]*driver.Session{
			"nil": nil, "without a transaction": s.session(t), "of another client": foreign,
			"committed": committed, "aborted": aborted, "ended": over,
		} {
			ctx := s.WithTx(t.Context(), session)
			require.ErrorIs(t, s.Append(ctx, one("never")), outmill.ErrInvalidTx, name)
			require.ErrorIs(t, s.Append(ctx), outmill.ErrInvalidTx, name)
			tx, err := s.TxOf(ctx)
			require.ErrorIs(t, err, outmill.ErrInvalidTx, name)
			require.Nil(t, tx, name)
		}
		require.Empty(t, listed(t, s))
	})

	t.Run("a transaction that the server has ended is ErrInvalidTx", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		session := s.session(t)
		require.NoError(t, session.StartTransaction())
		ctx := driver.NewSessionContext(t.Context(), session)
		require.NoError(t, s.order(ctx, "order"))
		require.Error(t, s.order(ctx, "order"), "a key twice")
		err := s.Append(ctx, one("never"))
		require.ErrorIs(t, err, outmill.ErrInvalidTx)
		var told driver.ServerError
		require.ErrorAs(t, err, &told, "the driver's error")
		require.NoError(t, session.AbortTransaction(t.Context()))
		require.Empty(t, listed(t, s))
		require.Empty(t, s.ordered(t))
	})

	t.Run("a refused append leaves the transaction usable", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{MaxPayload: 1000})
		require.NoError(t, s.Append(t.Context(), once("first", "taken")))
		large := one("large")
		large.Metadata = map[string]string{"a": strings.Repeat("x", 17<<20)}
		for name, records := range map[string][]*outmill.Record{
			"no topic":             {{MessageID: "never"}},
			"a payload too large":  {one("never"), {Topic: "orders", Payload: make([]byte, 1001)}},
			"a document too large": {one("never"), large},
		} {
			err := s.InTx(t.Context(), func(ctx context.Context) error {
				require.NoError(t, s.order(ctx, name))
				require.ErrorIs(t, s.Append(ctx, records...), outmill.ErrInvalidRecord, name)
				duplicate := once("never", "taken")
				require.NoError(t, s.Append(ctx, duplicate))
				require.True(t, duplicate.Duplicate)
				return s.Append(ctx, one(name))
			})
			require.NoError(t, err, name)
		}
		require.Len(t, s.ordered(t), 3)
		require.Equal(t, []string{"a document too large", "a payload too large", "first", "no topic"}, listed(t, s))
	})

	t.Run("a dedup key is free again when its transaction was aborted", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		var taken []bool
		for _, end := range []error{errRefused, nil, nil} {
			record := once("record", "key")
			err := s.InTx(t.Context(), func(ctx context.Context) error {
				second := once("second", "key")
				require.NoError(t, s.Append(ctx, record))
				require.NoError(t, s.Append(ctx, second))
				require.True(t, second.Duplicate)
				return end
			})
			require.ErrorIs(t, err, end)
			taken = append(taken, !record.Duplicate)
		}
		require.Equal(t, []bool{true, true, false}, taken)
		require.Equal(t, []string{"record"}, listed(t, s))
	})

	t.Run("concurrent appends of one session are serialised", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		pub := newPublisher(t, s, publisher.Config{RequireTx: true})
		_, err := s.session(t).WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
			var appends errgroup.Group
			for i := range 16 {
				appends.Go(func() error {
					if i%2 == 0 {
						return s.Append(ctx, one(fmt.Sprint("m", i)), one(fmt.Sprint("n", i)))
					}
					view := pub.WithContext(ctx)
					return errors.Join(view.Publish("orders", message.NewMessage(fmt.Sprint("m", i), nil)),
						view.Publish("orders", message.NewMessage(fmt.Sprint("n", i), nil)))
				})
			}
			return nil, appends.Wait()
		})
		require.NoError(t, err)
		require.Len(t, listed(t, s), 32)
	})

	t.Run("all other methods ignore a session", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{Retain: time.Hour})
		require.NoError(t, s.Append(t.Context(), made("orders", "r", 20)...))
		for name, wrap := range map[string]func(ctx context.Context) context.Context{
			"in a transaction": func(ctx context.Context) context.Context { return ctx },
			"ended": func(ctx context.Context) context.Context {
				session := s.session(t)
				require.NoError(t, session.StartTransaction())
				require.NoError(t, session.AbortTransaction(ctx))
				session.EndSession(ctx)
				return driver.NewSessionContext(ctx, session)
			},
		} {
			err := s.InTx(t.Context(), func(ctx context.Context) error {
				require.NoError(t, s.order(ctx, name))
				inside := wrap(ctx)
				owner := outmill.NewOwnerToken()
				for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
					req := claimOf(owner, 3, order, "orders")
					found, err := s.Claim(inside, req)
					require.NoError(t, err)
					require.NotEmpty(t, found, "%s %s", name, order)
					held, err := s.Extend(inside, time.Minute, leasesOf(found))
					require.NoError(t, err)
					require.Len(t, held, len(found))
					require.NoError(t, s.Release(inside, leasesOf(found)))
				}
				found, err := s.Claim(inside, claimOf(owner, 4, outmill.OrderNone))
				require.NoError(t, err)
				require.Len(t, found, 4)
				require.NoError(t, s.Ack(inside, "", leasesOf(found[:1])))
				require.NoError(t, s.Abandon(inside, []outmill.Settlement{{Lease: found[1].Lease()}}))
				require.NoError(t, s.Snooze(inside, []outmill.Settlement{{Lease: found[2].Lease()}}))
				require.NoError(t, s.Fail(inside, []outmill.Settlement{{Lease: found[3].Lease(), Park: true}}))
				require.NoError(t, s.RegisterGroup(inside, outmill.Registration{Group: "another"}))
				_, err = s.Requeue(inside, found[3].ID)
				require.NoError(t, err)
				_, err = s.Delete(inside, found[3].ID)
				require.NoError(t, err)
				_, err = s.Get(inside, found[1].ID)
				require.NoError(t, err)
				_, err = s.Stats(inside, 0)
				require.NoError(t, err)
				_, err = s.Groups(inside)
				require.NoError(t, err)
				_, err = s.DropGroup(inside, "another")
				require.NoError(t, err)
				require.NoError(t, s.Ensure(inside))
				for _, tidy := range []func(context.Context, int) (int, error){s.ReapExpired, s.ExpireDue, s.DeleteProcessed, s.DeleteDedupKeys} {
					_, err := tidy(inside, 10)
					require.NoError(t, err)
				}
				_, err = s.List(inside, outmill.ListQuery{})
				require.NoError(t, err)
				return errRefused
			})
			require.ErrorIs(t, err, errRefused)
			require.Empty(t, s.ordered(t))
		}
		stats, err := s.Stats(t.Context(), 0)
		require.NoError(t, err)
		require.Len(t, stats, 1)
		require.Equal(t, 2, stats[0].Processed, "what was done outside of the transaction stays")
		require.Len(t, listed(t, s), 18)
	})

	t.Run("a transaction whose context ends leaves nothing and is not repeated", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		runs := 0
		err := s.InTx(ctx, func(ctx context.Context) error {
			runs++
			require.NoError(t, s.Append(ctx, one("never")))
			cancel()
			return driver.CommandError{Code: 112, Labels: []string{"TransientTransactionError"}, Message: "conflict"}
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 1, runs)
		require.Empty(t, listed(t, s))
	})

	t.Run("a function that ends its transaction itself makes InTx fail", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.ErrorIs(t, s.InTx(t.Context(), func(ctx context.Context) error {
			require.NoError(t, s.Append(ctx, one("never")))
			return driver.SessionFromContext(ctx).AbortTransaction(ctx)
		}), outmill.ErrInvalidTx)
		require.Empty(t, listed(t, s))
		require.ErrorIs(t, s.InTx(t.Context(), func(ctx context.Context) error {
			require.NoError(t, s.Append(ctx, one("kept")))
			return driver.SessionFromContext(ctx).CommitTransaction(ctx)
		}), outmill.ErrInvalidTx)
		require.Equal(t, []string{"kept"}, listed(t, s))
	})

	t.Run("InTx refuses a nil function and returns the function's own error", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.ErrorIs(t, s.InTx(t.Context(), nil), outmill.ErrInvalidConfig)
		require.Equal(t, errRefused, s.InTx(t.Context(), func(context.Context) error { return errRefused }))
		require.Panics(t, func() {
			_ = s.InTx(t.Context(), func(ctx context.Context) error {
				require.NoError(t, s.Append(ctx, one("never")))
				panic("no")
			})
		})
		require.Empty(t, listed(t, s))
	})

	t.Run("the store writes with majority and reads from the primary, whatever the client's settings", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		var told sync.Map
		client := clientOf(t, options.Client().ApplyURI(mongotest.Server(t)).
			SetReadPreference(readpref.SecondaryPreferred()).SetWriteConcern(writeconcern.Unacknowledged()).SetReadConcern(readconcern.Available()).
			SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
				if mode, err := e.Command.LookupErr("$readPreference", "mode"); err == nil && mode.StringValue() != "primary" {
					told.Store(e.CommandName+" reads from "+mode.StringValue(), true)
				}
				// Leases of a claim in order wait for a majority with the commit behind them.
				w, err := e.Command.LookupErr("writeConcern", "w")
				if err == nil && w.String() != `"majority"` && e.CommandName != "update" {
					told.Store(e.CommandName+" writes with "+w.String(), true)
				}
			}}))
		store := newStore(t, client, mongo.Config{Database: s.db.Name()})
		require.NoError(t, store.Append(t.Context(), once("own", "own"), one("own too")))
		require.NoError(t, store.Append(t.Context(), one("alone")))
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context) error { return store.Append(ctx, one("InTx")) }))
		found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "orders"))
		require.Len(t, found, 4)
		require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
		require.Empty(t, listed(t, store))
		told.Range(func(what, _ any) bool {
			// The driver ends its sessions with any read preference.
			if what != "endSessions reads from primaryPreferred" {
				t.Error(what)
			}
			return true
		})
	})

	t.Run("a first append in a transaction names a missing schema", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		store := newStore(t, db.Client(), mongo.Config{Database: db.Name()})
		s := stand{store, db}
		_, err := s.session(t).WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
			require.ErrorIs(t, store.Append(ctx, one("never")), outmill.ErrSchemaMissing)
			return nil, s.order(ctx, "order")
		})
		require.NoError(t, err, "the transaction stays usable")
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context) error { return store.Append(ctx, one("first")) }))
		require.Equal(t, []string{"first"}, listed(t, store))
	})
}

func newPublisher(t *testing.T, writer outmill.Writer, config publisher.Config) *publisher.Publisher {
	t.Helper()
	pub, err := publisher.New(writer, config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pub.Close()) })
	return pub
}

func duplicates(records []*outmill.Record) []bool {
	var list []bool
	for _, r := range records {
		list = append(list, r.Duplicate)
	}
	return list
}
