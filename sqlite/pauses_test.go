package sqlite_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/roles"
)

// paused fills the topic "orders" with records of the tenant "acme". A third of them has no key,
// a third has one of 1,000 keys, and a third has the key "hot". Behind them it has records of
// another tenant.
const paused = `
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1),
clock (now) AS (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000)
INSERT INTO outmill_records (id, grp, topic, key, stage, due_at, next_at, created_at, size, message_id, tenant_id, payload)
SELECT printf('00000000-0000-7000-8000-%012d', i), 'readers', 'orders',
	CASE i % 3 WHEN 0 THEN '' WHEN 1 THEN 'hot' ELSE 'k' || (i % 1000) END,
	0, now, now, now, 100, printf('m%d', i), iif(i > ?1 - 1000, 'others', 'acme'), zeroblob(50)
FROM n, clock`

func TestStore_PausedBacklog(t *testing.T) {
	t.Parallel()

	t.Run("20,000 paused records are set aside once, and then cost nothing", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			requireBoundedPause(t, 20_000, order)
		}
	})

	t.Run("so are a million", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "claims of SQLite with a million paused records")
		if underRace {
			t.Skip("skipped: filling the table takes minutes under -race; go test -run Paused ./sqlite runs it")
		}
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			requireBoundedPause(t, 1_000_000, order)
		}
	})
}

func requireBoundedPause(t *testing.T, n int, order outmill.Order) {
	t.Helper()
	const limit = 100
	store := newStore(t)
	store.DB().SetMaxOpenConns(1)
	_, err := store.DB().ExecContext(t.Context(), paused, n)
	require.NoError(t, err)
	scope := roles.PauseScope{TenantID: "acme"}
	require.NoError(t, store.Pause(t.Context(), scope, "ann", ""))

	// A claim sets aside a thousand records or so in a transaction, until it finds some of the
	// other tenant.
	req := claimRequest(outmill.NewOwnerToken(), limit, order)
	req.Lease = time.Hour
	begin := time.Now()
	first := claim(t, store, req)
	t.Logf("%d records, order %s: the first claim took %s", n, order, time.Since(begin))
	require.NotEmpty(t, first)
	isAside := number(t, store.DB(), `SELECT count(*) FROM outmill_records WHERE stage IN (-1, 1)`)
	require.Greater(t, isAside, n-3000)

	// The records of the other tenant are taken, or are behind paused ones of their keys.
	for len(claim(t, store, req)) > 0 {
	}
	for range 3 {
		require.Zero(t, changes(t, store, func() { require.Empty(t, claim(t, store, req)) }), "rows changed by a claim under the pause")
	}
	require.NoError(t, store.Append(t.Context(), rec("free", "free")))
	changed := changes(t, store, func() { require.Len(t, claim(t, store, req), 1) })
	require.LessOrEqual(t, changed, 10, "rows changed by a claim for a record that is not paused")

	changed = changes(t, store, func() {
		ended, err := store.Resume(t.Context(), scope)
		require.NoError(t, err)
		require.True(t, ended)
	})
	require.LessOrEqual(t, changed, 2, "rows changed by Resume")
	begin = time.Now()
	for range 5 {
		changed := changes(t, store, func() { require.Len(t, claim(t, store, req), limit) })
		require.LessOrEqual(t, changed, 6000, "rows changed by a claim that brings records back")
	}
	t.Logf("%d records, order %s: a claim after Resume took %s", n, order, time.Since(begin)/5)
}
