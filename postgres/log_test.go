package postgres_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

const tapeSchema = "tape"

// tape is a ring whose records go to the log.
type tape struct {
	*ring
	owner outmill.OwnerToken
}

// newTape needs its own database. Its stores do not notify: a notification takes a transaction
// id, and a prepared transaction cannot notify.
func newTape(t *testing.T, db *pgxpool.Pool, options storetest.Options) *tape {
	t.Helper()
	config := postgres.Config{Schema: tapeSchema, Lane: postgres.LaneLog, Retain: options.Retain, NotifyInterval: -1}
	r := &ring{t: t, db: db, store: conforming{Store: newStore(t, db, config), config: config}, gates: &gates{}, schema: config.Schema}
	require.NoError(t, r.store.Ensure(t.Context()))
	r.gated = newStore(t, connectAs(t, db.Config().ConnString(), func(c *pgxpool.Config) { c.ConnConfig.Tracer = r.gates }), config)
	require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	return &tape{ring: r, owner: outmill.NewOwnerToken()}
}

// ownServer returns a pool on a server on which no other session takes transaction ids.
func ownServer(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return connect(t, postgrestest.DatabaseOn(t, postgrestest.Own(t, "autovacuum=off").URL))
}

// quietly appends a record in such a way that only its claim takes an id afterwards: the
// store's work at its first claim is done.
func (r *tape) quietly(name string) {
	r.t.Helper()
	require.Empty(r.t, r.take(1, outmill.OrderNone))
	require.Equal(r.t, 1, len(r.lease(r.store.Store, "before")))
	r.append("", name)
}

// Parts of statements at which gates stop.
const (
	addsBatch = `(line, n, pos, seen, horizon` // the last statement of a claim
	setsBits  = `SET done = `                  // settles records of the log
)

// write appends through ctx, which may carry a transaction.
func (r *tape) write(ctx context.Context, topic, key string, names ...string) []*outmill.Record {
	r.t.Helper()
	records := make([]*outmill.Record, len(names))
	for i, name := range names {
		records[i] = &outmill.Record{Topic: topic, Key: key, MessageID: name}
	}
	require.NoError(r.t, r.store.Append(ctx, records...))
	return records
}

// in appends in a transaction of the test's own.
func (r *tape) in(tx pgx.Tx, key string, names ...string) {
	r.t.Helper()
	r.write(r.store.WithTx(r.t.Context(), tx), "orders", key, names...)
}

func (r *tape) commit(tx pgx.Tx) {
	r.t.Helper()
	require.NoError(r.t, tx.Commit(r.t.Context()))
}

// take claims for the tape's owner.
func (r *tape) take(limit int, order outmill.Order) []string {
	r.t.Helper()
	return namesOf(claimed(r.t, r.store, claimOf(r.owner, limit, order, "orders")))
}

// drain claims until no records are left.
func (r *tape) drain(limit int, order outmill.Order) []string {
	r.t.Helper()
	var all []string
	for {
		found := r.take(limit, order)
		if len(found) == 0 {
			return all
		}
		all = append(all, found...)
	}
}

// lease appends records to the log and claims them there in one batch.
func (r *tape) lease(from *postgres.Store, names ...string) []*outmill.Record {
	r.t.Helper()
	r.append("", names...)
	found := claimed(r.t, from, claimOf(r.owner, len(names), outmill.OrderNone, "orders"))
	require.Equal(r.t, names, namesOf(found))
	return found
}

// lockBatches locks the rows of all batches until its rollback.
func (r *tape) lockBatches() pgx.Tx {
	r.t.Helper()
	tx := r.begin()
	_, err := tx.Exec(r.t.Context(), r.sql(`SELECT n FROM {batches} FOR UPDATE`))
	require.NoError(r.t, err)
	return tx
}

func (r *tape) elapse(d time.Duration) { elapse(r.t, r.store, d) }

func (r *tape) reap() int {
	r.t.Helper()
	n, err := r.store.ReapExpired(r.t.Context(), 100)
	require.NoError(r.t, err)
	return n
}

func numbered(name string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%02d", name, i+1)
	}
	return names
}

var allOrders = []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic}

// eachOrder runs the test for each order, on a database of its own.
func eachOrder(t *testing.T, test func(r *tape, order outmill.Order)) {
	t.Helper()
	for _, order := range allOrders {
		t.Run(order.String(), func(t *testing.T) {
			t.Parallel()
			if order == outmill.OrderTopic {
				testenv.Long(t, "tests of the log in the order of topics")
			}
			test(newTape(t, tapePool(t), storetest.Options{}), order)
		})
	}
}

func TestStore_Log(t *testing.T) {
	t.Parallel()

	t.Run("in a log a record committed after later ones were claimed comes once", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			first := r.begin()
			r.in(first, "key", "first")
			r.append("key", "second")
			require.Equal(r.t, []string{"second"}, r.take(10, order))
			require.Empty(r.t, r.take(10, order))
			r.census("second")
			r.commit(first)
			r.census("first", "second")
			require.Equal(r.t, []string{"first"}, r.take(10, order))
			require.Empty(r.t, r.take(10, order))
			r.census("first", "second")
		})
	})

	t.Run("in a log a record rolled back behind a claim blocks nothing", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			first := r.begin()
			r.in(first, "key", "first")
			r.append("key", "second")
			require.Equal(r.t, []string{"second"}, r.take(10, order))
			require.NoError(r.t, first.Rollback(r.t.Context()))
			r.append("key", "third")
			require.Equal(r.t, []string{"third"}, r.take(10, order))
			r.census("second", "third")
		})
	})

	t.Run("in a log a transaction that no snapshot lists is not passed for good", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, ownServer(t), storetest.Options{})
		r.quietly("first")
		open := r.begin()
		r.in(open, "", "late")
		// No transaction has finished since it took its id, so the id is beyond the snapshot's
		// end.
		var id string
		require.NoError(t, open.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text`).Scan(&id))
		unlisted := `SELECT pg_snapshot_xmax(%s) <= $1::text::xid8`
		require.True(t, valueOf[bool](t, r.db, fmt.Sprintf(unlisted, `pg_current_snapshot()`), id))
		require.Equal(t, []string{"first"}, r.take(10, outmill.OrderNone))
		require.True(t, valueOf[bool](t, r.db, fmt.Sprintf(unlisted, `(SELECT seen FROM `+r.schema+`.batches ORDER BY n DESC LIMIT 1)`), id))
		r.commit(open)
		require.Equal(t, []string{"late"}, r.drain(10, outmill.OrderNone))
		r.census("before", "first", "late")
	})

	t.Run("in a log a transaction that had its id before a claim and writes after it is next", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			early := r.begin()
			r.execIn(early, `SELECT pg_current_xact_id()`)
			r.append("key", "first")
			require.Equal(r.t, []string{"first"}, r.take(10, order))
			r.in(early, "key", "second")
			r.append("other", "third")
			require.Equal(r.t, []string{"third"}, r.take(10, order))
			r.commit(early)
			require.Equal(r.t, []string{"second"}, r.drain(10, order))
			r.census("first", "second", "third")
		})
	})

	t.Run("in a log a record committed between a claims mark and its page comes with the next claim", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			r.lease(r.store.Store, "old")
			r.elapse(2 * time.Minute)
			// The claim waits for the batch whose lease has ended: after its mark, and before
			// it reads its page.
			before := r.begin()
			r.in(before, "", "before")
			r.append("", "there")
			locked := r.lockBatches()
			found := async(func() ([]*outmill.Record, error) {
				return r.gated.Claim(r.t.Context(), claimOf(r.owner, 10, order, "orders"))
			})
			r.blocked(1)
			behind := r.begin()
			r.in(behind, "", "behind")
			r.commit(before)
			r.commit(behind)
			require.NoError(r.t, locked.Rollback(r.t.Context()))
			require.Equal(r.t, []string{"old", "there"}, namesOf(await(r.t, found)))
			require.Equal(r.t, []string{"before", "behind"}, r.take(10, order))
			require.Empty(r.t, r.take(10, order))
			r.census("old", "there", "before", "behind")
		})
	})

	t.Run("in a log a list of late ones never goes back", func(t *testing.T) {
		t.Parallel()
		for name, ids := range map[string][2]bool{"the lower one is older": {true, false}, "the lower one is younger": {false, true}} {
			for _, pages := range []int{1, 2, 3} {
				t.Run(fmt.Sprintf("%s, %d pages", name, pages), func(t *testing.T) {
					t.Parallel()
					r := newTape(t, tapePool(t), storetest.Options{})
					lower, upper := r.begin(), r.begin()
					for i, tx := range []pgx.Tx{lower, upper} {
						if ids[i] {
							r.execIn(tx, `SELECT pg_current_xact_id()`)
						}
					}
					r.in(lower, "", numbered("lower", 3)...)
					r.in(upper, "", numbered("upper", 15)...)
					r.append("", "later")
					require.Equal(t, []string{"later"}, r.take(5, outmill.OrderNone))
					r.commit(upper)
					for page := range pages {
						require.Equal(t, numbered("upper", 15)[5*page:5*page+5], r.take(5, outmill.OrderNone))
					}
					// The list is not at its end, or its last page was full.
					r.commit(lower)
					r.append("", "next")
					require.Equal(t, numbered("lower", 2), r.take(2, outmill.OrderNone))
					rest := append(append([]string{"lower03"}, numbered("upper", 15)[5*pages:]...), "next")
					require.Equal(t, rest, r.drain(2, outmill.OrderNone))
					r.census(append(append(numbered("lower", 3), numbered("upper", 15)...), "later", "next")...)
				})
			}
		}
	})

	t.Run("in a log late records come before those written after their commit", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			if order == outmill.OrderNone {
				return
			}
			huge := r.begin()
			r.in(huge, "", numbered("huge", 29)...)
			r.in(huge, "key", "first")
			r.append("", "passed")
			require.Equal(r.t, []string{"passed"}, r.take(10, order))
			r.commit(huge)
			r.append("key", "second")
			require.Equal(r.t, append(numbered("huge", 29), "first", "second"), r.drain(10, order))
			r.census(append(numbered("huge", 29), "passed", "first", "second")...)
		})
	})

	t.Run("in a log a late one holds its key against other owners", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		huge, other := r.begin(), outmill.NewOwnerToken()
		r.in(huge, "", numbered("huge", 9)...)
		r.in(huge, "key", "first")
		r.append("", "passed")
		require.Equal(t, []string{"passed"}, r.take(10, outmill.OrderKey))
		r.commit(huge)
		r.append("key", "second")
		require.Equal(t, numbered("huge", 5), r.take(5, outmill.OrderKey))
		require.Equal(t, append(numbered("huge", 9)[5:], "first"), namesOf(r.claim(other, 5)))
		require.Empty(t, r.take(10, outmill.OrderKey))
		require.Equal(t, []string{"second"}, namesOf(r.claim(other, 5)))
		r.census(append(numbered("huge", 9), "passed", "first", "second")...)
	})

	t.Run("in a log a page may be cut by bytes anywhere", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			size := (&outmill.Record{Topic: "t00", MessageID: "late01"}).Size()
			var all []string
			for i, bytes := range []int{1, size - 1, size, size + 1, 2 * size, 3*size - 1, 3 * size, 3*size + 1, 4*size - 1, 4 * size, 4*size + 1,
				6 * size, 7 * size} {
				topic := fmt.Sprintf("t%02d", i)
				open := r.begin()
				r.write(r.store.WithTx(r.t.Context(), open), topic, "", numbered("late", 3)...)
				r.write(r.t.Context(), topic, "", "passed")
				req := claimOf(r.owner, 100, order, topic)
				require.Equal(r.t, []string{"passed"}, namesOf(claimed(r.t, r.store, req)))
				r.commit(open)
				r.write(r.t.Context(), topic, "", numbered("next", 3)...)
				want := append(numbered("late", 3), numbered("next", 3)...)
				all = append(append(all, want...), "passed")
				req.MaxBytes = bytes
				for len(want) > 0 {
					n := min(len(want), max(1, bytes/size))
					require.Equal(r.t, want[:n], namesOf(claimed(r.t, r.store, req)), "%d bytes of %d", bytes, size)
					want = want[n:]
				}
				require.Empty(r.t, claimed(r.t, r.store, req))
			}
			r.census(all...)
		})
	})

	t.Run("in a log a batch may be acked by half while it is reaped", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		found := r.lease(r.store.Store, "a", "b", "c", "d")
		r.elapse(2 * time.Minute)
		locked := r.lockBatches()
		acked := async(func() (int, error) { return 0, r.store.Ack(t.Context(), "", leasesOf(found[:2])) })
		r.blocked(1)
		require.Zero(t, r.reap(), "what somebody is at is passed over")
		require.NoError(t, locked.Rollback(t.Context()))
		await(t, acked)
		r.census("c", "d")
		require.Equal(t, 2, r.reap())
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(found)))
		r.census("c", "d")
		require.Equal(t, []string{"c", "d"}, r.take(10, outmill.OrderNone))
		r.census("c", "d")
	})

	t.Run("in a log an ack that comes after the reaping does nothing", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		found := r.lease(r.gated, "a", "b", "c")
		r.elapse(2 * time.Minute)
		stopped := r.gates.before(t, setsBits, 1)
		acked := async(func() (int, error) { return 0, r.gated.Ack(t.Context(), "", leasesOf(found)) })
		stopped.wait(t)
		require.Equal(t, 3, r.reap())
		stopped.open()
		await(t, acked)
		r.census("a", "b", "c")
		again := claimed(t, r.store, claimOf(r.owner, 10, outmill.OrderNone, "orders"))
		require.Equal(t, []string{"a", "b", "c"}, namesOf(again))
		require.NoError(t, r.gated.Ack(t.Context(), "", leasesOf(found)), "the same owner, but an older claim")
		r.census("a", "b", "c")
		require.NoError(t, r.gated.Ack(t.Context(), "", leasesOf(again)))
		r.census()
	})

	t.Run("in a log an ack finds a record that has just moved to the table", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		found := r.lease(r.gated, "a", "b", "c")
		stopped := r.gates.before(t, setsBits, 1)
		acked := async(func() (int, error) { return 0, r.gated.Ack(t.Context(), "", leasesOf(found)) })
		stopped.wait(t)
		extended, err := r.store.Extend(t.Context(), time.Hour, leasesOf(found[1:2]))
		require.NoError(t, err)
		require.Equal(t, leasesOf(found[1:2]), extended)
		r.census("a", "b", "c")
		stopped.open()
		await(t, acked)
		r.census()
	})

	t.Run("in a log acks that overlap ack each once", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		found := r.lease(r.store.Store, "a", "b", "c", "d", "e")
		locked := r.lockBatches()
		// One store knows the batch, the other must search for it.
		var acks []<-chan result[int]
		for i, leases := range [][]outmill.Lease{leasesOf(found[:3]), leasesOf(found[1:4])} {
			store := []*postgres.Store{r.store.Store, r.gated}[i]
			acks = append(acks, async(func() (int, error) { return 0, store.Ack(r.t.Context(), "", leases) }))
		}
		r.blocked(2)
		require.NoError(t, locked.Rollback(t.Context()))
		for _, ack := range acks {
			await(t, ack)
		}
		r.census("e")
		r.elapse(2 * time.Minute)
		require.Equal(t, []string{"e"}, r.take(10, outmill.OrderNone))
		r.census("e")
	})

	t.Run("in a log an ack of a batch that is gone does nothing", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		found := r.lease(r.gated, "a", "b")
		stopped := r.gates.before(t, setsBits, 1)
		acked := async(func() (int, error) { return 0, r.gated.Ack(t.Context(), "", leasesOf(found)) })
		stopped.wait(t)
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(found)))
		r.lease(r.store.Store, "c")
		r.lease(r.store.Store, "d")
		require.NoError(t, r.store.TidyBatches(t.Context()))
		require.Equal(t, 2, valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {batches}`)), "what is done has gone")
		stopped.open()
		await(t, acked)
		r.census("c", "d")
	})

	t.Run("in a log a lease is extended as a whole or in part", func(t *testing.T) {
		t.Parallel()
		for name, part := range map[string][]int{"whole": {0, 1, 2, 3}, "what is not acked": {1, 2, 3},
			"all but one that is about to be acked": {2, 3}, "one": {2}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newTape(t, tapePool(t), storetest.Options{})
				found := r.lease(r.store.Store, "a", "b", "c", "d")
				var leases, rest []outmill.Lease
				for i, r := range found {
					if slices.Contains(part, i) {
						leases = append(leases, r.Lease())
					} else if i > 0 {
						rest = append(rest, r.Lease())
					}
				}
				if !slices.Contains(part, 0) {
					require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(found[:1])))
				}
				extended, err := r.store.Extend(t.Context(), time.Hour, append(slices.Clone(leases), leases...))
				require.NoError(t, err)
				require.ElementsMatch(t, leases, extended, "each once, however often it is given")
				r.elapse(2 * time.Minute)
				require.NoError(t, r.store.Ack(t.Context(), "", rest), "over, but not reaped")
				require.Zero(t, r.reap())
				require.Empty(t, r.take(10, outmill.OrderNone))
				require.NoError(t, r.store.Ack(t.Context(), "", leases))
				r.census()
			})
		}
	})

	t.Run("in a log a lease is extended or reaped", func(t *testing.T) {
		t.Parallel()
		for name, part := range map[string]int{"whole": 3, "part": 1} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newTape(t, tapePool(t), storetest.Options{})
				found := r.lease(r.gated, "a", "b", "c")
				r.elapse(2 * time.Minute)
				stopped := r.gates.before(t, r.schema, 1) // any statement
				extended := async(func() ([]outmill.Lease, error) {
					return r.gated.Extend(t.Context(), time.Hour, leasesOf(found[:part]))
				})
				stopped.wait(t)
				require.Equal(t, 3, r.reap())
				stopped.open()
				require.Empty(t, await(t, extended))
				r.census("a", "b", "c")

				again := claimed(t, r.gated, claimOf(r.owner, 10, outmill.OrderNone, "orders"))
				require.Len(t, again, 3)
				more := r.lease(r.gated, "d", "e", "f")
				r.elapse(2 * time.Minute)
				locked := r.lockBatches()
				extended = async(func() ([]outmill.Lease, error) {
					return r.gated.Extend(t.Context(), time.Hour, leasesOf(more[:part]))
				})
				r.blocked(1)
				require.Equal(t, 3, r.reap(), "what was claimed again")
				require.NoError(t, locked.Rollback(t.Context()))
				require.ElementsMatch(t, leasesOf(more[:part]), await(t, extended))
				require.Equal(t, 3-part, r.reap())
				r.census("a", "b", "c", "d", "e", "f")
			})
		}
	})

	t.Run("in a log a key whose holder acks while a claim holds it back is soon free", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		r.append("key", "first")
		found := r.claim(outmill.NewOwnerToken(), 1)
		require.Len(t, found, 1)
		r.append("key", "second")
		stopped := r.gates.before(t, addsBatch, 1)
		holding := async(func() ([]*outmill.Record, error) {
			return r.gated.Claim(t.Context(), claimOf(r.owner, 10, outmill.OrderKey, "orders"))
		})
		stopped.wait(t)
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(found)))
		stopped.open()
		// A claim that takes long notices itself that the key is free.
		got := namesOf(await(t, holding))
		r.census("second")
		if len(got) == 0 {
			r.elapse(time.Second) // the time until a lane's first check
			got = r.take(10, outmill.OrderKey)
		}
		require.Equal(t, []string{"second"}, got)
		r.census("second")
	})

	t.Run("in a log an ack opens the lanes of its own keys only", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		holder := outmill.NewOwnerToken()
		for _, round := range []string{"first", "second"} {
			for i := range 5 {
				r.append(fmt.Sprint("key", i), fmt.Sprint(round, i))
			}
			if round == "first" {
				require.Len(t, r.claim(holder, 5), 5)
			}
		}
		require.Empty(t, r.take(10, outmill.OrderKey))
		open := func() string {
			return valueOf[string](t, r.db, r.sql(`SELECT coalesce(string_agg(key, ',' ORDER BY key), '') FROM {lanes} WHERE blocked_by = ''`))
		}
		require.Empty(t, open())
		leased, err := r.store.List(t.Context(), outmill.ListQuery{Status: outmill.StatusLeased})
		require.NoError(t, err)
		require.Len(t, leased, 5)
		require.Equal(t, "first2", leased[2].MessageID)
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(leased[2:3])))
		require.Equal(t, "key2", open())
		require.Equal(t, []string{"second2"}, r.take(10, outmill.OrderKey))
		r.census("first0", "first1", "first3", "first4", "second0", "second1", "second2", "second3", "second4")
	})

	t.Run("in a log a failure parks its key while claims run and transactions are open", func(t *testing.T) {
		t.Parallel()
		for _, beside := range []string{"a claim that has the topic", "a claim that waits for it", "no claim"} {
			t.Run(beside, func(t *testing.T) {
				t.Parallel()
				r := newTape(t, tapePool(t), storetest.Options{})
				r.append("key", "key1")
				found := claimed(t, r.store, r.parking(outmill.NewOwnerToken()))
				require.Len(t, found, 1)
				r.append("key", "key2", "key3")
				r.append("other", "other")
				open := r.begin()
				r.in(open, "key", "key4")
				park := func() (int, error) {
					return 0, r.store.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: "dead", Park: true}})
				}
				claim := func() ([]*outmill.Record, error) { return r.gated.Claim(t.Context(), r.parking(r.owner)) }
				switch beside {
				case "a claim that has the topic":
					stopped := r.gates.before(t, addsBatch, 1)
					claiming := async(claim)
					stopped.wait(t)
					parked := async(park)
					r.blocked(1)
					stopped.open()
					require.Equal(t, []string{"other"}, namesOf(await(t, claiming)))
					await(t, parked)
				case "a claim that waits for it":
					locked := r.lockBatches()
					parked := async(park)
					r.blocked(1)
					claiming := async(claim)
					r.blocked(2)
					require.NoError(t, locked.Rollback(t.Context()))
					await(t, parked)
					require.Equal(t, []string{"other"}, namesOf(await(t, claiming)))
				default:
					await(t, async(park))
					require.Equal(t, []string{"other"}, namesOf(await(t, async(claim))))
				}
				dead := map[string]outmill.Status{
					"key1": outmill.StatusDead, "key2": outmill.StatusDead, "key3": outmill.StatusDead, "other": outmill.StatusLeased,
				}
				require.Equal(t, dead, r.statuses())
				r.commit(open)
				require.Empty(t, claimed(t, r.store, r.parking(r.owner)))
				dead["key4"] = outmill.StatusDead
				require.Equal(t, dead, r.statuses())
				requeued, err := r.store.Requeue(t.Context(), found[0].ID)
				require.NoError(t, err)
				require.Equal(t, 4, requeued)
				require.Equal(t, []string{"key1", "key2", "key3", "key4"}, namesOf(claimed(t, r.store, r.parking(r.owner))))
				r.census("key1", "key2", "key3", "key4", "other")
			})
		}
	})

	t.Run("in a log a record is parked at once with one before it", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		late := r.begin()
		r.in(late, "key", "late")
		r.append("key", "failed")
		found := claimed(t, r.store, r.parking(r.owner))
		require.Len(t, found, 1)
		r.append("key", "behind")
		r.commit(late)
		require.NoError(t, r.store.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: "dead", Park: true}}))
		require.Equal(t, outmill.StatusDead, r.statuses()["behind"])
		r.census("late", "failed", "behind")
		requeued, err := r.store.Requeue(t.Context(), found[0].ID)
		require.NoError(t, err)
		require.GreaterOrEqual(t, requeued, 2)
		require.Equal(t, []string{"late", "failed", "behind"}, r.drain(10, outmill.OrderKey))
		r.census("late", "failed", "behind")
	})

	t.Run("in a log a record that a claim has just read is deleted with its lease", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			appended := r.append("key", "a", "b", "c")
			stopped := r.gates.before(r.t, addsBatch, 1)
			claiming := async(func() ([]*outmill.Record, error) {
				return r.gated.Claim(r.t.Context(), claimOf(r.owner, 10, order, "orders"))
			})
			stopped.wait(r.t)
			deleting := async(func() (int, error) { return r.store.Delete(r.t.Context(), appended[1].ID) })
			r.blocked(1)
			stopped.open()
			found := await(r.t, claiming)
			require.Equal(r.t, []string{"a", "b", "c"}, namesOf(found))
			require.Equal(r.t, 1, await(r.t, deleting))
			r.census("a", "c")
			require.NoError(r.t, r.gated.Ack(r.t.Context(), "", leasesOf(found)))
			r.census()
		})
	})

	t.Run("in a log a record that is deleted before a claim is gone", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			late := r.begin()
			r.in(late, "key", "late")
			appended := r.append("key", "a", "b", "c")
			require.Equal(r.t, []string{"a"}, r.take(1, order))
			r.commit(late)
			pending, err := r.store.List(r.t.Context(), outmill.ListQuery{Status: outmill.StatusPending})
			require.NoError(r.t, err)
			require.ElementsMatch(r.t, []string{"late", "b", "c"}, namesOf(pending))
			at := slices.IndexFunc(pending, func(r *outmill.Record) bool { return r.MessageID == "late" })
			n, err := r.store.Delete(r.t.Context(), appended[0].ID, appended[1].ID, pending[at].ID)
			require.NoError(r.t, err)
			require.Equal(r.t, 3, n)
			require.Equal(r.t, []string{"c"}, r.drain(10, order))
			r.census("c")
		})
	})

	t.Run("in a log a record becomes a step while a claim has its sibling", func(t *testing.T) {
		t.Parallel()
		for _, first := range []string{"claim", "attach"} {
			t.Run(first+" first", func(t *testing.T) {
				t.Parallel()
				r := newTape(t, tapePool(t), storetest.Options{Retain: time.Hour})
				require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: "zebras"}))
				join := r.startJoin(roles.Join{ExpectedSteps: 1})
				inner := r.startJoin(roles.Join{ExpectedSteps: 1})
				message := &outmill.Record{Topic: "orders", Key: "key", MessageID: "message", Joins: []outmill.JoinID{inner}}
				require.NoError(t, r.store.Append(t.Context(), message))
				claim := func() ([]*outmill.Record, error) {
					return r.gated.Claim(t.Context(), claimOf(r.owner, 10, outmill.OrderKey, "orders"))
				}
				attach := func() (int, error) { return 0, r.store.AttachStep(t.Context(), join, message.ID) }
				var found []*outmill.Record
				if first == "claim" {
					stopped := r.gates.before(t, addsBatch, 1)
					claiming := async(claim)
					stopped.wait(t)
					attaching := async(attach)
					r.blocked(1)
					stopped.open()
					found = await(t, claiming)
					await(t, attaching)
				} else {
					await(t, async(attach))
					found = await(t, async(claim))
				}
				require.Equal(t, []string{"message"}, namesOf(found))
				r.census("message", "message")
				req := claimOf(r.owner, 10, outmill.OrderKey, "orders")
				req.Group = "zebras"
				sibling := claimed(t, r.store, req)
				require.Equal(t, []string{"message"}, namesOf(sibling))
				for completed, leases := range [][]outmill.Lease{leasesOf(found), leasesOf(sibling)} {
					require.NoError(t, r.gated.Ack(t.Context(), "", leases))
					for _, id := range []outmill.JoinID{inner, join} {
						got, err := r.store.GetJoin(t.Context(), id)
						require.NoError(t, err)
						require.Equal(t, completed, got.CompletedSteps)
					}
				}
				r.census("message", "message")
			})
		}
	})

	t.Run("in a log a record that a savepoint rolls back is not seen", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			outer := r.begin()
			r.in(outer, "key", "outer")
			for _, name := range []string{"rolled back", "released", "rolled back too"} {
				nested, err := outer.Begin(r.t.Context())
				require.NoError(r.t, err)
				r.in(nested, "key", name)
				if name == "released" {
					require.NoError(r.t, nested.Commit(r.t.Context()))
				} else {
					require.NoError(r.t, nested.Rollback(r.t.Context()))
				}
			}
			r.append("key", "passed")
			require.Equal(r.t, []string{"passed"}, r.drain(10, order))
			r.in(outer, "key", "next")
			r.commit(outer)
			require.Equal(r.t, []string{"outer", "released", "next"}, r.drain(10, order))
			r.census("passed", "outer", "released", "next")
		})
	})

	t.Run("in a log thousands of savepoints of an open transaction cost a poll nothing", func(t *testing.T) {
		testenv.Long(t, "what many claims, batches and rounds cost")
		t.Parallel()
		r := newTape(t, ownServer(t), storetest.Options{})
		r.quietly("first")
		execute(t, r.db, `CREATE TABLE things (n integer)`)
		open := r.begin()
		r.in(open, "", "late")
		r.execIn(open, `DO $$ BEGIN FOR i IN 1..10000 LOOP
	BEGIN INSERT INTO things VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END;
END LOOP; END $$`)
		require.Equal(t, []string{"first"}, r.take(10, outmill.OrderNone))
		require.Greater(t, valueOf[int](t, r.db,
			r.sql(`SELECT max(horizon::text::bigint - pg_snapshot_xmax(seen)::text::bigint) FROM {batches}`)), 9_000)
		var explained []struct{ Plan node }
		text := valueOf[string](t, r.db, r.sql(`EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT * FROM {log_unfinished}((SELECT line
			FROM {batches} LIMIT 1), pg_current_snapshot())`))
		require.NoError(t, json.Unmarshal([]byte(text), &explained))
		read := 0
		explained[0].Plan.each(func(n node) { read += n.read() + n.blocks() })
		require.Less(t, read, 200, text)
		require.Empty(t, r.take(10, outmill.OrderNone))
		r.commit(open)
		require.Equal(t, []string{"late"}, r.drain(10, outmill.OrderNone))
		r.census("before", "first", "late")
	})

	t.Run("in a log a prepared transaction comes when it is committed", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		if valueOf[int](t, r.db, `SELECT current_setting('max_prepared_transactions')::integer`) == 0 {
			t.Skip("skipped: the server prepares no transactions (max_prepared_transactions is 0)")
		}
		for _, end := range []string{"COMMIT", "ROLLBACK"} {
			name := "'" + outmill.NewWorkItemID().String() + "'"
			tx := r.begin()
			r.in(tx, "key", end)
			r.execIn(tx, `PREPARE TRANSACTION `+name)
			t.Cleanup(func() { _, _ = r.db.Exec(context.WithoutCancel(t.Context()), `ROLLBACK PREPARED `+name) })
			r.append("key", "beside "+end)
			require.Equal(t, []string{"beside " + end}, r.drain(10, outmill.OrderKey))
			execute(t, r.db, end+` PREPARED `+name)
			if end == "COMMIT" {
				require.Equal(t, []string{end}, r.take(10, outmill.OrderKey))
			}
			require.Empty(t, r.take(10, outmill.OrderKey))
		}
		r.census("COMMIT", "beside COMMIT", "beside ROLLBACK")
	})

	t.Run("in a log an id is used once", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		ctx := t.Context()
		id := outmill.NewWorkItemID()
		twice := []*outmill.Record{{ID: id, Topic: "orders", MessageID: "x"}, {ID: id, Topic: "orders", MessageID: "y"}}
		require.Error(t, r.store.Append(ctx, twice...))
		r.census()
		require.NoError(t, r.named(ctx, id, "first", 0))
		require.Error(t, r.named(ctx, id, "second", 0))
		r.census("first")

		id = outmill.NewWorkItemID()
		for _, end := range []string{"rollback", "commit"} {
			tx := r.begin()
			require.NoError(t, r.named(r.store.WithTx(ctx, tx), id, "held by "+end, 0))
			waiting := async(func() (error, error) { return r.named(ctx, id, "beside "+end, 0), nil })
			r.blocked(1)
			if end == "commit" {
				r.commit(tx)
				require.Error(t, await(t, waiting))
			} else {
				require.NoError(t, tx.Rollback(ctx))
				require.NoError(t, await(t, waiting))
				id = outmill.NewWorkItemID()
			}
		}
		r.census("first", "beside rollback", "held by commit")

		// An id that was not made just now is searched for in the whole log.
		old, err := outmill.ParseWorkItemID("0190163d-8694-739b-aea5-966c26f8ad91")
		require.NoError(t, err)
		execute(t, r.db, r.sql(`UPDATE {log} SET id = $1::text::uuid WHERE message_id = 'first'`), old.String())
		require.Error(t, r.named(ctx, old, "again", 0))
		require.Error(t, r.named(ctx, old, "again", time.Hour))
		r.census("first", "beside rollback", "held by commit")
		require.Equal(t, []string{"first", "beside rollback", "held by commit"}, r.drain(10, outmill.OrderKey))
	})

	t.Run("in a log an id that was used twice after all stops no topic", func(t *testing.T) {
		t.Parallel()
		const another = `UPDATE {meta} SET segment = (segment + 1) % 3`
		for name, again := range map[string]func(r *tape, id outmill.WorkItemID) error{
			"in two segments": func(r *tape, id outmill.WorkItemID) error {
				execute(r.t, r.db, r.sql(another))
				return r.named(r.t.Context(), id, "second", 0)
			},
			"in the log and then the records": func(r *tape, id outmill.WorkItemID) error {
				return r.named(r.t.Context(), id, "second", time.Hour)
			},
			"in the log, claimed, and then the records": func(r *tape, id outmill.WorkItemID) error {
				require.Equal(r.t, []string{"first"}, r.take(1, outmill.OrderNone))
				return r.named(r.t.Context(), id, "second", time.Hour)
			},
			"in three segments": func(r *tape, id outmill.WorkItemID) error {
				execute(r.t, r.db, r.sql(another))
				_ = r.named(r.t.Context(), id, "second", 0)
				execute(r.t, r.db, r.sql(another))
				return r.named(r.t.Context(), id, "third", 0)
			},
		} {
			for _, order := range allOrders {
				t.Run(name+", order "+order.String(), func(t *testing.T) {
					t.Parallel()
					r := newTape(t, tapePool(t), storetest.Options{})
					id := outmill.NewWorkItemID()
					require.NoError(t, r.named(t.Context(), id, "first", 0))
					if err := again(r, id); err != nil {
						r.census("first") // a refusal is better
						return
					}
					r.append("", "last")
					r.drain(10, order)
					// Records in work move to the records when their lease has ended.
					r.elapse(2 * time.Hour)
					found := r.drain(10, order)
					require.Contains(t, found, "last")
					require.Contains(t, found, "first")
					require.Contains(t, found, "second")
					r.batchesAreSound()
					r.elapse(2 * time.Hour)
					for {
						found := claimed(t, r.store, claimOf(r.owner, 10, order, "orders"))
						if len(found) == 0 {
							break
						}
						require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(found)))
					}
					r.census()
				})
			}
		}
	})

	t.Run("large messages among small ones are read whole and in order within the bytes of each claim", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			const room = 20_000
			// The share of the byte budget is 200 bytes if a claim may have 100 messages.
			sizes := []int{10, 150, 190, 250, 10, 5_000, 10, 50_000, 10, 10, 19_000, 3_000, 10, 0, 10}
			message := func(i int) *outmill.Record {
				return &outmill.Record{
					Topic: "orders", Key: fmt.Sprint(i % 3), MessageID: fmt.Sprintf("%02d", i),
					Metadata: map[string]string{"number": fmt.Sprint(i)}, Payload: bytes.Repeat([]byte{'a' + byte(i)}, sizes[i%len(sizes)]),
				}
			}
			late := r.begin()
			appended := 0
			for range 4 {
				for range sizes {
					ctx := r.t.Context()
					if appended%7 == 3 {
						ctx = r.store.WithTx(ctx, late)
					}
					require.NoError(r.t, r.store.Append(ctx, message(appended)))
					appended++
				}
			}
			seen := map[string]bool{}
			drain := func() {
				for {
					req := claimOf(r.owner, 100, order, "orders")
					req.MaxBytes = room
					found := claimed(r.t, r.store, req)
					if len(found) == 0 {
						return
					}
					bytes := 0
					for _, rec := range found {
						i, err := strconv.Atoi(rec.MessageID)
						require.NoError(r.t, err)
						require.Equal(r.t, message(i).Payload, rec.Payload, "payload of %s", rec.MessageID)
						require.Equal(r.t, message(i).Metadata, rec.Metadata, "metadata of %s", rec.MessageID)
						require.False(r.t, seen[rec.MessageID], "%s came twice", rec.MessageID)
						seen[rec.MessageID] = true
						bytes += rec.Size()
					}
					if len(found) > 1 {
						require.LessOrEqual(r.t, bytes, room)
					}
					require.IsIncreasing(r.t, namesOf(found))
					require.NoError(r.t, r.store.Ack(r.t.Context(), "", leasesOf(found)))
				}
			}
			drain()
			r.commit(late)
			drain()
			require.Len(r.t, seen, appended)
		})
	})
}

// parking is a claim by key with the policy Park.
func (r *tape) parking(owner outmill.OwnerToken) outmill.ClaimRequest {
	req := claimOf(owner, 10, outmill.OrderKey, "orders")
	req.KeyPolicy = outmill.KeyPark
	return req
}

func (r *tape) statuses() map[string]outmill.Status {
	r.t.Helper()
	found, err := r.store.List(r.t.Context(), outmill.ListQuery{})
	require.NoError(r.t, err)
	all := map[string]outmill.Status{}
	for _, one := range found {
		all[one.MessageID] = one.Status
	}
	require.Len(r.t, all, len(found))
	return all
}

// named appends a record with an id.
func (r *tape) named(ctx context.Context, id outmill.WorkItemID, name string, delay time.Duration) error {
	return r.store.Append(ctx, &outmill.Record{ID: id, Topic: "orders", MessageID: name, Delay: delay})
}
