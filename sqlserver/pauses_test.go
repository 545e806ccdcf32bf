package sqlserver_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlserver"
)

// The section "pause" of the contract has the behaviour. These tests are about the tables.

func ofTenant(key, name, tenant string) *outmill.Record {
	r := keyed(key, name)
	r.TenantID = tenant
	return r
}

func namesOf(records []*outmill.Record) []string {
	names := make([]string, len(records))
	for i, r := range records {
		names[i] = r.MessageID
	}
	return names
}

func TestStore_Pause(t *testing.T) {
	t.Parallel()
	acme := roles.PauseScope{TenantID: "acme"}
	registered := func(t *testing.T) (*sqlserver.Store, string) {
		t.Helper()
		store, table := ensured(t, sqlserver.Config{})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		return store, table
	}

	t.Run("a record that was set aside for a pause that had just ended comes back", func(t *testing.T) {
		t.Parallel()
		// A claim that has read the pauses before Resume may commit after it.
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
			store, table := registered(t)
			require.NoError(t, store.Append(t.Context(), keyed("", "first"), keyed("k", "second"), keyed("k", "third")))
			require.NoError(t, store.Pause(t.Context(), acme, "ann", ""))
			require.NoError(t, store.Pause(t.Context(), roles.PauseScope{TenantID: "others"}, "ann", ""))
			ended, err := store.Resume(t.Context(), acme)
			require.NoError(t, err)
			require.True(t, ended)
			execute(t, store.DB(), "UPDATE "+table+" SET Stage = -1, PausedBy = 1")
			require.Equal(t, []string{"first", "second", "third"}, namesOf(claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, order))), order)
			require.Zero(t, valueOf[int](t, store.DB(), "SELECT COUNT(*) FROM "+table+" WHERE PausedBy IS NOT NULL"))
		}
	})

	t.Run("a key that was held for a pause that had just ended comes back", func(t *testing.T) {
		t.Parallel()
		store, table := registered(t)
		require.NoError(t, store.Append(t.Context(), keyed("k", "first"), keyed("k", "second")))
		execute(t, store.DB(), "UPDATE "+table+" SET Stage = 1")
		execute(t, store.DB(), "INSERT INTO "+table+"Lane (GroupName, Topic, [Key], BlockedBy, Looks, Head, PausedBy) "+
			"SELECT GroupName, Topic, [Key], 'paused', 0, MIN(Seq), 7 FROM "+table+" GROUP BY GroupName, Topic, [Key]")
		require.Equal(t, []string{"first", "second"}, namesOf(claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey))))
	})

	t.Run("readers that change to an order get each key in its order", func(t *testing.T) {
		t.Parallel()
		store, table := registered(t)
		const n = 1000 // more than a claim brings back
		records := make([]*outmill.Record, n)
		for i := range records {
			records[i] = ofTenant("k", fmt.Sprint(i), "acme")
		}
		require.NoError(t, store.Append(t.Context(), records...))
		require.NoError(t, store.Pause(t.Context(), acme, "ann", ""))
		require.Empty(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone)))
		require.Equal(t, n, valueOf[int](t, store.DB(), "SELECT COUNT(*) FROM "+table+" WHERE Stage = -1 AND PausedBy IS NOT NULL"))
		require.NoError(t, store.Append(t.Context(), ofTenant("k", "last", "others")))
		require.Empty(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)), "the paused ones precede it")
		_, err := store.Resume(t.Context(), acme)
		require.NoError(t, err)
		all := claimed(t, store, claimOf(outmill.NewOwnerToken(), n+1, outmill.OrderKey))
		for len(all) < n+1 {
			more := claimed(t, store, claimOf(all[0].Owner, n+1, outmill.OrderKey))
			require.NotEmpty(t, more)
			all = append(all, more...)
		}
		require.Equal(t, append(namesOf(records), "last"), namesOf(all))
	})

	t.Run("a paused record behind a held one does not block its key", func(t *testing.T) {
		t.Parallel()
		store, table := registered(t)
		require.NoError(t, store.Append(t.Context(), ofTenant("k", "first", "others"), ofTenant("k", "second", "others")))
		holder, other := outmill.NewOwnerToken(), outmill.NewOwnerToken()
		first := claimed(t, store, claimOf(holder, 1, outmill.OrderKey))
		require.Equal(t, []string{"first"}, namesOf(first))
		require.Empty(t, claimed(t, store, claimOf(other, 10, outmill.OrderKey)))
		require.NoError(t, store.Pause(t.Context(), acme, "ann", ""))
		require.NoError(t, store.Append(t.Context(), ofTenant("k", "third", "acme")))
		require.Empty(t, claimed(t, store, claimOf(other, 10, outmill.OrderKey)))
		require.Equal(t, 2, valueOf[int](t, store.DB(), "SELECT COUNT(*) FROM "+table+" WHERE Stage = 1"))
		// If the ack of the first record did not get the row of the lane, no one else would open it.
		require.Zero(t, valueOf[int](t, store.DB(), "SELECT COUNT(*) FROM "+table+"Lane WHERE PausedBy IS NOT NULL"))
		require.NoError(t, store.Ack(t.Context(), "", leasesOf(first)))
		require.Equal(t, []string{"second"}, namesOf(claimed(t, store, claimOf(other, 10, outmill.OrderKey))))
		require.Equal(t, 1, valueOf[int](t, store.DB(), "SELECT COUNT(*) FROM "+table+"Lane WHERE PausedBy IS NOT NULL"))
	})

	t.Run("blanks behind the name of a tenant make it another tenant", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			store, _ := registered(t)
			require.NoError(t, store.Append(t.Context(), ofTenant("a", "of acme", "acme"), ofTenant("b", "of another", "acme ")))
			require.NoError(t, store.Pause(t.Context(), roles.PauseScope{TenantID: "acme "}, "ann", ""))
			ended, err := store.Resume(t.Context(), acme)
			require.NoError(t, err)
			require.False(t, ended)
			require.Equal(t, []string{"of acme"}, namesOf(claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, order))), order)
			require.NoError(t, store.Pause(t.Context(), acme, "ann", ""))
			paused, err := store.Paused(t.Context())
			require.NoError(t, err)
			require.Len(t, paused, 2)
		}
	})
}
