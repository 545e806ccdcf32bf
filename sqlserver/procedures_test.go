package sqlserver_test

import (
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlserver"
)

// procedures are the statements that create the procedures, by the names of these.
func procedures(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	begin := regexp.MustCompile(`(?m)^CREATE PROCEDURE \[dbo\]\.\[(\w+)\] `)
	for _, batch := range newStore(t, nowhere(t), sqlserver.Config{}).Statements() {
		if name := begin.FindStringSubmatch(batch); name != nil {
			found[name[1]] = batch
		}
	}
	return found
}

func TestStore_Objects(t *testing.T) {
	t.Parallel()

	t.Run("the schema has the tables and views that the functional specification names (OBX-111)", func(t *testing.T) {
		t.Parallel()
		schema := strings.Join(newStore(t, nowhere(t), sqlserver.Config{}).Statements(), "\n")
		for _, made := range []string{"TABLE [dbo].[Outbox] (", "VIEW [dbo].[OutboxJoin] AS", "VIEW [dbo].[OutboxJoinMember] AS"} {
			require.Contains(t, schema, "CREATE "+made)
		}
	})

	t.Run("the schema has a procedure for claim, ack, abandon, fail and reap (OBX-112)", func(t *testing.T) {
		t.Parallel()
		texts := procedures(t)
		require.Len(t, texts, 5)
		for _, name := range []string{"Outbox_Claim", "Outbox_Ack", "Outbox_Abandon", "Outbox_Fail", "Outbox_Reap"} {
			require.Contains(t, texts, name)
		}
	})

	t.Run("each procedure checks its input before it writes, and its work is rolled back as a whole", func(t *testing.T) {
		t.Parallel()
		for name, text := range procedures(t) {
			before, writes, found := strings.Cut(text, "BEGIN TRANSACTION;")
			require.True(t, found, name)
			require.Contains(t, before, "SET NOCOUNT, XACT_ABORT ON;\n    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;", name)
			require.Contains(t, before, "THROW 50905", name)
			require.NotContains(t, before, "UPDATE ", name)
			require.NotContains(t, writes, "THROW", name)
			require.Contains(t, writes, "IF @own = 1\n        COMMIT TRANSACTION;", name)
			require.Contains(t, writes, "SET blocker = N''", "%s opens the notes of its keys", name)
			for _, hints := range regexp.MustCompile(`AS r WITH \(([A-Z, ]+)\)`).FindAllStringSubmatch(writes, -1) {
				require.Contains(t, []string{"UPDLOCK, READPAST, ROWLOCK, FORCESEEK", "UPDLOCK, ROWLOCK, FORCESEEK", "FORCESEEK"}, hints[1], name)
			}
		}
	})

	t.Run("settlements leave records of joins, which the engine counts", func(t *testing.T) {
		t.Parallel()
		texts := procedures(t)
		for _, name := range []string{"Outbox_Claim", "Outbox_Ack", "Outbox_Abandon", "Outbox_Fail"} {
			require.Contains(t, texts[name], "r.step IS NULL AND r.waits_for IS NULL", name)
		}
		require.Contains(t, texts["Outbox_Reap"], "r.waits_for IS NULL")
	})
}

// leasedBy calls the claim, and returns the ids and claim numbers as a list for settling.
func leasedBy(t *testing.T, db *sql.DB, table, owner, topic string, limit int) (names []string, leases string) {
	t.Helper()
	call := "EXEC " + table + "_Claim @owner = @o, @group = @g, @topic = @t, @limit = @l, @seconds = 60, @worker = N'sql'"
	rows, err := db.QueryContext(t.Context(), call,
		sql.Named("o", owner), sql.Named("g", readers), sql.Named("t", topic), sql.Named("l", limit))
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(t, err)
	var values []string
	for rows.Next() {
		row := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		require.NoError(t, rows.Scan(into...))
		values = append(values, fmt.Sprintf("(0x%x, %v, 60000000, N'it''s')", row[0], row[1]))
		names = append(names, row[5].(string))
	}
	require.NoError(t, rows.Err())
	return names, "DECLARE @leases dbo." + table + "Lease;\nINSERT @leases (id, claims, delay, error) VALUES " + strings.Join(values, ", ") +
		";\n"
}

func TestStore_Procedures(t *testing.T) {
	t.Parallel()

	t.Run("a program without the Go API claims and settles", func(t *testing.T) {
		t.Parallel()
		store, table := reading(t, sqlserver.Config{})
		db, owner := store.DB(), outmill.NewOwnerToken().String()
		require.NoError(t, store.Append(t.Context(), made("orders", "m", 4)...))
		for i, settle := range []string{"_Ack", "_Abandon", "_Fail"} {
			names, leases := leasedBy(t, db, table, owner, "orders", 1)
			require.Equal(t, []string{fmt.Sprint("m-", i)}, names)
			execute(t, db, leases+"EXEC "+table+settle+" @owner = '"+owner+"', @leases = @leases")
		}
		found, err := store.List(t.Context(), outmill.ListQuery{Topic: "orders"})
		require.NoError(t, err)
		require.Len(t, found, 3)
		status := map[string]*outmill.Record{}
		for _, r := range found {
			status[r.MessageID], err = store.Get(t.Context(), r.ID)
			require.NoError(t, err)
		}
		require.Equal(t, outmill.StatusPending, status["m-1"].Status)
		require.Equal(t, outmill.StatusDead, status["m-2"].Status)
		for _, name := range []string{"m-1", "m-2"} {
			r := status[name]
			require.Equal(t, []any{1, "it's", 1}, []any{r.Attempts, r.LastError, len(r.History)}, name)
			require.Equal(t, []string{"sql", "it's"}, []string{r.History[0].Worker, r.History[0].Error}, name)
		}
	})

	t.Run("a lease that has ended comes back, and is reaped", func(t *testing.T) {
		t.Parallel()
		store, table := reading(t, sqlserver.Config{})
		db, owner := store.DB(), outmill.NewOwnerToken().String()
		require.NoError(t, store.Append(t.Context(), made("orders", "m", 3)...))
		for range outmill.SuspectExpiries {
			names, _ := leasedBy(t, db, table, owner, "orders", 10)
			require.Len(t, names, 3)
			passTime(t, db, table, time.Hour)
		}
		names, leases := leasedBy(t, db, table, owner, "orders", 10)
		require.Len(t, names, 1, "a suspect comes alone")
		passTime(t, db, table, time.Hour)
		require.Equal(t, 3, rowsOf(t, db, "EXEC "+table+"_Reap @limit = 10"))
		require.Zero(t, rowsOf(t, db, leases+"EXEC "+table+"_Ack @owner = '"+owner+"', @leases = @leases"), "the lease is lost")
	})

	t.Run("a paused topic, a record of a join and an invalid call get nothing", func(t *testing.T) {
		t.Parallel()
		store, table := reading(t, sqlserver.Config{})
		db, owner := store.DB(), outmill.NewOwnerToken().String()
		join := &roles.Join{Unsealed: true}
		require.NoError(t, store.StartJoin(t.Context(), join))
		step := one("step")
		step.Joins = []outmill.JoinID{join.ID}
		require.NoError(t, store.Append(t.Context(), step, one("plain")))
		require.NoError(t, store.Pause(t.Context(), roles.PauseScope{Topic: "orders", Key: "k"}, "ann", ""))
		names, _ := leasedBy(t, db, table, owner, "orders", 10)
		require.Empty(t, names)
		_, err := store.Resume(t.Context(), roles.PauseScope{Topic: "orders", Key: "k"})
		require.NoError(t, err)
		names, _ = leasedBy(t, db, table, owner, "orders", 10)
		require.Equal(t, []string{"plain"}, names)
		for _, call := range []string{
			"_Claim @owner = NULL, @group = N'g', @topic = N't', @limit = 1, @seconds = 1",
			"_Claim @owner = '" + owner + "', @group = N' ', @topic = N't', @limit = 1, @seconds = 1",
			"_Claim @owner = '" + owner + "', @group = N'g', @topic = N't', @limit = 901, @seconds = 1",
			"_Claim @owner = '" + owner + "', @group = N'g', @topic = N't', @limit = 1, @seconds = 0",
			"_Reap @limit = 0",
		} {
			_, err := db.ExecContext(t.Context(), "EXEC "+table+call)
			require.ErrorContains(t, err, "outmill: ", call)
		}
	})
}

// rowsOf counts the rows of the last result of a batch.
func rowsOf(t *testing.T, db *sql.DB, batch string) (n int) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), batch)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		n++
	}
	require.NoError(t, rows.Err())
	return n
}
