package postgres_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/storetest"
)

// numberOf gives a transaction its number.
func (r *tape) numberOf(tx pgx.Tx) (number int64) {
	r.t.Helper()
	require.NoError(r.t, tx.QueryRow(r.t.Context(), `SELECT pg_current_xact_id()::text::bigint`).Scan(&number))
	return number
}

// sinceOf returns the place behind which the newest batch has a transaction's rows.
func (r *tape) sinceOf(number int64) int64 {
	r.t.Helper()
	return valueOf[int64](r.t, r.db, r.sql(fmt.Sprintf(`SELECT coalesce((SELECT b.since[p.nth] FROM pg_snapshot_xip(b.seen) WITH ORDINALITY AS
		p (xid, nth) WHERE p.xid::text::bigint = %[1]d),
	CASE WHEN %[1]d >= pg_snapshot_xmax(b.seen)::text::bigint THEN b.since[cardinality(b.since)] END) FROM {batches} AS b
	ORDER BY n DESC LIMIT 1`, number)))
}

func (r *tape) posNow() int64 {
	r.t.Helper()
	return valueOf[int64](r.t, r.db, r.sql(`SELECT pos FROM {batches} ORDER BY n DESC LIMIT 1`))
}

func TestStore_LogSince(t *testing.T) {
	t.Parallel()

	t.Run("in a log a batch knows how far it was read when each open transaction began", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, ownServer(t), storetest.Options{})
		type opened struct {
			tx     pgx.Tx
			number int64
			before int64
		}
		var open []opened
		var want []string
		for i := range 5 {
			before := int64(-1)
			if i > 0 {
				before = r.posNow()
			}
			tx := r.begin()
			open = append(open, opened{tx, r.numberOf(tx), before})
			r.in(tx, "key", fmt.Sprint("first of ", i))
			for range 3 {
				name := fmt.Sprint("passed ", len(want))
				want = append(want, name)
				r.append("", name)
				require.Equal(t, []string{name}, r.take(10, outmill.OrderKey))
				for _, o := range open {
					require.Equal(t, o.before, r.sinceOf(o.number))
				}
			}
		}
		for i := len(open) - 1; i >= 0; i-- {
			r.in(open[i].tx, "key", fmt.Sprint("last of ", i))
			r.commit(open[i].tx)
			names := []string{fmt.Sprint("first of ", i), fmt.Sprint("last of ", i)}
			require.Equal(t, names, r.drain(10, outmill.OrderKey))
			want = append(want, names...)
		}
		r.census(want...)
	})

	// The index skips rows that others wrote while a transaction was open. If its rows were
	// searched in the table, the claim would read thousands of blocks.
	t.Run("in a log a record that was late for long is found without a scan of the others", func(t *testing.T) {
		testenv.Long(t, "what many claims, batches and rounds cost")
		t.Parallel()
		const others, idle = 20_000, 20
		r := newTape(t, ownServer(t), storetest.Options{})
		long := []pgx.Tx{r.begin()}
		r.in(long[0], "", "late")
		// The work must not grow with the number of these transactions.
		for range idle {
			tx := r.begin()
			r.numberOf(tx)
			long = append(long, tx)
		}
		require.NoError(t, r.store.Append(t.Context(), made("orders", "x", others)...))
		for {
			found := claimed(t, r.store, claimOf(r.owner, 5000, outmill.OrderNone, "orders"))
			if len(found) == 0 {
				break
			}
			require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(found)))
		}
		for _, tx := range long {
			r.commit(tx)
		}
		e := explainedAs(t, r.db.Config().ConnString(), "force_generic_plan", r.store.config)
		found := e.told.of(t, func() {
			require.Equal(t, []string{"late"}, namesOf(claimed(t, e.store, claimOf(r.owner, 10, outmill.OrderKey, "orders"))))
		})
		searches := 0
		for _, p := range found {
			p.Plan.each(func(n node) {
				if strings.HasPrefix(n.Index, "log_") && strings.Contains(n.Cond, "xid >= ") {
					searches++
					require.Less(t, n.blocks(), others/100, "%s of\n%s", n, p.Text)
				}
			})
		}
		require.NotZero(t, searches)
	})

	// A search of a line without new rows would scan all rows that were written while the
	// transaction was open, each time.
	t.Run("in a log the end of a long transaction is noted by one claim", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, ownServer(t), storetest.Options{})
		due := func() bool { return len(dueTopics(t, r)) > 0 }
		long := r.begin()
		r.numberOf(long)
		r.append("", "before")
		require.Equal(t, []string{"before"}, r.drain(10, outmill.OrderNone))
		execute(t, r.db, r.sql(`SELECT count(nextval('{records_seq_seq}')) FROM generate_series(1, 10001)`))
		r.append("", "passed")
		require.Equal(t, []string{"passed"}, r.take(10, outmill.OrderNone))
		require.False(t, due(), "it is open")
		r.commit(long)
		require.True(t, due())
		require.Empty(t, r.take(10, outmill.OrderNone))
		require.False(t, due(), "noted")
		r.census("before", "passed")
	})

	// Transactions without further rows in the line are not kept, because there may be
	// thousands.
	t.Run("in a log only transactions of which something is to come are listed", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		huge := r.begin()
		r.in(huge, "", numbered("huge", 30)...)
		r.append("", "passed")
		require.Equal(t, []string{"passed"}, r.take(10, outmill.OrderNone))
		r.commit(huge)
		var open []pgx.Tx
		var got []string
		for range 10 {
			got = append(got, r.take(2, outmill.OrderNone)...)
			for _, tx := range open {
				r.commit(tx)
			}
			require.Equal(t, 1, valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {late}`)))
			open = []pgx.Tx{r.begin(), r.begin()}
			for _, tx := range open {
				r.numberOf(tx)
			}
		}
		for _, tx := range open {
			r.commit(tx)
		}
		got = append(got, r.drain(10, outmill.OrderNone)...)
		require.Equal(t, numbered("huge", 30), got)
		// A claim that first searches for topics, and finds none, leaves the list to the next
		// one.
		r.append("", "last")
		require.Equal(t, []string{"last"}, r.take(10, outmill.OrderNone))
		require.Zero(t, valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {late}`)))
		r.census(append(numbered("huge", 30), "passed", "last")...)
	})

	// That is the state after a restore on another server with the same identifier.
	t.Run("in a log a row whose number is not given yet comes at once", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, ownServer(t), storetest.Options{})
		before := r.numbersGiven()
		for i, order := range allOrders {
			r.append("", fmt.Sprint("a", i))
			execute(t, r.db, r.sql(`UPDATE {log} SET xid = '4000000000' WHERE pos > (SELECT past FROM {meta})`))
			require.Equal(t, []string{fmt.Sprint("a", i)}, r.take(10, order))
		}
		r.append("", "b")
		execute(t, r.db, r.sql(`UPDATE {log} SET xid = '4000000000' WHERE pos > (SELECT past FROM {meta})`))
		dropped, err := r.store.DropGroup(t.Context(), readers)
		require.NoError(t, err)
		require.Equal(t, outmill.Dropped{GivenBack: 4}, dropped)
		require.Less(t, r.numbersGiven()-before, int64(100))
	})

	// A cluster may have a thousand open transactions, of any database.
	t.Run("in a log a claim goes over the open transactions a few times", func(t *testing.T) {
		testenv.Long(t, "what many claims, batches and rounds cost")
		t.Parallel()
		const open = 30
		r := newTape(t, ownServer(t), storetest.Options{})
		for range open {
			r.numberOf(r.begin())
		}
		r.append("", "before")
		require.Equal(t, []string{"before"}, r.drain(10, outmill.OrderKey))
		r.append("", "now")
		e := explainedAs(t, r.db.Config().ConnString(), "force_generic_plan", r.store.config)
		found := e.told.of(t, func() {
			require.Equal(t, []string{"now"}, namesOf(claimed(t, e.store, claimOf(r.owner, 10, outmill.OrderKey, "orders"))))
		})
		notes := 0
		for _, p := range found {
			if !strings.Contains(p.Text, addsBatch) {
				continue
			}
			notes++
			read := 0
			p.Plan.each(func(n node) { read += n.read() })
			require.Less(t, read, 15*open, p.Text)
		}
		require.NotZero(t, notes)
	})

	// The limit for a claim is one second; a busy machine may take five.
	t.Run("in a log hundreds of long transactions that end together delay a claim little", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "300 transactions that end while a million rows were passed")
		const open, passed = 300, 1_000_000
		url := postgrestest.DatabaseOn(t, postgrestest.Own(t, "max_connections=400").URL)
		r := newTape(t, connectAs(t, url, atMost(open+20)), storetest.Options{})
		long := make([]pgx.Tx, open)
		for i := range long {
			long[i] = r.begin()
			r.in(long[i], "", fmt.Sprint("late", i))
		}
		r.append("", "first")
		require.Equal(t, []string{"first"}, r.take(10, outmill.OrderNone))
		execute(t, r.db, r.sql(`INSERT INTO {log} (line, segment, id, created_at, size, grp, topic, key, message_id, correlation_id,
			causation_id, tenant_id, traceparent, tracestate, dedup_key, payload)
SELECT l.line, l.segment, gen_random_uuid(), now(), l.size, l.grp, l.topic, l.key, 'passed', '', '', '', '', '', '', l.payload
FROM (SELECT * FROM {log} LIMIT 1) AS l, generate_series(1, $1::integer)`), passed)
		require.NotEmpty(t, r.take(10, outmill.OrderNone))
		execute(t, r.db, r.sql(`WITH new AS (SELECT nextval('{records_seq_seq}')) UPDATE {batches} SET pos = new.nextval FROM new`))
		for _, tx := range long {
			r.commit(tx)
		}
		took := time.Duration(0)
		var found []string
		for len(found) < open {
			began := time.Now()
			some := r.take(100, outmill.OrderNone)
			took = max(took, time.Since(began))
			require.NotEmpty(t, some)
			found = append(found, some...)
		}
		t.Logf("the slowest claim took %s", took)
		require.Less(t, took, 5*time.Second)
	})

	// The limit is 20 ms; a busy machine may take ten times as long.
	t.Run("in a log a claim among a thousand open transactions is quick", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "1,000 open transactions")
		const open, claims = 1000, 50
		url := postgrestest.DatabaseOn(t, postgrestest.Own(t, "max_connections=1100").URL)
		r := newTape(t, connectAs(t, url, atMost(open+20)), storetest.Options{})
		for i := range open {
			r.in(r.begin(), "", fmt.Sprint("open", i))
		}
		var took, acks []time.Duration
		for i := range claims {
			name := fmt.Sprint("now", i)
			r.append("", name)
			began := time.Now()
			found := claimed(t, r.store.Store, claimOf(r.owner, 10, outmill.OrderKey, "orders"))
			took = append(took, time.Since(began))
			require.Equal(t, []string{name}, namesOf(found))
			began = time.Now()
			require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(found)))
			acks = append(acks, time.Since(began))
		}
		slices.Sort(took)
		slices.Sort(acks)
		t.Logf("a claim took %s, and %s at most; its ack %s", took[claims/2], took[claims-1], acks[claims/2])
		require.Less(t, took[claims/2], 200*time.Millisecond)
	})
}

// dueTopics returns the topics that a search finds in the log.
func dueTopics(t *testing.T, r *tape) (topics []string) {
	t.Helper()
	text := valueOf[string](t, r.db, r.sql(`SELECT coalesce(json_agg(t.t), '[]')::text
		FROM {log_due_from}('readers', NULL, 1000) AS t (t, line, lease_left) WHERE t.t IS NOT NULL`))
	require.NoError(t, json.Unmarshal([]byte(text), &topics))
	return topics
}

func (r *tape) numbersGiven() int64 {
	return valueOf[int64](r.t, r.db, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint`)
}
