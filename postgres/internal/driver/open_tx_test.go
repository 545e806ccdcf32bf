package driver_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// pgx refuses a batch whose statements it cannot prepare, with the BEGIN that is to travel with them.
func TestTransact_BeginsAfterABatchThatWasNotSent(t *testing.T) {
	t.Parallel()
	db := connect(t, postgrestest.Database(t), 2, nil)
	s := engine.New(driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "none"}), engine.Config{})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Transact(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, s.Append(ctx, &outmill.Record{Topic: "orders"}), outmill.ErrSchemaMissing)
		carried, err := s.TxOf(ctx)
		require.NoError(t, err)
		_, err = carried.(pgx.Tx).Exec(ctx, "CREATE TABLE written ()")
		return err
	}))
	_, err := db.Exec(t.Context(), "SELECT FROM written")
	require.NoError(t, err, "the user's statement was in the transaction")
}

// The last call of a *sql.Tx does what it says, and Transact commits.
func TestTransact_LastOfDatabaseSQL(t *testing.T) {
	t.Parallel()
	url := postgrestest.Database(t)
	std, err := sql.Open("pgx", url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, std.Close()) })
	d := driver.New(driver.PoolOf(connect(t, url, 2, nil)), driver.Config{Name: "postgres", Schema: "outmill", DB: std})
	s := engine.New(d, engine.Config{})
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Ensure(t.Context()))
	saga := &roles.Saga{Type: "s", Correlation: "c"}
	last := func(change func(ctx context.Context) error) error {
		return s.Transact(t.Context(), func(ctx context.Context) error {
			require.NoError(t, s.Append(ctx, &outmill.Record{Topic: "orders"}))
			ctx, err := storekit.Last(ctx)
			require.NoError(t, err)
			return change(ctx)
		})
	}
	require.NoError(t, last(func(ctx context.Context) error {
		return s.InsertSaga(ctx, saga, &struct{ N int }{1}, roles.SagaOptions{})
	}))
	late := *saga
	require.NoError(t, last(func(ctx context.Context) error {
		return s.UpdateSaga(ctx, saga, &struct{ N int }{2}, roles.SagaOptions{})
	}))
	require.ErrorIs(t, last(func(ctx context.Context) error { return s.DeleteSaga(ctx, &late, roles.SagaOptions{}) }), roles.ErrSagaConflict)
	got, err := s.FindSaga(t.Context(), "s", "c", &struct{ N int }{}, roles.SagaOptions{})
	require.NoError(t, err)
	require.Equal(t, saga, got)
	found, err := s.List(t.Context(), outmill.ListQuery{Topic: "orders"})
	require.NoError(t, err)
	require.Len(t, found, 2, "the refused one has rolled back")
}
