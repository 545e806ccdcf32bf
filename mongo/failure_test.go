package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
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
	"github.com/outmill/outmill/internal/testenv/proxy"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// saboteur makes the nth command of a client fail.
type saboteur struct {
	mu   sync.Mutex
	on   bool
	seen int
	nth  int
	act  func(command string)
}

func (s *saboteur) arm(nth int, act func(command string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on, s.seen, s.nth, s.act = true, 0, nth, act
}

// disarm returns how many commands there were.
func (s *saboteur) disarm() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = false
	return s.seen
}

// started runs before the command is sent.
func (s *saboteur) started(_ context.Context, e *event.CommandStartedEvent) {
	if e.CommandName == "endSessions" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on {
		return
	}
	if s.seen++; s.seen == s.nth {
		s.act(e.CommandName)
	}
}

// trial is a call of the store that fails at one of its commands.
type trial struct {
	stand
	// calm is another store on the same collections, whose commands do not fail.
	calm  stand
	topic string
	t     *testing.T
}

func (r trial) must(err error) {
	r.t.Helper()
	require.NoError(r.t, err)
}

// filled appends n records of one key.
func (r trial) filled(n int) []*outmill.Record {
	r.t.Helper()
	records := made(r.topic, r.topic, n)
	for _, one := range records {
		one.Key = "key"
	}
	r.must(r.calm.Append(r.t.Context(), records...))
	return records
}

// leased returns the records of filled after a claim.
func (r trial) leased(n int, order outmill.Order) []*outmill.Record {
	r.t.Helper()
	r.filled(n)
	found := claimed(r.t, r.calm, claimOf(outmill.NewOwnerToken(), n, order, r.topic))
	require.Len(r.t, found, n)
	return found
}

func (r trial) all() []*outmill.Record {
	r.t.Helper()
	found, err := r.calm.List(r.t.Context(), outmill.ListQuery{Topic: r.topic, Content: true})
	r.must(err)
	return found
}

func (r trial) each(n int, right func(found *outmill.Record) bool) {
	r.t.Helper()
	found := r.all()
	require.Len(r.t, found, n)
	for _, one := range found {
		require.True(r.t, right(one), "%+v", one)
	}
}

// repeated makes the call until it succeeds, as workers do.
func (r trial) repeated(call func() error) {
	r.t.Helper()
	var err error
	for range 5 {
		if err = call(); err == nil {
			return
		}
		require.NotErrorIs(r.t, err, outmill.ErrInvalidTx)
	}
	r.must(err)
}

// claimable waits until n records of the topic can be claimed, in their order.
func (r trial) claimable(n int, order outmill.Order) {
	r.t.Helper()
	var names []string
	owner := outmill.NewOwnerToken()
	require.True(r.t, eventually(r.t.Context(), patience, func() bool {
		for _, one := range claimed(r.t, r.calm, claimOf(owner, n, order, r.topic)) {
			require.Zero(r.t, one.Expiries)
			names = append(names, one.MessageID)
		}
		return len(names) >= n
	}), "%q", names)
	require.True(r.t, slices.IsSorted(names), "%q", names)
}

// claiming makes a claim that fails: records that it did not return can be claimed at once.
func claiming(order outmill.Order) func(r trial) func() {
	return func(r trial) func() {
		r.filled(5)
		return func() {
			found, err := r.Claim(r.t.Context(), claimOf(outmill.NewOwnerToken(), 3, order, r.topic))
			require.True(r.t, err == nil || len(found) == 0)
			if err == nil {
				require.Len(r.t, found, 3)
				r.must(r.calm.Ack(r.t.Context(), "", leasesOf(found)))
			}
			r.claimable(5-len(found), order)
		}
	}
}

// settling makes a call that settles leases. Repeated, it settles all of them, and counts no
// attempt twice.
func settling(call func(r trial, leases []outmill.Lease) error, right func(found *outmill.Record) bool) func(r trial) func() {
	return func(r trial) func() {
		found := r.leased(3, outmill.OrderKey)
		return func() {
			r.repeated(func() error { return call(r, leasesOf(found)) })
			r.each(3, right)
		}
	}
}

func isPending(attempts int) func(found *outmill.Record) bool {
	return func(found *outmill.Record) bool {
		return found.Status == outmill.StatusPending && found.Attempts == attempts && found.Expiries == 0 && found.Claims == 1
	}
}

// trials prepare a call, and return the call and a check of its result.
var trials = map[string]func(r trial) func(){
	"append": func(r trial) func() {
		return func() {
			records := made(r.topic, "r", 3)
			records[1].DedupKey = r.topic
			err := r.Append(r.t.Context(), records...)
			n := len(r.all())
			require.True(r.t, n == 3 || err != nil && n == 0, "%d records (%v)", n, err)
			r.repeated(func() error { return r.Append(r.t.Context(), records[1]) })
			require.Equal(r.t, n == 3, records[1].Duplicate)
		}
	},
	"append one": func(r trial) func() {
		return func() {
			err := r.Append(r.t.Context(), made(r.topic, "r", 1)...)
			n := len(r.all())
			require.True(r.t, n == 1 || err != nil && n == 0, "%d records (%v)", n, err)
		}
	},
	"transaction": func(r trial) func() {
		return func() {
			err := r.InTx(r.t.Context(), func(ctx context.Context) error {
				return errors.Join(r.order(ctx, r.topic), r.Append(ctx, made(r.topic, "r", 2)...))
			})
			n := len(r.all())
			require.Equal(r.t, n == 2, slices.Contains(r.calm.ordered(r.t), r.topic))
			require.True(r.t, n == 2 || err != nil && n == 0, "%d records (%v)", n, err)
		}
	},
	"claim any":      claiming(outmill.OrderNone),
	"claim by key":   claiming(outmill.OrderKey),
	"claim by topic": claiming(outmill.OrderTopic),
	"ack": func(r trial) func() {
		r.filled(4)
		// One reader holds the first records of the key. Another has found the later ones.
		found := claimed(r.t, r.calm, claimOf(outmill.NewOwnerToken(), 2, outmill.OrderKey, r.topic))
		require.Len(r.t, found, 2)
		require.Empty(r.t, claimed(r.t, r.calm, claimOf(outmill.NewOwnerToken(), 2, outmill.OrderKey, r.topic)))
		return func() {
			r.repeated(func() error { return r.Ack(r.t.Context(), "", leasesOf(found)) })
			r.claimable(2, outmill.OrderKey)
		}
	},
	"abandon": settling(func(r trial, leases []outmill.Lease) error {
		var list []outmill.Settlement
		for _, l := range leases {
			list = append(list, outmill.Settlement{Lease: l, Err: "again"})
		}
		return r.Abandon(r.t.Context(), list)
	}, isPending(1)),
	"snooze": settling(func(r trial, leases []outmill.Lease) error {
		var list []outmill.Settlement
		for _, l := range leases {
			list = append(list, outmill.Settlement{Lease: l, Delay: time.Hour})
		}
		return r.Snooze(r.t.Context(), list)
	}, isPending(0)),
	"release": settling(func(r trial, leases []outmill.Lease) error { return r.Release(r.t.Context(), leases) }, isPending(0)),
	"extend": settling(func(r trial, leases []outmill.Lease) error {
		held, err := r.Extend(r.t.Context(), time.Hour, leases)
		require.True(r.t, err != nil || len(held) == len(leases))
		return err
	}, func(found *outmill.Record) bool {
		return found.Status == outmill.StatusLeased && found.LeaseUntil.Sub(found.CreatedAt) > 50*time.Minute
	}),
	"fail": settling(func(r trial, leases []outmill.Lease) error {
		var list []outmill.Settlement
		for _, l := range leases {
			list = append(list, outmill.Settlement{Lease: l, Err: "no"})
		}
		return r.Fail(r.t.Context(), list)
	}, func(found *outmill.Record) bool { return found.Status == outmill.StatusDead && found.LastError == "no" }),
	"park": func(r trial) func() {
		r.filled(4)
		found := claimed(r.t, r.calm, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, r.topic))
		return func() {
			r.repeated(func() error {
				return r.Fail(r.t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: "no", Park: true}})
			})
			r.each(4, func(found *outmill.Record) bool { return found.Status == outmill.StatusDead })
			r.repeated(func() error { _, err := r.Requeue(r.t.Context(), found[0].ID); return err })
			r.claimable(4, outmill.OrderKey)
			r.audited(found[0], roles.AuditRequeue, 4)
		}
	},
	"reap": func(r trial) func() {
		r.filled(3)
		req := claimOf(outmill.NewOwnerToken(), 3, outmill.OrderNone, r.topic)
		req.Lease = time.Millisecond
		require.Len(r.t, claimed(r.t, r.calm, req), 3)
		require.NoError(r.t, pause(r.t.Context(), 2*time.Millisecond))
		return func() {
			r.repeated(func() error { _, err := r.ReapExpired(r.t.Context(), 100); return err })
			r.each(3, func(found *outmill.Record) bool {
				return found.Status == outmill.StatusPending && found.Expiries == 1
			})
		}
	},
	"register": func(r trial) func() {
		r.topic = "unrouted " + r.topic
		records := r.filled(3)
		return func() {
			r.repeated(func() error {
				return r.RegisterGroup(r.t.Context(), outmill.Registration{Group: r.topic, Topics: outmill.Topics{Include: []string{r.topic}}})
			})
			r.each(len(records), func(found *outmill.Record) bool { return found.Group == r.topic })
			r.repeated(func() error { _, err := r.DropGroup(r.t.Context(), r.topic); return err })
			r.each(len(records), func(found *outmill.Record) bool { return found.Group == "" })
		}
	},
	"delete": func(r trial) func() {
		records := r.filled(2)
		return func() {
			r.repeated(func() error { _, err := r.Delete(r.t.Context(), records[0].ID); return err })
			r.claimable(1, outmill.OrderTopic)
			r.audited(records[0], roles.AuditDelete, 1)
		}
	},
	"edit": func(r trial) func() {
		head := r.parked(1)
		return func() {
			r.repeated(func() error {
				_, err := r.Edit(r.t.Context(), head.ID, roles.Edit{Seen: storekit.FingerprintOf(head), Payload: []byte("new")})
				return err
			})
			r.each(1, func(found *outmill.Record) bool { return string(found.Payload) == "new" })
			r.audited(head, roles.AuditEdit, 1)
		}
	},
	"skip": func(r trial) func() {
		head := r.parked(4)
		return func() {
			r.repeated(func() error {
				_, err := r.Skip(r.t.Context(), head.ID)
				if errors.Is(err, outmill.ErrNotFound) {
					// An earlier call has done it, and its answer was lost.
					return nil
				}
				return err
			})
			r.claimable(3, outmill.OrderKey)
			r.audited(head, roles.AuditSkip, 4)
		}
	},
}

// parked parks n records, and returns their head.
func (r trial) parked(n int) *outmill.Record {
	r.t.Helper()
	r.filled(n)
	found := claimed(r.t, r.calm, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, r.topic))
	r.must(r.calm.Fail(r.t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: "no", Park: true}}))
	head, err := r.calm.Get(r.t.Context(), found[0].ID)
	r.must(err)
	return head
}

// audited requires that the entries of the record count each change once.
func (r trial) audited(record *outmill.Record, action roles.AuditAction, want int) {
	r.t.Helper()
	count := 0
	for _, e := range r.calm.audited(r.t) {
		if e.Action == action && slices.Contains(e.IDs, record.ID) {
			count += e.Count
		}
	}
	require.Equal(r.t, want, count)
}

// atMost bounds the number of commands of a call that one run of a test makes fail, because the
// driver waits half a second for each connection that was cut.
const atMost = 2

// tried makes the call fail at some of its commands, chosen at random.
func tried(t *testing.T, calm stand, client *driver.Client, s *saboteur, name string, sabotage func(command string)) {
	t.Helper()
	store := newStore(t, client, mongo.Config{Database: calm.db.Name()})
	_, err := store.Stats(t.Context(), 0) // the schema is checked
	require.NoError(t, err)
	try := func(nth int, sabotage func(command string)) (commands int) {
		topic := fmt.Sprintf("%s at command %d %s", name, nth, outmill.NewWorkItemID())
		call := trials[name](trial{stand{store, client.Database(calm.db.Name())}, calm, topic, t})
		s.arm(nth, sabotage)
		call()
		return s.disarm()
	}
	commands := try(-1, nil)
	require.Positive(t, commands)
	for _, n := range rand.Perm(commands)[:min(atMost, commands)] {
		try(n+1, sabotage)
	}
}

// someOf returns one of the cases, chosen at random, unless all tests are to run.
func someOf[T any](cases map[string]T) map[string]T {
	if testenv.All() {
		return cases
	}
	for name, c := range cases {
		return map[string]T{name: c}
	}
	return nil
}

func saysWhatIsLeftOut(t *testing.T, what string) {
	t.Helper()
	if !testenv.All() {
		t.Log(testenv.Shorter(what))
	}
}

func registeredForAllButUnrouted(t *testing.T, db *driver.Database) stand {
	t.Helper()
	store := newStore(t, db.Client(), mongo.Config{Database: db.Name()})
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(),
		outmill.Registration{Group: readers, Topics: outmill.Topics{Exclude: []string{"unrouted*"}}}))
	return stand{store, db}
}

func TestStore_Failure(t *testing.T) {
	t.Parallel()

	t.Run("a connection that is cut in the middle of a call loses and doubles nothing", func(t *testing.T) {
		testenv.Long(t, "connections that are cut in the middle of each call")
		t.Parallel()
		at, err := url.Parse(mongotest.Server(t))
		require.NoError(t, err)
		ways := map[string]func(*proxy.Proxy){
			"before the command": (*proxy.Proxy).CutAll,
			"with its answer":    (*proxy.Proxy).LoseAnswers,
		}
		for name := range trials {
			for way, cut := range ways {
				t.Run(name+" "+way, func(t *testing.T) {
					t.Parallel()
					p, s := proxy.New(t, at.Host), &saboteur{}
					client := clientOf(t, options.Client().SetHosts([]string{p.Addr()}).SetDirect(true).
						SetMonitor(&event.CommandMonitor{Started: s.started}).
						SetServerMonitoringMode(options.ServerMonitoringModePoll).SetHeartbeatInterval(500*time.Millisecond))
					calm := registeredForAllButUnrouted(t, mongotest.Database(t))
					tried(t, calm, client, s, name, func(string) { cut(p) })
				})
			}
		}
	})

	t.Run("an error of the server in the middle of a call loses and doubles nothing", func(t *testing.T) {
		t.Parallel()
		saysWhatIsLeftOut(t, "the second of two errors of the server")
		failures := map[string]bson.D{
			"write conflict":       {{Key: "errorCode", Value: 112}, {Key: "errorLabels", Value: bson.A{"TransientTransactionError"}}},
			"not writable primary": {{Key: "errorCode", Value: 10107}},
		}
		for way, failure := range someOf(failures) {
			t.Run(way, func(t *testing.T) {
				t.Parallel()
				server := mongotest.Own(t)
				calm := registeredForAllButUnrouted(t, clientOf(t, options.Client().ApplyURI(server.URL)).Database("test"))
				for name := range trials {
					t.Run(name, func(t *testing.T) {
						const app = "failing"
						s := &saboteur{}
						client := clientOf(t, options.Client().ApplyURI(server.URL).SetAppName(app).SetMonitor(&event.CommandMonitor{Started: s.started}).
							SetServerMonitoringMode(options.ServerMonitoringModePoll).SetHeartbeatInterval(500*time.Millisecond))
						tried(t, calm, client, s, name, func(command string) {
							failing(t, calm.Client(), app, 1, append(bson.D{{Key: "failCommands", Value: bson.A{command}}}, failure...))
						})
					})
				}
			})
		}
	})

	t.Run("a claim whose context ends under way keeps nothing", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		spoil := &saboteur{}
		client := clientOf(t, options.Client().ApplyURI(mongotest.Server(t)).SetMonitor(&event.CommandMonitor{Started: spoil.started}))
		store := newStore(t, client, mongo.Config{Database: s.db.Name()})
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
			for nth, more := 1, true; more; nth++ {
				r := trial{stand{store, s.db}, s, fmt.Sprint(order, nth), t}
				r.filled(5)
				ctx, cancel := context.WithCancel(t.Context())
				spoil.arm(nth, func(string) { cancel() })
				found, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), 3, order, r.topic))
				more = ctx.Err() != nil
				spoil.disarm()
				cancel()
				require.True(t, err == nil && len(found) == 3 || more && errors.Is(err, context.Canceled), "%s %d: %v", order, nth, err)
				began := time.Now()
				r.claimable(5-len(found), outmill.OrderNone)
				require.Less(t, time.Since(began), 30*time.Second, "%s %d: no transaction is left open, with its locks", order, nth)
			}
		}
	})

	t.Run("leases that the server stores after the end of the claim's context are given back", func(t *testing.T) {
		t.Parallel()
		const app = "gone"
		server := mongotest.Own(t)
		admin := clientOf(t, options.Client().ApplyURI(server.URL))
		s := newStandIn(t, victimOf(t, server.URL, app).Database("test"), mongo.Config{WithoutChangeStream: true})
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
			for _, deadline := range []bool{false, true} {
				topic := fmt.Sprint(order, deadline)
				require.NoError(t, s.Append(t.Context(), made(topic, "gone", 3)...))
				// The line of the topic is there for its lock.
				first := claimed(t, s, claimOf(outmill.NewOwnerToken(), 3, order, topic))
				require.NoError(t, s.Release(t.Context(), leasesOf(first)))
				ctx, cancel := context.WithCancel(t.Context())
				if deadline {
					ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
				}
				late := delaying(t, admin, app, "update")
				ended := make(chan error, 1)
				go func() {
					_, err := s.Claim(ctx, claimOf(outmill.NewOwnerToken(), 3, order, topic))
					ended <- err
				}()
				late.wait()
				if !deadline {
					cancel()
				}
				err := <-ended
				cancel()
				require.Error(t, err, topic)
				require.ErrorIs(t, err, ctx.Err(), topic)
				require.True(t, eventually(t.Context(), patience, func() bool { return late.running() == 0 }), "the update ends")
				require.Len(t, claimed(t, s, claimOf(outmill.NewOwnerToken(), 3, order, topic)), 3, topic)
			}
		}
	})

	// The server carries out the first statement of a transaction after the abort, which came by
	// another connection.
	t.Run("a call whose context ends leaves no transaction open, with its locks", func(t *testing.T) {
		t.Parallel()
		const app = "late"
		server := mongotest.Own(t)
		admin := clientOf(t, options.Client().ApplyURI(server.URL))
		s := newStandIn(t, victimOf(t, server.URL, app).Database("test"), mongo.Config{WithoutChangeStream: true})
		require.NoError(t, s.Append(t.Context(), keyed("key", "first")...))
		first := claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey))
		require.NoError(t, s.Fail(t.Context(), []outmill.Settlement{{Lease: first[0].Lease(), Park: true}}))
		for _, call := range []struct {
			statement string
			begin     func(ctx context.Context) error
		}{
			{"update", func(ctx context.Context) error {
				_, err := s.Skip(ctx, first[0].ID)
				return err
			}},
			{"insert", func(ctx context.Context) error {
				return s.InTx(ctx, func(ctx context.Context) error { return s.order(ctx, "late") })
			}},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			delayed := delaying(t, admin, app, call.statement)
			ended := make(chan error, 1)
			go func() { ended <- call.begin(ctx) }()
			delayed.wait()
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled)
			require.True(t, eventually(t.Context(), patience, func() bool { return delayed.running() == 0 }), "the statement ends")
			require.Zero(t, delayed.open(), call.statement)
		}
	})

}
