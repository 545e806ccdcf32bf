package forwarder_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func TestForwarder_Paused(t *testing.T) {
	t.Parallel()

	t.Run("a paused tenant waits while others are forwarded, and follows in order after Resume", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		scope := roles.PauseScope{TenantID: "acme"}
		require.NoError(t, store.Pause(t.Context(), scope, "ann", ""))
		var records []*outmill.Record
		want := map[string][]string{}
		for i := range 100 {
			tenant := []string{"acme", "others"}[i%2]
			r := rec("orders", tenant, fmt.Sprint(tenant, i))
			r.TenantID = tenant
			records, want[tenant] = append(records, r), append(want[tenant], r.MessageID)
		}
		add(t, store, records...)
		d := newDestination(t)
		start(t, store, d, quick())
		arrived := func(tenant string) (names []string) {
			d.mu.Lock()
			defer d.mu.Unlock()
			for _, a := range d.arrived {
				if a.msg.Metadata.Get(outmill.MetadataKey) == tenant {
					names = append(names, a.msg.UUID)
				}
			}
			return names
		}
		require.Eventually(t, func() bool { return len(arrived("others")) == 50 }, patience, tick)
		require.Equal(t, want["others"], arrived("others"))
		require.Empty(t, arrived("acme"))
		ended, err := store.Resume(t.Context(), scope)
		require.NoError(t, err)
		require.True(t, ended)
		require.Eventually(t, func() bool { return len(arrived("acme")) == 50 }, patience, tick)
		require.Equal(t, want["acme"], arrived("acme"))
		require.Eventually(t, func() bool { return len(list(t, store, "")) == 0 }, patience, tick)
	})
}
