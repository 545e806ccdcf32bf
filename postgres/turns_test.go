package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storetest"
)

func (h harness) ReopenFair(topics ...string) outmill.Store {
	c := h.store
	if c.config.Lane == postgres.LaneLog {
		return nil
	}
	c.config.FairTopics = topics
	return reopen(h.t, c)
}

const byAppend = "the records of a tenant are served in the order of their appends"

// fairEngine has stores that serve turns in all topics.
func fairEngine(t *testing.T, atOnce int) storetest.Engine {
	t.Helper()
	whole := engine(t, pool(t), postgres.LaneRows)
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			h := whole.New(t, options).(harness)
			h.store = h.ReopenFair("*").(conforming)
			h.store.SetAtOnce(atOnce)
			return h
		},
		Unsupported: map[string]string{
			"claim: the oldest due of a topic is handed out first":                       byAppend,
			"claim: the oldest due of a topic is handed out first, however many are due": byAppend,
		},
	}
}

func TestConformanceInTurns_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "the contract with turns in all topics")
	storetest.Run(t, fairEngine(t, 0))
}

func TestStoreTurnsInSteps_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "walks in small steps with turns in all topics")
	storetest.WalkInSteps(t, fairEngine(t, 1))
}

func TestStore_Turns(t *testing.T) {
	t.Parallel()

	t.Run("a store that serves turns is refused on a schema whose log is on", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		logged := newStore(t, db, postgres.Config{Lane: postgres.LaneLog})
		require.NoError(t, logged.Ensure(t.Context()))
		store := newStore(t, db, postgres.Config{FairTopics: []string{"orders"}})
		require.ErrorIs(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", MessageID: "m1"}), outmill.ErrInvalidConfig)
		_, err := store.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "FairTopics")
		require.ErrorIs(t, store.RegisterGroup(t.Context(), outmill.Registration{}), outmill.ErrInvalidConfig)
	})

	t.Run("a store that serves turns makes a schema without a log", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, pool(t), postgres.Config{FairTopics: []string{"orders"}, EnsureSchema: true})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", MessageID: "m1"}))
		require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone)), 1)
	})

	t.Run("a claim finds tenants and records by indexes, in a new table and with a large backlog", func(t *testing.T) {
		t.Parallel()
		db := pool(t)
		store := newStore(t, db, postgres.Config{FairTopics: []string{"orders"}, EnsureSchema: true})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		requireTurnPlans(t, db, store)
		execute(t, db, `INSERT INTO outmill.records (id, grp, topic, key, stage, due_at, next_at, created_at, size, message_id, tenant_id,
				turn, payload)
			SELECT gen_random_uuid(), 'readers', 'orders', 'k' || i, 0, now(), now(), now(), 1, 'm' || i, 'big', '.big', ''
			FROM generate_series(1, 50000) AS i`)
		requireTurnPlans(t, db, store)
		execute(t, db, `ANALYZE outmill.records`)
		requireTurnPlans(t, db, store)
	})

	t.Run("a claim passes over tenants without room at a cost that does not grow with their records", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "what claims cost that pass over tenants")
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			requireBoundedRooms(t, order)
		}
	})
}

// requireBoundedRooms claims while most tenants have no room. One of them has many records.
func requireBoundedRooms(t *testing.T, order outmill.Order) {
	t.Helper()
	const full, most = 100, 150
	url := postgrestest.Database(t)
	admin := connect(t, url)
	e := explainedAs(t, url, "auto", postgres.Config{NotifyInterval: -1, FairTopics: []string{"orders"}, EnsureSchema: true})
	require.NoError(t, e.store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	execute(t, admin, `INSERT INTO outmill.records (id, grp, topic, key, stage, due_at, next_at, created_at, size, message_id, tenant_id,
			turn, payload)
		SELECT gen_random_uuid(), 'readers', 'orders', 'k' || i, 0, now(), now(), now(), 1, 'm' || i, tenant, '.' || tenant, ''
		FROM (SELECT i, CASE WHEN i <= 10000 THEN 'big' WHEN i % ($1 + 1) = 0 THEN 'room' ELSE 't' || i % ($1 + 1) END AS tenant
			FROM generate_series(1, 10000 + 10 * ($1 + 1)) AS i) AS r`, full)
	for _, want := range []int{1, 10} {
		req := claimOf(outmill.NewOwnerToken(), want, order)
		req.TenantRoom = func(_, _, tenant string) int {
			if tenant == "room" {
				return 4
			}
			return 0
		}
		for _, found := range []int{min(want, 4), 0} {
			plans := e.told.of(t, func() { require.Len(t, claimed(t, e.store, req), found) })
			require.Less(t, len(plans), 40, "statements of a claim of %d", want)
			for _, p := range plans {
				p.Plan.each(func(n node) {
					require.LessOrEqual(t, n.read(), most, "a claim of %d in order %s: rows that %s reads in\n%s", want, order, n, p.Text)
				})
			}
			req.TenantRoom = func(string, string, string) int { return 0 }
		}
	}
}

// requireTurnPlans checks that no statement of a claim in turn reads the table without an index.
func requireTurnPlans(t *testing.T, db *pgxpool.Pool, store *postgres.Store) {
	t.Helper()
	conn, err := db.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for text, arguments := range store.TurnStatements() {
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		for _, statement := range []string{
			`SET LOCAL plan_cache_mode = force_generic_plan`, `SET LOCAL enable_seqscan = off`, `SET LOCAL enable_bitmapscan = off`,
			`PREPARE turn AS ` + text,
		} {
			_, err = tx.Exec(t.Context(), statement)
			require.NoError(t, err)
		}
		lines, err := tx.Query(t.Context(), `EXPLAIN EXECUTE turn(`+strings.TrimSuffix(strings.Repeat("NULL, ", arguments), ", ")+`)`)
		require.NoError(t, err)
		plan, err := pgx.CollectRows(lines, pgx.RowTo[string])
		require.NoError(t, err)
		all := strings.Join(plan, "\n")
		require.NotContains(t, all, "Seq Scan on records", text)
		require.Regexp(t, `records_turns|turns on records|turn_key|line on records`, all, text)
		_, err = tx.Exec(t.Context(), `DEALLOCATE turn`)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}
