package txtest

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

// guarded makes a unique index of the user's own on the customer of each saga.
func (e *env) guarded() roles.Sagas {
	e.T.Helper()
	harness, ok := e.Harness.(storetest.Guarded)
	if !ok {
		e.T.Skip("the harness is no storetest.Guarded")
	}
	sagas := e.sagas()
	harness.GuardSagas(e.Store, sagaKind, "customer")
	return sagas
}

// requireRefused requires an error that is not a conflict of two handlers. A handler repeats a
// message after such a conflict, and no attempt counts.
func (e *env) requireRefused(err error) {
	e.T.Helper()
	require.Error(e.T, err)
	require.NotErrorIs(e.T, err, roles.ErrSagaExists)
	require.NotErrorIs(e.T, err, roles.ErrSagaConflict)
}

func sagaStartRefusedByOther(e *env) {
	sagas := e.guarded()
	start := func(ctx context.Context, correlation string) error {
		saga := &roles.Saga{Type: sagaKind, Correlation: correlation}
		return sagas.InsertSaga(ctx, saga, &sagaState{Customer: "Ada"}, roles.SagaOptions{})
	}
	require.NoError(e.T, start(e.Ctx, "o1"))
	e.requireRefused(start(e.Ctx, "o2"))
	e.requireRefused(e.transactor().Transact(e.Ctx, func(ctx context.Context) error { return start(ctx, "o2") }))
	e.requireRefused(e.transactor().Transact(e.Ctx, func(ctx context.Context) error { return start(e.last(ctx), "o2") }))
	e.requireNoSaga("o2")
	require.ErrorIs(e.T, start(e.Ctx, "o1"), roles.ErrSagaExists, "the store's own index")
}

func sagaUpdateRefusedByOther(e *env) {
	sagas := e.guarded()
	started := map[string]*roles.Saga{}
	for correlation, customer := range map[string]string{"o1": "Ada", "o2": "Bob"} {
		started[correlation] = &roles.Saga{Type: sagaKind, Correlation: correlation}
		require.NoError(e.T, sagas.InsertSaga(e.Ctx, started[correlation], &sagaState{Customer: customer}, roles.SagaOptions{}))
	}
	change := func(ctx context.Context) error {
		own := *started["o2"]
		return sagas.UpdateSaga(ctx, &own, &sagaState{Customer: "Ada"}, roles.SagaOptions{})
	}
	e.requireRefused(change(e.Ctx))
	e.requireRefused(e.transactor().Transact(e.Ctx, change))
	e.requireRefused(e.transactor().Transact(e.Ctx, func(ctx context.Context) error { return change(e.last(ctx)) }))
	found, state := e.findSaga("o2")
	require.Equal(e.T, int64(1), found.Version)
	require.Equal(e.T, "Bob", state.Customer)
}
