package forwarder_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/storetest/memstore"
)

func TestBatchSize(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name         string
		config       forwarder.Config
		first, most  int
		bytes, bound int
		// largest is what the store says; 0 is nothing.
		largest int
	}{
		{"the default grows with the backlog", forwarder.Config{}, 100, 1000, 10, 0, 0},
		{"it grows to as much as the store says", forwarder.Config{}, 100, 1700, 10, 0, 1700},
		{"a batch size that is set does not grow", forwarder.Config{BatchSize: 100}, 100, 100, 10, 0, 1700},
		{"a third of MaxInFlightBytes limits what grows", forwarder.Config{MaxInFlightBytes: 600_000}, 100, 0, 1000, 200_000, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.NewDatabase(), memstore.Options{})
				require.NoError(t, store.Ensure(t.Context()))
				register(t, store)
				const n = 8000
				records := make([]*outmill.Record, n)
				for i := range records {
					records[i] = &outmill.Record{Topic: "orders", Key: fmt.Sprint(i), Payload: make([]byte, test.bytes)}
				}
				require.NoError(t, store.Append(t.Context(), records...))
				p := &paced{Store: store, claim: time.Millisecond, produce: 2 * time.Millisecond, appended: map[string]time.Time{}}
				var queue outmill.Queue = p
				if test.largest > 0 {
					queue = largest{p, test.largest}
				}
				published, err := newForwarder(t, queue, p, test.config).Once(t.Context())
				require.NoError(t, err)
				require.Equal(t, n, published)
				require.Equal(t, test.first, p.batches[0])
				if test.most > 0 {
					require.Equal(t, test.most, slices.Max(p.batches))
				} else {
					require.Greater(t, slices.Max(p.batches), 100, "it grows")
					require.LessOrEqual(t, slices.Max(p.batches)*test.bytes, 3*test.bound, "what is held is limited")
				}
			})
		})
	}
}

// largest is a store that says up to how many records claims should grow.
type largest struct {
	*paced
	most int
}

func (l largest) LargestClaim() int { return l.most }
