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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

// sent counts what connections send.
type sent struct{ trips, statements atomic.Int64 }

func (s *sent) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.trips.Add(1)
	s.statements.Add(1)
	return ctx
}

func (*sent) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (s *sent) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	s.trips.Add(1)
	s.statements.Add(int64(data.Batch.Len()))
	return ctx
}

func (*sent) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (*sent) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// together are stores of several processes on one schema, each with a pool of its own.
type together struct {
	stores []outmill.Store
	pools  []*pgxpool.Pool
	sent   *sent
}

func togetherOn(t *testing.T, n int, open func(db *pgxpool.Pool) outmill.Store) *together {
	t.Helper()
	database := postgrestest.Database(t)
	all := &together{sent: &sent{}}
	for range n {
		db := connect(t, database, 2, func(c *pgxpool.Config) { c.ConnConfig.Tracer = all.sent })
		all.pools, all.stores = append(all.pools, db), append(all.stores, open(db))
	}
	require.NoError(t, all.stores[0].Ensure(t.Context()))
	topics := outmill.Topics{Include: []string{"orders"}}
	require.NoError(t, all.stores[0].RegisterGroup(t.Context(), outmill.Registration{Group: "readers", Topics: topics}))
	return all
}

// server is the processor time of all sessions of the database.
func (a *together) server(t *testing.T) (total time.Duration) {
	t.Helper()
	rows, err := a.pools[0].Query(t.Context(), "SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
	require.NoError(t, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	require.NoError(t, err)
	for _, pid := range pids {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid)); err == nil {
			on, _ := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
			total += time.Duration(on)
		}
	}
	return total
}

// drained is what it took to claim and ack all messages, per message.
type drained struct{ rate, trips, statements, client, server float64 }

// drain has each store claim by key and ack until the messages are gone.
func (a *together) drain(t *testing.T, messages, limit int) drained {
	t.Helper()
	for from := 0; from < messages; from += 1000 {
		records := make([]*outmill.Record, 1000)
		for i := range records {
			records[i] = &outmill.Record{Topic: "orders", Key: fmt.Sprint("key", (from+i)%1000), Payload: make([]byte, 200)}
		}
		require.NoError(t, a.stores[0].Append(t.Context(), records...))
	}
	own := func() time.Duration {
		var used syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
		return time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	server, trips, statements, client, began := a.server(t), a.sent.trips.Load(), a.sent.statements.Load(), own(), time.Now()
	var left atomic.Int64
	left.Store(int64(messages))
	var all sync.WaitGroup
	errs := make(chan error, len(a.stores))
	for _, store := range a.stores {
		all.Go(func() {
			for owner := outmill.NewOwnerToken(); left.Load() > 0; {
				got, err := store.Claim(t.Context(), outmill.ClaimRequest{
					Owner: owner, Group: "readers", Limit: limit, Lease: time.Minute, Order: outmill.OrderKey,
				})
				leases := make([]outmill.Lease, len(got))
				for i, r := range got {
					leases[i] = r.Lease()
				}
				if err == nil && len(got) > 0 {
					err = store.Ack(t.Context(), "worker", leases)
				}
				if err != nil {
					errs <- err
					return
				}
				left.Add(-int64(len(got)))
			}
		})
	}
	all.Wait()
	took, n := time.Since(began), float64(messages)
	close(errs)
	require.NoError(t, <-errs)
	// The first statement of server is counted, and its own is not.
	return drained{
		n / took.Seconds(), float64(a.sent.trips.Load()-trips) / n, float64(a.sent.statements.Load()-statements) / n,
		float64((own() - client).Microseconds()) / n, float64((a.server(t) - server).Microseconds()) / n,
	}
}

// TestPaired_Together prints what eight processes take together that claim by key from one topic, beside the store of today, each with
// its log and without.
func TestPaired_Together(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("OUTMILL_PAIRS"))
	if err != nil {
		t.Skip("OUTMILL_PAIRS is the number of rounds")
	}
	kinds := map[string]func(db *pgxpool.Pool) outmill.Store{
		"rows": presentOf(t, postgres.LaneRows), "log": presentOf(t, postgres.LaneLog),
		"next rows": nextOf(t, false), "next log": nextOf(t, true),
	}
	names := []string{"rows", "next rows", "log", "next log"}
	for _, processes := range []int{1, 8} {
		stores := map[string]*together{}
		for name, open := range kinds {
			stores[name] = togetherOn(t, processes, open)
		}
		found := map[string][]drained{}
		for round := range rounds + 1 {
			for _, name := range names {
				if d := stores[name].drain(t, 20_000, 100); round > 0 { // the first one prepares
					found[name] = append(found[name], d)
				}
			}
		}
		for _, name := range names {
			median := func(of func(d drained) float64) float64 {
				list := make([]float64, len(found[name]))
				for i, d := range found[name] {
					list[i] = of(d)
				}
				slices.Sort(list)
				return list[len(list)/2]
			}
			t.Logf("%d processes, %-9s: %7.0f msg/s; a message: %.4f round trips, %.4f statements, %.1f µs client, %.1f µs server", processes, name,
				median(func(d drained) float64 { return d.rate }), median(func(d drained) float64 { return d.trips }),
				median(func(d drained) float64 { return d.statements }), median(func(d drained) float64 { return d.client }),
				median(func(d drained) float64 { return d.server }))
		}
	}
}
