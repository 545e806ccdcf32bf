package sqlite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storetest"
)

func TestStore_InSteps(t *testing.T) {
	t.Parallel()

	t.Run("a store that works in small steps keeps the order of each key", func(t *testing.T) {
		t.Parallel()
		storetest.WalkInSteps(t, storetest.Engine{
			New: func(t *testing.T, options storetest.Options) storetest.Harness {
				inSteps := func(c sqlite.Config) sqlite.Config { return c.InSteps(1) }
				return harness{t: t, file: newConforming(t, options, inSteps)}
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
		store.clock.Elapse(time.Hour)
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
		require.Equal(t, 1001, count(t, store, "stage = 6"), "the record, and one step")
		for before := 0; count(t, store, "stage = 6") <= n; {
			dead := count(t, store, "stage = 6")
			require.Greater(t, dead, before, "each claim parks more")
			before = dead
			none, err := store.Claim(t.Context(), other)
			require.NoError(t, err)
			require.Empty(t, none)
		}
	})

	t.Run("a join with many steps is deleted in parts, and others write between them", func(t *testing.T) {
		t.Parallel()
		store := newConforming(t, storetest.Options{})
		join := roles.Join{ExpectedSteps: 1}
		require.NoError(t, store.StartJoin(t.Context(), &join))
		require.NoError(t, store.CancelJoin(t.Context(), join.ID, "not needed"))
		const members, parts = 60_000, 30
		_, err := store.DB().ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
			INSERT INTO outmill_entries (kind, key, at, made_at, value)
			SELECT 'steps of ' || ?1, printf('%032d', i), 0, 0, '' FROM n`, join.ID.String(), members)
		require.NoError(t, err)
		store.clock.Elapse(48 * time.Hour)
		ended := make(chan error, 1)
		go func() {
			_, err := store.DeleteJoins(t.Context(), 10)
			ended <- err
		}()
		written := 0
		for done := false; !done; {
			select {
			case err := <-ended:
				require.NoError(t, err)
				done = true
			default:
				require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders"}))
				written++
			}
		}
		require.GreaterOrEqual(t, written, parts/2)
		_, err = store.GetJoin(t.Context(), join.ID)
		require.ErrorIs(t, err, roles.ErrUnknownJoin)
		var left int
		require.NoError(t, store.DB().QueryRowContext(t.Context(),
			`SELECT count(*) FROM outmill_entries WHERE kind LIKE 'steps of %'`).Scan(&left))
		require.Zero(t, left)
	})
}

// count returns the number of records that satisfy a condition.
func count(t *testing.T, store file, where string) (n int) {
	t.Helper()
	require.NoError(t, store.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM outmill_records WHERE `+where).Scan(&n))
	return n
}
