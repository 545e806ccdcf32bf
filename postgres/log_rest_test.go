package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/storetest"
)

// hundreds selects so many topics that a poll searches all of them, "orders" among them.
func hundreds() outmill.Topics {
	names := []string{"orders"}
	for i := range 300 {
		names = append(names, fmt.Sprint("topic ", i))
	}
	return outmill.Topics{Include: names}
}

// look claims from hundreds of topics.
func (r *tape) look() []string {
	r.t.Helper()
	req := claimOf(r.owner, 10, outmill.OrderNone)
	req.Topics = hundreds()
	return namesOf(claimed(r.t, r.store, req))
}

func (r *tape) atRest() bool { return r.store.AtRest(readers, hundreds()) }

func newRestingTape(t *testing.T) *tape {
	t.Helper()
	r := newTape(t, tapePool(t), storetest.Options{})
	require.Empty(t, r.look())
	require.True(t, r.atRest())
	return r
}

func TestStore_LogRest(t *testing.T) {
	t.Parallel()

	t.Run("a poll of many topics finds records appended while the log is at rest", func(t *testing.T) {
		t.Parallel()
		r := newRestingTape(t)
		for i := range 5 {
			name := fmt.Sprint("m", i)
			r.append("", name)
			require.Equal(t, []string{name}, r.look())
			require.Empty(t, r.look())
			require.True(t, r.atRest())
			require.Empty(t, r.look())
		}
	})

	t.Run("the log is not at rest while a transaction writes to it", func(t *testing.T) {
		t.Parallel()

		t.Run("that has inserted", func(t *testing.T) {
			t.Parallel()
			r := newRestingTape(t)
			tx := r.begin()
			r.in(tx, "", "open")
			require.Empty(t, r.look())
			require.False(t, r.atRest())
			r.commit(tx)
			require.Equal(t, []string{"open"}, r.look())
		})
		t.Run("that is prepared", func(t *testing.T) {
			t.Parallel()
			r := newTape(t, connect(t, postgrestest.DatabaseOn(t, postgrestest.Own(t, "max_prepared_transactions=5").URL)), storetest.Options{})
			tx := r.begin()
			r.in(tx, "", "prepared")
			_, err := tx.Exec(t.Context(), `PREPARE TRANSACTION 'writer'`)
			require.NoError(t, err)
			require.NoError(t, tx.Rollback(t.Context()))
			require.Empty(t, r.look())
			require.False(t, r.atRest())
			_, err = r.db.Exec(t.Context(), `COMMIT PREPARED 'writer'`)
			require.NoError(t, err)
			require.Equal(t, []string{"prepared"}, r.look())
		})
	})

	t.Run("a poll of many topics finds leases that end while the log is at rest", func(t *testing.T) {
		t.Parallel()
		r := newRestingTape(t)
		r.append("", "lost")
		req := claimOf(r.owner, 1, outmill.OrderNone, "orders")
		req.Lease = 300 * time.Millisecond
		require.Equal(t, []string{"lost"}, namesOf(claimed(t, r.store, req)))
		require.Empty(t, r.look())
		require.True(t, r.atRest())
		require.Eventually(t, func() bool {
			found := r.look()
			return len(found) == 1 && found[0] == "lost"
		}, time.Minute, 10*time.Millisecond)
	})

	// After a crash the server restarts its processes by itself, and its start time stays the
	// same.
	t.Run("a poll of many topics finds records whose claim a crash has undone", func(t *testing.T) {
		t.Parallel()
		r := newRestingTape(t)
		r.append("", "claimed")
		require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(claimed(t, r.store, claimOf(r.owner, 1, outmill.OrderNone, "orders")))))
		require.Empty(t, r.look())
		require.True(t, r.atRest())
		for _, table := range []string{"batches", "ended"} {
			_, err := r.db.Exec(t.Context(), r.sql(`DELETE FROM {`+table+`}`))
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool { return len(r.look()) == 1 }, time.Minute, 10*time.Millisecond)
	})
}
