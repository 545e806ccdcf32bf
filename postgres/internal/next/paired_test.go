package next_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/postgres/internal/next"
)

// paired is a store that is measured, on a pool of one connection.
type paired struct {
	outmill.Store
	db      *pgxpool.Pool
	backend int
	trips   *trips
}

func pairedOn(t *testing.T, open func(db *pgxpool.Pool) outmill.Store) paired {
	t.Helper()
	db := connect(t, postgrestest.Database(t), 1, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tap{} })
	p := paired{Store: open(db), db: db, trips: &trips{}}
	require.NoError(t, p.Ensure(t.Context()))
	require.NoError(t, db.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&p.backend))
	topics := outmill.Topics{Include: []string{"orders"}}
	require.NoError(t, p.RegisterGroup(t.Context(), outmill.Registration{Group: "readers", Topics: topics}))
	return p
}

// spent is processor time: that of this process, and that of the server's, as far as the system tells it.
type spent struct{ client, server time.Duration }

func (s spent) total() time.Duration { return s.client + s.server }

func (s spent) String() string {
	return fmt.Sprintf("%v (server %v)", s.total().Round(time.Microsecond), s.server.Round(time.Microsecond))
}

func (p paired) used() (s spent) {
	var own syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own)
	s.client = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", p.backend)); err == nil {
		on, _ := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		s.server = time.Duration(on)
	}
	return s
}

// times are those of one call of each kind, per call.
type times map[string]spent

func (p paired) round(t *testing.T, n, calls int) times {
	t.Helper()
	total := times{}
	measure := func(name string, fn func(ctx context.Context)) {
		before := p.used()
		fn(t.Context())
		after, sum := p.used(), total[name]
		total[name] = spent{
			sum.client + (after.client-before.client)/time.Duration(calls), sum.server + (after.server-before.server)/time.Duration(calls),
		}
	}
	for call := range calls {
		records := make([]*outmill.Record, n)
		for i := range records {
			records[i] = &outmill.Record{Topic: "orders", Key: fmt.Sprint("key", (call*n+i)%1000), Payload: make([]byte, 200)}
		}
		measure("append", func(ctx context.Context) { require.NoError(t, p.Append(ctx, records...)) })
	}
	for _, order := range []outmill.Order{outmill.OrderKey} {
		for range calls {
			var got []*outmill.Record
			measure("claim", func(ctx context.Context) {
				var err error
				got, err = p.Claim(ctx, outmill.ClaimRequest{
					Owner: outmill.NewOwnerToken(), Group: "readers", Limit: n, Lease: time.Minute, Order: order,
				})
				require.NoError(t, err)
			})
			require.Len(t, got, n)
			leases := make([]outmill.Lease, n)
			for i, r := range got {
				leases[i] = r.Lease()
			}
			measure("ack", func(ctx context.Context) { require.NoError(t, p.Ack(ctx, "worker", leases)) })
		}
	}
	return total
}

// nextOf opens a store on the driver, with its log or without.
func nextOf(t *testing.T, log bool) func(db *pgxpool.Pool) outmill.Store {
	return func(db *pgxpool.Pool) outmill.Store {
		s := engine.New(next.New(next.PoolOf(db), next.Config{Name: "next", Schema: "outmill_next", Log: log}), engine.Config{})
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
}

// TestPaired_Statements prints the statements and the round trips of a claim by key and an ack of 1,000 records.
func TestPaired_Statements(t *testing.T) {
	if os.Getenv("OUTMILL_PAIRS") == "" {
		t.Skip("OUTMILL_PAIRS is not set")
	}
	for name, log := range map[string]bool{"next": false, "log": true} {
		p := pairedOn(t, nextOf(t, log))
		p.round(t, 1000, 1)
		records := make([]*outmill.Record, 1000)
		for i := range records {
			records[i] = &outmill.Record{Topic: "orders", Key: fmt.Sprint("key", i), Payload: make([]byte, 200)}
		}
		count := func(what string, fn func(ctx context.Context)) {
			ctx, seen := tapped(t.Context())
			fn(ctx)
			statements := 0
			for _, values := range seen.list() {
				for _, value := range values {
					if text, ok := value.(string); ok && verb.MatchString(text) {
						statements++
					}
				}
			}
			t.Logf("%s %s: %d round trips, %d statements", name, what, len(seen.list()), statements)
		}
		count("append", func(ctx context.Context) { require.NoError(t, p.Append(ctx, records...)) })
		var leases []outmill.Lease
		count("claim", func(ctx context.Context) {
			got, err := p.Claim(ctx, outmill.ClaimRequest{
				Owner: outmill.NewOwnerToken(), Group: "readers", Limit: 1000, Lease: time.Minute, Order: outmill.OrderKey,
			})
			require.NoError(t, err)
			require.Len(t, got, 1000)
			for _, r := range got {
				leases = append(leases, r.Lease())
			}
		})
		count("ack", func(ctx context.Context) { require.NoError(t, p.Ack(ctx, "worker", leases)) })
	}
}

// presentOf opens the store of today, with its log or without.
func presentOf(t *testing.T, lane postgres.Lane) func(db *pgxpool.Pool) outmill.Store {
	return func(db *pgxpool.Pool) outmill.Store {
		s, err := postgres.New(db, postgres.Config{Lane: lane, NotifyInterval: -1}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
}

// TestPaired prints the processor time of appends, claims by key and acks beside those of the store of today, each with its log and
// without.
func TestPaired(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("OUTMILL_PAIRS"))
	if err != nil {
		t.Skip("OUTMILL_PAIRS is the number of rounds")
	}
	stores := map[string]paired{
		"rows": pairedOn(t, presentOf(t, postgres.LaneRows)), "log": pairedOn(t, presentOf(t, postgres.LaneLog)),
		"next rows": pairedOn(t, nextOf(t, false)), "next log": pairedOn(t, nextOf(t, true)),
	}
	names := []string{"rows", "next rows", "log", "next log"}
	for _, size := range []struct{ n, calls int }{{1, 200}, {100, 20}, {1000, 10}} {
		found := map[string][]spent{}
		for round := range rounds + 1 {
			for _, name := range names {
				for call, d := range stores[name].round(t, size.n, size.calls) {
					if round > 0 { // the first one prepares
						found[call+" "+name] = append(found[call+" "+name], d)
					}
				}
			}
		}
		for _, call := range []string{"append", "claim", "ack"} {
			median := func(name string) spent {
				list := found[call+" "+name]
				slices.SortFunc(list, func(a, b spent) int { return cmp.Compare(a.total(), b.total()) })
				return list[len(list)/2]
			}
			for _, name := range []string{"rows", "log"} {
				was, is := median(name), median("next "+name)
				t.Logf("%-4s %-6s %4d: present %v, next %v, %.2f", name, call, size.n, was, is, float64(is.total())/float64(was.total()))
			}
		}
	}
}
