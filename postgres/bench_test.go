package postgres_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
)

// The benchmarks wait for the disk, as a server does unless told otherwise: on
// a server of OUTMILL_TEST_POSTGRES_URL it is what that server is set to.

func benchStore(b *testing.B) *postgres.Store {
	b.Helper()
	url := os.Getenv("OUTMILL_TEST_POSTGRES_URL")
	if url == "" {
		url = testenv.OwnPostgres(b, "fsync=on", "full_page_writes=on").URL
	}
	store, err := postgres.Open(b.Context(), testenv.PostgresDatabaseOn(b, url), postgres.Config{}, nil)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	require.NoError(b, store.Ensure(b.Context()))
	require.NoError(b, store.RegisterGroup(b.Context(), "g", outmill.Topics{}))
	return store
}

func benchRecords(n int, key func(int) string) []*outmill.Record {
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{Topic: "orders", Key: key(i), Payload: make([]byte, 200), Metadata: map[string]string{"name": "order.placed"}}
	}
	return records
}

func keyless(int) string { return "" }

func benchAppend(b *testing.B, store *postgres.Store, n int, key func(int) string) {
	b.Helper()
	require.NoError(b, store.Append(b.Context(), benchRecords(n, key)...))
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 100, 200, 500, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			store := benchStore(b)
			for b.Loop() {
				benchAppend(b, store, n, keyless)
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

func BenchmarkClaimAndAck(b *testing.B) {
	const batch = 500
	keys := func(i int) string { return fmt.Sprintf("k%d", i%1000) }
	for _, c := range []struct {
		name  string
		order outmill.Order
		key   func(int) string
	}{
		{"unordered", outmill.OrderNone, keyless},
		{"by key", outmill.OrderKey, keys},
		{"by topic", outmill.OrderTopic, keyless},
	} {
		b.Run(c.name, func(b *testing.B) {
			store := benchStore(b)
			owner := outmill.NewOwnerToken()
			left := 0
			for b.Loop() {
				if left == 0 {
					b.StopTimer()
					for range 40 {
						benchAppend(b, store, 1000, c.key)
					}
					left = 40_000
					b.StartTimer()
				}
				records, err := store.Claim(b.Context(), outmill.ClaimRequest{
					Owner: owner, Group: "g", Limit: batch, Lease: time.Minute, Order: c.order,
				})
				require.NoError(b, err)
				require.Len(b, records, batch)
				leases := make([]outmill.Lease, batch)
				for i, r := range records {
					leases[i] = r.Lease()
				}
				require.NoError(b, store.Ack(b.Context(), leases))
				left -= batch
			}
			b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
