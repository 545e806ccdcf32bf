package driver_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// undone has the tables be as they were once, as on a primary that lacks the last commits of the one before.
func undone(t *testing.T, db *pgxpool.Pool, tables ...string) (undo func()) {
	t.Helper()
	for _, table := range tables {
		execute(t, db, "CREATE TABLE then_"+table+" AS SELECT * FROM outmill."+table)
	}
	return func() {
		for _, table := range tables {
			execute(t, db, "DELETE FROM outmill."+table)
			execute(t, db, "INSERT INTO outmill."+table+" SELECT * FROM then_"+table)
		}
	}
}

func TestFailover_ThatLosesCommits(t *testing.T) {
	t.Parallel()

	t.Run("a publisher that knew a lost registration publishes for the groups of the new primary", func(t *testing.T) {
		t.Parallel()
		_, s := ready(t)
		process := func() opened { return storeOn(t, s.db) }
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "first"}))
		undo := undone(t, s.db, "meta", "entries", "readings", "events")
		publisher := process()
		require.NoError(t, process().RegisterGroup(t.Context(), outmill.Registration{Group: "lost"}))
		require.NoError(t, publisher.Append(t.Context(), made("orders", "k", 1)...))
		undo()
		require.NoError(t, process().RegisterGroup(t.Context(), outmill.Registration{Group: "new"}))
		plain, delayed := made("orders", "k", 1)[0], made("orders", "k", 1)[0]
		delayed.Delay = time.Microsecond
		require.NoError(t, publisher.Append(t.Context(), plain))
		require.NoError(t, publisher.Append(t.Context(), delayed))
		got := map[string]bool{}
		require.Eventually(t, func() bool {
			found, err := s.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "new", Limit: 10, Lease: time.Hour})
			require.NoError(t, err)
			for _, r := range found {
				got[r.MessageID] = true
			}
			return got[plain.MessageID] && got[delayed.MessageID]
		}, time.Minute, time.Millisecond)
	})

	t.Run("a worker that knew a lost pause heeds the pauses of the new primary", func(t *testing.T) {
		t.Parallel()
		_, s := ready(t)
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
		undo := undone(t, s.db, "meta", "entries")
		require.NoError(t, s.Pause(t.Context(), roles.PauseScope{Topic: "lost"}, "ann", ""))
		claim := func() []*outmill.Record {
			found, err := s.Claim(t.Context(), outmill.ClaimRequest{
				Owner: outmill.NewOwnerToken(), Group: "readers", Limit: 10, Lease: time.Hour, Order: outmill.OrderKey,
			})
			require.NoError(t, err)
			return found
		}
		require.Empty(t, claim())
		undo()
		require.NoError(t, storeOn(t, s.db).Pause(t.Context(), roles.PauseScope{Topic: "orders"}, "ann", ""))
		require.NoError(t, s.Append(t.Context(), made("orders", "k", 1)...))
		require.NoError(t, s.Append(t.Context(), made("lost", "k", 1)...))
		found := claim()
		require.Len(t, found, 1)
		require.Equal(t, "lost", found[0].Topic)
	})
}
