package next_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	present "github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/mongo/internal/next"
)

// paired is a store that is measured, or MongoDB itself if there is no store.
type paired struct {
	outmill.Store
	db    *mongo.Database
	trips *atomic.Int64
}

func pairedOn(t *testing.T, url, name string, open func(client *mongo.Client) outmill.Store) paired {
	t.Helper()
	p := paired{trips: &atomic.Int64{}}
	client, err := mongo.Connect(options.Client().ApplyURI(url).SetMonitor(&event.CommandMonitor{
		Started: func(context.Context, *event.CommandStartedEvent) { p.trips.Add(1) },
	}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	p.db = client.Database(name)
	if p.Store = open(client); p.Store == nil {
		return p
	}
	require.NoError(t, p.Ensure(t.Context()))
	topics := outmill.Topics{Include: []string{"orders"}}
	require.NoError(t, p.RegisterGroup(t.Context(), outmill.Registration{Group: "readers", Topics: topics}))
	return p
}

// used is the processor time of this process and of the server, which works for nobody else.
func (p paired) used(t *testing.T) time.Duration {
	var own syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	var status struct {
		Info struct {
			User   int64 `bson:"user_time_us"`
			System int64 `bson:"system_time_us"`
		} `bson:"extra_info"`
	}
	require.NoError(t, p.db.RunCommand(t.Context(), bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status))
	return time.Duration(own.Utime.Nano()+own.Stime.Nano()) + time.Duration(status.Info.User+status.Info.System)*time.Microsecond
}

// spent is what calls of one kind have taken for each message.
type spent struct {
	cpu   time.Duration
	trips float64
}

// measure returns the processor time of fn for each of n messages, and its commands for each of the calls.
func (p paired) measure(t *testing.T, n, calls int, fn func()) spent {
	before, trips := p.used(t), p.trips.Load()
	fn()
	trips = p.trips.Load() - trips
	return spent{(p.used(t) - before) / time.Duration(n), float64(trips) / float64(calls)}
}

func recordsOf(n, from int) []*outmill.Record {
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{Topic: "orders", Key: fmt.Sprint("key", (from+i)%1000), Payload: make([]byte, 200)}
	}
	return records
}

func (p paired) append(t *testing.T, n, calls int) {
	for call := range calls {
		require.NoError(t, p.Append(t.Context(), recordsOf(n, call*n)...))
	}
}

// round is n messages in each of some calls.
func (p paired) round(t *testing.T, n, calls int) map[string]spent {
	total := map[string]spent{}
	for _, order := range []struct {
		name string
		outmill.Order
	}{{"without an order", outmill.OrderNone}, {"by key", outmill.OrderKey}} {
		total["append"] = p.measure(t, n*calls, calls, func() { p.append(t, n, calls) })
		var leases [][]outmill.Lease
		owner := outmill.NewOwnerToken()
		total["claim "+order.name] = p.measure(t, n*calls, calls, func() {
			for range calls {
				got, err := p.Claim(t.Context(), outmill.ClaimRequest{
					Owner: owner, Group: "readers", Limit: n, Lease: time.Hour, Order: order.Order, Topics: outmill.Topics{Include: []string{"orders"}},
				})
				require.NoError(t, err)
				require.Len(t, got, n)
				list := make([]outmill.Lease, n)
				for i, r := range got {
					list[i] = r.Lease()
				}
				leases = append(leases, list)
			}
		})
		total["ack"] = p.measure(t, n*calls, calls, func() {
			for _, list := range leases {
				require.NoError(t, p.Ack(t.Context(), "worker", list))
			}
		})
	}
	return total
}

// together has readers drain n messages at once, without an order.
func (p paired) together(t *testing.T, n, readers int) map[string]spent {
	p.append(t, 500, n/500)
	began, left := time.Now(), atomic.Int64{}
	left.Store(int64(n))
	all := p.measure(t, n, n, func() {
		var wait sync.WaitGroup
		for range readers {
			wait.Go(func() {
				for owner := outmill.NewOwnerToken(); left.Load() > 0; {
					got, err := p.Claim(t.Context(), outmill.ClaimRequest{Owner: owner, Group: "readers", Limit: 100, Lease: time.Hour})
					if !assertNoError(t, err) {
						return
					}
					list := make([]outmill.Lease, len(got))
					for i, r := range got {
						list[i] = r.Lease()
					}
					if len(list) > 0 && !assertNoError(t, p.Ack(t.Context(), "worker", list)) {
						return
					}
					left.Add(-int64(len(list)))
				}
			})
		}
		wait.Wait()
	})
	return map[string]spent{
		fmt.Sprint(readers, " readers"): all, fmt.Sprint(readers, " readers, wall"): {time.Since(began) / time.Duration(n), 0},
	}
}

func assertNoError(t *testing.T, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// bare is what MongoDB itself takes: findOneAndUpdate and deleteOne for each message, and InsertMany of n in a transaction, into a
// collection with the indexes of the driver's records.
func (p paired) bare(t *testing.T, in *mongo.Collection, n, calls int) map[string]spent {
	ctx := t.Context()
	documents := func(call int) []any {
		list := make([]any, n)
		for i := range list {
			list[i] = bson.D{
				{Key: "_id", Value: fmt.Sprint(outmill.NewWorkItemID())}, {Key: "grp", Value: "readers"}, {Key: "topic", Value: "orders"},
				{Key: "stage", Value: 0}, {Key: "wake", Value: int64(0)}, {Key: "seq", Value: bson.Timestamp{}}, {Key: "claims", Value: 0},
				{Key: "key", Value: fmt.Sprint("key", (call*n+i)%1000)}, {Key: "created", Value: time.Now().UnixMicro()},
				{Key: "content", Value: bson.D{{Key: "payload", Value: make([]byte, 200)}}},
			}
		}
		return list
	}
	inserted := p.measure(t, n*calls, calls, func() {
		for call := range calls {
			session, err := p.db.Client().StartSession()
			require.NoError(t, err)
			_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) { return in.InsertMany(ctx, documents(call)) })
			require.NoError(t, err)
			session.EndSession(ctx)
		}
	})
	found := p.measure(t, n*calls, n*calls, func() {
		for range n * calls {
			var d struct {
				ID string `bson:"_id"`
			}
			require.NoError(t, in.FindOneAndUpdate(ctx,
				bson.D{{Key: "grp", Value: "readers"}, {Key: "topic", Value: "orders"}, {Key: "stage", Value: 0}},
				bson.D{{Key: "$set", Value: bson.D{{Key: "stage", Value: 4}, {Key: "wake", Value: time.Now().UnixMicro()}}}},
				options.FindOneAndUpdate().SetSort(bson.D{{Key: "wake", Value: 1}, {Key: "seq", Value: 1}}),
			).Decode(&d))
			_, err := in.DeleteOne(ctx, bson.D{{Key: "_id", Value: d.ID}})
			require.NoError(t, err)
		}
	})
	return map[string]spent{"InsertMany": inserted, "findOneAndUpdate and deleteOne": found}
}

// TestPaired prints the processor time and the commands of the driver beside those of the present store, and of MongoDB itself.
func TestPaired(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("OUTMILL_PAIRS"))
	if err != nil {
		t.Skip("OUTMILL_PAIRS is the number of rounds")
	}
	url := mongotest.Own(t).URL
	stores := map[string]paired{
		"present": pairedOn(t, url, "present", func(client *mongo.Client) outmill.Store {
			s, err := present.New(client, present.Config{Database: "present", WithoutChangeStream: true}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		}),
		"next": pairedOn(t, url, "next", func(client *mongo.Client) outmill.Store {
			s := engine.New(next.New(client, next.Config{Name: "next", Database: "next"}), engine.Config{Name: "next"})
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		}),
	}
	itself := pairedOn(t, url, "next", func(*mongo.Client) outmill.Store { return nil })
	require.NoError(t, next.New(itself.db.Client(), next.Config{Database: "next", Prefix: "bare_"}).Ensure(t.Context()))
	found := map[string][]spent{}
	keep := func(round int, of string, results map[string]spent) {
		for name, s := range results {
			if round > 0 { // the first one prepares
				found[of+": "+name] = append(found[of+": "+name], s)
			}
		}
	}
	for round := range rounds + 1 {
		for _, size := range []struct{ n, calls int }{{1, 60}, {100, 8}, {500, 3}} {
			for _, name := range []string{"present", "next"} {
				keep(round, fmt.Sprintf("%s %3d", name, size.n), stores[name].round(t, size.n, size.calls))
			}
		}
		for _, name := range []string{"present", "next"} {
			keep(round, name, stores[name].together(t, 4000, 8))
		}
		keep(round, "MongoDB", itself.bare(t, itself.db.Collection("bare_records"), 100, 3))
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		slices.SortFunc(found[name], func(a, b spent) int { return int(a.cpu - b.cpu) })
		s := found[name][len(found[name])/2]
		t.Logf("%-50s %8.1f µs a message, %5.1f commands a call", name, float64(s.cpu.Nanoseconds())/1000, s.trips)
	}
}
