package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
)

// A store that works in small steps keeps the order of each key.
func TestStoreInSteps_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "the order of keys in small steps")
	whole := engine(t, pool(t))
	storetest.WalkInSteps(t, storetest.Engine{New: func(t *testing.T, options storetest.Options) storetest.Harness {
		h := whole.New(t, options).(harness)
		h.store = newConforming(t, h.store.Pool(), postgres.AtOnce(h.store.config, 1))
		return h
	}})
}

func TestStore_InSteps(t *testing.T) {
	t.Parallel()

	t.Run("records that become due together are handed out before all of them are ready", func(t *testing.T) {
		t.Parallel()
		onManyRecords(t, func(t *testing.T, db *pgxpool.Pool, store *postgres.Store, n int) {
			execute(t, db, sqlDelayed, n)
			// This record was appended later, with a key that has delayed records: it comes
			// after them.
			require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", Key: "k1", MessageID: "later"}))
			for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic} {
				before := valueOf[int](t, db, `SELECT count(*) FROM outmill.records WHERE stage = 3`)
				found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 100, order, "orders"))
				require.Len(t, found, 100)
				require.Equal(t, before-1000, valueOf[int](t, db, `SELECT count(*) FROM outmill.records WHERE stage = 3`), "one step")
				require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
			}
			if n > 10_000 {
				return
			}
			next, owner := map[string]int{}, outmill.NewOwnerToken()
			for i := 201; i <= n+1; i += 500 {
				found := claimed(t, store, claimOf(owner, 500, outmill.OrderKey, "orders"))
				require.Len(t, found, min(500, n+2-i))
				for _, r := range found {
					var at int
					if r.MessageID == "later" {
						at = n + 1
					} else {
						_, err := fmt.Sscanf(r.MessageID, "m%d", &at)
						require.NoError(t, err)
					}
					require.Greater(t, at, next[r.Key], "the order of %s", r.Key)
					next[r.Key] = at
				}
				require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
			}
		})
	})

	t.Run("Fail with Park parks the later records in steps", func(t *testing.T) {
		t.Parallel()
		onManyRecords(t, func(t *testing.T, db *pgxpool.Pool, store *postgres.Store, n int) {
			n = min(n, 200_000)
			head := &outmill.Record{Topic: "orders", Key: "hot", MessageID: "head"}
			require.NoError(t, store.Append(t.Context(), head))
			park := claimOf(outmill.NewOwnerToken(), 100, outmill.OrderKey, "orders")
			park.KeyPolicy = outmill.KeyPark
			first := claimed(t, store, park)
			require.Len(t, first, 1)
			execute(t, db, sqlHeldBehind, n)
			execute(t, db, `INSERT INTO outmill.notes (head, look_at, looks, grp, topic, name, blocker)
				SELECT min(seq), outmill.now() + 3600000000, 0, 'readers', 'orders', 'khot', $1 FROM outmill.records WHERE stage = 1`,
				park.Owner.String())
			dead := func() int { return valueOf[int](t, db, `SELECT count(*) FROM outmill.records WHERE stage = 6`) }

			require.NoError(t, store.Fail(t.Context(), []outmill.Settlement{{Lease: first[0].Lease(), Err: "no good", Park: true}}))
			require.Equal(t, 1001, dead(), "the record, and one step")
			require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", Key: "free", MessageID: "free"}))
			park.Owner = outmill.NewOwnerToken()
			found := claimed(t, store, park)
			require.Len(t, found, 1)
			require.Equal(t, "free", found[0].MessageID, "other keys need not wait for the rest")
			require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
			for before := 0; dead() < n+1; {
				require.Greater(t, dead(), before, "each claim parks more")
				before = dead()
				require.Empty(t, claimed(t, store, park))
			}
			require.Zero(t, valueOf[int](t, db, `SELECT count(*) FROM outmill.notes`))
		})
	})

	t.Run("many batches whose lease has ended are taken back in the order of their key", func(t *testing.T) {
		t.Parallel()
		const batches = 20
		r := newRing(t, storetest.Options{})
		var want []string
		for i := range batches {
			names := []string{fmt.Sprint("batch", i, "-0"), fmt.Sprint("batch", i, "-1")}
			want = append(want, names...)
			r.append(fmt.Sprint("key", i), names...)
			require.Len(t, r.claim(outmill.NewOwnerToken(), 2), 2)
		}
		passTime(t, r.db, r.schema, time.Hour)
		r.append("key0", "last")
		r.append("free", "free")
		require.ElementsMatch(t, append(want, "last", "free"), r.drained(readers))
	})
}

// many returns a number of records of the topic orders that needs many steps.
func many() int {
	if testenv.All() && !testenv.UnderRace {
		return 1_000_000
	}
	return 5_000
}

// onManyRecords runs the test on a store whose server has the statistics and indexes of tables that were just filled.
func onManyRecords(t *testing.T, test func(t *testing.T, db *pgxpool.Pool, store *postgres.Store, n int)) {
	t.Helper()
	db := readyPool(t, postgres.Config{})
	store := newStore(t, db, postgres.Config{NotifyInterval: -1})
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	test(t, db, store, many())
}

// sqlDelayed makes $1 records of 1,000 keys that all became due a second ago, and sqlHeldBehind $1 that are held behind one of their key.
const (
	sqlDelayed = `INSERT INTO outmill.records (id, grp, topic, key, tenant_id, stage, wake_at, due_at, next_at, created_at, expires_at, size,
	message_id, payload)
SELECT gen_random_uuid(), 'readers', 'orders', 'k' || g % 1000, '', 3, at, at, at, at - 3600000000, 0, 100, 'm' || g, '\x00'
FROM generate_series(1, $1::integer) AS g, (SELECT outmill.now() - 1000000 AS at) AS d`
	sqlHeldBehind = `INSERT INTO outmill.records (id, grp, topic, key, tenant_id, stage, under, wake_at, due_at, next_at, created_at,
	expires_at,
	size, message_id, payload)
SELECT gen_random_uuid(), 'readers', 'orders', 'hot', '', 1, 'khot', 0, at, at, at, 0, 100, 'm' || g, '\x00'
FROM generate_series(1, $1::integer) AS g, (SELECT outmill.now() AS at) AS d`
)
