package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
)

func TestStore_PausesTable(t *testing.T) {
	t.Parallel()
	orders := roles.PauseScope{Topic: "orders"}

	t.Run("a second pause keeps the number and the time, and replaces by and reason", func(t *testing.T) {
		t.Parallel()
		store := pausing(t)
		require.NoError(t, store.Pause(t.Context(), orders, "ann", "the warehouse is down"))
		before := pausesOf(t, store)
		require.NoError(t, store.Pause(t.Context(), orders, "bob", ""))
		after := pausesOf(t, store)
		require.Len(t, after, 1)
		want := before[0]
		require.Equal(t, "ann", want.By)
		want.By, want.Reason = "bob", ""
		require.Equal(t, want, after[0])
	})

	t.Run("a pause that is refused and a resume of nothing leave LastPauses as it is", func(t *testing.T) {
		t.Parallel()
		store := pausing(t)
		makePauses(t, store, roles.MaxPauses)
		require.Len(t, pausesOf(t, store), roles.MaxPauses)
		before := store.LastPauses()
		require.ErrorIs(t, store.Pause(t.Context(), orders, "ann", ""), roles.ErrTooManyPauses)
		ended, err := store.Resume(t.Context(), orders)
		require.NoError(t, err)
		require.False(t, ended)
		pausesOf(t, store)
		require.Same(t, before, store.LastPauses())
	})

	t.Run("a store knows the pauses of a database that was restored to an earlier time", func(t *testing.T) {
		t.Parallel()
		store := pausing(t)
		require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", MessageID: "m"}))
		before := valueOf[int64](t, store.Pool(), "SELECT pauses FROM outmill.meta")
		require.NoError(t, store.Pause(t.Context(), orders, "ann", ""))
		req := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders")
		require.Empty(t, claimed(t, store, req))
		require.True(t, store.LastPauses().Topic(readers, "orders"))
		execute(t, store.Pool(), "DELETE FROM outmill.entries WHERE kind = 'pause'")
		execute(t, store.Pool(), "UPDATE outmill.meta SET pauses = $1", before)
		require.Len(t, claimed(t, store, req), 1)
		require.True(t, store.LastPauses().Empty())
		require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", MessageID: "n"}))
		require.NoError(t, store.Pause(t.Context(), orders, "ann", ""))
		require.Empty(t, claimed(t, store, req))
		require.True(t, store.LastPauses().Topic(readers, "orders"))
	})

	t.Run("the number of an ended pause is not used again", func(t *testing.T) {
		t.Parallel()
		store := pausing(t)
		require.NoError(t, store.Pause(t.Context(), orders, "ann", ""))
		first := pausesOf(t, store)[0].Number
		for _, want := range []bool{true, false} {
			ended, err := store.Resume(t.Context(), orders)
			require.NoError(t, err)
			require.Equal(t, want, ended)
		}
		require.Empty(t, pausesOf(t, store))
		require.NoError(t, store.Pause(t.Context(), orders, "ann", ""))
		require.Greater(t, pausesOf(t, store)[0].Number, first)
	})

	t.Run("a scope without a field is refused", func(t *testing.T) {
		t.Parallel()
		store := pausing(t)
		require.ErrorIs(t, store.Pause(t.Context(), roles.PauseScope{}, "ann", ""), outmill.ErrInvalidConfig)
		require.Empty(t, pausesOf(t, store))
	})

	t.Run("of eight concurrent pauses, the last free place takes one", func(t *testing.T) {
		t.Parallel()
		store := pausing(t)
		makePauses(t, store, roles.MaxPauses-1)
		errs := pauseAtOnce(t.Context(), store, 8)
		refused := 0
		for _, err := range errs {
			if errors.Is(err, roles.ErrTooManyPauses) {
				refused++
				continue
			}
			require.NoError(t, err)
		}
		require.Equal(t, 7, refused)
		require.Len(t, pausesOf(t, store), roles.MaxPauses)
		require.NoError(t, store.Pause(t.Context(), roles.PauseScope{Topic: "t1"}, "bob", ""), "a pause that exists")
	})

	t.Run("concurrent pauses get different numbers", func(t *testing.T) {
		t.Parallel()
		store := pausing(t)
		for _, err := range pauseAtOnce(t.Context(), store, 8) {
			require.NoError(t, err)
		}
		numbers := map[int64]bool{}
		for _, p := range pausesOf(t, store) {
			numbers[p.Number] = true
		}
		require.Len(t, numbers, 8)
	})
}

// makePauses makes the pauses of the topics t1 to tn.
func makePauses(t *testing.T, store *postgres.Store, n int) {
	t.Helper()
	for i := range n {
		require.NoError(t, store.Pause(t.Context(), roles.PauseScope{Topic: fmt.Sprint("t", i+1)}, "ann", ""))
	}
}

func pauseAtOnce(ctx context.Context, store *postgres.Store, n int) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			errs[i] = store.Pause(ctx, roles.PauseScope{Group: fmt.Sprintf("g%d", i)}, "ann", "")
		})
	}
	all.Wait()
	return errs
}

func pausesOf(t *testing.T, store *postgres.Store) []roles.PauseInfo {
	t.Helper()
	list, err := store.Paused(t.Context())
	require.NoError(t, err)
	return list
}

func pausing(t *testing.T) *postgres.Store {
	t.Helper()
	store := newStore(t, readyPool(t, postgres.Config{}), postgres.Config{})
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	return store
}

func TestStore_PausedRecords(t *testing.T) {
	t.Parallel()
	acme := roles.PauseScope{TenantID: "acme"}
	t.Run("a key is free after its paused head is deleted, even if a claim was about to note the pause", func(t *testing.T) {
		t.Parallel()
		store, ctx := pausing(t), t.Context()
		head := &outmill.Record{Topic: "orders", Key: "k", TenantID: "acme", MessageID: "head"}
		require.NoError(t, store.Append(ctx, head, &outmill.Record{Topic: "orders", Key: "k", MessageID: "next"}))
		require.NoError(t, store.Pause(ctx, acme, "ann", ""))
		req := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "orders")
		require.Empty(t, claimed(t, store, req))
		// Claims have looked at the note often, and now one has locked it.
		execute(t, store.Pool(), "UPDATE outmill.notes SET looks = 20")
		passTime(t, store.Pool(), "outmill", time.Minute)
		require.Empty(t, claimed(t, store, req))
		claiming, err := store.Pool().Begin(ctx)
		require.NoError(t, err)
		_, err = claiming.Exec(ctx, "SELECT 1 FROM outmill.notes FOR UPDATE")
		require.NoError(t, err)
		found, err := store.List(ctx, outmill.ListQuery{MessageID: "head"})
		require.NoError(t, err)
		require.Len(t, found, 1)
		deleted := async(func() (int, error) { return store.Delete(ctx, found[0].ID) })
		require.Eventually(t, func() bool { return len(deleted) > 0 || valueOf[bool](t, store.Pool(), sqlWaits) }, patience, 5*time.Millisecond)
		require.NoError(t, claiming.Rollback(ctx))
		require.Equal(t, 1, await(t, deleted))
		passTime(t, store.Pool(), "outmill", 6*time.Minute)
		require.Equal(t, []string{"next"}, namesOf(claimed(t, store, req)))
	})

	t.Run("records that are aside are deleted after their registration has ended", func(t *testing.T) {
		t.Parallel()
		store, ctx := pausing(t), t.Context()
		_, err := store.DropGroup(ctx, readers)
		require.NoError(t, err)
		require.NoError(t, store.RegisterGroup(ctx, outmill.Registration{Group: readers, TTL: time.Minute}))
		require.NoError(t, store.Append(ctx, &outmill.Record{Topic: "orders", TenantID: "acme"}))
		require.NoError(t, store.Pause(ctx, acme, "ann", ""))
		require.Empty(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone, "orders")))
		require.Equal(t, 1, valueOf[int](t, store.Pool(), "SELECT count(*) FROM outmill.records WHERE stage = 1"))
		passTime(t, store.Pool(), "outmill", time.Hour)
		registrations, records, err := store.ExpireRegistrations(ctx, 10)
		require.NoError(t, err)
		require.Equal(t, []int{1, 1}, []int{registrations, records})
		require.Zero(t, valueOf[int](t, store.Pool(), "SELECT count(*) FROM outmill.records"))
	})

	t.Run("Park reaches the records of its key that are aside, and Requeue brings them back", func(t *testing.T) {
		t.Parallel()
		store, ctx := pausing(t), t.Context()
		require.NoError(t, store.Append(ctx, &outmill.Record{Topic: "orders", Key: "k", MessageID: "head"},
			&outmill.Record{Topic: "orders", Key: "k", TenantID: "acme", MessageID: "aside"}))
		require.NoError(t, store.Pause(ctx, acme, "ann", ""))
		found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone, "orders"))
		require.Equal(t, []string{"head"}, namesOf(found))
		require.Equal(t, 1, valueOf[int](t, store.Pool(), "SELECT count(*) FROM outmill.records WHERE stage = 1"))
		require.NoError(t, store.Fail(ctx, []outmill.Settlement{{Lease: found[0].Lease(), Err: "no", Park: true}}))
		require.Equal(t, 2, valueOf[int](t, store.Pool(), "SELECT count(*) FROM outmill.records WHERE stage = 6 AND under = ''"))
		_, err := store.Resume(ctx, acme)
		require.NoError(t, err)
		_, err = store.Requeue(ctx, found[0].ID)
		require.NoError(t, err)
		require.Equal(t, []string{"head", "aside"}, namesOf(claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "orders"))))
	})

	t.Run("a whole topic that is paused stays in the log", func(t *testing.T) {
		t.Parallel()
		store, ctx := pausing(t), t.Context()
		require.NoError(t, store.Append(ctx, made("orders", "m", 5)...))
		require.NoError(t, store.Pause(ctx, roles.PauseScope{Topic: "orders"}, "ann", ""))
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
			require.Empty(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, order, "orders")))
		}
		require.Equal(t, 5, valueOf[int](t, store.Pool(), "SELECT count(*) FROM outmill.log"))
		require.Zero(t, valueOf[int](t, store.Pool(), "SELECT count(*) FROM outmill.records"))
		_, err := store.Resume(ctx, roles.PauseScope{Topic: "orders"})
		require.NoError(t, err)
		require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "orders")), 5)
	})
}
