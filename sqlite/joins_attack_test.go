package sqlite_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func startJoin(t *testing.T, store file, join roles.Join) outmill.JoinID {
	t.Helper()
	require.NoError(t, store.StartJoin(t.Context(), &join))
	return join.ID
}

func stepOf(name string, ids ...outmill.JoinID) *outmill.Record {
	return &outmill.Record{Topic: "orders", MessageID: name, Joins: ids}
}

func ackAll(t *testing.T, store file) {
	t.Helper()
	found := claim(t, store, claimRequest(outmill.NewOwnerToken(), 100, outmill.OrderNone))
	require.NotEmpty(t, found)
	require.NoError(t, store.Ack(t.Context(), "", leases(found)))
}

func TestStore_JoinsAttack(t *testing.T) {
	t.Parallel()

	t.Run("cancelling a join wakes the record that waits for it", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		id := startJoin(t, store, roles.Join{ExpectedSteps: 1})
		appendAll(t, store, &outmill.Record{Topic: "waits", MessageID: "waiter", WaitsFor: id, Delay: time.Hour})
		require.NoError(t, store.CancelJoin(t.Context(), id, "enough"))
		found := claim(t, store, claimRequest(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		require.Equal(t, []string{"waiter"}, names(found))
	})

	t.Run("a finish that seals the join wakes the others that wait", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		id := startJoin(t, store, roles.Join{Unsealed: true})
		appendAll(t, store, &outmill.Record{Topic: "waits", MessageID: "waiter", WaitsFor: id, Delay: time.Hour})
		result, err := store.FinishJoin(t.Context(), id, roles.FinishRequest{Seal: true})
		require.NoError(t, err)
		require.True(t, result.Finished)
		found := claim(t, store, claimRequest(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		require.Equal(t, []string{"waiter"}, names(found))
	})

	t.Run("a quorum beyond the steps that a join may have is refused", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		bad := &roles.Join{Unsealed: true, Policy: roles.JoinQuorum, Quorum: math.MaxInt32 + 1}
		require.ErrorIs(t, store.StartJoin(t.Context(), bad), outmill.ErrInvalidRecord)
	})

	t.Run("a deadline centuries ahead is far off", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		id := startJoin(t, store, roles.Join{ExpectedSteps: 1, Deadline: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)})
		result, err := store.FinishJoin(t.Context(), id, roles.FinishRequest{})
		require.NoError(t, err)
		require.Greater(t, result.DeadlineIn, 200*365*24*time.Hour)
	})

	t.Run("a panic in Then continues and leaves the join unchanged", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		id := startJoin(t, store, roles.Join{ExpectedSteps: 1})
		appendAll(t, store, stepOf("step", id))
		ackAll(t, store)
		require.PanicsWithError(t, "boom", func() {
			_, _ = store.FinishJoin(t.Context(), id,
				roles.FinishRequest{Then: func(roles.Join) (*outmill.Record, error) { panic(errors.New("boom")) }})
		})
		result, err := store.FinishJoin(t.Context(), id, roles.FinishRequest{})
		require.NoError(t, err)
		require.True(t, result.Finished)
	})

	t.Run("a report after the end leaves the join as it was", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		ctx := t.Context()
		id := startJoin(t, store, roles.Join{ExpectedSteps: 1})
		step := stepOf("step", id)
		appendAll(t, store, step)
		require.NoError(t, store.CancelJoin(ctx, id, "enough"))
		before, err := store.GetJoin(ctx, id)
		require.NoError(t, err)
		require.NoError(t, store.ReportCompleted(ctx, id, step.ID))
		after, err := store.GetJoin(ctx, id)
		require.NoError(t, err)
		require.Equal(t, before, after)
	})

	// A follower and its step of the outer join commit with the end of the join. So if the
	// outer join is full, only the step is left out.
	t.Run("of two followers for one place both are published", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		ctx := t.Context()
		outer := startJoin(t, store, roles.Join{ExpectedSteps: 1})
		inner := []outmill.JoinID{startJoin(t, store, roles.Join{ExpectedSteps: 1}), startJoin(t, store, roles.Join{ExpectedSteps: 1})}
		appendAll(t, store, stepOf("a", inner[0]), stepOf("b", inner[1]))
		ackAll(t, store)
		var ends errgroup.Group
		for _, id := range inner {
			ends.Go(func() error {
				_, err := store.FinishJoin(ctx, id, roles.FinishRequest{Then: func(roles.Join) (*outmill.Record, error) {
					return stepOf("next", outer), nil
				}})
				return err
			})
		}
		require.NoError(t, ends.Wait())
		ackAll(t, store)
		join, err := store.GetJoin(ctx, outer)
		require.NoError(t, err)
		require.Equal(t, 1, join.CompletedSteps)
	})
}
