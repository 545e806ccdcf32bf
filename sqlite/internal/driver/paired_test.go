package driver_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/sqlite"
)

// TestPaired measures this driver beside the store of package sqlite, in OUTMILL_PAIRS pairs of runs, and prints the
// medians: OUTMILL_PAIRS=7 go test -run TestPaired -v ./sqlite/internal/driver. OUTMILL_PAIR is the beginning of the
// name of one work, and OUTMILL_PAIR_KIND one of old and new, for a profile.
func TestPaired(t *testing.T) {
	pairs, _ := strconv.Atoi(os.Getenv("OUTMILL_PAIRS"))
	if pairs == 0 {
		t.Skip("OUTMILL_PAIRS is not set")
	}
	t.Logf("%-36s %9s %9s %6s", "µs of processor time per message", "old", "new", "ratio")
	sum, n := 0.0, 0
	for _, w := range works {
		if !strings.HasPrefix(w.name, os.Getenv("OUTMILL_PAIR")) {
			continue
		}
		before, after := w.measure(t, pairs)
		t.Logf("%-36s %9.1f %9.1f %6.2f", w.name, before, after, after/before)
		sum, n = sum+after/before, n+1
	}
	t.Logf("mean of the ratios: %.2f", sum/float64(n))
}

// work is what a run does with n messages.
type work struct {
	name string
	n    int
	fill func(w *worker)
	run  func(w *worker)
}

type worker struct {
	t *testing.T
	n int
	outmill.Store
}

func (w *work) measure(t *testing.T, pairs int) (before, after float64) {
	t.Helper()
	kinds := []string{"old", "new"}
	if kind := os.Getenv("OUTMILL_PAIR_KIND"); kind != "" {
		kinds = []string{kind}
	}
	used := map[string][]float64{}
	for i := range pairs {
		if i > 0 {
			slices.Reverse(kinds)
		}
		for _, kind := range kinds {
			used[kind] = append(used[kind], w.once(t, kind))
		}
	}
	return median(used["old"]), median(used["new"])
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}

func (w *work) once(t *testing.T, kind string) float64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	run := &worker{t: t, n: w.n}
	if kind == "new" {
		run.Store = openFile(t, path, engine.Config{}, &atomic.Int64{})
	} else {
		store, err := sqlite.Open(t.Context(), "file:"+path+"?_pragma=synchronous(OFF)", sqlite.Config{}, nil)
		require.NoError(t, err)
		run.Store = store
	}
	defer func() { require.NoError(t, run.Close()) }()
	require.NoError(t, run.Store.(outmill.Schema).Ensure(t.Context()))
	require.NoError(t, run.RegisterGroup(t.Context(), outmill.Registration{Topics: outmill.Topics{Include: []string{"orders"}}}))
	if w.fill != nil {
		w.fill(run)
	}
	begin := processorTime()
	w.run(run)
	return float64((processorTime() - begin).Nanoseconds()) / 1000 / float64(w.n)
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// append appends n records, batch at a time. keys is the number of keys; 0 is none.
func (w *worker) append(n, batch, keys int, change ...func(r *outmill.Record)) {
	for i := 0; i < n; i += batch {
		records := make([]*outmill.Record, batch)
		for j := range records {
			r := &outmill.Record{Topic: "orders", Payload: make([]byte, 200), Metadata: map[string]string{"type": "order.placed", "source": "shop"}}
			if keys > 0 {
				r.Key = "key" + strconv.Itoa((i+j)%keys)
			}
			for _, fn := range change {
				fn(r)
			}
			records[j] = r
		}
		require.NoError(w.t, w.Append(w.t.Context(), records...))
	}
}

func request(order outmill.Order, limit int) outmill.ClaimRequest {
	return outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Topics: outmill.Topics{Include: []string{"orders"}}, Limit: limit, Lease: time.Minute, Order: order,
	}
}

func leasesOf(records []*outmill.Record) []outmill.Lease {
	leases := make([]outmill.Lease, len(records))
	for i, r := range records {
		leases[i] = r.Lease()
	}
	return leases
}

// drain claims and acks until n are done.
func (w *worker) drain(n int, req outmill.ClaimRequest) {
	for done := 0; done < n; {
		records, err := w.Claim(w.t.Context(), req)
		require.NoError(w.t, err)
		require.NotEmpty(w.t, records, "%d of %d", done, n)
		require.NoError(w.t, w.Ack(w.t.Context(), "w", leasesOf(records)))
		done += len(records)
	}
}

// claimAndAck is a work of claims and acks.
func claimAndAck(name string, n, keys int, order outmill.Order, limit int) work {
	return work{fmt.Sprintf("claim and ack, %s, %d", name, limit), n, func(w *worker) { w.append(n, 100, keys) },
		func(w *worker) { w.drain(n, request(order, limit)) }}
}

const (
	few  = 600
	many = 6000
)

var works = []work{
	{"append 1", few, nil, func(w *worker) { w.append(few, 1, 0) }},
	{"append 100", many, nil, func(w *worker) { w.append(many, 100, 0) }},
	claimAndAck("no order", few, 0, outmill.OrderNone, 1),
	claimAndAck("no order", many, 0, outmill.OrderNone, 100),
	claimAndAck("by key", few, 500, outmill.OrderKey, 1),
	claimAndAck("by key", many, 1000, outmill.OrderKey, 100),
	claimAndAck("by topic", many, 1000, outmill.OrderTopic, 100),
	{"delayed and due at once, by key, 100", many, func(w *worker) {
		w.append(many, 100, 1000, func(r *outmill.Record) { r.Delay = time.Millisecond })
		time.Sleep(5 * time.Millisecond)
	}, func(w *worker) { w.drain(many, request(outmill.OrderKey, 100)) }},
	{"20 keys, 2 owners, holds", many / 2, func(w *worker) { w.append(many/2, 100, 20) }, holds},
	{"a key with 5,000 held, others flow", many / 2, func(w *worker) {
		w.append(5000, 100, 1)
		req := request(outmill.OrderKey, 1)
		req.Lease = time.Hour
		records, err := w.Claim(w.t.Context(), req)
		require.NoError(w.t, err)
		require.Len(w.t, records, 1)
		for range 8 { // holds the rest
			_, err = w.Claim(w.t.Context(), request(outmill.OrderKey, 100))
			require.NoError(w.t, err)
		}
		w.append(many/2, 100, 1000, func(r *outmill.Record) { r.Key = "x" + r.Key })
	}, func(w *worker) { w.drain(many/2, request(outmill.OrderKey, 100)) }},
	{"claim and abandon, by key, 100", many / 2, func(w *worker) { w.append(many/2, 100, 5000) }, func(w *worker) {
		req := request(outmill.OrderKey, 100)
		for range many / 2 / 100 {
			records, err := w.Claim(w.t.Context(), req)
			require.NoError(w.t, err)
			var list []outmill.Settlement
			for _, r := range records {
				list = append(list, outmill.Settlement{Lease: r.Lease(), Err: "broken", Delay: time.Hour})
			}
			require.NoError(w.t, w.Abandon(w.t.Context(), list))
		}
	}},
}

// holds has two owners claim in turn, so that each finds keys of the other.
func holds(w *worker) {
	owners := [2]outmill.ClaimRequest{request(outmill.OrderKey, 10), request(outmill.OrderKey, 10)}
	var open [2][]outmill.Lease
	for i, left := 0, w.n; left > 0; i = 1 - i {
		records, err := w.Claim(w.t.Context(), owners[i])
		require.NoError(w.t, err)
		if len(open[1-i]) > 0 {
			require.NoError(w.t, w.Ack(w.t.Context(), "w", open[1-i]))
		}
		left -= len(records)
		open[1-i], open[i] = nil, leasesOf(records)
	}
}
