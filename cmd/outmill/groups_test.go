package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGroups(t *testing.T) {
	t.Parallel()

	t.Run("list shows the groups with their topics and workers", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			require.Equal(t, "No group reads this store.\n", ok(t, "groups", "list", w.url))
			w.register(t, "audit")
			w.register(t, "billing", "orders", "payments.*")
			text := ok(t, "groups", "list", w.url)
			require.Regexp(t, `(?m)^GROUP +TOPICS +WORKERS +SEEN +EXPIRES$`, text)
			require.Regexp(t, `(?m)^audit +all +1 +\S+ ago +-$`, text)
			require.Regexp(t, `(?m)^billing +orders, payments\.\* +1 +\S+ ago +-$`, text)
			groups := okJSON[[]groupView](t, "groups", "list", w.url)
			require.Len(t, groups, 2)
			require.Equal(t, "test:1", groups[1].Workers[0].Name)
			require.NotNil(t, groups[1].SeenAt)
		})
	})

	t.Run("drop removes one group with its records, after a yes", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.register(t, "audit", "orders")
			w.register(t, "billing", "orders")
			w.append(t, orders(3)...)
			got := tool(t, "groups", "drop", w.url, "audit")
			require.Equal(t, exitUsage, got.code)
			require.Contains(t, got.stderr, `drops the group "audit"`)
			require.Equal(t, 3, w.statusOf(t, "audit", "orders").Pending)
			require.Equal(t, "The group \"audit\" is dropped, with 3 records.\n", ok(t, "groups", "drop", w.url, "audit", "--yes"))
			require.Zero(t, w.statusOf(t, "audit", "orders").Pending)
			require.Equal(t, 3, w.statusOf(t, "billing", "orders").Pending)
		})
	})

	t.Run("drop without the name of a group is refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for _, args := range [][]string{{}, {w.url, ""}, {w.url, "a", "b"}} {
			got := tool(t, append([]string{"groups", "drop", "--yes"}, args...)...)
			require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
		}
	})
}
