package sqlserver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlserver"
)

func TestStore_Null(t *testing.T) {
	t.Parallel()

	t.Run("a field that a record does not have is NULL (OBX-008)", func(t *testing.T) {
		t.Parallel()
		store, table := ensured(t, sqlserver.Config{})
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		full := made("orders", "full", 1)[0]
		full.CorrelationID, full.CausationID, full.TenantID, full.TraceParent, full.TraceState, full.DedupKey = "a", "b", "c", "d", "e", "f"
		full.Metadata = map[string]string{"g": "h"}
		require.NoError(t, store.Append(t.Context(), append(made("orders", "bare", 3), full)...))
		count := func(from, where string) int {
			return valueOf[int](t, store.DB(), `SELECT COUNT(*) FROM `+from+` WHERE `+where)
		}
		for _, column := range []string{"CorrelationId", "CausationId", "TenantId", "TraceParent", "TraceState", "DedupKey", "Metadata"} {
			require.Equal(t, 3, count(table, column+` IS NULL`), column)
		}
		for _, column := range []string{"LastError", "ProcessedBy"} {
			require.Equal(t, 4, count(table, column+` IS NULL`), column)
		}

		found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 2, outmill.OrderNone))
		require.Len(t, found, 2)
		require.Empty(t, found[0].CorrelationID)
		require.NoError(t, store.Abandon(t.Context(), []outmill.Settlement{{Lease: found[0].Lease()}, {Lease: found[1].Lease(), Err: "boom"}}))
		require.Equal(t, 1, count(table, `LastError IS NOT NULL`))

		alone, grouped := &roles.Join{ExpectedSteps: 1}, &roles.Join{ExpectedSteps: 1, GroupingKey: "customer"}
		require.NoError(t, store.StartJoin(t.Context(), alone))
		require.NoError(t, store.StartJoin(t.Context(), grouped))
		require.Equal(t, 1, count(table+"Join", `GroupingKey IS NULL`))
		require.Equal(t, 2, count(table+"Join", `Reason IS NULL AND Metadata IS NULL`))
		joins, err := store.ListJoins(t.Context(), roles.JoinQuery{GroupingKey: grouped.GroupingKey})
		require.NoError(t, err)
		require.Len(t, joins, 1)
		require.Equal(t, grouped.ID, joins[0].ID)
	})
}
