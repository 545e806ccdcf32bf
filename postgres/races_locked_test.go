package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest"
)

// An operator's call may lock a record that another operator has just requeued: an Edit that has
// to find out that the record is no longer dead, for example.
func TestStore_RequeuedAndLocked(t *testing.T) {
	t.Parallel()
	for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic} {
		t.Run(fmt.Sprintf("a requeued record that another session has locked holds its key in claims by %s", order),
			func(t *testing.T) {
				t.Parallel()
				r := newRing(t, storetest.Options{})
				r.append("key", "one", "two", "three")
				owner := outmill.NewOwnerToken()
				head := r.claim(owner, 1)
				require.Equal(t, []string{"one"}, namesOf(head))
				require.Empty(t, r.claim(outmill.NewOwnerToken(), 10), "the claim holds the later ones")
				require.NoError(t, r.store.Fail(t.Context(), []outmill.Settlement{{Lease: head[0].Lease(), Err: "no", Park: true}}))
				requeued, err := r.store.Requeue(t.Context(), head[0].ID)
				require.NoError(t, err)
				require.Equal(t, 3, requeued)

				editing := r.begin()
				r.execIn(editing, `SELECT 1 FROM {records} WHERE message_id = 'one' FOR UPDATE`)
				require.Empty(t, claimed(t, r.store, claimOf(owner, 10, order, "orders")))
				require.NoError(t, editing.Rollback(t.Context()))
				require.Equal(t, []string{"one", "two", "three"}, namesOf(claimed(t, r.store, claimOf(owner, 10, order, "orders"))))
			})
	}
}

const sqlWaits = `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`

// A claim locks records of a key in the order of their places, and Fail those behind its record in
// another one. If they waited for each other, PostgreSQL would end one of them after a second.
func TestStore_ParksWithoutLocked(t *testing.T) {
	t.Parallel()
	t.Run("Fail does not wait for a later record of its key that a claim has locked, and a claim parks it then",
		func(t *testing.T) {
			t.Parallel()
			r := newRing(t, storetest.Options{})
			r.append("key", "one", "two", "three")
			owner, later := outmill.NewOwnerToken(), outmill.NewOwnerToken()
			head := r.claim(owner, 1)
			require.Equal(t, []string{"one"}, namesOf(head))
			require.Empty(t, r.claim(later, 10), "the claim holds the later ones")

			claiming := r.begin()
			r.execIn(claiming, `SELECT 1 FROM {records} WHERE message_id = 'three' FOR UPDATE`)
			failed := async(func() (int, error) {
				return 0, r.store.Fail(context.WithoutCancel(t.Context()), []outmill.Settlement{{Lease: head[0].Lease(), Err: "no", Park: true}})
			})
			require.Eventually(t, func() bool { return len(failed) > 0 || valueOf[bool](t, r.db, sqlWaits) }, patience, 5*time.Millisecond)
			require.Len(t, failed, 1, "Fail waits for the claim")
			await(t, failed)
			require.NoError(t, claiming.Rollback(t.Context()))
			req := claimOf(later, 10, outmill.OrderKey, "orders")
			req.KeyPolicy = outmill.KeyPark
			require.Empty(t, claimed(t, r.store, req))
			require.Equal(t, 3, valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {records} WHERE parked`)))
		})
}
