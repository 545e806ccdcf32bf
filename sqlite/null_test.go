package sqlite_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestStore_Null(t *testing.T) {
	t.Parallel()

	t.Run("a text that a record does not have is NULL for SQL (OBX-008)", func(t *testing.T) {
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
		full.CorrelationID, full.CausationID, full.TraceParent, full.TraceState, full.DedupKey = "a", "b", "d", "e", "f"
		full.Metadata = map[string]string{"g": "h"}
		appendAll(t, store, full)
		for _, column := range []string{"correlation_id", "causation_id", "traceparent", "tracestate", "dedup_key", "metadata"} {
			require.Equal(t, 111, number(t, store.DB(), `SELECT count(*) FROM outmill_records WHERE `+column+` IS NULL`), column)
		}
		require.Equal(t, 112, number(t, store.DB(), `SELECT count(*) FROM outmill_records WHERE last_error IS NULL`))
	})
}
