package sqlserver_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlserver"
)

func TestStore_Examine(t *testing.T) {
	t.Parallel()

	t.Run("it wants each right of Grants, and each index of the schema, by the store's names", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, nowhere(t), sqlserver.Config{Schema: "shop", Table: "Orders"})
		rights := store.Permissions()
		require.Contains(t, rights, "UPDATE OBJECT [shop].[OrdersMeta]")
		require.Contains(t, rights, "EXECUTE TYPE [shop].[OrdersLease]")
		require.Contains(t, rights, "EXECUTE OBJECT [shop].[Orders_Claim]")
		n := 0
		for _, statement := range store.Grants("app") {
			privileges, _, _ := strings.Cut(statement, " ON ")
			n += strings.Count(privileges, ",") + 1
		}
		require.Len(t, rights, n)

		indexes, err := store.IndexNames()
		require.NoError(t, err)
		require.Contains(t, indexes, "IX_Orders_Line")
		made := regexp.MustCompile(`CREATE (?:UNIQUE )?INDEX \[(\w+)\]`)
		for _, statement := range store.Statements() {
			for _, found := range made.FindAllStringSubmatch(statement, -1) {
				require.True(t, slices.Contains(indexes, found[1]), "%s", found[0])
			}
		}
	})

	t.Run("a store that works has no findings, and an index that was dropped is named", func(t *testing.T) {
		t.Parallel()
		store, table := ensured(t, sqlserver.Config{})
		request := roles.ExamineRequest{OpenTransaction: time.Hour, LockWait: time.Hour, ClockDifference: time.Hour}
		found, err := store.Examine(t.Context(), request)
		require.NoError(t, err)
		require.Empty(t, found.Findings)
		execute(t, store.DB(), "DROP INDEX [IX_"+table+"_Line] ON [dbo].["+table+"]")
		found, err = store.Examine(t.Context(), request)
		require.NoError(t, err)
		require.Len(t, found.Findings, 1)
		require.Equal(t, []string{"index_missing", "IX_" + table + "_Line"}, []string{found.Findings[0].Code, found.Findings[0].Subject})
	})
}
