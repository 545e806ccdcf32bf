package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	"github.com/outmill/outmill/storekit"
)

// sqlMillion fills the table with $1 records in every state. A tenth have one key of the topic
// orders and are held behind a lease. A fiftieth belong to the topic many, each held behind a
// lease of its own key. A fifth are steps.
const sqlMillion = `
INSERT INTO outmill.records (id, grp, topic, key, stage, available_at, due_at, next_at, created_at, expires_at, processed_at,
	owner, processed_by, claims, expiries, parked, size, message_id, step, waits_for, payload)
SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid,
	CASE WHEN unrouted THEN NULL ELSE 'readers' END,
	CASE WHEN i <= 0.1 * n THEN 'orders' WHEN i <= 0.12 * n THEN 'many' WHEN unrouted THEN 'u' || i % 7
		WHEN stage = 0 AND i % 40 = 3 THEN 'orders' ELSE 't' || i % 50 END,
	CASE WHEN i <= 0.1 * n THEN 'blocked' WHEN i <= 0.12 * n THEN 'k' || i WHEN i % 3 = 0 OR stage = 4 AND i % 10 <> 1 THEN ''
	ELSE 'k' || i % 20000 END,
	stage,
	CASE WHEN stage NOT IN (2, 3, 4) THEN NULL WHEN (i / 50) % 50 = 0 THEN now() - interval '1 minute'
		ELSE now() + interval '1 hour' + i * interval '1 microsecond' END,
	now(), now(), now(),
	CASE WHEN stage = 5 OR stage < 4 AND (i / 50) % 1000 = 7 THEN now() - interval '1 minute' WHEN i % 100 = 1
	THEN now() + interval '1 hour' END,
	CASE WHEN stage = 6 THEN now() - i % 2 * interval '2 hours' END,
	CASE WHEN stage = 4 THEN '00000000-0000-7000-8000-000000000001'::uuid END,
	CASE WHEN stage = 6 THEN '00000000-0000-7000-8000-000000000001'::uuid END,
	CASE WHEN stage = 0 THEN 0 ELSE 1 END, 0, stage = 7 AND i % 50 = 0, 100, 'm' || i,
	CASE WHEN i % 5 = 0 THEN ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid END,
	CASE WHEN stage IN (2, 3) AND i % 5 = 1 THEN ('00000000-0000-7000-9000-' || lpad(to_hex(i % (n / 10)), 12, '0'))::uuid END,
	'\x0102030405060708090a0b0c0d0e0f'
FROM (SELECT i, n, stage, stage = 0 AND i % 10 = 0 AS unrouted FROM (SELECT i, n, CASE WHEN i <= 0.12 * n THEN 1 WHEN i <= 0.8 * n THEN 0
	WHEN i <= 0.85 * n THEN 2 WHEN i <= 0.9 * n THEN 3 WHEN i <= 0.92 * n THEN 4 WHEN i <= 0.93 * n THEN 5 WHEN i <= 0.965 * n THEN 6
	ELSE 7 END AS stage FROM (SELECT generate_series(1, $1::integer) AS i, $1::integer AS n) AS g) AS s) AS r
ORDER BY i`

const sqlLanes = `INSERT INTO outmill.lanes (grp, topic, key, blocked_by, until, head)
SELECT grp, topic, key, '00000000-0000-7000-8000-000000000001', now() + interval '1 hour', min(seq)
FROM outmill.records WHERE stage = 1 GROUP BY grp, topic, key`

const sqlDedup = `INSERT INTO outmill.dedup (topic, dedup_key, first_id, expires_at)
SELECT 't' || i % 50, 'd' || i, gen_random_uuid(), now() + CASE WHEN i % 2 = 0 THEN -interval '1 hour' ELSE interval '1 hour' END
FROM generate_series(1, $1::integer / 5) AS i ON CONFLICT DO NOTHING`

// warm is how often a statement runs until the server considers a generic plan, and once more.
const warm = 6

// large are the tables that grow.
var large = []string{"records", "lanes", "dedup", "joins", "join_members", "inbox", "sagas"}

// topics is the approximate number of topics in sqlMillion.
const topics = 60

// leasedOf returns how many of the records of sqlMillion are leased.
func leasedOf(n int) int { return n / 50 }

func rows() int {
	if testenv.UnderRace {
		return 100_000
	}
	return 1_000_000
}

// filled returns a database that has the schema but no records, and a function that fills it.
// Autovacuum is off, because it would update the statistics during the test. The test has its
// own server: an open transaction in any of its databases can keep index entries from being
// marked dead.
func filled(t *testing.T) (url string, fill func(n int), admin *pgxpool.Pool) {
	t.Helper()
	url = postgrestest.DatabaseOn(t, postgrestest.Own(t).URL)
	admin = connect(t, url)
	store := newStore(t, admin, postgres.Config{NotifyInterval: -1, Lane: postgres.LaneRows})
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(),
		outmill.Registration{Group: readers, Topics: outmill.Topics{Include: []string{"orders", "many", "t*"}}}))
	for _, table := range append([]string{"groups", "meta"}, large...) {
		execute(t, admin, "ALTER TABLE outmill."+table+" SET (autovacuum_enabled = false)")
		// Unlogged tables have the same plans, and are faster.
		execute(t, admin, "ALTER TABLE outmill."+table+" SET UNLOGGED")
	}
	return url, func(n int) {
		began := time.Now()
		execute(t, admin, sqlMillion, n)
		execute(t, admin, sqlLanes)
		execute(t, admin, sqlDedup, n)
		execute(t, admin, sqlJoins, n)
		execute(t, admin, sqlMembers, n)
		execute(t, admin, sqlNotes, n)
		execute(t, admin, sqlSagas, n)
		t.Logf("%d records written in %s", n, time.Since(began).Round(time.Millisecond))
	}, admin
}

func TestPlans_Million(t *testing.T) {
	t.Parallel()

	t.Run("claims after all was acked are told of", func(t *testing.T) {
		t.Parallel()
		testenv.Unraced(t, "what claims cost after a million acks, which is told and not judged")
		url, _, admin := filled(t)
		watcher, err := connect(t, url).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		require.NoError(t, err)
		_, err = watcher.Exec(t.Context(), "SELECT 1")
		require.NoError(t, err)
		e := explained(t, url, "auto")
		e.t = t
		e.tellClaims("nothing was ever there")
		ackedBehind(t, admin, rows())
		e.tellClaims("all were acked, and another session still sees them")
		execute(t, admin, "VACUUM outmill.records")
		e.tellClaims("the same after VACUUM, which cannot help")
		require.NoError(t, watcher.Rollback(t.Context()))
		e.tellClaims("nobody sees them any more")
		execute(t, admin, "VACUUM outmill.records")
		e.tellClaims("after VACUUM")
	})

	t.Run("statements read no more than they need at a million records", func(t *testing.T) {
		t.Parallel()
		testenv.Unraced(t, "plans at a million rows")
		url, fill, admin := filled(t)

		// The planner assumes ten pages for a table that was never analyzed, and no rows for
		// one that was empty when it was analyzed.
		never := warmed(t, url, "force_generic_plan", "auto")
		fill(rows() / 10)
		for mode, e := range never {
			t.Run("with plans of the empty table, never analyzed, "+mode, func(t *testing.T) { e.requireBoundedPlans(t) })
		}
		execute(t, admin, "TRUNCATE outmill."+strings.Join(large, ", outmill."))
		execute(t, admin, "ANALYZE")
		empty := warmed(t, url, "force_generic_plan", "auto")
		fill(rows())
		for mode, e := range empty {
			e.own = true
			t.Run("with plans of the empty table, analyzed, "+mode, func(t *testing.T) { e.requireBoundedPlans(t) })
		}
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			t.Run("with statistics of the empty table, "+mode, func(t *testing.T) { explained(t, url, mode).requireBoundedPlans(t) })
		}
		execute(t, admin, "ANALYZE")
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			t.Run("with statistics, "+mode, func(t *testing.T) { explained(t, url, mode).requireBoundedPlans(t) })
		}
		execute(t, admin, "VACUUM outmill.records")
		t.Run("after VACUUM", func(t *testing.T) { explained(t, url, "auto").requireBoundedPlans(t) })
	})
}

// warmed returns stores that have plans for the tables in their current state.
func warmed(t *testing.T, url string, modes ...string) map[string]*exercising {
	t.Helper()
	all := map[string]*exercising{}
	for _, mode := range modes {
		all[mode] = explained(t, url, mode)
		for range warm {
			all[mode].exercise(t, func(string, int, []plan) {})
		}
	}
	return all
}

// requireBoundedPlans checks the plans of every call. It reports each fault of a statement
// once.
func (e *exercising) requireBoundedPlans(t *testing.T) {
	t.Helper()
	known := map[string]bool{}
	e.exercise(t, func(call string, limit int, found []plan) {
		for _, p := range found {
			p.Plan.each(func(n node) {
				id := p.Text + n.Type + n.Index + n.Cond
				if fault := faultOf(n, limit); fault != "" && !known[id] {
					known[id] = true
					t.Errorf("%s: a node %s:\n%s\nof\n%s", call, fault, n, p.Text)
				}
			})
		}
	})
}

// faultOf allows work that is done once for each topic, and index entries whose records are
// gone.
func faultOf(n node, limit int) string {
	if n.Type == "Seq Scan" && (slices.Contains(large, n.Relation) || slices.Contains(largeOfLog, n.Relation)) && n.Loops > 0 {
		return "scans a table"
	}
	if bound := 10*limit + 10*topics; n.read() > bound {
		return fmt.Sprintf("reads more than %d rows", bound)
	}
	// Allow a descent of an index and the row itself, for each loop and row.
	scan := n.Type == "Index Scan" || n.Type == "Index Only Scan"
	// The blocks that produce a list of ids may be counted with the scan that takes the list.
	if most := 10*(int(n.Loops)+n.read()) + limit + 1500; scan && n.blocks() > most {
		return fmt.Sprintf("reads more than %d blocks", most)
	}
	return ""
}

// exercising makes the calls of a store whose plans are reported.
type exercising struct {
	t     *testing.T
	store *postgres.Store
	told  *plans
	tell  func(call string, limit int, found []plan)
	// own leaves out the calls in a user's transaction, which PostgreSQL plans by the user's
	// settings: a plan of an empty table that was analyzed may scan the table until the next
	// ANALYZE.
	own bool
}

// exercise makes every call of a reader, a writer, an operator and the janitor, and passes the
// plans of each to tell, with its limit.
func (e *exercising) exercise(t *testing.T, tell func(call string, limit int, found []plan)) {
	t.Helper()
	const limit = 100
	e.t, e.tell = t, tell
	ctx, store := t.Context(), e.store

	e.call("append", limit, func() error { return store.Append(ctx, made("t1", "x", limit)...) })
	e.call("append with dedup keys", limit, func() error {
		records := made("t1", "x", limit)
		for i, r := range records {
			r.DedupKey = "d" + fmt.Sprint(i)
		}
		return store.Append(ctx, records...)
	})
	e.call("append in a transaction", limit, func() error {
		return store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error {
			records := made("t1", "x", limit)
			records[0].DedupKey = outmill.NewWorkItemID().String()
			return store.Append(ctx, records...)
		})
	})
	e.call("register group", limit, func() error {
		return store.RegisterGroup(ctx, outmill.Registration{Group: readers, Topics: outmill.Topics{Include: []string{"orders", "many", "t*"}}})
	})

	byName, byPattern := []string{"t1"}, []string{"orders", "many", "t*"}
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		for _, policy := range []outmill.KeyPolicy{outmill.KeyBlock, outmill.KeySkip, outmill.KeyPark} {
			if order == outmill.OrderTopic && policy == outmill.KeyPark || order == outmill.OrderNone && policy != outmill.KeyBlock {
				continue
			}
			for name, include := range map[string][]string{"one topic": byName, "topics": byPattern, "a blocked key": {"orders"},
				"many blocked keys": {"many"}} {
				req := claimOf(outmill.NewOwnerToken(), limit, order, include...)
				req.KeyPolicy = policy
				e.settle(e.claim(fmt.Sprintf("claim %s %s from %s", order, policy, name), req), name != "a blocked key")
			}
		}
	}
	e.call("reap", limit, func() error { _, err := store.ReapExpired(ctx, limit); return err })
	e.call("expire", limit, func() error { _, err := store.ExpireDue(ctx, limit); return err })
	e.call("delete processed", limit, func() error { _, err := store.DeleteProcessed(ctx, limit); return err })
	e.call("delete dedup keys", limit, func() error { _, err := store.DeleteDedupKeys(ctx, limit); return err })
	for _, group := range []string{readers, "brief"} {
		e.call("register for a moment", limit, func() error {
			return store.RegisterGroup(ctx,
				outmill.Registration{Group: group, Worker: "w", TTL: time.Microsecond, Topics: outmill.Topics{Include: []string{"brief"}}})
		})
	}
	require.NoError(t, store.Append(ctx, made("brief", "x", limit/2)...))
	e.call("expire registrations", limit, func() error {
		registrations, records, err := store.ExpireRegistrations(ctx, limit)
		require.Equal(t, []int{2, limit}, []int{registrations, records})
		return err
	})
	e.call("stats", 10*topics, func() error { _, err := store.Stats(ctx, 10); return err })
	for _, group := range []string{readers, ""} {
		e.call("first waiting", limit, func() error { _, err := store.FirstWaiting(ctx, group, "orders", limit); return err })
	}
	e.call("groups", limit, func() error { _, err := store.Groups(ctx); return err })
	e.inspect(limit)
	e.joins(limit)
	e.transactions(limit)
}

func (e *exercising) call(name string, limit int, fn func() error) {
	e.t.Helper()
	e.tell(name, limit, e.told.of(e.t, func() { require.NoError(e.t, fn(), name) }))
}

func (e *exercising) claim(name string, req outmill.ClaimRequest) (found []*outmill.Record) {
	e.t.Helper()
	e.call(name, req.Limit, func() (err error) {
		found, err = e.store.Claim(e.t.Context(), req)
		return err
	})
	return found
}

// settle ends the leases in every way. If park is true, it parks the whole key.
func (e *exercising) settle(found []*outmill.Record, park bool) {
	e.t.Helper()
	ctx, leases := e.t.Context(), leasesOf(found)
	take := func(n int) []outmill.Lease {
		n = min(n, len(leases))
		taken := leases[:n]
		leases = leases[n:]
		return taken
	}
	if len(leases) == 0 {
		return
	}
	limit := len(leases)
	e.call("extend", limit, func() error { _, err := e.store.Extend(ctx, time.Hour, leases); return err })
	if lease := take(1); park {
		e.call("fail and park", limit, func() error {
			return e.store.Fail(ctx, []outmill.Settlement{{Lease: lease[0], Err: "no", Park: true}})
		})
	}
	if lease := take(1); len(lease) > 0 {
		e.call("fail", limit, func() error { return e.store.Fail(ctx, []outmill.Settlement{{Lease: lease[0], Err: "no"}}) })
	}
	if lease := take(1); len(lease) > 0 {
		e.call("abandon", limit, func() error {
			return e.store.Abandon(ctx, []outmill.Settlement{{Lease: lease[0], Err: "no", Delay: time.Hour}})
		})
	}
	if lease := take(1); len(lease) > 0 {
		e.call("snooze", limit, func() error { return e.store.Snooze(ctx, []outmill.Settlement{{Lease: lease[0]}}) })
	}
	if given := take(10); len(given) > 0 {
		e.call("release", limit, func() error { return e.store.Release(ctx, given) })
	}
	if len(leases) > 0 {
		e.call("ack", limit, func() error { return e.store.Ack(ctx, "", leases) })
	}
}

func (e *exercising) inspect(limit int) {
	e.t.Helper()
	ctx := e.t.Context()
	statuses := []outmill.Status{"", outmill.StatusPending, outmill.StatusLeased, outmill.StatusProcessed, outmill.StatusDead}
	var dead []outmill.WorkItemID
	for _, status := range statuses {
		most := topics * limit
		if status == outmill.StatusLeased {
			// It reads all records in work, which are few.
			most += leasedOf(rows())
		}
		e.call("list "+string(status), most, func() error {
			found, err := e.store.List(ctx, outmill.ListQuery{Status: status, Limit: limit})
			dead = nil
			for _, r := range found {
				dead = append(dead, r.ID)
			}
			return err
		})
	}
	for name, query := range map[string]outmill.ListQuery{
		"message id": {MessageID: "nowhere"}, "error text": {ErrorText: "nowhere"},
		"error text of what is dead": {ErrorText: "nowhere", Status: outmill.StatusDead},
	} {
		e.call("find by "+name, roles.MaxExamined+topics*limit, func() error {
			page, err := e.store.Find(ctx, query)
			require.Empty(e.t, page.Records)
			return err
		})
	}
	e.call("requeue by error text", roles.MaxExamined+topics*limit, func() error {
		_, err := e.store.RequeueWhere(ctx, outmill.ListQuery{ErrorText: "nowhere"})
		return err
	})
	if len(dead) == 0 {
		return
	}
	e.call("get", limit, func() error { _, err := e.store.Get(ctx, dead[0]); return err })
	e.call("list dead letters", roles.MaxExamined+topics*limit, func() error {
		_, err := e.store.DeadLetters(ctx, outmill.ListQuery{Limit: limit})
		return err
	})
	e.call("edit", limit, func() error {
		_, err := e.store.Edit(ctx, dead[0], roles.Edit{Seen: storekit.FingerprintOf(&outmill.Record{}), Payload: []byte("new")})
		if errors.Is(err, roles.ErrRecordChanged) {
			return nil
		}
		return err
	})
	e.call("skip", limit, func() error { _, err := e.store.Skip(ctx, dead[0]); return err })
	e.call("read the audit", limit, func() error { _, err := e.store.Audited(ctx, roles.AuditQuery{Limit: limit}); return err })
	e.call("delete old audit entries", limit, func() error { _, err := e.store.DeleteOldAudit(ctx, limit); return err })
	e.call("requeue", limit, func() error { _, err := e.store.Requeue(ctx, dead...); return err })
	e.call("delete", limit, func() error { _, err := e.store.Delete(ctx, dead...); return err })
}

// ackedBehind makes the dead rows of n records that were appended, leased and acked.
func ackedBehind(t *testing.T, admin *pgxpool.Pool, n int) {
	t.Helper()
	execute(t, admin, `INSERT INTO outmill.records (id, grp, topic, key, stage, due_at, next_at, created_at, size, message_id, payload)
SELECT gen_random_uuid(), 'readers', 'orders', 'k' || i % 1000, 0, now(), now(), now(), 100, 'm' || i, ''
FROM generate_series(1, $1::integer) AS i`, n)
	execute(t, admin, `UPDATE outmill.records SET stage = 4, owner = gen_random_uuid(), available_at = now() + interval '1 minute'`)
	execute(t, admin, `DELETE FROM outmill.records`)
}

// tellClaims logs the cost of some consecutive claims of 100 records each: the first may clean
// up for the next.
func (e *exercising) tellClaims(when string) {
	e.t.Helper()
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
		var took []time.Duration
		var blocks []int
		for range 3 {
			require.NoError(e.t, e.store.Append(e.t.Context(), made("orders", "x", 100)...))
			began := time.Now()
			var found []*outmill.Record
			n := 0
			for _, p := range e.told.of(e.t, func() { found = claimed(e.t, e.store, claimOf(outmill.NewOwnerToken(), 100, order, "orders")) }) {
				n += p.Plan.Hit + p.Plan.Read
			}
			took, blocks = append(took, time.Since(began).Round(time.Millisecond/10)), append(blocks, n)
			require.Len(e.t, found, 100)
			require.NoError(e.t, e.store.Ack(e.t.Context(), "", leasesOf(found)))
		}
		e.t.Logf("%s, order %s: claims took %v and read %v blocks", when, order, took, blocks)
	}
}
