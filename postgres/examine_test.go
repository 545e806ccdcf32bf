package postgres_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
)

func lenient() roles.ExamineRequest {
	return roles.ExamineRequest{
		Tasks:           []roles.Task{roles.TaskPublish, roles.TaskRead},
		OpenTransaction: time.Hour, LockWait: time.Hour, ClockDifference: time.Hour, QueueUsage: 1, RetainedWAL: 1 << 40,
	}
}

func examinedBy(t *testing.T, store *postgres.Store, request roles.ExamineRequest) roles.Examination {
	t.Helper()
	found, err := store.Examine(t.Context(), request)
	require.NoError(t, err)
	for _, f := range found.Findings {
		require.NotEmpty(t, f.Text)
		require.NotEmpty(t, f.Remedy)
	}
	return found
}

// onlyFinding returns the finding of a database that has one fault.
func onlyFinding(t *testing.T, store *postgres.Store, request roles.ExamineRequest) roles.Finding {
	t.Helper()
	found := examinedBy(t, store, request).Findings
	require.Len(t, found, 1, "%+v", found)
	return found[0]
}

func readyStore(t *testing.T, db *pgxpool.Pool, config postgres.Config) *postgres.Store {
	t.Helper()
	store := newStore(t, db, config)
	require.NoError(t, store.Ensure(t.Context()))
	return store
}

// held is a session of its own, with an open transaction, until end is called.
func held(t *testing.T, url, name string, statements ...string) (pid uint32, end func()) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	config.RuntimeParams["application_name"] = name
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.ConnectConfig(ctx, config)
	require.NoError(t, err)
	end = func() { _ = conn.Close(ctx) }
	t.Cleanup(end)
	for _, statement := range statements {
		_, err := conn.Exec(ctx, statement)
		require.NoError(t, err, statement)
	}
	return conn.PgConn().PID(), end
}

// pinRows reads the slot standby as a standby with hot_standby_feedback does that runs a query, and
// goes away.
func pinRows(t *testing.T, url string, db *pgxpool.Pool) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	config.RuntimeParams["replication"] = "true"
	conn, err := pgconn.ConnectConfig(t.Context(), &config.Config)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	place := valueOf[string](t, db, "SELECT restart_lsn::text FROM pg_replication_slots")
	conn.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION SLOT standby PHYSICAL " + place})
	require.NoError(t, conn.Frontend().Flush())
	for {
		answer, err := conn.ReceiveMessage(t.Context())
		require.NoError(t, err)
		if _, is := answer.(*pgproto3.CopyBothResponse); is {
			break
		}
	}
	oldest := valueOf[int64](t, db, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
	feedback := append([]byte{'h'}, make([]byte, 8)...)
	feedback = binary.BigEndian.AppendUint32(feedback, uint32(oldest))
	feedback = append(feedback, make([]byte, 12)...)
	conn.Frontend().Send(&pgproto3.CopyData{Data: feedback})
	require.NoError(t, conn.Frontend().Flush())
	require.Eventually(t, func() bool {
		return valueOf[bool](t, db, "SELECT xmin IS NOT NULL FROM pg_replication_slots")
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, conn.Conn().Close())
	require.Eventually(t, func() bool {
		return valueOf[bool](t, db, "SELECT NOT active FROM pg_replication_slots")
	}, time.Minute, 5*time.Millisecond)
}

func TestStore_Examine(t *testing.T) {
	t.Parallel()

	t.Run("a store that works has no findings, with any name", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		for _, config := range []postgres.Config{
			{}, {Schema: `Or ders"x`, TablePrefix: "a_"}, {Schema: "public", TablePrefix: strings.Repeat("P", 40)},
		} {
			require.Equal(t, roles.Examination{}, examinedBy(t, readyStore(t, db, config), lenient()))
		}
	})

	t.Run("it works behind a proxy that pools transactions", func(t *testing.T) {
		t.Parallel()
		url := readyDatabase(t, postgres.Config{})
		readyStore(t, connect(t, url), postgres.Config{})
		db := connectAs(t, postgrestest.PgBouncer(t, url), func(c *pgxpool.Config) {
			c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		})
		store := newStore(t, db, postgres.Config{NotifyInterval: -1})
		require.Equal(t, roles.Examination{}, examinedBy(t, store, lenient()))
	})

	t.Run("a missing schema is the error of the call", func(t *testing.T) {
		t.Parallel()
		_, err := newStore(t, pool(t), postgres.Config{}).Examine(t.Context(), lenient())
		require.ErrorIs(t, err, outmill.ErrSchemaMissing)
	})

	t.Run("a part of the schema that was dropped is named", func(t *testing.T) {
		t.Parallel()
		for statement, want := range map[string]roles.Finding{
			"DROP INDEX outmill.line":       {Code: "index_missing", Subject: "outmill.line"},
			"DROP INDEX outmill.log_1_next": {Code: "index_missing", Subject: "outmill.log_1_next"},
			"DROP TABLE outmill.retired":    {Code: "table_missing", Subject: "outmill.retired", Failure: true},
			"DROP FUNCTION outmill.demand":  {Code: "function_missing", Subject: "outmill.demand", Failure: true},
			"DROP VIEW outmill.readable":    {Code: "view_missing", Subject: "outmill.readable"},
		} {
			db := readyPool(t, postgres.Config{})
			store := readyStore(t, db, postgres.Config{})
			execute(t, db, statement)
			f := onlyFinding(t, store, lenient())
			require.Equal(t, want, roles.Finding{Code: f.Code, Subject: f.Subject, Failure: f.Failure})
		}
	})

	t.Run("an index that was not built to its end is named", func(t *testing.T) {
		t.Parallel()
		db := readyPool(t, postgres.Config{})
		store := readyStore(t, db, postgres.Config{})
		execute(t, db, "DROP INDEX outmill.entries_at")
		execute(t, db, "INSERT INTO outmill.entries VALUES (1, 1, 'x', 'a', ''), (1, 1, 'x', 'b', '')")
		_, err := db.Exec(t.Context(), "CREATE UNIQUE INDEX CONCURRENTLY entries_at ON outmill.entries (at)")
		require.ErrorContains(t, err, "could not create unique index")
		require.Equal(t, []string{"index_invalid", "outmill.entries_at"},
			[]string{onlyFinding(t, store, lenient()).Code, onlyFinding(t, store, lenient()).Subject})
	})

	t.Run("each right that is revoked is named, with the statement that grants it again", func(t *testing.T) {
		t.Parallel()
		database, admin, store := ruled(t)
		role, roleURL := newRole(t, admin, database)
		rightsOf(store, "publisher").and(rightsOf(store, "worker")).grant(t, admin, role)
		store = newStore(t, connect(t, roleURL), postgres.Config{})
		require.Empty(t, examinedBy(t, store, lenient()).Findings)
		for _, revoked := range []struct{ privileges, object, tasks string }{
			{"DELETE", `"outmill"."records"`, "read"},
			{"INSERT", `"outmill"."records"`, "publish and read"},
			{"SELECT, UPDATE", `"outmill"."meta"`, "publish and read"},
			{"USAGE", `SCHEMA "outmill"`, "publish and read"},
		} {
			execute(t, admin, fmt.Sprintf("REVOKE %s ON %s FROM %s", revoked.privileges, revoked.object, role))
			request := lenient()
			found := examinedBy(t, store, request).Findings
			i := slices.IndexFunc(found, func(f roles.Finding) bool { return f.Subject == revoked.privileges+" ON "+revoked.object })
			require.GreaterOrEqual(t, i, 0, "%+v", found)
			require.Equal(t, "right_missing", found[i].Code)
			require.True(t, found[i].Failure)
			require.Contains(t, found[i].Text, "needs to "+revoked.tasks+".")
			statement, _, _ := strings.Cut(found[i].Remedy, ";")
			execute(t, admin, statement)
			require.Empty(t, examinedBy(t, store, request).Findings, statement)
		}
	})

	t.Run("a right on a function or a sequence that is missing is named", func(t *testing.T) {
		t.Parallel()
		database, admin, store := ruled(t)
		role, roleURL := newRole(t, admin, database)
		rightsOf(store, "publisher").and(rightsOf(store, "worker")).grant(t, admin, role)
		store = newStore(t, connect(t, roleURL), postgres.Config{})
		for statement, want := range map[string]string{
			"REVOKE EXECUTE ON FUNCTION outmill.demand FROM PUBLIC, " + role:        `EXECUTE ON FUNCTION "outmill"."demand"`,
			"REVOKE USAGE ON SEQUENCE outmill.records_seq_seq FROM \"" + role + `"`: `USAGE ON SEQUENCE "outmill"."records_seq_seq"`,
		} {
			execute(t, admin, statement)
			f := onlyFinding(t, store, lenient())
			require.Equal(t, want, f.Subject)
			grant, _, _ := strings.Cut(f.Remedy, ";")
			execute(t, admin, grant)
			require.Empty(t, examinedBy(t, store, lenient()).Findings)
		}
	})

	t.Run("a task that is not asked for needs no rights", func(t *testing.T) {
		t.Parallel()
		database, admin, store := ruled(t)
		role, roleURL := newRole(t, admin, database)
		rightsOf(store, "publisher").grant(t, admin, role)
		store = newStore(t, connect(t, roleURL), postgres.Config{})
		request := lenient()
		require.NotEmpty(t, examinedBy(t, store, request).Findings)
		request.Tasks = []roles.Task{roles.TaskPublish}
		require.Empty(t, examinedBy(t, store, request).Findings)
	})

	t.Run("a session that keeps deleted rows is named, with the time since when", func(t *testing.T) {
		t.Parallel()
		url := readyDatabase(t, postgres.Config{})
		store := readyStore(t, connect(t, url), postgres.Config{})
		request := lenient()
		request.OpenTransaction = time.Microsecond
		before := time.Now()
		for _, statements := range [][]string{
			{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"},
			{"BEGIN", "CREATE TEMP TABLE mine (x int)"},
		} {
			pid, end := held(t, url, "report", statements...)
			f := onlyFinding(t, store, request)
			require.Equal(t, "old_transaction", f.Code)
			require.Equal(t, fmt.Sprintf("session %d (report)", pid), f.Subject)
			require.Contains(t, f.Text, "idle in transaction")
			require.WithinRange(t, f.Since, before.Add(-time.Minute), time.Now().Add(time.Minute))
			require.Contains(t, f.Remedy, fmt.Sprintf("pg_terminate_backend(%d)", pid))
			require.Empty(t, examinedBy(t, store, lenient()).Findings, "a young one is fine")
			end()
			require.Eventually(t, func() bool { return len(examinedBy(t, store, request).Findings) == 0 }, time.Minute, 10*time.Millisecond)
		}
		_, end := held(t, url, "idle", "BEGIN", "SELECT 1")
		require.Empty(t, examinedBy(t, store, request).Findings, "it keeps nothing between its statements")
		end()
	})

	t.Run("an autovacuum that takes long is no session to end", func(t *testing.T) {
		t.Parallel()
		db := connect(t, postgrestest.Own(t, "autovacuum_naptime=1", "autovacuum_vacuum_cost_delay=100", "autovacuum_vacuum_cost_limit=1").URL)
		store := readyStore(t, db, postgres.Config{})
		execute(t, db, "CREATE TABLE large AS SELECT i, repeat('x', 500) AS text FROM generate_series(1, 20000) AS i")
		execute(t, db, "DELETE FROM large")
		require.Eventually(t, func() bool {
			return valueOf[int](t, db, `SELECT count(*) FROM pg_stat_activity
				WHERE backend_type = 'autovacuum worker' AND datname = current_database() AND backend_xmin IS NOT NULL`) > 0
		}, time.Minute, 10*time.Millisecond)
		request := lenient()
		request.OpenTransaction = time.Microsecond
		require.Empty(t, examinedBy(t, store, request).Findings)
	})

	t.Run("a prepared transaction that nobody ends is named", func(t *testing.T) {
		t.Parallel()
		url := readyDatabase(t, postgres.Config{})
		db := connect(t, url)
		store := readyStore(t, db, postgres.Config{})
		if valueOf[int](t, db, `SELECT current_setting('max_prepared_transactions')::integer`) == 0 {
			t.Skip("skipped: the server prepares no transactions (max_prepared_transactions is 0)")
		}
		_, end := held(t, url, "forgetful", "BEGIN", "CREATE TABLE mine (x int)", "PREPARE TRANSACTION 'it''s forgotten'")
		end()
		request := lenient()
		request.OpenTransaction = time.Microsecond
		f := onlyFinding(t, store, request)
		require.Equal(t, []string{"old_transaction", "prepared transaction 'it''s forgotten'"}, []string{f.Code, f.Subject})
		execute(t, db, "ROLLBACK PREPARED 'it''s forgotten'")
		require.Empty(t, examinedBy(t, store, request).Findings)
	})

	t.Run("a replication slot that nobody reads is named, with what it keeps", func(t *testing.T) {
		t.Parallel()
		// Slots are of the whole server, so that other tests would see it.
		url := postgrestest.Own(t, "wal_level=replica", "max_replication_slots=4").URL
		db := connect(t, url)
		store := readyStore(t, db, postgres.Config{})
		execute(t, db, "SELECT pg_create_physical_replication_slot('standby', true)")
		request := lenient()
		require.Empty(t, examinedBy(t, store, request).Findings, "it keeps no row, and little of the log")

		execute(t, db, "SELECT pg_logical_emit_message(false, 'outmill', repeat('x', 4 << 20))")
		request.RetainedWAL = 1 << 20
		f := onlyFinding(t, store, request)
		require.Equal(t, []any{"replication_slot", `replication slot "standby"`, false}, []any{f.Code, f.Subject, f.Failure})
		require.Regexp(t, `Nobody reads .* It keeps \d+ MB of the write-ahead log`, f.Text)
		require.NotContains(t, f.Text, "removes no row")

		request.RetainedWAL = 1 << 40
		pinRows(t, url, db)
		f = onlyFinding(t, store, request)
		require.Contains(t, f.Text, "removes no row")
		require.Contains(t, f.Remedy, "SELECT pg_drop_replication_slot('standby');")
		execute(t, db, "SELECT pg_drop_replication_slot('standby')")
		require.Empty(t, examinedBy(t, store, request).Findings)
	})

	t.Run("a user who may not see the sessions of others is told so", func(t *testing.T) {
		t.Parallel()
		database, admin, store := ruled(t)
		role, roleURL := newRole(t, admin, database)
		rightsOf(store, "publisher").and(rightsOf(store, "worker")).grant(t, admin, role)
		store = newStore(t, connect(t, roleURL), postgres.Config{})
		held(t, database, "report", "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1")
		request := lenient()
		request.OpenTransaction = time.Microsecond
		found := examinedBy(t, store, request)
		require.Empty(t, found.Findings)
		require.Len(t, found.Unchecked, 1)
		require.Contains(t, found.Unchecked[0], "GRANT pg_read_all_stats")
		execute(t, admin, "GRANT pg_read_all_stats TO "+role)
		require.Equal(t, "old_transaction", onlyFinding(t, store, request).Code)
	})

	t.Run("a session that waits for a lock is named, and the one that has it", func(t *testing.T) {
		t.Parallel()
		url := readyDatabase(t, postgres.Config{})
		db := connect(t, url)
		store := readyStore(t, db, postgres.Config{})
		require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", Delay: time.Hour}))
		holder, end := held(t, url, "repair", "BEGIN", "SELECT 1 FROM outmill.records FOR UPDATE")
		ended := make(chan error, 1)
		go func() {
			_, err := db.Exec(context.WithoutCancel(t.Context()), "DELETE FROM outmill.records")
			ended <- err
		}()
		request := lenient()
		request.LockWait = time.Millisecond
		require.Eventually(t, func() bool { return len(examinedBy(t, store, request).Findings) == 1 }, time.Minute, 10*time.Millisecond)
		f := onlyFinding(t, store, request)
		require.Equal(t, "lock_wait", f.Code)
		require.Contains(t, f.Text, fmt.Sprintf("session %d (repair), idle in transaction since 2", holder))
		require.Contains(t, f.Remedy, fmt.Sprintf("pg_terminate_backend(%d)", holder))
		require.False(t, f.Since.IsZero())
		require.Empty(t, examinedBy(t, store, lenient()).Findings, "a short wait is fine")
		end()
		require.NoError(t, <-ended)
		require.Empty(t, examinedBy(t, store, request).Findings)
	})

	t.Run("a wait for a lock that has nothing to do with the store is not its business", func(t *testing.T) {
		t.Parallel()
		url := readyDatabase(t, postgres.Config{})
		db := connect(t, url)
		store := readyStore(t, db, postgres.Config{})
		execute(t, db, "CREATE TABLE mine (x int)")
		_, end := held(t, url, "repair", "BEGIN", "LOCK TABLE mine")
		ended := make(chan error, 1)
		go func() {
			_, err := db.Exec(context.WithoutCancel(t.Context()), "DELETE FROM mine")
			ended <- err
		}()
		require.Eventually(t, func() bool {
			return valueOf[int](t, db, `SELECT count(*) FROM pg_locks
				WHERE NOT granted AND waitstart IS NOT NULL AND relation = 'mine'::regclass`) == 1
		}, time.Minute, 10*time.Millisecond)
		request := lenient()
		request.LockWait = time.Nanosecond
		require.Empty(t, examinedBy(t, store, request).Findings)
		end()
		require.NoError(t, <-ended)
	})

	t.Run("a queue of notifications that fills is found", func(t *testing.T) {
		t.Parallel()
		url := readyDatabase(t, postgres.Config{})
		db := connect(t, url)
		store := readyStore(t, db, postgres.Config{})
		request := lenient()
		// One page of the queue of 8 GiB is 1e-6.
		request.QueueUsage = 1e-7
		_, end := held(t, url, "listener", "LISTEN anything", "BEGIN", "SELECT 1")
		for i := range 50 {
			execute(t, db, "SELECT pg_notify('anything', repeat('x', 7000) || $1::text)", fmt.Sprint(i))
		}
		f := onlyFinding(t, store, request)
		require.Equal(t, []string{"notify_queue", "NOTIFY queue"}, []string{f.Code, f.Subject})
		require.Empty(t, examinedBy(t, store, lenient()).Findings)
		end()
	})

	t.Run("the clocks are compared", func(t *testing.T) {
		t.Parallel()
		store := readyStore(t, readyPool(t, postgres.Config{}), postgres.Config{})
		request := lenient()
		request.ClockDifference = -1
		require.Equal(t, "clock_differs", onlyFinding(t, store, request).Code)
	})

	t.Run("a closed store says so", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, pool(t), postgres.Config{})
		require.NoError(t, store.Close())
		_, err := store.Examine(t.Context(), lenient())
		require.ErrorIs(t, err, outmill.ErrClosed)
	})
}
