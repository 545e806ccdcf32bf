//go:build unix

package sqlite_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

// benchRow is work on a store of which the processor time is compared with that of another version.
type benchRow struct {
	name string
	// messages are handled in one run.
	messages int
	run      func(b *rowBench)
}

// rowBench is a store with a file of its own, and the processor time of the measured parts.
type rowBench struct {
	*testing.B
	store outmill.Store
	cpu   time.Duration
}

var benchRows = []benchRow{
	{"append of 1", 2000, func(b *rowBench) { b.measure(func() { b.append(2000, 1, "orders", numbered(1000)) }) }},
	{"append of 100", 20_000, func(b *rowBench) { b.measure(func() { b.append(20_000, 100, "orders", numbered(1000)) }) }},
	{"claim and ack of 1, no order", 1000, func(b *rowBench) { b.drain(1000, 1, outmill.OrderNone, outmill.KeyBlock, numbered(0)) }},
	{"claim and ack of 100, no order", 20_000, func(b *rowBench) { b.drain(20_000, 100, outmill.OrderNone, outmill.KeyBlock, numbered(0)) }},
	{"claim and ack of 1 by key", 1000, func(b *rowBench) { b.drain(1000, 1, outmill.OrderKey, outmill.KeyBlock, numbered(1000)) }},
	{"claim and ack of 100 by key", 20_000, func(b *rowBench) { b.drain(20_000, 100, outmill.OrderKey, outmill.KeyBlock, numbered(1000)) }},
	{"claim and ack of 100 by topic", 20_000, func(b *rowBench) {
		b.drain(20_000, 100, outmill.OrderTopic, outmill.KeyBlock, numbered(1000))
	}},
	{"6,000 that fall due at once, by key", 6000, delayed},
	{"20 keys, two owners, 10 a claim", 3000, twoOwners},
	{"20 keys, two owners, 20 a claim", 3000, crowded},
	{"one key with 5,000 held, others flow", 5000, besideHeld},
	{"claim and abandon of 100, no order", 10_000, func(b *rowBench) { abandon(b, outmill.OrderNone) }},
	{"claim and abandon of 100 by key", 10_000, func(b *rowBench) { abandon(b, outmill.OrderKey) }},
}

// BenchmarkRows reports the processor time of a message, store included. To compare two versions, build the tests of both, and run them
// in turns with -test.bench '^BenchmarkRows$' -test.benchtime 1x, several times, with TMPDIR in memory.
func BenchmarkRows(b *testing.B) {
	for _, row := range benchRows {
		b.Run(row.name, func(b *testing.B) {
			total := time.Duration(0)
			for b.Loop() {
				r := &rowBench{B: b, store: openRow(b)}
				row.run(r)
				total += r.cpu
			}
			b.ReportMetric(float64(total.Microseconds())/float64(b.N*row.messages), "cpu-µs/message")
		})
	}
}

func openRow(b *testing.B) outmill.Store {
	b.Helper()
	path := filepath.Join(b.TempDir(), "bench.db")
	store, err := sqlite.Open(b.Context(), path, sqlite.Config{}, nil)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	require.NoError(b, store.Ensure(b.Context()))
	require.NoError(b, store.RegisterGroup(b.Context(), outmill.Registration{Group: "g"}))
	return store
}

// measure adds the processor time of fn, with that of the collection of what it leaves.
func (b *rowBench) measure(fn func()) {
	runtime.GC()
	began := processor(b)
	fn()
	runtime.GC()
	b.cpu += processor(b) - began
}

func processor(b *rowBench) time.Duration {
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// numbered makes a key for each number; 0 keys are none.
func numbered(keys int) func(i int) string {
	return func(i int) string {
		if keys == 0 {
			return ""
		}
		return fmt.Sprint("key ", i%keys)
	}
}

func (b *rowBench) append(n, batch int, topic string, key func(int) string) {
	for i := 0; i < n; i += batch {
		records := make([]*outmill.Record, batch)
		for j := range records {
			records[j] = &outmill.Record{
				Topic: topic, Key: key(i + j), Payload: make([]byte, 200), Metadata: map[string]string{"name": "order.placed"},
			}
		}
		require.NoError(b, b.store.Append(b.Context(), records...))
	}
}

func (b *rowBench) claim(owner outmill.OwnerToken, limit int, order outmill.Order, policy outmill.KeyPolicy) []*outmill.Record {
	records, err := b.store.Claim(b.Context(), outmill.ClaimRequest{
		Owner: owner, Group: "g", Limit: limit, Lease: time.Minute, Order: order, KeyPolicy: policy,
	})
	require.NoError(b, err)
	return records
}

func (b *rowBench) ack(records []*outmill.Record) {
	require.NoError(b, b.store.Ack(b.Context(), "", leases(records)))
}

// drain claims and acks n records.
func (b *rowBench) drain(n, limit int, order outmill.Order, policy outmill.KeyPolicy, key func(int) string) {
	b.append(n, 1000, "orders", key)
	owner := outmill.NewOwnerToken()
	b.measure(func() {
		for left := n; left > 0; {
			records := b.claim(owner, limit, order, policy)
			require.NotEmpty(b, records)
			b.ack(records)
			left -= len(records)
		}
	})
}

func delayed(b *rowBench) {
	const n = 6000
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{Topic: "orders", Key: numbered(1000)(i), Payload: make([]byte, 200), Delay: time.Millisecond}
	}
	require.NoError(b, b.store.Append(b.Context(), records...))
	owner := outmill.NewOwnerToken()
	b.measure(func() {
		for left := n; left > 0; {
			records := b.claim(owner, 100, outmill.OrderKey, outmill.KeyBlock)
			if len(records) == 0 {
				continue // the last ones are not due yet
			}
			b.ack(records)
			left -= len(records)
		}
	})
}

// twoOwners have half of the keys each in work, so that each claim finds rows of the other's keys.
func twoOwners(b *rowBench) { b.turns(10) }

// crowded owners claim as many rows as there are keys, so that one has all keys in work.
func crowded(b *rowBench) { b.turns(20) }

// turns lets two owners claim in turns. Each acks when the other one has claimed.
func (b *rowBench) turns(limit int) {
	const n = 3000
	b.append(n, 100, "orders", numbered(20))
	owners := []outmill.OwnerToken{outmill.NewOwnerToken(), outmill.NewOwnerToken()}
	b.measure(func() {
		var has [2][]*outmill.Record
		for i, left := 0, n; left > 0; i = 1 - i {
			claimed := b.claim(owners[i], limit, outmill.OrderKey, outmill.KeyBlock)
			if len(has[1-i]) > 0 {
				b.ack(has[1-i])
			}
			has[1-i], has[i], left = nil, claimed, left-len(claimed)
		}
	})
}

// besideHeld drains records beside a key whose head another owner has.
func besideHeld(b *rowBench) {
	const n = 5000
	b.append(n, 1000, "orders", func(int) string { return "held" })
	require.Len(b, b.claim(outmill.NewOwnerToken(), 1, outmill.OrderKey, outmill.KeyBlock), 1)
	for range 8 {
		b.claim(outmill.NewOwnerToken(), 100, outmill.OrderKey, outmill.KeyBlock) // holds others
	}
	b.append(n, 1000, "orders", numbered(1000))
	owner := outmill.NewOwnerToken()
	b.measure(func() {
		for left := n; left > 0; {
			records := b.claim(owner, 100, outmill.OrderKey, outmill.KeyBlock)
			b.ack(records)
			left -= len(records)
		}
	})
}

func abandon(b *rowBench, order outmill.Order) {
	const n = 10_000
	b.append(n, 1000, "orders", numbered(n))
	owner := outmill.NewOwnerToken()
	b.measure(func() {
		for left := n; left > 0; {
			records := b.claim(owner, 100, order, outmill.KeyBlock)
			require.NotEmpty(b, records)
			settlements := make([]outmill.Settlement, len(records))
			for i, r := range records {
				settlements[i] = outmill.Settlement{Lease: r.Lease(), Delay: time.Hour, Err: "refused"}
			}
			require.NoError(b, b.store.Abandon(b.Context(), settlements))
			left -= len(records)
		}
	})
}
