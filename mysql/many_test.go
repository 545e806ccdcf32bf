package mysql_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/mysql"
)

const (
	// sqlNumbers has the numbers below a million. Neither sequences nor deep recursion are on both MariaDB and MySQL.
	sqlNumbers = `(SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d + 100000 * g.d AS i
	FROM ` + sqlDigits + ` AS a, ` + sqlDigits + ` AS b, ` + sqlDigits + ` AS c, ` + sqlDigits + ` AS e, ` + sqlDigits + ` AS f, ` +
		sqlDigits + ` AS g)`
	sqlDigits = `(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5
	UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)`

	// sqlFill inserts rows of all stages: of three groups, ten topics, and keys of ten rows each, with most of them in one line, so that a
	// statement that reads more than it returns shows.
	sqlFill = `INSERT INTO outmill_records (id, created_at, wake_at, next_at, expires_at, processed_at, due_at, size, stage, parked, grp,
	topic, rec_key, tenant_id, owner, worker, under, message_id, metadata, payload)
SELECT UNHEX(LPAD(HEX(n.i + 1), 32, '0')), n.now, CASE WHEN n.stage IN (2, 3, 4) THEN n.now + 3600000000 + n.i ELSE 0 END, n.now,
	CASE WHEN n.i % 50 = 0 THEN n.now + 36000000000 ELSE 0 END, CASE n.stage WHEN 5 THEN n.now ELSE 0 END, n.now, 100, n.stage,
	CASE WHEN n.stage = 6 AND n.i % 3 = 0 THEN 1 ELSE 0 END,
	CASE WHEN n.i % 10 < 7 THEN 'readers' ELSE CONCAT('group', n.i % 3) END,
	CASE WHEN n.i % 10 < 8 THEN 'orders' ELSE CONCAT('topic', n.i % 10) END,
	CASE WHEN n.i % 5 = 0 THEN '' ELSE CONCAT('key', n.i % (n.many DIV 10)) END, '',
	CASE n.stage WHEN 4 THEN '00112233445566778899aabbccddeeff' ELSE '' END, CASE n.stage WHEN 4 THEN 'w' ELSE '' END,
	CASE n.stage WHEN 1 THEN CONCAT('kkey', n.i % (n.many DIV 10)) ELSE '' END, CAST(n.i AS CHAR), '{"a":"b"}', 'x'
FROM (SELECT m.i, m.many, m.now, ELT(1 + m.i % 11, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6) + 0 AS stage
	FROM (SELECT i, ? AS many, UNIX_TIMESTAMP() * 1000000 AS now FROM ` + sqlNumbers + ` AS all_of_them) AS m WHERE m.i < m.many) AS n`

	// sqlFillNotes and sqlFillEntries insert what is nobody's at the moment.
	sqlFillNotes = `INSERT INTO outmill_notes (grp, topic, name, blocker, head, look_at, looks)
SELECT 'group0', 'others', CONCAT('kmany', n.i), 'waiting', n.i, 0, 0 FROM ` + sqlNumbers + ` AS n WHERE n.i < ? DIV 10`
	sqlFillEntries = `INSERT INTO outmill_entries (kind, name, at, made_at, value)
SELECT ELT(1 + n.i % 4, 'dedup', 'note', 'join', 'saga'), CAST(n.i AS CHAR), (UNIX_TIMESTAMP() + 3600) * 1000000, 0, ''
FROM ` + sqlNumbers + ` AS n WHERE n.i < ? DIV 4`
)

// full is a store with that many rows, on one connection.
func full(t *testing.T, rows int) *mysql.Store {
	t.Helper()
	store := newStore(t, "")
	store.DB().SetMaxOpenConns(1)
	for _, statement := range []string{sqlFill, sqlFillNotes, sqlFillEntries} {
		_, err := store.DB().ExecContext(t.Context(), statement, rows)
		require.NoError(t, err)
	}
	return store
}

// No call reads more rows among 300,000 than among 30,000, whatever the server knows of its tables.
func TestPlans_Many(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "costs among many rows")
	small, large := full(t, 30_000), full(t, 300_000)
	compareReads(t, rowsRead(t, small), rowsRead(t, large), "with the statistics of empty tables")
	for _, store := range []*mysql.Store{small, large} {
		for _, table := range []string{"records", "notes", "entries"} {
			_, err := store.DB().ExecContext(t.Context(), "ANALYZE TABLE outmill_"+table)
			require.NoError(t, err)
		}
	}
	compareReads(t, rowsRead(t, small), rowsRead(t, large), "with statistics")
}

func compareReads(t *testing.T, small, large map[string]int, when string) {
	t.Helper()
	for call, was := range small {
		is := large[call]
		t.Logf("%s: %-22s %6d rows read among 30,000, %6d among 300,000", when, call, was, is)
		assert.LessOrEqual(t, is, was+was/2+50, "%s: %s", when, call)
	}
}

// rowsRead makes the calls of a worker, a janitor and an operator, and counts the rows that each of them reads.
func rowsRead(t *testing.T, store *mysql.Store) map[string]int {
	t.Helper()
	found := map[string]int{}
	readRows := func() (rows int) {
		counters, err := store.DB().QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
		require.NoError(t, err)
		defer func() { require.NoError(t, counters.Close()) }()
		for counters.Next() {
			var name string
			var n int
			require.NoError(t, counters.Scan(&name, &n))
			rows += n
		}
		require.NoError(t, counters.Err())
		return rows
	}
	measure := func(call string, fn func(ctx context.Context) error) {
		before := readRows()
		require.NoError(t, fn(t.Context()), call)
		found[call] = readRows() - before
	}
	counted := func(fn func(context.Context, int) (int, error)) func(context.Context) error {
		return func(ctx context.Context) error { _, err := fn(ctx, 100); return err }
	}
	measure("append", func(ctx context.Context) error { return store.Append(ctx, rec("new", "a key"), rec("newer", "")) })
	for order, name := range []string{outmill.OrderNone: "any order", outmill.OrderKey: "by key", outmill.OrderTopic: "by topic"} {
		var leases []outmill.Lease
		measure(name, func(ctx context.Context) error {
			got, err := store.Claim(ctx, outmill.ClaimRequest{
				Owner: outmill.NewOwnerToken(), Group: group, Topics: outmill.Topics{Include: []string{"orders"}}, Limit: 20, Lease: time.Minute,
				Order: outmill.Order(order),
			})
			for _, r := range got {
				leases = append(leases, r.Lease())
			}
			return err
		})
		measure("give back "+name, func(ctx context.Context) error { return store.Release(ctx, leases) })
	}
	_, self := store.IdleWith()
	measure("rest", func(ctx context.Context) error { _, err := store.AreIdle(ctx, []any{self}); return err })
	measure("reap", counted(store.ReapExpired))
	measure("expire", counted(store.ExpireDue))
	measure("processed", counted(store.DeleteProcessed))
	measure("dedup", counted(store.DeleteDedupKeys))
	measure("joins", counted(store.DeleteJoins))
	measure("notes", counted(store.DeleteNotes))
	measure("waiting", func(ctx context.Context) error {
		_, err := store.FirstWaiting(ctx, group, "orders", 10)
		return err
	})
	measure("stats", func(ctx context.Context) error { _, err := store.Stats(ctx, 10); return err })
	measure("list", func(ctx context.Context) error {
		_, err := store.List(ctx, outmill.ListQuery{Status: outmill.StatusDead, Group: group, Topic: "orders", Limit: 10})
		return err
	})
	return found
}
