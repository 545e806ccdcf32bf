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

func TestStore_RacesRegistrations(t *testing.T) {
	t.Parallel()

	// The gate stops a registration before it gives a delayed record, which is in the table of records, to its group. Rows of the log are
	// the group's by the registration itself.
	adopting := func(t *testing.T, reg outmill.Registration) (r *ring, open func()) {
		r = newRing(t, storetest.Options{})
		_, err := r.store.DropGroup(t.Context(), readers)
		require.NoError(t, err)
		r.appendAs(time.Microsecond, "key", "one")
		adoption := r.gates.beforeStatement(t, "adopt", 1)
		register := async(func() (int, error) { return 0, r.gated.RegisterGroup(t.Context(), reg) })
		adoption.wait(t)
		return r, func() {
			adoption.open()
			// It fails if its group is gone.
			<-register
		}
	}

	t.Run("a waiting record is read once although the registration that takes it ends at the same time", func(t *testing.T) {
		t.Parallel()
		r, open := adopting(t, brief("first", "orders"))
		expiry := async(func() (int, error) {
			_, records, err := r.store.ExpireRegistrations(t.Context(), 100)
			return records, err
		})
		r.doneOrBlocked(func() bool { return len(expiry) > 0 })
		open()
		deleted := await(t, expiry)
		require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		// A group that had the record loses it with its last registration, as always.
		require.Len(t, r.claim(outmill.NewOwnerToken(), 1), 1-deleted)
	})

	t.Run("waiting records are not given to a group that is being dropped", func(t *testing.T) {
		t.Parallel()
		r, open := adopting(t, outmill.Registration{Group: "first"})
		drop := async(func() (outmill.Dropped, error) { return r.store.DropGroup(t.Context(), "first") })
		r.doneOrBlocked(func() bool { return len(drop) > 0 })
		open()
		await(t, drop)
		require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		require.Equal(t, []string{"one"}, namesOf(r.claim(outmill.NewOwnerToken(), 1)))
	})
}
