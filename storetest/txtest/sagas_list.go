package txtest

import (
	"context"
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// listed returns the correlation values of all sagas of the type, in pages of this size.
func (e *env) listed(ctx context.Context, limit int) (correlations []string) {
	e.T.Helper()
	query := roles.SagaQuery{Type: sagaKind, Limit: limit}
	for {
		page, err := e.sagas().ListSagas(ctx, query, roles.SagaOptions{})
		require.NoError(e.T, err)
		require.LessOrEqual(e.T, len(page.Sagas), limit)
		require.GreaterOrEqual(e.T, page.Examined, len(page.Sagas))
		for _, saga := range page.Sagas {
			correlations = append(correlations, saga.Correlation)
		}
		if page.Done {
			return correlations
		}
		require.NotEqual(e.T, query.After, page.Next)
		query.After = page.Next
	}
}

func sagasListed(e *env) {
	require.Empty(e.T, e.listed(e.Ctx, 10))
	const otherKind = "othersaga"
	var started []*roles.Saga
	for _, name := range []string{"c", "a", "b", "\u00e9 e", "d"} {
		started = append([]*roles.Saga{e.startSaga(name)}, started...)
	}
	require.NoError(e.T, e.sagas().InsertSaga(e.Ctx, &roles.Saga{Type: otherKind, Correlation: "a"}, anOrder(), roles.SagaOptions{}))
	started[0].Finished = true
	require.NoError(e.T, e.sagas().UpdateSaga(e.Ctx, started[0], anOrder(), roles.SagaOptions{}))
	for _, limit := range []int{1, 2, 5, 100} {
		require.Equal(e.T, []string{"d", "\u00e9 e", "b", "a", "c"}, e.listed(e.Ctx, limit), "pages of %d", limit)
	}
	page, err := e.sagas().ListSagas(e.Ctx, roles.SagaQuery{Type: sagaKind}, roles.SagaOptions{})
	require.NoError(e.T, err)
	require.True(e.T, page.Done)
	require.Len(e.T, page.Sagas, 5)
	for i, saga := range page.Sagas {
		want, _ := e.findSaga(saga.Correlation)
		require.Equal(e.T, want, saga)
		require.Equal(e.T, started[i].ID, saga.ID)
	}
	all, err := e.sagas().ListSagas(e.Ctx, roles.SagaQuery{}, roles.SagaOptions{})
	if errors.Is(err, outmill.ErrInvalidConfig) {
		// The store has no list of all types, which the role allows.
		return
	}
	require.NoError(e.T, err)
	require.Len(e.T, all.Sagas, 6)
	require.Equal(e.T, otherKind, all.Sagas[0].Type)
}

func sagasListedInTx(e *env) {
	kept := e.startSaga("kept")
	sagas := e.sagas()
	ctx, _, rollback := e.Begin()
	require.NoError(e.T, sagas.InsertSaga(ctx, &roles.Saga{Type: sagaKind, Correlation: "new"}, anOrder(), roles.SagaOptions{}))
	require.NoError(e.T, sagas.DeleteSaga(ctx, kept, roles.SagaOptions{}))
	require.Equal(e.T, []string{"new"}, e.listed(ctx, 10))
	rollback()
	require.Equal(e.T, []string{"kept"}, e.listed(e.Ctx, 10))
}
