package sqlserver_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlserver"
)

// Tests of locks, plans and sessions, which only SQL Server's own engine can show.
// docs/sqlserver.md names the test of each open question.

// onEngine returns a store with its schema, on a SQL Server and not on Babelfish.
func onEngine(t *testing.T, config sqlserver.Config) (store *sqlserver.Store, table string) {
	t.Helper()
	store, table = ensured(t, config)
	if sqlservertest.IsBabelfish(t, store.DB()) {
		t.Skip("skipped: Babelfish has locks, plans and sessions of its own")
	}
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	return store, table
}

// holding runs the statement in a transaction that stays open, with its locks, until the test
// ends.
func holding(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	found, err := tx.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err)
	n, err := found.RowsAffected()
	require.NoError(t, err)
	require.EqualValues(t, 1, n, statement)
}

// patient bounds a call that must not wait for a lock, and might otherwise wait for ever.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func keyed(key, name string) *outmill.Record {
	return &outmill.Record{Topic: "orders", Key: key, MessageID: name, Payload: []byte("payload")}
}

func TestStore_Engine(t *testing.T) {
	t.Parallel()

	t.Run("settling a record does not wait for the lane that another transaction has locked", func(t *testing.T) {
		t.Parallel()
		for name, settle := range map[string]func(context.Context, *sqlserver.Store, outmill.Lease) error{
			"ack": func(ctx context.Context, s *sqlserver.Store, l outmill.Lease) error {
				return s.Ack(ctx, "", []outmill.Lease{l})
			},
			"release": func(ctx context.Context, s *sqlserver.Store, l outmill.Lease) error {
				return s.Release(ctx, []outmill.Lease{l})
			},
			"abandon": func(ctx context.Context, s *sqlserver.Store, l outmill.Lease) error {
				return s.Abandon(ctx, []outmill.Settlement{{Lease: l}})
			},
			"snooze": func(ctx context.Context, s *sqlserver.Store, l outmill.Lease) error {
				return s.Snooze(ctx, []outmill.Settlement{{Lease: l}})
			},
			"fail": func(ctx context.Context, s *sqlserver.Store, l outmill.Lease) error {
				return s.Fail(ctx, []outmill.Settlement{{Lease: l}})
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				store, table := onEngine(t, sqlserver.Config{})
				require.NoError(t, store.Append(t.Context(), keyed("k", "first"), keyed("k", "second")))
				found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey))
				require.Len(t, found, 1)
				// Another claim holds the second record and makes the lane.
				require.Empty(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey)))
				holding(t, store.DB(), "UPDATE "+table+"Lane SET Until = SYSUTCDATETIME()")
				require.NoError(t, settle(patient(t), store, found[0].Lease()))
			})
		}
	})

	t.Run("a claim passes over a record that another transaction has locked", func(t *testing.T) {
		t.Parallel()
		store, table := onEngine(t, sqlserver.Config{})
		require.NoError(t, store.Append(t.Context(), one("first"), one("second")))
		// This column is in no index, so the index row stays unlocked.
		holding(t, store.DB(), "UPDATE "+table+" SET LastError = N'locked' WHERE MessageId = N'first'")
		found, err := store.Claim(patient(t), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, "second", found[0].MessageID)
	})

	t.Run("a claim after Resume passes over a record that another transaction has locked", func(t *testing.T) {
		t.Parallel()
		store, table := onEngine(t, sqlserver.Config{})
		first, second := one("first"), one("second")
		first.TenantID, second.TenantID = "acme", "acme"
		require.NoError(t, store.Append(t.Context(), first, second))
		scope := roles.PauseScope{TenantID: "acme"}
		require.NoError(t, store.Pause(t.Context(), scope, "ann", ""))
		request := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone)
		found, err := store.Claim(t.Context(), request)
		require.NoError(t, err)
		require.Empty(t, found)
		require.Equal(t, 2, valueOf[int](t, store.DB(), "SELECT COUNT(*) FROM "+table+" WHERE Stage = -1 AND PausedBy IS NOT NULL"))
		holding(t, store.DB(), "UPDATE "+table+" SET LastError = N'locked' WHERE MessageId = N'first'")
		ended, err := store.Resume(patient(t), scope)
		require.NoError(t, err)
		require.True(t, ended)
		found, err = store.Claim(patient(t), request)
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, "second", found[0].MessageID)
	})

	t.Run("the janitor passes over a record that another transaction has locked", func(t *testing.T) {
		t.Parallel()
		store, table := onEngine(t, sqlserver.Config{Retain: time.Hour})
		require.NoError(t, store.Append(t.Context(), one("first"), one("second")))
		require.NoError(t, store.Ack(t.Context(), "", leasesOf(claimed(t, store, claimOf(outmill.NewOwnerToken(), 2, outmill.OrderNone)))))
		passTime(t, store.DB(), table, 2*time.Hour)
		holding(t, store.DB(), "UPDATE "+table+" SET LastError = N'locked' WHERE MessageId = N'first'")
		deleted, err := store.DeleteProcessed(patient(t), 10)
		require.NoError(t, err)
		require.Equal(t, 1, deleted)
	})

	t.Run("a step is appended whatever the level of the caller's transaction", func(t *testing.T) {
		t.Parallel()
		store, _ := onEngine(t, sqlserver.Config{})
		allowSnapshot(t, store.DB())
		join := &roles.Join{Unsealed: true}
		require.NoError(t, store.StartJoin(t.Context(), join))
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSnapshot, sql.LevelSerializable} {
			tx, err := store.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			require.NoError(t, err)
			of := func() (found int) {
				require.NoError(t, tx.QueryRowContext(t.Context(),
					"SELECT transaction_isolation_level FROM sys.dm_exec_sessions WHERE session_id = @@SPID").Scan(&found))
				return found
			}
			before := of()
			step := one(level.String())
			step.Joins = []outmill.JoinID{join.ID}
			require.NoError(t, store.Append(store.WithTx(t.Context(), tx), step), level)
			require.Equal(t, before, of(), "the level ends with the statement that set it")
			require.NoError(t, tx.Commit())
		}
	})

	t.Run("the priority of maintenance ends with it", func(t *testing.T) {
		t.Parallel()
		store, _ := onEngine(t, sqlserver.Config{})
		conn, err := store.DB().Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		priority := func() (found int) {
			require.NoError(t, conn.QueryRowContext(t.Context(),
				"SELECT deadlock_priority FROM sys.dm_exec_sessions WHERE session_id = @@SPID").Scan(&found))
			return found
		}
		// This is one batch, because a new batch may reset the session.
		const tail = "; SELECT deadlock_priority FROM sys.dm_exec_sessions WHERE session_id = @@SPID"
		require.Zero(t, priority())
		for _, statement := range []string{
			store.Expand("EXEC [dbo].[Outbox_Reap] @Limit = 1"),
			"EXEC sp_executesql N'" + strings.ReplaceAll(store.Expand(sqlserver.Statements["sqlDeleteDedup"]), "'", "''") +
				"', N'@limit BIGINT', @limit = 1",
		} {
			require.Zero(t, lastOf(t, conn, statement+tail), statement)
		}
		require.Zero(t, priority())
	})

	t.Run("a claim holds no lock while its records are read", func(t *testing.T) {
		t.Parallel()
		store, table := onEngine(t, sqlserver.Config{})
		// The records are larger than the buffers between the test and the server.
		large := make([]*outmill.Record, 40)
		for i := range large {
			large[i] = one(fmt.Sprint("m", i))
			large[i].Payload = make([]byte, 1<<20)
		}
		require.NoError(t, store.Append(t.Context(), large...))
		conn, err := store.DB().Conn(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		var session int
		require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT @@SPID").Scan(&session))
		rows, err := conn.QueryContext(t.Context(), fmt.Sprintf(`DECLARE @topics [dbo].[%[1]sName]; INSERT @topics (Place, Name)
			VALUES (0, N'orders');
EXEC [dbo].[%[1]s_Claim] @Owner = @owner, @Group = N'%[2]s', @Topics = @topics, @Share = 40, @Room = 40, @Bytes = 0, @First = 1,
@Lease = 60000000`, table, readers),
			sql.Named("owner", outmill.NewOwnerToken().String()))
		require.NoError(t, err)
		defer func() { require.NoError(t, rows.Close()) }()
		require.True(t, rows.Next(), "the first record has come, and the others wait to be read")
		require.NoError(t, rows.Err())
		require.Zero(t, valueOf[int](t, store.DB(),
			"SELECT COUNT(*) FROM sys.dm_tran_session_transactions WHERE session_id = @session AND is_user_transaction = 1",
			sql.Named("session", session)))
		// Another call changes a record that has not been read yet, without waiting.
		_, err = store.Delete(patient(t), large[39].ID)
		require.NoError(t, err)
	})

	t.Run("a claim in order admits a step of what is due and keeps the order of each key", func(t *testing.T) {
		t.Parallel()
		store, table := ensured(t, sqlserver.Config{})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		const delayed = 1500
		records := make([]*outmill.Record, delayed)
		for i := range records {
			// The keys become due one after another, each in its own order.
			records[i] = keyed(fmt.Sprint("key", i%5), fmt.Sprintf("%04d", i))
			records[i].Delay = time.Minute + time.Duration(i%5)*time.Second
		}
		require.NoError(t, store.Append(t.Context(), records...))
		passTime(t, store.DB(), table, time.Hour)
		fresh := make([]*outmill.Record, 5)
		for i := range fresh {
			fresh[i] = keyed(fmt.Sprint("key", i), "9999")
		}
		require.NoError(t, store.Append(t.Context(), fresh...))

		owner, last, n := outmill.NewOwnerToken(), map[string]string{}, 0
		for {
			found := claimed(t, store, claimOf(owner, 32, outmill.OrderKey))
			if len(found) == 0 {
				break
			}
			if n == 0 {
				admitted := valueOf[int](t, store.DB(), "SELECT COUNT(*) FROM "+table+" WHERE Stage IN (0, 1, 4) AND MessageId <> N'9999'")
				require.LessOrEqual(t, admitted, 4*32, "a step, and not all that is due")
			}
			for _, r := range found {
				require.Less(t, last[r.Key], r.MessageID, r.Key)
				last[r.Key] = r.MessageID
			}
			n += len(found)
			require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
		}
		require.Equal(t, delayed+len(fresh), n)
	})

	t.Run("what fail leaves of a parked key is parked by claims", func(t *testing.T) {
		t.Parallel()
		store, _ := ensured(t, sqlserver.Config{})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		const behind = sqlserver.MaxAtOnce + 200
		records := make([]*outmill.Record, 1+behind)
		for i := range records {
			records[i] = keyed("k", fmt.Sprintf("%04d", i))
		}
		require.NoError(t, store.Append(t.Context(), append(records, keyed("other", "other"))...))
		req := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey)
		req.KeyPolicy = outmill.KeyPark
		found := claimed(t, store, req)
		require.Equal(t, "0000", found[0].MessageID)
		require.NoError(t, store.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Park: true}}))
		dead := func() int {
			found, err := store.List(t.Context(), outmill.ListQuery{Status: outmill.StatusDead, Limit: 10_000})
			require.NoError(t, err)
			return len(found)
		}
		require.Equal(t, 1+sqlserver.MaxAtOnce, dead())
		next := claimed(t, store, req)
		require.Len(t, next, 1)
		require.Equal(t, "other", next[0].MessageID)
		require.NoError(t, store.Ack(t.Context(), "", leasesOf(next)))
		require.Empty(t, claimed(t, store, req))
		require.Equal(t, len(records), dead())
	})

	t.Run("the files of the schema run one by one make procedures that can write", func(t *testing.T) {
		t.Parallel()
		made, _ := onEngine(t, sqlserver.Config{})
		table := unique("T")
		store := newStore(t, made.DB(), sqlserver.Config{Table: table})
		names, err := fs.Glob(sqlserver.SchemaFiles, "schema/*/*.sql")
		require.NoError(t, err)
		for _, name := range names {
			text, err := fs.ReadFile(sqlserver.SchemaFiles, name)
			require.NoError(t, err)
			conn, err := store.DB().Conn(t.Context())
			require.NoError(t, err)
			// As sqlcmd begins.
			for _, batch := range append([]string{"SET QUOTED_IDENTIFIER OFF"}, strings.Split("\n"+string(text), "\nGO\n")...) {
				if strings.TrimSpace(batch) == "" {
					continue
				}
				_, err := conn.ExecContext(t.Context(), store.Expand(batch))
				require.NoError(t, err, "%s: %s", name, batch)
			}
			discard(conn)
		}
		require.Zero(t, valueOf[int](t, store.DB(),
			"SELECT COUNT(*) FROM sys.sql_modules AS m JOIN sys.procedures AS p ON p.object_id = m.object_id WHERE CHARINDEX(@table, p.name) = 1 "+
				"AND (m.uses_quoted_identifier = 0 OR m.uses_ansi_nulls = 0)", sql.Named("table", table)))
		execute(t, store.DB(), "INSERT "+table+"Meta (OnlyRow, Version, Compatible, Generation) VALUES (1, 1, 1, 0)")
		everything(t, store)
	})

	t.Run("a statement has one plan whatever the length of its texts", func(t *testing.T) {
		t.Parallel()
		store, table := onEngine(t, sqlserver.Config{})
		var joins []outmill.JoinID
		for range 3 {
			join := &roles.Join{Unsealed: true}
			require.NoError(t, store.StartJoin(t.Context(), join))
			joins = append(joins, join.ID)
			step := one("step")
			step.Joins = joins
			require.NoError(t, store.Append(t.Context(), step))
		}
		// The text of a plan begins with the declaration of its parameters.
		const plans = "SELECT COUNT(DISTINCT s.text) FROM sys.dm_exec_cached_plans AS p CROSS APPLY sys.dm_exec_sql_text(p.plan_handle) AS s " +
			"WHERE s.text LIKE N'(@joins %' AND CHARINDEX(@member, s.text) > 0"
		require.LessOrEqual(t, valueOf[int](t, store.DB(), plans, sql.Named("member", table+"JoinMember")), 1)
	})

	t.Run("claims and settlements seek and the records of a key by their index", func(t *testing.T) {
		t.Parallel()
		store, table := onEngine(t, sqlserver.Config{})
		require.NoError(t, store.Append(t.Context(), made("orders", "m", 100)...))
		line := `@Owner = '00000000-0000-0000-0000-000000000000', @Group = N'readers', @Topic = N'orders'`
		read := line + `, @Passed = N'-', @Page = 100`
		for procedure, arguments := range map[string]string{
			"LineOpen": read + `, @ByTopic = 0`,
			"LineLook": read + `, @Before = NULL, @Notes = @notes, @Want = 100`,
			"Fail":     `@Leases = @leases, @Parked = N'parked'`,
			"Ack":      `@Leases = @leases, @Keep = 0, @By = NULL`,
			"Release":  `@Leases = @leases`,
			"Claim": `@Owner = '00000000-0000-0000-0000-000000000000', @Group = N'readers', @Topics = @names, @Share = 100, @Room = 100,
				@Bytes = 0, @First = 1, @Lease = 1000000`,
			"Due": `@Group = N'readers', @All = 1, @Topics = @names, @Owner = '00000000-0000-0000-0000-000000000000',
				@Passed = N'-', @HeldToo = 1`,
			"DeleteNotes": `@Limit = 100`,
			"BringBack":   `@Group = N'readers', @Topics = @names, @Keyed = 1, @All = 0`,
		} {
			batch := store.Expand("DECLARE @notes [dbo].[OutboxNote], @leases [dbo].[OutboxLease], @names [dbo].[OutboxName]; EXEC [dbo].[Outbox_" +
				procedure + "] " + arguments)
			byKey, aside := 0, map[string]int{}
			for _, a := range accesses(t, store.DB(), batch) {
				if a.table != "["+table+"]" && a.table != "["+table+"Lane]" {
					continue
				}
				require.NotContains(t, a.operator, "Scan", "%s: %+v", procedure, a)
				if a.index == "[IX_"+table+"_Key]" && strings.Contains(a.operator, "Seek") {
					byKey++
				}
				if strings.Contains(a.operator, "Seek") {
					aside[a.index]++
				}
			}
			// LineOpen reads another lease, waiting records and held records. LineLook reads held
			// records three times, and then makes these three reads again. Fail reads the later
			// records.
			require.GreaterOrEqual(t, byKey, map[string]int{"LineOpen": 3, "LineLook": 6, "Fail": 1}[procedure], procedure)
			// What is set aside is found by the numbers of the pauses.
			require.GreaterOrEqual(t, aside["[IX_"+table+"_Aside]"], map[string]int{"BringBack": 4, "Due": 1, "Claim": 1}[procedure], procedure)
			require.GreaterOrEqual(t, aside["[IX_"+table+"_AsideKeyed]"], map[string]int{"BringBack": 1}[procedure], procedure)
			require.GreaterOrEqual(t, aside["[IX_"+table+"Lane_Paused]"], map[string]int{"Due": 1, "LineOpen": 2}[procedure], procedure)
		}
	})
}

// lastOf returns the number in the last row of the last result set of a batch.
func lastOf(t *testing.T, conn *sql.Conn, batch string) (last int) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), batch)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for more := true; more; more = rows.NextResultSet() {
		for rows.Next() {
			require.NoError(t, rows.Scan(&last))
		}
	}
	require.NoError(t, rows.Err())
	return last
}

// discard ends a connection that the pool must not use again, because its settings have changed.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

// access is the way in which a plan reads a table.
type access struct{ operator, table, index string }

// accesses returns the accesses of the plan that the server makes for a batch, without running
// it.
func accesses(t *testing.T, db *sql.DB, batch string) []access {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer discard(conn)
	_, err = conn.ExecContext(t.Context(), "SET SHOWPLAN_XML ON")
	require.NoError(t, err)
	var plan string
	require.NoError(t, conn.QueryRowContext(t.Context(), batch).Scan(&plan), batch)
	var found []access
	var operators []string
	decoder := xml.NewDecoder(strings.NewReader(plan))
	decoder.CharsetReader = func(_ string, input io.Reader) (io.Reader, error) { return input, nil }
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		switch element := token.(type) {
		case xml.StartElement:
			attribute := func(name string) string {
				for _, a := range element.Attr {
					if a.Name.Local == name {
						return a.Value
					}
				}
				return ""
			}
			switch element.Name.Local {
			case "RelOp":
				operators = append(operators, attribute("PhysicalOp"))
			case "Object":
				if len(operators) > 0 {
					found = append(found, access{operators[len(operators)-1], attribute("Table"), attribute("Index")})
				}
			}
		case xml.EndElement:
			if element.Name.Local == "RelOp" {
				operators = operators[:len(operators)-1]
			}
		}
	}
}
