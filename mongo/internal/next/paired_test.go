package next_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
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

// spent is what calls of one kind have taken for each message: processor time of this process and of the server, which works for nobody
// else, time by the clock, and commands for a call.
type spent struct {
	client, server, clock time.Duration
	trips                 float64
}

func (s spent) both() time.Duration { return s.client + s.server }

func (p paired) used(t *testing.T) spent {
	var own syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	var status struct {
		Info struct {
			User   int64 `bson:"user_time_us"`
			System int64 `bson:"system_time_us"`
		} `bson:"extra_info"`
	}
	require.NoError(t, p.db.RunCommand(t.Context(), bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status))
	return spent{
		client: time.Duration(own.Utime.Nano() + own.Stime.Nano()), server: time.Duration(status.Info.User+status.Info.System) * time.Microsecond,
		clock: time.Duration(time.Now().UnixNano()), trips: float64(p.trips.Load()),
	}
}

// measure returns what fn takes for each of n messages, and its commands for each of the calls.
func (p paired) measure(t *testing.T, n, calls int, fn func()) spent {
	began := p.used(t)
	fn()
	ended, of := p.used(t), time.Duration(n)
	// The look at the end is a command itself.
	return spent{
		(ended.client - began.client) / of, (ended.server - began.server) / of, (ended.clock - began.clock) / of,
		(ended.trips - began.trips - 1) / float64(calls),
	}
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

func leasesOf(got []*outmill.Record) []outmill.Lease {
	list := make([]outmill.Lease, len(got))
	for i, r := range got {
		list[i] = r.Lease()
	}
	return list
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
				leases = append(leases, leasesOf(got))
			}
		})
		total["ack "+order.name] = p.measure(t, n*calls, calls, func() {
			for _, list := range leases {
				require.NoError(t, p.Ack(t.Context(), "worker", list))
			}
		})
	}
	return total
}

// together has readers drain n messages at once. Each has a store of its own, if others has some.
func (p paired) together(t *testing.T, n int, order outmill.Order, readers ...outmill.Store) spent {
	p.append(t, 500, n/500)
	left := atomic.Int64{}
	left.Store(int64(n))
	return p.measure(t, n, n, func() {
		var wait sync.WaitGroup
		for _, reader := range readers {
			wait.Go(func() {
				for owner := outmill.NewOwnerToken(); left.Load() > 0; {
					got, err := reader.Claim(t.Context(), outmill.ClaimRequest{Owner: owner, Group: "readers", Limit: 100, Lease: time.Hour, Order: order})
					if !assertNoError(t, err) || len(got) > 0 && !assertNoError(t, reader.Ack(t.Context(), "worker", leasesOf(got))) {
						return
					}
					left.Add(-int64(len(got)))
				}
			})
		}
		wait.Wait()
	})
}

func assertNoError(t *testing.T, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// bare is what MongoDB itself takes: InsertMany of n in a transaction, into a collection with the indexes of the driver's records, and
// into one without indexes; findOneAndUpdate and deleteOne for each message, in a collection with the one index that they need.
func (p paired) bare(t *testing.T, n, calls int) map[string]spent {
	ctx := t.Context()
	documents := func(call int) []any {
		list := make([]any, n)
		for i := range list {
			id, now := outmill.NewWorkItemID(), time.Now().UnixMicro()
			list[i] = bson.D{
				{Key: "_id", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id[:]}}, {Key: "seq", Value: bson.Timestamp{}},
				{Key: "grp", Value: "readers"}, {Key: "topic", Value: "orders"}, {Key: "stage", Value: int32(0)}, {Key: "wake", Value: int64(0)},
				{Key: "claims", Value: int32(0)}, {Key: "key", Value: fmt.Sprint("key", (call*n+i)%1000)}, {Key: "created", Value: now},
				{Key: "size", Value: int64(206)}, {Key: "content", Value: bson.D{
					{Key: "message", Value: id.String()}, {Key: "due", Value: now}, {Key: "payload", Value: make([]byte, 200)}}},
			}
		}
		return list
	}
	insert := func(in *mongo.Collection) func() {
		return func() {
			for call := range calls {
				session, err := p.db.Client().StartSession()
				require.NoError(t, err)
				_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) { return in.InsertMany(ctx, documents(call)) })
				require.NoError(t, err)
				session.EndSession(ctx)
			}
		}
	}
	indexed, plain, queue := p.db.Collection("bare_records"), p.db.Collection("plain"), p.db.Collection("queue")
	_, err := queue.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "stage", Value: 1}, {Key: "created", Value: 1}}})
	require.NoError(t, err)
	for call := range calls {
		_, err = queue.InsertMany(ctx, documents(call))
		require.NoError(t, err)
	}
	results := map[string]spent{
		fmt.Sprintf("InsertMany of %d, with the indexes", n): p.measure(t, n*calls, calls, insert(indexed)),
		fmt.Sprintf("InsertMany of %d, without indexes", n):  p.measure(t, n*calls, calls, insert(plain)),
	}
	results["findOneAndUpdate and deleteOne"] = p.measure(t, n*calls, n*calls, func() {
		for range n * calls {
			var d struct {
				ID bson.RawValue `bson:"_id"`
			}
			require.NoError(t, queue.FindOneAndUpdate(ctx,
				bson.D{{Key: "stage", Value: int32(0)}, {Key: "created", Value: bson.D{{Key: "$lte", Value: time.Now().UnixMicro()}}}},
				bson.D{{Key: "$set", Value: bson.D{{Key: "stage", Value: int32(4)}, {Key: "wake", Value: time.Now().UnixMicro()}}}},
				options.FindOneAndUpdate().SetSort(bson.D{{Key: "created", Value: 1}}),
			).Decode(&d))
			_, err := queue.DeleteOne(ctx, bson.D{{Key: "_id", Value: d.ID}, {Key: "stage", Value: int32(4)}})
			require.NoError(t, err)
		}
	})
	for _, c := range []*mongo.Collection{indexed, plain} {
		_, err := c.DeleteMany(ctx, bson.D{})
		require.NoError(t, err)
	}
	return results
}

// TestPaired prints what the driver takes beside the present store, and beside MongoDB itself.
func TestPaired(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("OUTMILL_PAIRS"))
	if err != nil {
		t.Skip("OUTMILL_PAIRS is the number of rounds")
	}
	url := mongotest.Own(t).URL
	presentStore := func(client *mongo.Client) outmill.Store {
		s, err := present.New(client, present.Config{Database: "present", WithoutChangeStream: true}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	nextStore := func(client *mongo.Client) outmill.Store {
		s := engine.New(next.New(client, next.Config{Name: "next", Database: "next", WithoutChangeStream: true}), engine.Config{Name: "next"})
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	stores := map[string]paired{"present": pairedOn(t, url, "present", presentStore), "next": pairedOn(t, url, "next", nextStore)}
	others := map[string][]outmill.Store{}
	for range 8 {
		others["present"] = append(others["present"], pairedOn(t, url, "present", presentStore).Store)
		others["next"] = append(others["next"], pairedOn(t, url, "next", nextStore).Store)
	}
	itself := pairedOn(t, url, "next", func(*mongo.Client) outmill.Store { return nil })
	require.NoError(t, next.New(itself.db.Client(), next.Config{Database: "next", Prefix: "bare_"}).Ensure(t.Context()))
	found := map[string]map[string][]spent{"present": {}, "next": {}, "MongoDB": {}}
	keep := func(round int, of string, results map[string]spent) {
		for name, s := range results {
			if round > 0 { // the first one prepares
				found[of][name] = append(found[of][name], s)
			}
		}
	}
	sides := []string{"present", "next"}
	for round := range rounds + 1 {
		slices.Reverse(sides)
		for _, size := range []struct{ n, calls int }{{1, 40}, {100, 10}, {1000, 2}} {
			for _, side := range sides {
				for name, s := range stores[side].round(t, size.n, size.calls) {
					keep(round, side, map[string]spent{fmt.Sprintf("%4d: %s", size.n, name): s})
				}
			}
		}
		for _, side := range sides {
			p := stores[side]
			one := slices.Repeat([]outmill.Store{p.Store}, 8)
			keep(round, side, map[string]spent{
				"8 readers of one process, without an order":   p.together(t, 4000, outmill.OrderNone, one...),
				"8 readers of one process, by key":             p.together(t, 4000, outmill.OrderKey, one...),
				"8 readers of eight clients, without an order": p.together(t, 4000, outmill.OrderNone, others[side]...),
				"8 readers of eight clients, by key":           p.together(t, 4000, outmill.OrderKey, others[side]...),
			})
		}
		keep(round, "MongoDB", itself.bare(t, 100, 5))
		keep(round, "MongoDB", itself.bare(t, 1000, 1))
	}
	report(t, found)
}

// report prints medians, and the ratios of the driver's.
func report(t *testing.T, found map[string]map[string][]spent) {
	load, _ := os.ReadFile("/proc/loadavg")
	t.Logf("load of the machine: %s", strings.TrimSpace(string(load)))
	median := func(of, name string) (m spent) {
		list := found[of][name]
		middle := func(value func(spent) time.Duration) time.Duration {
			slices.SortFunc(list, func(a, b spent) int { return int(value(a) - value(b)) })
			return value(list[len(list)/2])
		}
		m.server = middle(func(s spent) time.Duration { return s.server })
		m.client, m.clock = middle(func(s spent) time.Duration { return s.client }), middle(func(s spent) time.Duration { return s.clock })
		m.trips = list[len(list)/2].trips
		return m
	}
	micros := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	for _, of := range []string{"next", "MongoDB"} {
		names := make([]string, 0, len(found[of]))
		for name := range found[of] {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			n := median(of, name)
			line := fmt.Sprintf("%-46s %-8s client %7.1f server %7.1f clock %8.1f µs a message, %4.1f commands a call", name, of,
				micros(n.client), micros(n.server), micros(n.clock), n.trips)
			if of == "next" {
				p := median("present", name)
				line += fmt.Sprintf("; present client %7.1f server %7.1f clock %8.1f, %4.1f commands; next/present processor %.2f, clock %.2f",
					micros(p.client), micros(p.server), micros(p.clock), p.trips, micros(n.both())/micros(p.both()), micros(n.clock)/micros(p.clock))
			}
			t.Log(line)
		}
	}
	one := median("MongoDB", "findOneAndUpdate and deleteOne")
	for _, side := range []string{"present", "next"} {
		for _, n := range []int{100, 1000} {
			for _, order := range []string{"without an order", "by key"} {
				claim, ack := median(side, fmt.Sprintf("%4d: claim %s", n, order)), median(side, fmt.Sprintf("%4d: ack %s", n, order))
				t.Logf("%-8s claim and ack of %4d %-16s: times of findOneAndUpdate: processor %.1f, clock %.1f", side, n, order,
					micros(one.both())/micros(claim.both()+ack.both()), micros(one.clock)/micros(claim.clock+ack.clock))
			}
			appended := median(side, fmt.Sprintf("%4d: append", n))
			for _, with := range []string{"with the", "without"} {
				insert := median("MongoDB", fmt.Sprintf("InsertMany of %d, %s indexes", n, with))
				t.Logf("%-8s publish of %4d of InsertMany in a transaction, %s indexes: processor %.2f, clock %.2f", side, n, with,
					micros(insert.both())/micros(appended.both()), micros(insert.clock)/micros(appended.clock))
			}
		}
	}
}
