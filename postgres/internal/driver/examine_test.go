package driver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func lenient() roles.ExamineRequest {
	return roles.ExamineRequest{
		Tasks:           []roles.Task{roles.TaskPublish, roles.TaskRead},
		OpenTransaction: time.Hour, LockWait: time.Hour, ClockDifference: time.Hour, QueueUsage: 1, RetainedWAL: 1 << 40,
	}
}

func examined(t *testing.T, store opened, request roles.ExamineRequest) roles.Examination {
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
func onlyFinding(t *testing.T, store opened, request roles.ExamineRequest) roles.Finding {
	t.Helper()
	found := examined(t, store, request).Findings
	require.Len(t, found, 1, "%+v", found)
	return found[0]
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

// revoked are privileges on an object that tasks need.
type revoked struct{ privileges, object, tasks string }

// requireRightsNamed requires that who publishes and reads has all rights, and that each one that is revoked is named.
func requireRightsNamed(t *testing.T, further []revoked) {
	t.Helper()
	database, super := ready(t)
	role, roleURL := newRole(t, super.db, database)
	rightsOf(super, "publisher").grant(t, super.db, role)
	rightsOf(super, "worker").grant(t, super.db, role)
	store := storeOn(t, connect(t, roleURL, 2, nil))
	require.Empty(t, examined(t, store, lenient()).Findings)
	for _, r := range append(further, []revoked{
		{"DELETE", `"outmill"."records"`, "read"}, {"SELECT, UPDATE", `"outmill"."meta"`, "publish and read"},
		{"USAGE", `SCHEMA "outmill"`, "publish and read"},
	}...) {
		execute(t, super.db, fmt.Sprintf("REVOKE %s ON %s FROM %s", r.privileges, r.object, role))
		found := examined(t, store, lenient()).Findings
		i := slices.IndexFunc(found, func(f roles.Finding) bool { return f.Subject == r.privileges+" ON "+r.object })
		require.GreaterOrEqual(t, i, 0, "%+v", found)
		require.Equal(t, "right_missing", found[i].Code)
		require.True(t, found[i].Failure)
		require.Contains(t, found[i].Text, "needs to "+r.tasks+".")
		statement, _, _ := strings.Cut(found[i].Remedy, ";")
		execute(t, super.db, statement)
		require.Empty(t, examined(t, store, lenient()).Findings, statement)
	}
	const function = "log_claim"
	execute(t, super.db, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA outmill FROM PUBLIC")
	execute(t, super.db, "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA outmill TO "+role)
	require.Empty(t, examined(t, store, lenient()).Findings)
	execute(t, super.db, "REVOKE EXECUTE ON FUNCTION outmill."+function+" FROM "+role)
	require.Equal(t, `EXECUTE ON FUNCTION "outmill"."`+function+`"`, onlyFinding(t, store, lenient()).Subject)
}

func TestDriver_Examine(t *testing.T) {
	t.Parallel()

	t.Run("a store that works has no findings, in each mode of pgx", func(t *testing.T) {
		t.Parallel()
		database, store := ready(t)
		require.Equal(t, roles.Examination{}, examined(t, store, lenient()))
		for _, mode := range modes {
			require.Equal(t, roles.Examination{}, examined(t, storeOn(t, connect(t, database, 1, inMode(mode))), lenient()), mode)
		}
	})

	t.Run("a schema that is missing or newer is the error of the call", func(t *testing.T) {
		t.Parallel()
		_, store := ready(t)
		execute(t, store.db, "UPDATE outmill.meta SET version = version + 1, compatible = version + 1")
		_, err := store.Examine(t.Context(), lenient())
		require.ErrorIs(t, err, outmill.ErrSchemaNewer)
		execute(t, store.db, "DROP SCHEMA outmill CASCADE")
		_, err = store.Examine(t.Context(), lenient())
		require.ErrorIs(t, err, outmill.ErrSchemaMissing)
	})

	t.Run("a part of the schema that was dropped is named", func(t *testing.T) {
		t.Parallel()
		for statement, want := range map[string]roles.Finding{
			"DROP INDEX outmill.line":       {Code: "index_missing", Subject: "outmill.line"},
			"DROP INDEX outmill.entries_at": {Code: "index_missing", Subject: "outmill.entries_at"},
			"DROP FUNCTION outmill.demand":  {Code: "function_missing", Subject: "outmill.demand", Failure: true},
			"DROP FUNCTION outmill.log_any": {Code: "function_missing", Subject: "outmill.log_any", Failure: true},
			"DROP INDEX outmill.log_1_next": {Code: "index_missing", Subject: "outmill.log_1_next"},
			"DROP TABLE outmill.retired":    {Code: "table_missing", Subject: "outmill.retired", Failure: true},
			"DROP VIEW outmill.readable":    {Code: "view_missing", Subject: "outmill.readable"},
		} {
			_, store := ready(t)
			execute(t, store.db, statement)
			f := onlyFinding(t, store, lenient())
			require.Equal(t, want, roles.Finding{Code: f.Code, Subject: f.Subject, Failure: f.Failure})
		}
	})

	t.Run("a table that was dropped is named, although no call works without it", func(t *testing.T) {
		t.Parallel()
		_, store := ready(t)
		execute(t, store.db, "DROP TABLE outmill.entries")
		codes := map[string]bool{}
		for _, f := range examined(t, store, lenient()).Findings {
			codes[f.Code+" "+f.Subject] = f.Failure
		}
		require.Equal(t, map[string]bool{"table_missing outmill.entries": true, "index_missing outmill.entries_at": false}, codes)
	})

	t.Run("an index that was not built to its end is named", func(t *testing.T) {
		t.Parallel()
		_, store := ready(t)
		execute(t, store.db, "DROP INDEX outmill.entries_at")
		execute(t, store.db, "INSERT INTO outmill.entries VALUES (1, 1, 'x', 'a', ''), (1, 1, 'x', 'b', '')")
		_, err := store.db.Exec(t.Context(), "CREATE UNIQUE INDEX CONCURRENTLY entries_at ON outmill.entries (at)")
		require.ErrorContains(t, err, "could not create unique index")
		f := onlyFinding(t, store, lenient())
		require.Equal(t, []string{"index_invalid", "outmill.entries_at"}, []string{f.Code, f.Subject})
	})

	t.Run("a sequence that does not count one by one is named, with the statement that mends it", func(t *testing.T) {
		t.Parallel()
		_, store := ready(t)
		for _, change := range []string{"CACHE 10", "CYCLE", "INCREMENT 2"} {
			execute(t, store.db, "ALTER SEQUENCE outmill.records_seq_seq "+change)
			f := onlyFinding(t, store, lenient())
			require.Equal(t, roles.Finding{Code: "sequence_order", Subject: "outmill.records_seq_seq", Failure: true},
				roles.Finding{Code: f.Code, Subject: f.Subject, Failure: f.Failure})
			require.Contains(t, f.Text, strings.Fields(change)[0])
			execute(t, store.db, f.Remedy)
			require.Empty(t, examined(t, store, lenient()).Findings, change)
		}
	})

	t.Run("each right that is revoked is named, with the statement that grants it again", func(t *testing.T) {
		t.Parallel()
		requireRightsNamed(t, []revoked{
			{"INSERT", `"outmill"."log_1"`, "publish"}, {"USAGE", `SEQUENCE "outmill"."records_seq_seq"`, "publish"},
			{"SELECT", `"outmill"."events"`, "publish and read"}, {"INSERT", `"outmill"."records"`, "publish and read"},
			{"SELECT", `"outmill"."log"`, "read"}, {"UPDATE", `"outmill"."batches"`, "read"}, {"INSERT", `"outmill"."ended"`, "read"},
			{"DELETE", `"outmill"."left_rows"`, "read"}, {"INSERT", `"outmill"."skips"`, "read"},
			{"SELECT", `"outmill"."skip_ranges"`, "read"}, {"INSERT", `"outmill"."readings"`, "read"},
			{"SELECT", `SEQUENCE "outmill"."records_seq_seq"`, "read"},
		})
	})

	t.Run("who only publishes needs no more than a publisher's rights, of records those to two columns", func(t *testing.T) {
		t.Parallel()
		database, super := ready(t)
		role, roleURL := newRole(t, super.db, database)
		rightsOf(super, "publisher").grant(t, super.db, role)
		store := storeOn(t, connect(t, roleURL, 2, nil))
		request := lenient()
		require.NotEmpty(t, examined(t, store, request).Findings)
		request.Tasks = []roles.Task{roles.TaskPublish}
		require.Empty(t, examined(t, store, request).Findings)
		execute(t, super.db, "REVOKE SELECT (grp) ON outmill.records FROM "+role)
		f := onlyFinding(t, store, request)
		require.Equal(t, `SELECT (grp, stage) ON "outmill"."records"`, f.Subject)
		statement, _, _ := strings.Cut(f.Remedy, ";")
		execute(t, super.db, statement)
		require.Empty(t, examined(t, store, request).Findings, statement)
	})

	t.Run("a session that keeps deleted rows is named, with the time since when", func(t *testing.T) {
		t.Parallel()
		database, store := ready(t)
		request := lenient()
		request.OpenTransaction = time.Microsecond
		before := time.Now()
		pid, end := held(t, database, "report", "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1")
		f := onlyFinding(t, store, request)
		require.Equal(t, []string{"old_transaction", fmt.Sprintf("session %d (report)", pid)}, []string{f.Code, f.Subject})
		require.Contains(t, f.Text, "idle in transaction")
		require.WithinRange(t, f.Since, before.Add(-time.Minute), time.Now().Add(time.Minute))
		require.Contains(t, f.Remedy, fmt.Sprintf("pg_terminate_backend(%d)", pid))
		require.Empty(t, examined(t, store, lenient()).Findings, "a young one is fine")
		end()
		require.Eventually(t, func() bool { return len(examined(t, store, request).Findings) == 0 }, time.Minute, 10*time.Millisecond)
	})

	t.Run("a prepared transaction that nobody ends is named", func(t *testing.T) {
		t.Parallel()
		database, store := ready(t)
		if valueOf[int](t, store.db, `SELECT current_setting('max_prepared_transactions')::integer`) == 0 {
			t.Skip("skipped: the server prepares no transactions (max_prepared_transactions is 0)")
		}
		_, end := held(t, database, "forgetful", "BEGIN", "CREATE TABLE mine (x int)", "PREPARE TRANSACTION 'it''s also forgotten'")
		end()
		request := lenient()
		request.OpenTransaction = time.Microsecond
		f := onlyFinding(t, store, request)
		require.Equal(t, []string{"old_transaction", "prepared transaction 'it''s also forgotten'"}, []string{f.Code, f.Subject})
		execute(t, store.db, "ROLLBACK PREPARED 'it''s also forgotten'")
		require.Empty(t, examined(t, store, request).Findings)
	})

	t.Run("a session that waits for a lock is named, and the one that has it", func(t *testing.T) {
		t.Parallel()
		database, store := ready(t)
		require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", Delay: time.Hour}))
		holder, end := held(t, database, "repair", "BEGIN", "SELECT 1 FROM outmill.records FOR UPDATE")
		ended := make(chan error, 1)
		go func() {
			_, err := store.db.Exec(context.WithoutCancel(t.Context()), "DELETE FROM outmill.records")
			ended <- err
		}()
		request := lenient()
		request.LockWait = time.Millisecond
		require.Eventually(t, func() bool { return len(examined(t, store, request).Findings) == 1 }, time.Minute, 10*time.Millisecond)
		f := onlyFinding(t, store, request)
		require.Equal(t, "lock_wait", f.Code)
		require.Contains(t, f.Text, fmt.Sprintf("session %d (repair), idle in transaction since 2", holder))
		require.Contains(t, f.Remedy, fmt.Sprintf("pg_terminate_backend(%d)", holder))
		require.Empty(t, examined(t, store, lenient()).Findings, "a short wait is fine")
		end()
		require.NoError(t, <-ended)
	})

	t.Run("a queue of notifications that fills is found", func(t *testing.T) {
		t.Parallel()
		database, store := ready(t)
		request := lenient()
		// One page of the queue of 8 GiB is 1e-6.
		request.QueueUsage = 1e-7
		_, end := held(t, database, "listener", "LISTEN anything", "BEGIN", "SELECT 1")
		for i := range 50 {
			execute(t, store.db, "SELECT pg_notify('anything', repeat('x', 7000) || $1::text)", fmt.Sprint(i))
		}
		f := onlyFinding(t, store, request)
		require.Equal(t, []string{"notify_queue", "NOTIFY queue"}, []string{f.Code, f.Subject})
		end()
	})

	t.Run("a server that takes no writes is a failure", func(t *testing.T) {
		t.Parallel()
		database, _ := ready(t)
		db := connect(t, database, 1, inSession("default_transaction_read_only", "on"))
		require.Equal(t, "read_only", onlyFinding(t, storeOn(t, db), lenient()).Code)
	})
}
