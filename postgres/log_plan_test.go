package postgres_test

import (
	"context"
	"fmt"
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
)

// largeOfLog are the segments of the log that statements read. They are large.
var largeOfLog = []string{"log_0", "log_1"}

// sqlLogMillion fills two segments with $1 rows: half are of the topic big, a fifth of the
// topic read, which was read to its end, and the rest of other topics.
const sqlLogMillion = `INSERT INTO outmill.log (line, segment, id, created_at, size, grp, topic, key, message_id, correlation_id,
	causation_id, tenant_id, traceparent, tracestate, dedup_key, payload)
SELECT outmill.line_of('readers', topic),
	CASE WHEN i < $1::integer / 2 THEN 0 ELSE 1 END, ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, now(), 100, 'readers',
	topic, 'k' || i % 20000, 'm' || i, '', '', '', '', '', '',
	'\x0102030405060708090a0b0c0d0e0f'
FROM (SELECT i, CASE WHEN i % 10 < 5 THEN 'big' WHEN i % 10 < 7 THEN 'read' ELSE 't' || i % 50 END AS topic
FROM generate_series(1, $1::integer) AS i) AS g`

// filledLog returns a database with a large log on its own server: see filled.
func filledLog(t *testing.T) (url string, admin *pgxpool.Pool) {
	t.Helper()
	url = postgrestest.DatabaseOn(t, postgrestest.Own(t, "autovacuum=off").URL)
	admin = connect(t, url)
	store := newStore(t, admin, postgres.Config{NotifyInterval: -1, Lane: postgres.LaneLog})
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	for i := range 3 {
		execute(t, admin, fmt.Sprintf(`ALTER TABLE outmill.log_%d SET UNLOGGED`, i))
	}
	began := time.Now()
	execute(t, admin, sqlLogMillion, rows())
	execute(t, admin, `UPDATE outmill.meta SET segment = 1`)
	// Finish the topic read: one claim and ack of 100 records jump to the end.
	require.NoError(t, store.Ack(t.Context(), "",
		leasesOf(claimed(t, store, claimOf(outmill.NewOwnerToken(), 100, outmill.OrderNone, "read")))))
	execute(t, admin, `UPDATE outmill.batches SET pos = (SELECT max(pos) FROM outmill.log)`)
	t.Logf("%d rows written in %s", rows(), time.Since(began).Round(time.Millisecond))
	return url, admin
}

func TestLogPlans_Million(t *testing.T) {
	t.Parallel()

	t.Run("statements read no more than they need at a million rows of the log", func(t *testing.T) {
		t.Parallel()
		testenv.Unraced(t, "plans at a million rows of the log")
		url, admin := filledLog(t)
		check := func(when string, modes ...string) {
			for _, mode := range modes {
				t.Run(when+", "+mode, func(t *testing.T) {
					e := &ofLog{exercising: explainedAs(t, url, mode, postgres.Config{NotifyInterval: -1}), admin: admin, mode: mode}
					e.check(t)
				})
			}
		}
		check("never analyzed", "auto")
		execute(t, admin, "ANALYZE")
		check("with statistics", "force_generic_plan", "force_custom_plan")
	})

	// Claimed rows stay in the table and its indexes for as long as an old transaction could
	// see them.
	t.Run("while an old transaction is open no claim of a log scans the rows claimed since", func(t *testing.T) {
		testenv.Long(t, "what many claims, batches and rounds cost")
		t.Parallel()
		const (
			claims = 1000
			// most is a tenth of the blocks of the batches' dead rows.
			most = 20
		)
		url := postgrestest.Database(t)
		admin := connect(t, url)
		store := newStore(t, admin, postgres.Config{NotifyInterval: -1, Lane: postgres.LaneLog})
		require.NoError(t, store.Ensure(t.Context()))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		old, err := admin.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		require.NoError(t, err)
		defer func() { _ = old.Rollback(context.WithoutCancel(t.Context())) }()
		_, err = old.Exec(t.Context(), `SELECT pg_current_xact_id()`)
		require.NoError(t, err)
		owner := outmill.NewOwnerToken()
		for i := range claims {
			require.NoError(t, store.Append(t.Context(), made("orders", fmt.Sprint(i), 1)...))
			require.NoError(t, store.Ack(t.Context(), "", leasesOf(claimed(t, store, claimOf(owner, 1, outmill.OrderKey, "orders")))))
		}
		check := func(when string, modes ...string) {
			for _, mode := range modes {
				e := explainedAs(t, url, mode, postgres.Config{NotifyInterval: -1})
				for _, order := range allOrders {
					found := e.told.of(t, func() {
						require.Empty(t, claimed(t, e.store, claimOf(owner, 1, order, "orders")))
						require.NoError(t, store.Append(t.Context(), made("orders", "more", 1)...))
						require.NoError(t, e.store.Ack(t.Context(), "", leasesOf(claimed(t, e.store, claimOf(owner, 1, order)))))
						_, err := e.store.Stats(t.Context(), 10)
						require.NoError(t, err)
					})
					for _, p := range found {
						p.Plan.each(func(n node) {
							if n.Index == "batches_pkey" || n.Index == "ended_pkey" {
								require.LessOrEqual(t, n.blocks(), most, "%s, %s, order %s: blocks of %s of\n%s", when, mode, order, n, p.Text)
							}
						})
					}
				}
			}
		}
		check("never analyzed", "auto")
		execute(t, admin, `ANALYZE outmill.batches, outmill.ended`)
		check("with statistics", "force_generic_plan", "force_custom_plan")
	})

	t.Run("claims of one cost the same however many there were behind an old transaction", func(t *testing.T) {
		testenv.Long(t, "what many claims, batches and rounds cost")
		t.Parallel()
		for name, stays := range map[string]bool{"all acked": false, "one lease stays": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				requireLevelClaims(t, stays)
			})
		}
	})
}

// ofLog makes the calls that read the log.
type ofLog struct {
	*exercising
	admin *pgxpool.Pool
	mode  string
}

// check reports each fault of a statement once.
func (e *ofLog) check(t *testing.T) {
	t.Helper()
	e.t = t
	known := map[string]bool{}
	e.tell = func(call string, limit int, found []plan) {
		for _, p := range found {
			p.Plan.each(func(n node) {
				id := p.Text + n.Type + n.Index + n.Cond
				limit := limit
				if strings.Contains(p.Text, "more (pos, found)") && n.Type == "Index Only Scan" {
					limit = lateRows // the passed rows are scanned once, when the transactions have ended
				}
				if fault := faultOf(n, limit); fault != "" && !known[id] {
					known[id] = true
					t.Errorf("%s: a node %s:\n%s\nof\n%s", call, fault, n, p.Text)
				}
			})
		}
	}
	e.exercise(t)
}

func (e *ofLog) exercise(t *testing.T) {
	t.Helper()
	const limit = 100
	ctx, store := t.Context(), e.store
	e.call("append", limit, func() error { return store.Append(ctx, made("t1", "x", limit)...) })
	e.call("copy", limit, func() error { return store.Append(ctx, made("t1", "x", 3*limit)...) })
	e.call("append in a transaction", limit, func() error {
		return store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error { return store.Append(ctx, made("t1", "x", limit)...) })
	})
	for _, order := range allOrders {
		e.claim(fmt.Sprintf("poll of a topic that was read, order %s", order), claimOf(outmill.NewOwnerToken(), limit, order, "read"))
		for name, include := range map[string][]string{"one topic": {"big"}, "topics": {"t*", "read"}} {
			req := claimOf(outmill.NewOwnerToken(), limit, order, include...)
			if order == outmill.OrderTopic {
				req.KeyPolicy = outmill.KeySkip // skip the records that still wait from earlier claims
			}
			found := e.claim(fmt.Sprintf("claim, order %s, from %s", order, name), req)
			require.NotEmpty(t, found)
			e.end(found)
			req.MaxBytes = 5 * 100
			e.end(e.claim(fmt.Sprintf("claim, order %s, from %s, of some bytes", order, name), req))
		}
		e.late(order, limit)
	}
	e.look(limit)
	e.call("reap", limit, func() error { _, err := store.ReapExpired(ctx, limit); return err })
	for segment := range 3 {
		e.call("truncation", limit, func() error { _, err := store.Truncate(ctx, segment); return err })
	}
	e.call("forget lines", limit, func() error { return store.ForgetLines(ctx) })
	e.call("upkeep", limit, func() error { return store.TendSegments(ctx) })
	execute(t, e.admin, `UPDATE outmill.meta SET cluster = 'another'`)
	again := newStore(t, store.Pool(), postgres.Config{NotifyInterval: -1})
	e.call("first claim on another server", limit, func() error {
		_, err := again.Claim(ctx, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "read"))
		return err
	})
}

// end settles in every way except Park, which scans thousands of rows.
func (e *ofLog) end(found []*outmill.Record) {
	e.t.Helper()
	e.settle(found, false)
	if len(found) > 0 {
		require.NoError(e.t, e.store.Ack(e.t.Context(), "", leasesOf(found[:1])))
	}
}

// late claims the records of five transactions that a claim has passed. lateRows is the number
// of these records.
const lateRows = 10_000

func (e *ofLog) late(order outmill.Order, limit int) {
	e.t.Helper()
	ctx := e.t.Context()
	writer := newStore(e.t, e.admin, postgres.Config{NotifyInterval: -1})
	topic := "late " + outmill.NewWorkItemID().String()
	req := claimOf(outmill.NewOwnerToken(), limit, order, topic)
	var open []pgx.Tx
	for i := range 5 {
		tx, err := e.admin.Begin(ctx)
		require.NoError(e.t, err)
		require.NoError(e.t, writer.Append(writer.WithTx(ctx, tx), made(topic, fmt.Sprint("late", i), lateRows/5)...))
		open = append(open, tx)
	}
	require.NoError(e.t, writer.Append(ctx, made(topic, "passed", 1)...))
	require.Len(e.t, claimed(e.t, writer, req), 1)
	for _, tx := range open {
		require.NoError(e.t, tx.Commit(ctx))
	}
	for range 3 {
		found := e.claim(fmt.Sprintf("claim of late ones, order %s", order), req)
		require.Len(e.t, found, limit)
		e.call("ack of late ones", limit, func() error { return e.store.Ack(ctx, "", leasesOf(found)) })
	}
}

func (e *ofLog) look(limit int) {
	e.t.Helper()
	ctx := e.t.Context()
	leased := claimed(e.t, e.store, claimOf(outmill.NewOwnerToken(), limit, outmill.OrderKey, "big"))
	require.Len(e.t, leased, limit)
	var pending []*outmill.Record
	for _, status := range []outmill.Status{"", outmill.StatusPending, outmill.StatusLeased, outmill.StatusProcessed, outmill.StatusDead} {
		// A list scans the read rows that are not truncated yet, and a list of one topic also
		// the rows of others.
		e.call("list "+string(status), limit+rows()/200, func() error {
			found, err := e.store.List(ctx, outmill.ListQuery{Status: status, Limit: limit})
			if status == outmill.StatusPending {
				pending = found
			}
			return err
		})
	}
	// A page reads as many rows of the log as of the records, to return both in the order of
	// ids.
	e.call("find by message id", 2*roles.MaxExamined+limit, func() error {
		page, err := e.store.Find(ctx, outmill.ListQuery{MessageID: "nowhere"})
		require.Empty(e.t, page.Records)
		return err
	})
	require.NotEmpty(e.t, pending)
	for name, id := range map[string]outmill.WorkItemID{"pending": pending[0].ID, "leased": leased[0].ID} {
		e.call("get of one that is "+name, limit, func() error { _, err := e.store.Get(ctx, id); return err })
	}
	e.call("stats", 10*topics, func() error { _, err := e.store.Stats(ctx, 10); return err })
	e.call("first waiting", limit, func() error { _, err := e.store.FirstWaiting(ctx, readers, pending[0].Topic, limit); return err })
	e.call("delete", limit, func() error {
		_, err := e.store.Delete(ctx, pending[0].ID, leased[0].ID)
		return err
	})
	require.NoError(e.t, e.store.Ack(ctx, "", leasesOf(leased)))
}

// requireLevelClaims claims and acks records one by one while a transaction keeps the server
// from removing dead rows.
func requireLevelClaims(t *testing.T, stays bool) {
	t.Helper()
	url := postgrestest.DatabaseOn(t, postgrestest.Own(t).URL)
	admin := connect(t, url)
	store := newStore(t, admin, postgres.Config{NotifyInterval: -1, Lane: postgres.LaneLog})
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	watcher, err := connect(t, url).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	// A pool waits for its connections when it closes.
	defer func() { _ = watcher.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = watcher.Exec(t.Context(), "SELECT pg_current_xact_id()")
	require.NoError(t, err)
	const (
		// enough claims later, the record of a lease that stays has left its batch, and claims also
		// search among the records.
		enough = 300
		more   = 600
	)
	require.NoError(t, store.Append(t.Context(), made("orders", "x", enough+more+100)...))
	owner := outmill.NewOwnerToken()
	if stays {
		req := claimOf(owner, 1, outmill.OrderNone, "orders")
		req.Lease = time.Hour
		require.Len(t, claimed(t, store, req), 1)
	}
	e := explainedAs(t, url, "auto", postgres.Config{NotifyInterval: -1})
	e.t = t
	one := func(from *postgres.Store) {
		found := claimed(t, from, claimOf(owner, 1, outmill.OrderKey, "orders"))
		require.Len(t, found, 1)
		require.NoError(t, from.Ack(t.Context(), "", leasesOf(found)))
	}
	// A store of its own remembers nothing, so each claim that is measured searches everywhere, on
	// a slow machine and on a quick one.
	blocks := func(others int) int {
		for range others {
			one(store)
		}
		for range warm {
			one(e.store)
		}
		fresh := newStore(t, e.store.Pool(), postgres.Config{NotifyInterval: -1})
		read := 0
		for _, p := range e.told.of(t, func() { one(fresh) }) {
			read += p.Plan.Hit + p.Plan.Read
		}
		return read
	}
	first := blocks(enough)
	last := blocks(more)
	t.Logf("a claim and an ack of one read %d blocks after %d others, and %d after %d more", first, enough, last, more)
	// The indexes may get one more level.
	require.Less(t, last, first+first/4)
}
