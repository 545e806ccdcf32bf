package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
)

// sqlPausedBacklog makes $1 records of the paused tenant acme that claims have set aside for the
// pause $2, as many that are held, each with a paused key of its own, and as many of another
// tenant that are ready and have a key.
const sqlPausedBacklog = `INSERT INTO outmill.records (id, grp, topic, key, stage, paused_by, due_at, next_at, created_at, size, message_id,
	tenant_id, payload)
SELECT gen_random_uuid(), 'readers', CASE WHEN s.stage = 1 THEN 'many' ELSE 'orders' END, CASE WHEN s.stage < 0 THEN '' ELSE 'k' || g END,
	s.stage, CASE WHEN s.stage < 0 THEN $2::bigint END, now(), now(), now(), 100, 'm' || g,
	CASE WHEN s.stage = 0 THEN 'other' ELSE 'acme' END, '\x00'
FROM generate_series(1, $1::integer) AS g, unnest(ARRAY[-1, 0, 1]) AS s (stage)`

const sqlPausedLanes = `INSERT INTO outmill.lanes (grp, topic, key, blocked_by, until, looks, head, paused_by)
SELECT grp, topic, key, 'paused', NULL, 7, seq, $1 FROM outmill.records WHERE stage = 1`

func TestStore_PausePlan(t *testing.T) {
	t.Parallel()

	t.Run("claims read no more than they need when many records are paused", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "plans with many paused records")
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			t.Run(mode, func(t *testing.T) {
				requirePausePlans(t, mode, rows()/25)
			})
		}
	})
}

func requirePausePlans(t *testing.T, mode string, n int) {
	t.Helper()
	url := postgrestest.Database(t)
	e := explainedAs(t, url, mode, postgres.Config{NotifyInterval: -1, Lane: postgres.LaneRows})
	e.t = t
	ctx, store, admin := t.Context(), e.store, connect(t, url)
	require.NoError(t, store.Ensure(ctx))
	execute(t, admin, "ALTER TABLE outmill.records SET (autovacuum_enabled = false)")
	execute(t, admin, "ALTER TABLE outmill.lanes SET (autovacuum_enabled = false)")
	acme := roles.PauseScope{TenantID: "acme"}
	require.NoError(t, store.RegisterGroup(ctx, outmill.Registration{Group: readers}))
	require.NoError(t, store.Pause(ctx, acme, "ann", ""))
	number := valueOf[int64](t, admin, "SELECT number FROM outmill.pauses")
	execute(t, admin, sqlPausedBacklog, n, number)
	execute(t, admin, sqlPausedLanes, number)

	// A transaction brings back 1,000 records. Their entries in the indexes of what is aside stay
	// until a later search has met them, so a search may read those of three transactions.
	const limit, most = 100, 3000
	known := map[string]bool{}
	e.tell = func(call string, _ int, found []plan) {
		for _, p := range found {
			p.Plan.each(func(n node) {
				id := p.Text + n.Type + n.Index + n.Cond
				if fault := faultOf(n, most); fault != "" && !known[id] {
					known[id] = true
					t.Errorf("%s: a node %s:\n%s\nof\n%s", call, fault, n, p.Text)
				}
			})
		}
	}
	claimAll := func(when string) {
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			for _, topics := range [][]string{{"orders"}, {"many"}, {"orders", "many", "x*"}} {
				found := e.claim(when, claimOf(outmill.NewOwnerToken(), limit, order, topics...))
				require.NoError(t, store.Release(ctx, leasesOf(found)))
			}
		}
	}
	e.call("claim by key", limit, func() error {
		found, err := store.Claim(ctx, claimOf(outmill.NewOwnerToken(), limit, outmill.OrderKey, "orders"))
		require.Len(t, found, limit)
		return err
	})
	claimAll("paused")
	e.call("stats", limit, func() error { _, err := store.Stats(ctx, 10); return err })
	_, err := store.Resume(ctx, acme)
	require.NoError(t, err)
	claimAll("resumed")
	require.Less(t, valueOf[int](t, admin, "SELECT count(*) FROM outmill.records WHERE stage = -1"), n-999, "records come back")
	require.Less(t, valueOf[int](t, admin, "SELECT count(*) FROM outmill.lanes WHERE paused_by IS NOT NULL"), n-999, "keys are free")
}
