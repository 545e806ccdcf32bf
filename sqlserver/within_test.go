package sqlserver_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	"github.com/outmill/outmill/sqlserver"
	"github.com/outmill/outmill/storekit"
)

// Tests of calls in the caller's transaction: acks, notes and sagas. storetest/txtest has the
// contract.

// inOrder requires the parts in the text, one behind another.
func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		_, rest, found := strings.Cut(text, part)
		require.True(t, found, "%s is missing, or comes too early", part)
		text = rest
	}
}

func TestStore_AckInTx(t *testing.T) {
	t.Parallel()
	t.Run("locks no lane and no join, and gives the lines back, so that others go on", func(t *testing.T) {
		t.Parallel()
		text := procedures(t)["Outbox_AckWithin"]
		require.NotContains(t, text, "[dbo].[OutboxLane]")
		require.NotContains(t, text, "[dbo].[OutboxJoin")
		require.NotContains(t, text, "[dbo].[Outbox_CountSteps]")
		inOrder(
			t, text,
			"WITH (UPDLOCK, ROWLOCK, FORCESEEK)", "EXEC [dbo].[Outbox_LockLine] @Group = @group, @Topic = @topic, @Mode = N'Shared'",
			"INSERT [dbo].[OutboxAcked]", "UPDATE o SET Stage = 6", "DELETE o FROM [dbo].[Outbox]", "EXEC [dbo].[Outbox_UnlockLine]",
			"SELECT COUNT(*) AS Acked",
		)
	})
	t.Run("is read by claims in order before they read a lease that it has locked", func(t *testing.T) {
		t.Parallel()
		text := procedures(t)["Outbox_LineRead"]
		inOrder(
			t, text,
			"[dbo].[OutboxAcked] AS a WITH (NOLOCK, FORCESEEK)",
			"[dbo].[OutboxAcked] AS c WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE c.Place = a.Place",
			"IF EXISTS (SELECT 1 FROM @acking)\n            SET @blocked = 1;\n        ELSE IF EXISTS", "Stage = 4",
			"FROM @lane WHERE Acking = 0", "FROM @row WHERE Acking = 0", "o.Stage = 4", "FROM @lane WHERE Acking = 1", "FROM @row WHERE Acking = 1",
		)
		inOrder(t, procedures(t)["Outbox_LineOpen"], "@Mode = N'Exclusive'", "EXEC [dbo].[Outbox_LineRead]")
	})
	t.Run("of a record stops claims in the order of its topic, and no others, until it has ended", func(t *testing.T) {
		t.Parallel()
		for _, versioned := range []bool{false, true} {
			store := onVersions(t, versioned)
			found := leasedOf(t, store, outmill.OrderTopic, one("first"), one("second"))
			tx, err := store.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback() })
			require.NoError(t, store.AckInTx(store.WithTx(t.Context(), tx), "", leasesOf(found)))
			next := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderTopic)
			claim := func() []*outmill.Record {
				records, err := store.Claim(patient(t), next)
				require.NoError(t, err)
				return records
			}
			require.Empty(t, claim())
			require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "mails", MessageID: "mail"}))
			require.Equal(t, "mail", claim()[0].MessageID)
			require.NoError(t, tx.Commit())
			require.NoError(t, store.AckedInTx(t.Context(), found))
			require.Equal(t, "second", claim()[0].MessageID)
		}
	})
	t.Run("is counted once where its step is attached to a join in between", func(t *testing.T) {
		t.Parallel()
		store, _ := ensured(t, sqlserver.Config{Retain: time.Hour})
		for _, group := range []string{readers, "others"} {
			require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
		}
		first, late := &storekit.Join{ExpectedSteps: 1}, &storekit.Join{ExpectedSteps: 1}
		require.NoError(t, store.StartJoin(t.Context(), first))
		require.NoError(t, store.StartJoin(t.Context(), late))
		step := one("step")
		step.Joins = []outmill.JoinID{first.ID}
		require.NoError(t, store.Append(t.Context(), step))
		found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		ackWithin(t, store, found)
		require.NoError(t, store.AttachStep(t.Context(), late.ID, step.ID))
		require.NoError(t, store.AckedInTx(t.Context(), found))
		completed := func(id outmill.JoinID) int {
			join, err := store.GetJoin(t.Context(), id)
			require.NoError(t, err)
			return join.CompletedSteps
		}
		require.Equal(t, []int{0, 0}, []int{completed(first.ID), completed(late.ID)}, "the other group has it still")
		req := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone)
		req.Group = "others"
		ackWithin(t, store, claimed(t, store, req))
		require.Equal(t, []int{1, 1}, []int{completed(first.ID), completed(late.ID)})
	})
	t.Run("is counted by Maintain where the program ended after the commit", func(t *testing.T) {
		t.Parallel()
		store, table := ensured(t, sqlserver.Config{})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		ackWithin(t, store, leasedOf(t, store, outmill.OrderNone, one("first")))
		const left = "SELECT COUNT(*) FROM "
		require.Equal(t, 1, valueOf[int](t, store.DB(), left+table+"Acked"))
		more, err := store.Maintain(t.Context())
		require.NoError(t, err)
		require.False(t, more)
		require.Zero(t, valueOf[int](t, store.DB(), left+table+"Acked"))
	})
}

// onVersions is a store in a database of its own, where readers see versions, or wait for locks.
func onVersions(t *testing.T, versioned bool) *sqlserver.Store {
	t.Helper()
	at := sqlservertest.Database(t)
	if versioned {
		// This runs while there is no other connection.
		onServer(t, at, "ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON")
	}
	db := connect(t, at)
	if sqlservertest.IsBabelfish(t, db) {
		t.Skip("skipped: Babelfish takes no notice of UPDLOCK and READPAST")
	}
	store := newStore(t, db, sqlserver.Config{})
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	return store
}

// leasedOf appends the records, and claims the first of them.
func leasedOf(t *testing.T, store *sqlserver.Store, order outmill.Order, records ...*outmill.Record) []*outmill.Record {
	t.Helper()
	require.NoError(t, store.Append(t.Context(), records...))
	found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, order))
	require.Len(t, found, 1)
	return found
}

func ackWithin(t *testing.T, store *sqlserver.Store, records []*outmill.Record) {
	t.Helper()
	require.NotEmpty(t, records)
	require.NoError(t, store.Transact(t.Context(), func(ctx context.Context) error { return store.AckInTx(ctx, "", leasesOf(records)) }))
}

func TestStore_PutNote(t *testing.T) {
	t.Parallel()
	t.Run("looks before it writes, and locks one name and no range", func(t *testing.T) {
		t.Parallel()
		inOrder(t, procedures(t)["Outbox_PutNote"], "EXEC @rc = [dbo].[Outbox_LockName] @Kind = N'note'",
			"NOT EXISTS (SELECT 1 FROM [dbo].[OutboxInbox]", "INSERT [dbo].[OutboxInbox]")
		inOrder(t, inline(t)["sqlInsertSaga"], "EXEC [dbo].[Outbox_LockName] @Kind = N'saga'", "INSERT [dbo].[OutboxSaga]",
			"WHERE NOT EXISTS (SELECT 1 FROM [dbo].[OutboxSaga]")
		for name, text := range all(t) {
			require.NotContains(t, text, "HOLDLOCK", name)
		}
	})
	t.Run("leaves the session's settings as they were, also where another transaction has the note", func(t *testing.T) {
		t.Parallel()
		store, _ := ensured(t, sqlserver.Config{})
		note := storekit.Note{Consumer: "billing", Key: "m1", Retention: time.Hour}
		require.NoError(t, store.Transact(t.Context(), func(ctx context.Context) error {
			_, err := store.PutNote(ctx, note, time.Second)
			require.NoError(t, err)
			tx, err := store.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback()) }()
			timeout := func() (ms int) {
				require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT @@LOCK_TIMEOUT").Scan(&ms))
				return ms
			}
			before := timeout()
			_, err = store.PutNote(store.WithTx(t.Context(), tx), note, time.Millisecond)
			require.ErrorIs(t, err, storekit.ErrNoteBusy)
			require.Equal(t, before, timeout(), "the transaction is open, with its settings")
			return nil
		}))
	})
}

func TestStore_Transact_whateverTheLevel(t *testing.T) {
	t.Parallel()
	store, _ := ensured(t, sqlserver.Config{})
	allowSnapshot(t, store.DB())
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelReadUncommitted, sql.LevelRepeatableRead, sql.LevelSnapshot,
		sql.LevelSerializable} {
		t.Run("a transaction acks, notes and keeps sagas at "+level.String(), func(t *testing.T) {
			t.Parallel()
			if level != sql.LevelReadCommitted && sqlservertest.IsBabelfish(t, store.DB()) {
				t.Skip("skipped: Babelfish does not change the level of a transaction that has begun")
			}
			found := leasedOf(t, store, outmill.OrderNone, one(level.String()))
			tx, err := store.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			settings := func() (of [2]int) {
				require.NoError(t, tx.QueryRowContext(t.Context(), sessionSettings).Scan(&of[0], &of[1]))
				return of
			}
			before, ctx := settings(), store.WithTx(t.Context(), tx)
			// The note was committed after the transaction took its snapshot.
			late := storekit.Note{Consumer: "billing", Key: "late " + level.String(), Retention: time.Hour}
			_, err = store.PutNote(t.Context(), late, time.Second)
			require.NoError(t, err)
			duplicate, err := store.PutNote(ctx, late, time.Second)
			require.NoError(t, err)
			require.True(t, duplicate)
			late.Key = level.String()
			duplicate, err = store.PutNote(ctx, late, time.Second)
			require.NoError(t, err)
			require.False(t, duplicate)
			keepSaga(ctx, t, store, level.String())
			require.NoError(t, store.Append(ctx, one("outgoing")))
			require.NoError(t, store.AckInTx(ctx, "", leasesOf(found)))
			require.Equal(t, before, settings())
			require.NoError(t, tx.Commit())
			require.NoError(t, store.AckedInTx(t.Context(), found))
			_, err = store.Get(t.Context(), found[0].ID)
			require.ErrorIs(t, err, outmill.ErrNotFound)
		})
	}
}

// orderState is the state of a saga.
type orderState struct {
	Paid bool `json:"paid"`
}

// keepSaga makes every call of sagas, and leaves a finished saga.
func keepSaga(ctx context.Context, t *testing.T, store *sqlserver.Store, correlation string) {
	t.Helper()
	saga := &storekit.Saga{Type: "order", Correlation: correlation}
	require.NoError(t, store.InsertSaga(ctx, saga, &orderState{}, storekit.SagaOptions{}))
	again := &storekit.Saga{Type: "order", Correlation: correlation}
	require.ErrorIs(t, store.InsertSaga(ctx, again, &orderState{}, storekit.SagaOptions{}), storekit.ErrSagaExists)
	saga.Finished = true
	require.NoError(t, store.UpdateSaga(ctx, saga, &orderState{Paid: true}, storekit.SagaOptions{KeepUnknown: true}))
	var state orderState
	found, err := store.FindSaga(ctx, "order", correlation, &state, storekit.SagaOptions{})
	require.NoError(t, err)
	require.Equal(t, orderState{Paid: true}, state)
	require.Equal(t, int64(2), found.Version)
	other := &storekit.Saga{Type: "order", Correlation: correlation + " other"}
	require.NoError(t, store.InsertSaga(ctx, other, &orderState{}, storekit.SagaOptions{}))
	require.NoError(t, store.DeleteSaga(ctx, other, storekit.SagaOptions{}))
}
