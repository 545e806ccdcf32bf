package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
)

func TestStore_Null(t *testing.T) {
	t.Parallel()

	t.Run("a field that a record does not have is NULL for SQL (OBX-008)", func(t *testing.T) {
		t.Parallel()
		for _, lane := range bothLanes {
			t.Run(string(lane), func(t *testing.T) {
				t.Parallel()
				db := readyPool(t, postgres.Config{Lane: lane})
				store := newStore(t, db, postgres.Config{Lane: lane, NotifyInterval: -1})
				require.NoError(t, store.Ensure(t.Context()))
				require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
				table := map[postgres.Lane]string{postgres.LaneRows: "outmill.records", postgres.LaneLog: "outmill.log"}[lane]
				bare := 0
				appendBare := func(n int) {
					require.NoError(t, store.Append(t.Context(), made("orders", "bare", n)...))
					bare += n
				}
				appendBare(1)   // INSERT of a row
				appendBare(10)  // of lists
				appendBare(100) // COPY
				once := append(made("orders", "once", 1), made("orders", "bare", 1)...)
				once[0].DedupKey = "once"
				require.NoError(t, store.Append(t.Context(), once...))
				std := stdlib.OpenDBFromPool(db)
				defer std.Close()
				tx, err := std.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				require.NoError(t, store.Append(store.WithTx(t.Context(), tx), made("orders", "bare", 100)...))
				require.NoError(t, tx.Commit())
				bare += 102
				full := made("orders", "full", 101)
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
				for _, column := range []string{"correlation_id", "causation_id", "tenant_id", "traceparent", "tracestate", "metadata"} {
					require.Equal(t, bare, count(table, column+` IS NULL`), column)
				}
				require.Equal(t, bare+100, count(table, `dedup_key IS NULL`))

				found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 2, outmill.OrderNone))
				require.Len(t, found, 2)
				require.Empty(t, found[0].CorrelationID)
				require.NoError(t, store.Abandon(t.Context(), []outmill.Settlement{{Lease: found[0].Lease()}}))
				require.NoError(t, store.Abandon(t.Context(), []outmill.Settlement{{Lease: found[1].Lease(), Err: " "}}))
				require.Equal(t, 1, count("outmill.records", `last_error = ' '`), "what moves from the log, too")
				require.Zero(t, count("outmill.records", `last_error = '' OR correlation_id = '' OR dedup_key = ''`))

				alone, grouped := &roles.Join{ExpectedSteps: 1}, &roles.Join{ExpectedSteps: 1, GroupingKey: "customer"}
				require.NoError(t, store.StartJoin(t.Context(), alone))
				require.NoError(t, store.StartJoin(t.Context(), grouped))
				require.Equal(t, 1, count("outmill.joins", `grouping_key IS NULL`))
				require.Equal(t, 2, count("outmill.joins", `reason IS NULL AND metadata IS NULL`))
				joins, err := store.ListJoins(t.Context(), roles.JoinQuery{GroupingKey: grouped.GroupingKey})
				require.NoError(t, err)
				require.Len(t, joins, 1)
				require.Equal(t, grouped.ID, joins[0].ID)
			})
		}
	})
}
