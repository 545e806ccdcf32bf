package postgres_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// tripCounter counts round trips.
type tripCounter struct{ n atomic.Int64 }

func (c *tripCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *tripCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *tripCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *tripCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (c *tripCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// openTxRig is a store whose round trips are counted, with a record that is leased.
type openTxRig struct {
	store *postgres.Store
	trips tripCounter
	lease outmill.Lease
	note  roles.Note
}

func newOpenTxRig(t *testing.T) *openTxRig {
	t.Helper()
	rig := &openTxRig{note: roles.Note{Consumer: "c", Key: "k", Retention: time.Hour}}
	config, err := pgxpool.ParseConfig(postgrestest.Database(t))
	require.NoError(t, err)
	config.ConnConfig.Tracer = &rig.trips
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	rig.store = newStore(t, pool, postgres.Config{NotifyInterval: -1})
	require.NoError(t, rig.store.Ensure(t.Context()))
	require.NoError(t, rig.store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	require.NoError(t, rig.store.Append(t.Context(), &outmill.Record{Topic: "orders"}))
	found := claimed(t, rig.store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone, "orders"))
	require.Len(t, found, 1)
	rig.lease = found[0].Lease()
	return rig
}

func (r *openTxRig) noted(t *testing.T) bool {
	t.Helper()
	noted, err := r.store.HasNote(t.Context(), r.note.Consumer, r.note.Key)
	require.NoError(t, err)
	return noted
}

func (r *openTxRig) put(ctx context.Context) error {
	_, err := r.store.PutNote(ctx, r.note, time.Second)
	return err
}

// last is storekit.Last outside of a message's handler.
func last(t *testing.T, ctx context.Context) context.Context {
	t.Helper()
	ctx, err := storekit.Last(ctx)
	require.NoError(t, err)
	return ctx
}

type state struct{ N int }

func TestTransact_Last(t *testing.T) {
	t.Parallel()
	t.Run("a note, a statement and a saga take three round trips, with BEGIN and COMMIT", func(t *testing.T) {
		t.Parallel()
		rig := newOpenTxRig(t)
		rig.note.Lease = rig.lease
		saga := &roles.Saga{Type: "s", Correlation: "c"}
		before := int64(0)
		require.NoError(t, rig.store.Transact(t.Context(), func(ctx context.Context) error {
			before = rig.trips.n.Load()
			require.NoError(t, rig.put(ctx))
			tx, ok := rig.store.Tx(ctx)
			require.True(t, ok)
			_, err := tx.Exec(ctx, "SELECT 1")
			require.NoError(t, err)
			return rig.store.InsertSaga(last(t, ctx), saga, &state{}, roles.SagaOptions{})
		}))
		require.EqualValues(t, 3, rig.trips.n.Load()-before)
		require.True(t, rig.noted(t))
	})
	t.Run("a call after the last one is refused", func(t *testing.T) {
		t.Parallel()
		rig := newOpenTxRig(t)
		require.NoError(t, rig.store.Transact(t.Context(), func(ctx context.Context) error {
			tx, _ := rig.store.Tx(ctx)
			require.NoError(t, rig.put(ctx))
			saga := &roles.Saga{Type: "s", Correlation: "c"}
			require.NoError(t, rig.store.InsertSaga(last(t, ctx), saga, &state{}, roles.SagaOptions{}))
			require.True(t, rig.noted(t), "it is committed")
			_, err := tx.Exec(ctx, "SELECT 1")
			require.ErrorIs(t, err, pgx.ErrTxClosed)
			require.ErrorIs(t, rig.store.Append(ctx, &outmill.Record{Topic: "orders"}), outmill.ErrInvalidTx)
			return nil
		}))
	})
	t.Run("a change of a saga that comes too late is a typed error, and rolls back", func(t *testing.T) {
		t.Parallel()
		rig := newOpenTxRig(t)
		saga := &roles.Saga{Type: "s", Correlation: "c"}
		require.NoError(t, rig.store.InsertSaga(t.Context(), saga, &state{}, roles.SagaOptions{}))
		late := *saga
		require.NoError(t, rig.store.UpdateSaga(t.Context(), saga, &state{1}, roles.SagaOptions{}))
		for want, change := range map[error][]func(ctx context.Context) error{
			roles.ErrSagaConflict: {
				func(ctx context.Context) error {
					return rig.store.UpdateSaga(ctx, &late, &state{2}, roles.SagaOptions{})
				},
				func(ctx context.Context) error { return rig.store.DeleteSaga(ctx, &late, roles.SagaOptions{}) },
			},
			roles.ErrSagaExists: {func(ctx context.Context) error {
				return rig.store.InsertSaga(ctx, &roles.Saga{Type: "s", Correlation: "c"}, &state{}, roles.SagaOptions{})
			}},
		} {
			for _, each := range change {
				require.ErrorIs(t, rig.store.Transact(t.Context(), func(ctx context.Context) error {
					require.NoError(t, rig.put(ctx))
					return each(last(t, ctx))
				}), want)
				require.False(t, rig.noted(t))
			}
		}
		var found state
		got, err := rig.store.FindSaga(t.Context(), "s", "c", &found, roles.SagaOptions{})
		require.NoError(t, err)
		require.Equal(t, []int64{2, 1}, []int64{got.Version, int64(found.N)})
		require.Equal(t, saga.UpdatedAt, got.UpdatedAt)
	})
	t.Run("the changes of a saga commit with it, and tell its version and time", func(t *testing.T) {
		t.Parallel()
		rig := newOpenTxRig(t)
		saga := &roles.Saga{Type: "s", Correlation: "c"}
		for i, change := range []func(ctx context.Context) error{
			func(ctx context.Context) error {
				return rig.store.InsertSaga(ctx, saga, &state{}, roles.SagaOptions{})
			},
			func(ctx context.Context) error {
				return rig.store.UpdateSaga(ctx, saga, &state{1}, roles.SagaOptions{KeepUnknown: true})
			},
		} {
			require.NoError(t, rig.store.Transact(t.Context(), func(ctx context.Context) error { return change(last(t, ctx)) }))
			got, err := rig.store.FindSaga(t.Context(), "s", "c", &state{}, roles.SagaOptions{})
			require.NoError(t, err)
			require.EqualValues(t, i+1, got.Version)
			require.Equal(t, saga, got)
		}
		require.NoError(t, rig.store.Transact(t.Context(), func(ctx context.Context) error {
			return rig.store.DeleteSaga(last(t, ctx), saga, roles.SagaOptions{})
		}))
		_, err := rig.store.FindSaga(t.Context(), "s", "c", &state{}, roles.SagaOptions{})
		require.ErrorIs(t, err, roles.ErrSagaNotFound)
	})
	t.Run("the last call of a function in another one's transaction does not commit", func(t *testing.T) {
		t.Parallel()
		rig := newOpenTxRig(t)
		boom := errors.New("boom")
		require.ErrorIs(t, rig.store.Transact(t.Context(), func(ctx context.Context) error {
			require.NoError(t, rig.store.Transact(ctx, func(ctx context.Context) error {
				return rig.store.InsertSaga(last(t, ctx), &roles.Saga{Type: "s", Correlation: "c"}, &state{}, roles.SagaOptions{})
			}))
			return boom
		}), boom)
		_, err := rig.store.FindSaga(t.Context(), "s", "c", &state{}, roles.SagaOptions{})
		require.ErrorIs(t, err, roles.ErrSagaNotFound)
	})
	t.Run("a BEGIN that fails is the error of Transact, and the connection goes back", func(t *testing.T) {
		t.Parallel()
		rig := newOpenTxRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		require.ErrorIs(t, rig.store.Transact(ctx, func(ctx context.Context) error {
			cancel()
			tx, ok := rig.store.Tx(ctx)
			require.True(t, ok)
			_, err := tx.Exec(ctx, "SELECT 1")
			require.ErrorIs(t, err, pgx.ErrTxClosed)
			return nil
		}), context.Canceled)
		require.Eventually(t, func() bool { return rig.store.Pool().Stat().AcquiredConns() == 0 }, time.Minute, 10*time.Millisecond)
	})
}
