package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest"
)

// brief ends at once.
func brief(group, topic string) outmill.Registration {
	return outmill.Registration{Group: group, TTL: time.Microsecond, Topics: outmill.Topics{Include: []string{topic}}}
}

func lasting(group, topic string) outmill.Registration {
	reg := brief(group, topic)
	reg.TTL = time.Hour
	return reg
}

// expiry ends registrations with the gated store, and returns the number of deleted records.
func (r *ring) expiry() <-chan result[int] {
	return async(func() (int, error) {
		_, records, err := r.gated.ExpireRegistrations(r.t.Context(), 100)
		return records, err
	})
}

func TestStore_RacesRegistrations(t *testing.T) {
	t.Parallel()

	t.Run("waiting records are not given to a group whose registration for them ends at the same time", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			_, err := r.store.DropGroup(t.Context(), readers)
			require.NoError(t, err)
			r.append("key", "one")
			require.NoError(t, r.store.RegisterGroup(t.Context(), lasting("first", "something else")))

			adoption := r.gates.before(t, "SET grp = ", 1)
			register := async(func() (int, error) { return 0, r.gated.RegisterGroup(t.Context(), brief("first", "orders")) })
			adoption.wait(t)
			registrations, _, err := r.store.ExpireRegistrations(t.Context(), 100)
			require.NoError(t, err)
			require.Equal(t, 1, registrations)
			adoption.open()
			await(t, register)

			require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
			require.Equal(t, []string{"one"}, namesOf(r.claim(outmill.NewOwnerToken(), 1)))
		})
	})

	t.Run("a registration that is renewed before the janitor removes it stays", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			require.NoError(t, r.store.RegisterGroup(t.Context(), brief("replies", "orders")))
			r.append("key", "one")
			removal := r.gates.before(t, `DELETE FROM "`+r.schema+`"."groups"`, 1)
			expiry := r.expiry()
			removal.wait(t)
			require.NoError(t, r.store.RegisterGroup(t.Context(), lasting("replies", "orders")))
			removal.open()
			require.Zero(t, await(t, expiry))
			groups, err := r.store.Groups(t.Context())
			require.NoError(t, err)
			require.Len(t, groups, 2)
		})
	})

	t.Run("a registration waits for a janitor that deletes earlier records", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			_, err := r.store.DropGroup(t.Context(), readers)
			require.NoError(t, err)
			require.NoError(t, r.store.RegisterGroup(t.Context(), brief(readers, "orders")))
			r.append("key", "before")
			deletion := r.gates.before(t, `DELETE FROM "`+r.schema+`"."records"`, 1)
			expiry := r.expiry()
			deletion.wait(t)
			register := async(func() (int, error) { return 0, r.store.RegisterGroup(t.Context(), lasting(readers, "orders")) })
			r.blocked(1)
			deletion.open()
			require.Equal(t, 1, await(t, expiry))
			await(t, register)
			r.append("key", "after")
			require.Equal(t, []string{"after"}, namesOf(r.claim(outmill.NewOwnerToken(), 10)))
		})
	})

	t.Run("a record that is leased before the janitor deletes it stays with its owner", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			_, err := r.store.DropGroup(t.Context(), readers)
			require.NoError(t, err)
			require.NoError(t, r.store.RegisterGroup(t.Context(), brief(readers, "orders")))
			r.append("", "one", "two")
			deletion := r.gates.before(t, `DELETE FROM "`+r.schema+`"."records"`, 1)
			expiry := r.expiry()
			deletion.wait(t)
			leased := r.claim(outmill.NewOwnerToken(), 1)
			require.Len(t, leased, 1)
			deletion.open()
			require.Equal(t, 1, await(t, expiry))
			require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(leased)))
			left, err := r.store.List(t.Context(), outmill.ListQuery{})
			require.NoError(t, err)
			require.Empty(t, left)
		})
	})
}
