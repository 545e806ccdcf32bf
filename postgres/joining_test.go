package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
)

// joining makes every call of joins, with a group that reads all topics.
func joining(t *testing.T, store *postgres.Store) {
	t.Helper()
	ctx := t.Context()
	join := &roles.Join{ExpectedSteps: 4, Metadata: map[string]string{"a": "b"}, Timeout: time.Hour}
	step := func(payload string) *outmill.Record {
		r := made("steps", payload, 1)[0]
		r.Joins = []outmill.JoinID{join.ID}
		return r
	}
	require.NoError(t, store.InTx(ctx, func(ctx context.Context, _ pgx.Tx) error {
		if err := store.StartJoin(ctx, join); err != nil {
			return err
		}
		return store.Append(ctx, step("acked"), step("dead"), step("completed"), step("failed"))
	}))
	require.ErrorIs(t, store.Append(ctx, step("too many")), roles.ErrTooManySteps)
	found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 4, outmill.OrderNone, "steps"))
	require.Len(t, found, 4)
	require.NoError(t, store.Ack(ctx, "", leasesOf(found[:1])))
	require.NoError(t, store.Fail(ctx, []outmill.Settlement{{Lease: found[1].Lease()}}))
	require.NoError(t, store.ReportCompleted(ctx, join.ID, found[2].ID))
	require.NoError(t, store.ReportFailed(ctx, join.ID, found[3].ID))
	got, err := store.GetJoin(ctx, join.ID)
	require.NoError(t, err)
	require.Equal(t, [2]int{2, 2}, [2]int{got.CompletedSteps, got.FailedSteps})
	steps, err := store.ListSteps(ctx, join.ID, outmill.WorkItemID{}, 0)
	require.NoError(t, err)
	require.Len(t, steps, 4)
	ended, err := store.FinishJoin(ctx, join.ID,
		roles.FinishRequest{FailIfAnyStepFailed: true, Then: func(roles.Join) (*outmill.Record, error) {
			return made("steps", "next", 1)[0], nil
		}})
	require.NoError(t, err)
	require.Equal(t, roles.JoinFailed, ended.Join.Status)

	open := &roles.Join{Unsealed: true}
	require.NoError(t, store.StartJoin(ctx, open))
	if err := store.AttachStep(ctx, open.ID, found[1].ID); err != nil {
		require.ErrorIs(t, err, roles.ErrUnknownMessage, "a store that does not retain what is processed")
	}
	require.NoError(t, store.SealJoin(ctx, open.ID, 1))
	require.NoError(t, store.CancelJoin(ctx, open.ID, "enough"))
	joins, err := store.ListJoins(ctx, roles.JoinQuery{Status: roles.JoinCancelled})
	require.NoError(t, err)
	require.NotEmpty(t, joins)
	_, err = store.DeleteJoins(ctx, 10)
	require.NoError(t, err)
	found = append(found, claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone, "steps"))...)
	require.Len(t, found, 5, "the one that follows the join too")
	for _, r := range found {
		_, err := store.Delete(ctx, r.ID)
		require.NoError(t, err)
	}
}
