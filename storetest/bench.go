package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

const (
	// backlog is the least number of records that wait when BenchmarkClaimAndAck begins to
	// claim.
	backlog = 40_000
	// refill is the number of records of one Append.
	refill = 1000
)

// BenchmarkAppend measures the Append of batch records (1 or more), each with 200 bytes and
// without a key, which one group reads. It reports records/s.
//
// open returns a store on an empty database, and removes the database by b.Cleanup. If it
// fails, it fails the benchmark. The benchmark ensures the schema and closes the store.
func BenchmarkAppend(b *testing.B, batch int, open func(b *testing.B) outmill.Store) {
	store := openBench(b, open)
	for b.Loop() {
		appendBench(b, store, batch, keyless)
	}
	reportRate(b, batch)
}

// BenchmarkClaimAndAck measures a Claim of batch records (1 to 40,000) and their Ack. It has
// a sub-benchmark for each order: none, by key, and by topic. Each has a store of its own,
// which open makes as for BenchmarkAppend. It reports records/s. At the start about 40,000
// records wait. When they are used up, it appends as many again, outside the measured time.
// A claim that returns fewer than batch records fails the benchmark.
func BenchmarkClaimAndAck(b *testing.B, batch int, open func(b *testing.B) outmill.Store) {
	for _, c := range []struct {
		name  string
		order outmill.Order
		key   func(int) string
	}{
		{"unordered", outmill.OrderNone, keyless},
		{"by key", outmill.OrderKey, numberedKey},
		{"by topic", outmill.OrderTopic, keyless},
	} {
		b.Run(c.name, func(b *testing.B) {
			store := openBench(b, open)
			claim := outmill.ClaimRequest{
				Owner: outmill.NewOwnerToken(), Group: group, Limit: batch, Lease: time.Minute, Order: c.order,
			}
			left := 0
			for b.Loop() {
				if left < batch {
					b.StopTimer()
					for ; left < backlog; left += refill {
						appendBench(b, store, refill, c.key)
					}
					b.StartTimer()
				}
				claimAndAck(b, store, claim)
				left -= batch
			}
			reportRate(b, batch)
		})
	}
}

func openBench(b *testing.B, open func(b *testing.B) outmill.Store) outmill.Store {
	b.Helper()
	store := open(b)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	require.NoError(b, store.Ensure(b.Context()))
	require.NoError(b, store.RegisterGroup(b.Context(), outmill.Registration{Group: group}))
	return store
}

func appendBench(b *testing.B, store outmill.Store, n int, key func(int) string) {
	b.Helper()
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{Topic: orders, Key: key(i), Payload: make([]byte, 200), Metadata: map[string]string{"name": "order.placed"}}
	}
	require.NoError(b, store.Append(b.Context(), records...))
}

func claimAndAck(b *testing.B, store outmill.Store, claim outmill.ClaimRequest) {
	b.Helper()
	records, err := store.Claim(b.Context(), claim)
	require.NoError(b, err)
	require.Len(b, records, claim.Limit)
	require.NoError(b, store.Ack(b.Context(), "", suite.Leases(records)))
}

func reportRate(b *testing.B, batch int) {
	b.Helper()
	b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "records/s")
}

func keyless(int) string { return "" }

func numberedKey(i int) string { return fmt.Sprintf("k%d", i) }
