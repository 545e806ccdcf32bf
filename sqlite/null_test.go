package sqlite_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func TestStore_Null(t *testing.T) {
	t.Parallel()

	t.Run("a field that a record does not have is NULL for SQL (OBX-008)", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		for _, n := range []int{1, 10, 100} {
			records := make([]*outmill.Record, n)
			for i := range records {
				records[i] = rec(fmt.Sprint("bare-", n, "-", i), "")
			}
			appendAll(t, store, records...)
		}
		full := rec("full", "")
		full.CorrelationID, full.CausationID, full.TenantID, full.TraceParent, full.TraceState, full.DedupKey = "a", "b", "c", "d", "e", "f"
		full.Metadata = map[string]string{"g": "h"}
		appendAll(t, store, full)
		for _, column := range []string{"correlation_id", "causation_id", "tenant_id", "traceparent", "tracestate", "dedup_key", "metadata"} {
			require.Equal(t, 111, number(t, store.DB(), `SELECT count(*) FROM outmill_records WHERE `+column+` IS NULL`), column)
		}
		for _, column := range []string{"last_error", "processed_by"} {
			require.Equal(t, 112, number(t, store.DB(), `SELECT count(*) FROM outmill_records WHERE `+column+` IS NULL`), column)
		}

		found := claim(t, store, claimRequest(outmill.NewOwnerToken(), 2, outmill.OrderNone))
		require.Empty(t, found[0].CorrelationID)
		require.NoError(t, store.Abandon(t.Context(), []outmill.Settlement{{Lease: found[0].Lease()}, {Lease: found[1].Lease(), Err: " "}}))
		require.Equal(t, 1, number(t, store.DB(), `SELECT count(*) FROM outmill_records WHERE last_error IS NOT NULL`))

		bare, grouped := &roles.Join{ExpectedSteps: 1}, &roles.Join{ExpectedSteps: 1, GroupingKey: "customer"}
		require.NoError(t, store.StartJoin(t.Context(), bare))
		require.NoError(t, store.StartJoin(t.Context(), grouped))
		require.Equal(t, 1, number(t, store.DB(), `SELECT count(*) FROM outmill_joins WHERE grouping_key IS NULL`))
		require.Equal(t, 2, number(t, store.DB(), `SELECT count(*) FROM outmill_joins WHERE reason IS NULL AND metadata IS NULL`))
		joins, err := store.ListJoins(t.Context(), roles.JoinQuery{GroupingKey: grouped.GroupingKey})
		require.NoError(t, err)
		require.Len(t, joins, 1)
		require.Equal(t, grouped.ID, joins[0].ID)
	})
}
