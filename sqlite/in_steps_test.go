package sqlite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest"
)

func TestStore_InSteps(t *testing.T) {
	t.Parallel()

	t.Run("a store that works in small steps keeps the order of each key", func(t *testing.T) {
		t.Parallel()
		storetest.WalkInSteps(t, storetest.Engine{
			New: func(t *testing.T, options storetest.Options) storetest.Harness {
				store := newConforming(t, options)
				store.SetAtOnce(1)
				return harness{t, store}
			},
		})
	})

	t.Run("records that become due together are handed out before all of them are ready", func(t *testing.T) {
		t.Parallel()
		store := newConforming(t, storetest.Options{})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
		const n = 3000
		records := make([]*outmill.Record, n)
		for i := range records {
			records[i] = &outmill.Record{Topic: fmt.Sprint("topic", i%3), Key: "k", MessageID: fmt.Sprint(i), Delay: time.Minute}
		}
		require.NoError(t, store.Append(t.Context(), records...))
		passTime(t, store.DB(), time.Hour)
		owner := outmill.NewOwnerToken()
		for i := 1; i <= 2; i++ {
			found, err := store.Claim(t.Context(), outmill.ClaimRequest{Owner: owner, Limit: 30, Lease: time.Minute, Order: outmill.OrderKey})
			require.NoError(t, err)
			require.NotEmpty(t, found)
			require.Equal(t, n-1000*i, count(t, store, "stage = 3"), "one step, of all topics")
		}
	})

	t.Run("Fail with Park parks the later records in steps", func(t *testing.T) {
		t.Parallel()
		store := newConforming(t, storetest.Options{})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
		const n = 2500
		records := make([]*outmill.Record, n+1)
		for i := range records {
			records[i] = &outmill.Record{Topic: "orders", Key: "hot", MessageID: fmt.Sprint(i)}
		}
		require.NoError(t, store.Append(t.Context(), records...))
		req := outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: 1, Lease: time.Minute, Order: outmill.OrderKey,
			KeyPolicy: outmill.KeyPark}
		found, err := store.Claim(t.Context(), req)
		require.NoError(t, err)
		require.Len(t, found, 1)
		other := req
		other.Owner = outmill.NewOwnerToken()
		none, err := store.Claim(t.Context(), other)
		require.NoError(t, err)
		require.Empty(t, none, "held")
		require.NoError(t, store.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: "no good", Park: true}}))
		require.Equal(t, 1001, count(t, store, "status = 'dead'"), "the record, and one step")
		for before := 0; count(t, store, "status = 'dead'") <= n; {
			dead := count(t, store, "status = 'dead'")
			require.Greater(t, dead, before, "each claim parks more")
			before = dead
			none, err := store.Claim(t.Context(), other)
			require.NoError(t, err)
			require.Empty(t, none)
		}
	})
}

// count returns the number of records that satisfy a condition.
func count(t *testing.T, store file, where string) (n int) {
	t.Helper()
	require.NoError(t, store.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM outmill_records WHERE `+where).Scan(&n))
	return n
}
