package sqlserver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
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
		for _, column := range []string{"correlation_id", "causation_id", "traceparent", "tracestate", "dedup_key", "metadata"} {
			require.Equal(t, 3, count(table, column+` IS NULL`), column)
		}
		require.Equal(t, 4, count(table, `last_error IS NULL`))
	})
}
