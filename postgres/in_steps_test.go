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
	testenv.WithoutRace(t, "the order of keys in small steps")
	db := pool(t)
	for _, lane := range bothLanes {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			if lane != postgres.LaneLog {
				testenv.Long(t, "tests of either lane on rows")
			}
			whole := engine(t, db, lane)
			storetest.WalkInSteps(t, storetest.Engine{New: func(t *testing.T, options storetest.Options) storetest.Harness {
				h := whole.New(t, options)
				h.(harness).store.SetAtOnce(1)
				return h
			}})
		})
	}
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
			execute(t, db, `INSERT INTO outmill.records (id, grp, topic, key, stage, due_at, next_at, created_at, size, message_id, payload)
SELECT gen_random_uuid(), 'readers', 'orders', 'hot', 1, now(), now(), now(), 100, 'm' || g, '\x00'
FROM generate_series(1, $1::integer) AS g`, n)
			execute(t, db, `INSERT INTO outmill.lanes (grp, topic, key, blocked_by, until, head)
				SELECT 'readers', 'orders', 'hot', $1, now() + interval '1 hour', min(seq) FROM outmill.records WHERE stage = 1`, park.Owner.String())
			dead := func() int { return valueOf[int](t, db, `SELECT count(*) FROM outmill.records WHERE stage = 7`) }

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
			require.Zero(t, valueOf[int](t, db, `SELECT count(*) FROM outmill.lanes`))
		})
	})

	t.Run("a claim that finds nothing checks few of many blocked keys", func(t *testing.T) {
		t.Parallel()
		onManyRecords(t, func(t *testing.T, db *pgxpool.Pool, store *postgres.Store, n int) {
			n = min(n, 200_000)
			execute(t, db, sqlBlockers, n)
			execute(t, db, sqlHeldBehind, n)
			execute(t, db, sqlOverdue)
			owner := outmill.NewOwnerToken()
			for i := 1; i <= 3; i++ {
				require.Empty(t, claimed(t, store, claimOf(owner, 100, outmill.OrderKey, "orders")))
				require.Equal(t, n-100*i, valueOf[int](t, db, `SELECT count(*) FROM outmill.lanes WHERE looks = 7`), "claim %d", i)
			}
			require.Zero(t, valueOf[int](t, db, `SELECT count(*) FROM outmill.lanes WHERE blocked_by = ''`))
			// Records of free keys are delivered all the same.
			require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", Key: "free", MessageID: "free"}))
			require.Len(t, claimed(t, store, claimOf(owner, 100, outmill.OrderKey, "orders")), 1)
		})
	})

	t.Run("a claim takes back a few of many batches whose lease has ended", func(t *testing.T) {
		testenv.Long(t, "what many claims, batches and rounds cost")
		t.Parallel()
		const batches = 20
		r := newTape(t, tapePool(t), storetest.Options{})
		var want []string
		for i := range batches {
			names := numbered(fmt.Sprint("batch", i, "-"), 2)
			want = append(want, names...)
			r.append("key", names...)
			require.Len(t, claimed(t, r.store, claimOf(r.owner, 2, outmill.OrderKey, "orders")), 2)
		}
		passTime(t, r.db, r.schema, time.Hour)
		r.append("key", "last")
		r.append("free", "free")
		inWork := func() int {
			return valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {batches} AS b WHERE open > 0 AND NOT EXISTS (SELECT 1 FROM {ended} AS e
				WHERE e.line = b.line AND e.n = b.n)`))
		}
		free := claimed(t, r.store, claimOf(r.owner, 100, outmill.OrderKey, "orders"))
		require.Equal(t, []string{"free"}, namesOf(free), "of the other key some are still to be taken back")
		require.Equal(t, batches-4+1, inWork(), "four were taken back, and this is another one")
		// Ack it, because on a busy machine its lease would end before all others exist.
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(free)))
		require.Equal(t, append(want, "last"), r.drain(100, outmill.OrderKey))
	})
}

// many returns a number of records of the topic orders that needs many steps.
func many() int {
	if testenv.All() && !testenv.UnderRace {
		return 1_000_000
	}
	return 5_000
}

// onManyRecords runs the test on stores of each lane. The server's statistics and indexes are
// those of a table that was just filled.
func onManyRecords(t *testing.T, test func(t *testing.T, db *pgxpool.Pool, store *postgres.Store, n int)) {
	t.Helper()
	for _, lane := range bothLanes {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			if lane != postgres.LaneLog {
				testenv.Long(t, "tests of either lane on rows")
			}
			db := readyPool(t, postgres.Config{Lane: lane})
			store := newStore(t, db, postgres.Config{NotifyInterval: -1, Lane: lane})
			require.NoError(t, store.Ensure(t.Context()))
			require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
			test(t, db, store, many())
		})
	}
}

// sqlDelayed makes $1 records of 1,000 keys that all became due a second ago.
const sqlDelayed = `INSERT INTO outmill.records (id, grp, topic, key, stage, available_at, due_at, next_at, created_at, size, message_id,
	payload)
SELECT gen_random_uuid(), 'readers', 'orders', 'k' || g % 1000, 3, at, at, at, at - interval '1 hour', 100, 'm' || g, '\x00'
FROM generate_series(1, $1::integer) AS g, (SELECT now() - interval '1 second' AS at) AS d`

// sqlBlocked makes $1 keys, each blocked by a record that waits for another hour, and each with
// one held record. The time of their next check has come.
const (
	sqlBlockers = `INSERT INTO outmill.records (id, grp, topic, key, stage, available_at, due_at, next_at, created_at, size, message_id,
		payload)
SELECT gen_random_uuid(), 'readers', 'orders', 'k' || g, 2, at, at, at, now(), 100, 'm' || g, '\x00'
FROM generate_series(1, $1::integer) AS g, (SELECT now() + interval '1 hour' AS at) AS d`
	sqlHeldBehind = `INSERT INTO outmill.records (id, grp, topic, key, stage, due_at, next_at, created_at, size, message_id, payload)
SELECT gen_random_uuid(), 'readers', 'orders', 'k' || g, 1, now(), now(), now(), 100, 'h' || g, '\x00'
FROM generate_series(1, $1::integer) AS g`
	sqlOverdue = `INSERT INTO outmill.lanes (grp, topic, key, blocked_by, until, looks, head)
		SELECT grp, topic, key, 'waiting', now(), 7, seq FROM outmill.records WHERE stage = 1`
)
