package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/storetest"
)

// moveOn makes appends write to the segment.
func (r *tape) moveOn(segment int) {
	r.t.Helper()
	execute(r.t, r.db, r.sql(`UPDATE {meta} SET segment = $1`), segment)
}

func (r *tape) truncates(segment int) bool {
	r.t.Helper()
	done, err := r.store.Truncate(r.t.Context(), segment)
	require.NoError(r.t, err)
	return done
}

func (r *tape) segmentOf(name string) int {
	r.t.Helper()
	return valueOf[int](r.t, r.db, r.sql(`SELECT segment FROM {log} WHERE message_id = $1`), name)
}

// ackAll claims and acks for a group until nothing is left, and returns the names.
func (r *tape) ackAll(group string, order outmill.Order) []string {
	r.t.Helper()
	req := claimOf(r.owner, 7, order, "orders")
	req.Group = group
	var names []string
	for {
		found := claimed(r.t, r.store, req)
		if len(found) == 0 {
			return names
		}
		require.NoError(r.t, r.store.Ack(r.t.Context(), "", leasesOf(found)))
		names = append(names, namesOf(found)...)
	}
}

func TestStore_LogRotation(t *testing.T) {
	t.Parallel()

	t.Run("in a log an append that began before a rotation keeps its place", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			early := r.begin()
			r.in(early, "early", "early1")
			r.moveOn(1)
			r.append("key", "next1")
			require.Equal(r.t, []string{"next1"}, r.ackAll(readers, order))
			r.in(early, "early", "early2")
			r.commit(early)
			require.Equal(r.t, []int{0, 1, 1}, []int{r.segmentOf("early1"), r.segmentOf("next1"), r.segmentOf("early2")})
			r.append("early", "early3")
			require.False(r.t, r.truncates(0), "early1 has not been looked for")
			require.Equal(r.t, []string{"early1", "early2", "early3"}, r.ackAll(readers, order))
			require.True(r.t, r.truncates(0))
			r.census()
		})
	})

	t.Run("in a log a copy whose header was read before a rotation keeps its place", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			store, stopped := r.stopping(`clock_timestamp(), (SELECT segment`)
			records := make([]*outmill.Record, 300)
			for i := range records {
				records[i] = &outmill.Record{Topic: "orders", Key: "key", MessageID: fmt.Sprint("copied", i)}
			}
			copying := async(func() (int, error) { return 0, store.Append(r.t.Context(), records...) })
			stopped.wait(r.t)
			r.moveOn(1)
			r.append("another", "beside")
			require.Equal(r.t, []string{"beside"}, r.ackAll(readers, order))
			r.truncates(0)
			stopped.open()
			await(r.t, copying)
			require.Equal(r.t, 0, r.segmentOf("copied0"))
			r.append("key", "after")
			require.Equal(r.t, append(namesOf(records), "after"), r.ackAll(readers, order))
			require.True(r.t, r.truncates(0))
			r.census()
		})
	})

	t.Run("in a log an old snapshot writes to a segment that was left and truncated", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			r.append("key", "before")
			old, err := r.db.BeginTx(r.t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			require.NoError(r.t, err)
			r.t.Cleanup(func() { _ = old.Rollback(r.t.Context()) })
			r.execIn(old, `SELECT segment FROM {meta}`)
			r.store.HeedSnapshotsFor(0)
			r.moveOn(1)
			r.append("key", "first")
			require.Equal(r.t, []string{"before", "first"}, r.ackAll(readers, order))
			require.True(r.t, r.truncates(0))
			r.moveOn(2)
			r.in(old, "key", "second")
			r.commit(old)
			r.append("key", "third")
			require.Equal(r.t, []int{0, 2}, []int{r.segmentOf("second"), r.segmentOf("third")})
			require.False(r.t, r.truncates(0))
			require.Equal(r.t, []string{"second", "third"}, r.ackAll(readers, order))
			require.True(r.t, r.truncates(0))
			r.census()
		})
	})

	t.Run("a segment is kept while a record of it is needed", func(t *testing.T) {
		t.Parallel()
		for name, needed := range map[string]func(r *tape) (resolve func()){
			"a list of late ones that is not at its end": func(r *tape) func() {
				late := r.begin()
				r.in(late, "", numbered("late", 15)...)
				r.append("", "passed")
				require.Equal(r.t, []string{"passed"}, r.ackAll(readers, outmill.OrderNone))
				r.commit(late)
				found := claimed(r.t, r.store, claimOf(r.owner, 5, outmill.OrderNone, "orders"))
				require.Equal(r.t, numbered("late", 15)[:5], namesOf(found))
				require.NoError(r.t, r.store.Ack(r.t.Context(), "", leasesOf(found)))
				return func() { r.ackAll(readers, outmill.OrderNone) }
			},
			"one bit of a batch": func(r *tape) func() {
				found := r.lease(r.store.Store, "a", "b", "c")
				require.NoError(r.t, r.store.Ack(r.t.Context(), "", leasesOf([]*outmill.Record{found[0], found[2]})))
				return func() { require.NoError(r.t, r.store.Ack(r.t.Context(), "", leasesOf(found[1:2]))) }
			},
			"a topic of which nobody has claimed": func(r *tape) func() {
				r.append("", "a")
				return func() { r.ackAll(readers, outmill.OrderNone) }
			},
			"a group that has never claimed": func(r *tape) func() {
				require.NoError(r.t, r.store.RegisterGroup(r.t.Context(), outmill.Registration{Group: "zebras"}))
				r.append("", "a", "b")
				require.Equal(r.t, []string{"a", "b"}, r.ackAll(readers, outmill.OrderNone))
				return func() { require.Equal(r.t, []string{"a", "b"}, r.ackAll("zebras", outmill.OrderNone)) }
			},
			"a lease that is over": func(r *tape) func() {
				r.lease(r.store.Store, "a", "b")
				r.elapse(time.Hour)
				return func() { require.Equal(r.t, 2, r.reap()) }
			},
			"a transaction that has only a lock": func(r *tape) func() {
				r.lease(r.store.Store, "a")
				require.Equal(r.t, 1, func() int { r.elapse(time.Hour); return r.reap() }())
				tx := r.begin()
				r.execIn(tx, `LOCK TABLE {log_0} IN ROW EXCLUSIVE MODE`)
				return func() { require.NoError(r.t, tx.Rollback(r.t.Context())) }
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newTape(t, tapePool(t), storetest.Options{})
				resolve := needed(r)
				r.moveOn(1)
				for range 3 {
					require.False(t, r.truncates(0))
				}
				// It waits for no session, and no session waits for it.
				require.Zero(t, valueOf[int](t, r.db, `SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid
					FROM pg_database WHERE datname = current_database())`))
				r.write(t.Context(), "another", "", "beside")
				require.Len(t, claimed(t, r.store, claimOf(r.owner, 1, outmill.OrderKey, "another")), 1)
				require.False(t, r.truncates(0))
				resolve()
				require.True(t, r.truncates(0))
				r.batchesAreSound()
			})
		}
	})

	t.Run("a segment is kept for a prepared transaction", func(t *testing.T) {
		t.Parallel()
		db := connect(t, postgrestest.DatabaseOn(t, postgrestest.Own(t, "max_prepared_transactions=5").URL))
		r := newTape(t, db, storetest.Options{})
		for segment, end := range []string{"ROLLBACK", "COMMIT"} {
			tx := r.begin()
			r.in(tx, "key", end)
			r.execIn(tx, `PREPARE TRANSACTION 'it'`)
			r.append("key", "beside")
			require.Equal(t, []string{"beside"}, r.ackAll(readers, outmill.OrderKey))
			r.moveOn(segment + 1)
			require.False(t, r.truncates(segment))
			execute(t, r.db, end+` PREPARED 'it'`)
			if end == "COMMIT" {
				require.False(t, r.truncates(segment))
				require.Equal(t, []string{"COMMIT"}, r.ackAll(readers, outmill.OrderKey))
			}
			require.True(t, r.truncates(segment))
		}
		r.census()
	})

	t.Run("a large backlog of a group that does not read moves to the records in its order", func(t *testing.T) {
		testenv.Long(t, "segments with thousands of rows")
		t.Parallel()
		const n, keys = 12_000, 7
		r := newTape(t, tapePool(t), storetest.Options{})
		require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: "idle"}))
		require.NoError(t, r.store.Append(t.Context(), made("orders", "m", n)...))
		idle := claimOf(r.owner, 20, outmill.OrderKey, "orders")
		idle.Group, idle.Lease = "idle", time.Hour
		leased := claimed(t, r.store, idle)
		require.Len(t, leased, 20)
		others := claimOf(outmill.NewOwnerToken(), n, outmill.OrderKey, "orders")
		for done := 0; done < n; {
			found := claimed(t, r.store, others)
			require.NotEmpty(t, found)
			require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(found)))
			done += len(found)
		}
		r.append("key0", "next")
		r.moveOn(1)
		r.append("key0", "last")
		undisturbed := claimed(t, r.store, others)
		require.Equal(t, []string{"next", "last"}, namesOf(undisturbed))

		require.False(t, r.truncates(0))
		require.NoError(t, r.store.Evacuate(t.Context(), 0))
		require.True(t, r.truncates(0))
		r.batchesAreSound()
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(undisturbed)), "what the other group had there has moved with its lease")
		require.Equal(t, n+2, valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {records} WHERE grp = 'idle'`)),
			"with last, which is of the same topic")

		// The leases are valid, and hold their keys.
		other := idle
		other.Owner = outmill.NewOwnerToken()
		require.Empty(t, claimed(t, r.store, other))
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(leased)))
		next := map[string]int{}
		for _, one := range leased {
			next[one.Key]++
		}
		idle.Limit = 1000
		for done := 20; done < n+2; {
			found := claimed(t, r.store, idle)
			require.NotEmpty(t, found)
			for _, one := range found {
				nth := next[one.Key]
				var want string
				if i := keyOf(one.Key) + nth*keys; i < n {
					want = fmt.Sprint("m-", i)
				} else {
					want = []string{"next", "last"}[min(1, nth-(n-1)/keys-1)]
				}
				require.Equal(t, want, one.MessageID, "%s", one.Key)
				next[one.Key]++
			}
			require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(found)))
			done += len(found)
		}
		r.census()
	})
}

func keyOf(key string) int { return int(key[len(key)-1] - '0') }
