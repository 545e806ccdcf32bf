package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
)

// readLines returns a store with a topic for each line, all of them read to their end. It also
// returns the topic of the last line.
func readLines(t *testing.T, lines int) (store *postgres.Store, last string) {
	t.Helper()
	store = logged(t)
	execute(t, store.Pool(), `INSERT INTO outmill.log (line, id, created_at, size, segment, grp, topic, key, message_id, payload)
SELECT outmill.line_of('readers', 't' || g), gen_random_uuid(), now(), 100, 0, 'readers', 't' || g, '', 'm' || g, '\x00'
FROM generate_series(1, $1::integer) AS g`, lines)
	execute(t, store.Pool(), `INSERT INTO outmill.batches (line, n, pos, seen, horizon, since, low, owner, token, open, steps, grp, topic,
		done, positions, keys)
SELECT line, 1, pos, s, pg_snapshot_xmax(s), '{-1}', 1, gen_random_uuid(), 1, 0, false, grp, topic, '', '{}', NULL
FROM outmill.log, CAST($1::text AS pg_snapshot) AS s`,
		valueOf[string](t, store.Pool(), `SELECT format('%1$s:%1$s:', pg_snapshot_xmax(pg_current_snapshot()))`))
	execute(t, store.Pool(), `ANALYZE outmill.log, outmill.batches`)
	return store, valueOf[string](t, store.Pool(), `SELECT topic FROM outmill.log ORDER BY line DESC LIMIT 1`)
}

// pollAll claims from all topics, and acks.
func pollAll(t *testing.T, store *postgres.Store) []string {
	t.Helper()
	found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey))
	require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
	return namesOf(found)
}

func TestStore_LogRound(t *testing.T) {
	t.Parallel()

	t.Run("polls of thousands of lines go over some each until they have seen all", func(t *testing.T) {
		t.Parallel()
		const lines, looks = 2*postgres.LinesOfLook + 100, 3
		store, last := readLines(t, lines)
		for range looks {
			require.False(t, store.AtRest(readers, outmill.Topics{}))
			require.Empty(t, pollAll(t, store))
		}
		require.True(t, store.AtRest(readers, outmill.Topics{}))
		require.NoError(t, store.Append(t.Context(), made(last, "x", 1)...))
		var found []string
		polls := 0
		for ; len(found) == 0; polls++ {
			require.Less(t, polls, looks)
			found = pollAll(t, store)
		}
		require.Equal(t, []string{"x-0"}, found)
		require.Greater(t, polls, 1)
	})

	t.Run("a poll of thousands of lines finds a topic at once after a notification", func(t *testing.T) {
		t.Parallel()
		store, last := readLines(t, 2*postgres.LinesOfLook)
		store.Wake(t.Context(), func(string) {})
		require.Empty(t, pollAll(t, store))
		for i := range 3 {
			name := fmt.Sprint("x", i)
			require.NoError(t, store.Append(t.Context(), made(last, name, 1)...))
			require.Equal(t, []string{name + "-0"}, pollAll(t, store))
		}
	})

	t.Run("a round over thousands of lines that left out a topic does not say that there is nothing", func(t *testing.T) {
		t.Parallel()
		store, _ := readLines(t, postgres.LinesOfLook)
		first := valueOf[string](t, store.Pool(), `SELECT topic FROM outmill.log ORDER BY line LIMIT 1`)
		require.NoError(t, store.Append(t.Context(), made(first, "x", 1)...))
		without := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)
		without.Topics.Exclude = []string{first}
		require.Empty(t, claimed(t, store, without))
		require.Empty(t, pollAll(t, store), "the end of the round")
		require.False(t, store.AtRest(readers, outmill.Topics{}))
		require.Equal(t, []string{"x-0"}, pollAll(t, store))
	})

	// The limit is 20 ms; a busy machine may take ten times as long.
	t.Run("a poll of a hundred thousand lines is quick", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "100,000 lines")
		store, last := readLines(t, 100_000)
		var took []time.Duration
		poll := func() []string {
			began := time.Now()
			found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey))
			took = append(took, time.Since(began))
			require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
			return namesOf(found)
		}
		for !store.AtRest(readers, outmill.Topics{}) {
			require.Empty(t, poll())
		}
		looks := len(took)
		slices.Sort(took)
		t.Logf("a poll took %s, and %s at most; a round %d polls", took[looks/2], took[looks-1], looks)
		require.Less(t, took[looks/2], 200*time.Millisecond)

		store.Wake(t.Context(), func(string) {})
		took = nil
		for i := range 20 {
			name := fmt.Sprint("x", i)
			require.NoError(t, store.Append(t.Context(), made(last, name, 1)...))
			if found := poll(); i > 0 { // the first poll has not been notified of it
				require.Contains(t, found, name+"-0")
			}
		}
		slices.Sort(took)
		t.Logf("a poll that finds what it has heard of took %s, and %s at most", took[10], took[19])
		require.Less(t, took[10], 200*time.Millisecond)
	})

	t.Run("rounds of selections that do not come again take no more memory", func(t *testing.T) {
		testenv.Long(t, "what many claims, batches and rounds cost")
		t.Parallel()
		store, last := readLines(t, postgres.LinesOfLook)
		require.NoError(t, store.Append(t.Context(), made(last+"x", "x", 1)...))
		for i := range 3 * postgres.MaxRests {
			req := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)
			req.Topics.Include = []string{"none.*", fmt.Sprint("none", i)}
			require.Empty(t, claimed(t, store, req))
			require.Empty(t, claimed(t, store, req), "the end of the round")
			require.LessOrEqual(t, store.RoundsKnown(), postgres.MaxRests)
		}
	})
}
