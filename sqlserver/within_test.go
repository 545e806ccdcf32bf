package sqlserver_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlserver"
)

func TestStore_Transact_whateverTheLevel(t *testing.T) {
	t.Parallel()
	store, _ := ensured(t, sqlserver.Config{})
	allowSnapshot(t, store.DB())
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelReadUncommitted, sql.LevelRepeatableRead, sql.LevelSnapshot,
		sql.LevelSerializable} {
		t.Run("a transaction notes and keeps sagas at "+level.String(), func(t *testing.T) {
			t.Parallel()
			require.NoError(t, store.Append(t.Context(), one(level.String())))
			found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
			require.Len(t, found, 1)
			tx, err := store.DB().BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			require.NoError(t, err)
			defer func() { _ = tx.Rollback() }()
			settings := func() (of [2]int) {
				require.NoError(t, tx.QueryRowContext(t.Context(), sessionSettings).Scan(&of[0], &of[1]))
				return of
			}
			before, ctx := settings(), store.WithTx(t.Context(), tx)
			// The note was committed after the transaction took its snapshot.
			late := roles.Note{Consumer: "billing", Key: "late " + level.String(), Retention: time.Hour}
			_, err = store.PutNote(t.Context(), late, time.Second)
			require.NoError(t, err)
			duplicate, err := store.PutNote(ctx, late, time.Second)
			require.NoError(t, err)
			require.True(t, duplicate)
			late.Key, late.Lease = level.String(), found[0].Lease()
			duplicate, err = store.PutNote(ctx, late, time.Second)
			require.NoError(t, err)
			require.False(t, duplicate)
			keepSaga(ctx, t, store, level.String())
			require.NoError(t, store.Append(ctx, one("outgoing")))
			lost := late
			lost.Lease.Owner = outmill.NewOwnerToken()
			_, err = store.PutNote(ctx, lost, time.Second)
			require.ErrorIs(t, err, outmill.ErrLeaseLost)
			require.Equal(t, before, settings())
			require.NoError(t, tx.Commit())
			require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
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
	saga := &roles.Saga{Type: "order", Correlation: correlation}
	require.NoError(t, store.InsertSaga(ctx, saga, &orderState{}, roles.SagaOptions{}))
	again := &roles.Saga{Type: "order", Correlation: correlation}
	require.ErrorIs(t, store.InsertSaga(ctx, again, &orderState{}, roles.SagaOptions{}), roles.ErrSagaExists)
	saga.Finished = true
	require.NoError(t, store.UpdateSaga(ctx, saga, &orderState{Paid: true}, roles.SagaOptions{KeepUnknown: true}))
	var state orderState
	found, err := store.FindSaga(ctx, "order", correlation, &state, roles.SagaOptions{})
	require.NoError(t, err)
	require.Equal(t, orderState{Paid: true}, state)
	require.Equal(t, int64(2), found.Version)
	other := &roles.Saga{Type: "order", Correlation: correlation + " other"}
	require.NoError(t, store.InsertSaga(ctx, other, &orderState{}, roles.SagaOptions{}))
	require.NoError(t, store.DeleteSaga(ctx, other, roles.SagaOptions{}))
}
