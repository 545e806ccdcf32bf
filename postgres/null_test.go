package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
)

// A tenant is ” where there is none, because it is part of an index.
func TestStore_Null(t *testing.T) {
	t.Parallel()

	t.Run("a field that a record does not have is NULL for SQL (OBX-008)", func(t *testing.T) {
		t.Parallel()
		for table, delay := range map[string]time.Duration{"outmill.log": 0, "outmill.records": time.Microsecond} {
			t.Run(table, func(t *testing.T) {
				t.Parallel()
				db := readyPool(t, postgres.Config{})
				store := newStore(t, db, postgres.Config{NotifyInterval: -1})
				require.NoError(t, store.Ensure(t.Context()))
				require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
				bare := 0
				some := func(name string, n int) []*outmill.Record {
					records := made("orders", name, n)
					for _, r := range records {
						r.Delay = delay
					}
					bare += n
					return records
				}
				for _, n := range []int{1, 10, 100} {
					require.NoError(t, store.Append(t.Context(), some("bare", n)...))
				}
				once := some("once", 2)
				once[0].DedupKey = "once"
				require.NoError(t, store.Append(t.Context(), once...))
				std := stdlib.OpenDBFromPool(db)
				defer std.Close()
				tx, err := std.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				require.NoError(t, store.Append(store.WithTx(t.Context(), tx), some("bare", 100)...))
				require.NoError(t, tx.Commit())
				want := bare
				full := some("full", 101)
				for i, r := range full {
					r.CorrelationID, r.CausationID, r.TenantID, r.TraceParent, r.TraceState = "a", "b", "c", "d", "e"
					r.Metadata = map[string]string{"g": "h"}
					if i == 0 {
						require.NoError(t, store.Append(t.Context(), r))
					}
				}
				require.NoError(t, store.Append(t.Context(), full[1:]...))

				count := func(from, where string) int {
					return valueOf[int](t, db, `SELECT count(*) FROM `+from+` WHERE `+where)
				}
				for _, column := range []string{"correlation_id", "causation_id", "traceparent", "tracestate"} {
					require.Equal(t, want, count(table, column+` IS NULL`), column)
				}
				require.Equal(t, want, count(table, `nullif(tenant_id, '') IS NULL`))
				require.Equal(t, bare-1, count(table, `dedup_key IS NULL`))
				require.Zero(t, count(table, `metadata::text IN ('{}', 'null')`))

				found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 2, outmill.OrderNone))
				require.Len(t, found, 2)
				require.Empty(t, found[0].CorrelationID)
				require.NoError(t, store.Abandon(t.Context(), []outmill.Settlement{{Lease: found[0].Lease()}}))
				require.NoError(t, store.Abandon(t.Context(), []outmill.Settlement{{Lease: found[1].Lease(), Err: " "}}))
				require.Equal(t, 1, count("outmill.records", `last_error = ' '`), "what moves from the log, too")
				require.Zero(t, count("outmill.records", `correlation_id = '' OR dedup_key = ''`))
			})
		}
	})
}
