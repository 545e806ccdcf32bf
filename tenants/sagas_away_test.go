package tenants_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/memstore"
	"github.com/outmill/outmill/tenants"
)

// preparing is a store that counts, or refuses, the preparation of sagas.
type preparing struct {
	*memstore.Store
	kinds []string
	err   error
}

func (p *preparing) PrepareSagas(_ context.Context, kinds ...string) error {
	p.kinds = append(p.kinds, kinds...)
	return p.err
}

func TestSet_PrepareSagas(t *testing.T) {
	t.Parallel()

	newSet := func(t *testing.T, change func(*tenants.Config)) (*tenants.Set, *preparing, *preparing) {
		t.Helper()
		good, bad := &preparing{Store: newSpy(t, "good").Store}, &preparing{Store: newSpy(t, "bad").Store, err: errAway}
		cfg := tenants.Config{Discovery: tenants.Static{{Key: "good", Store: good}, {Key: "bad", Store: bad}}, Linger: -1}
		change(&cfg)
		set, err := tenants.New(t.Context(), cfg, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, set.Close()) })
		return set, good, bad
	}

	t.Run("asks the member alone that the context names, so that another one that is away fails no message", func(t *testing.T) {
		t.Parallel()
		set, good, bad := newSet(t, func(*tenants.Config) {})
		delivered := outmill.WithDelivery(t.Context(), storekit.NewHandling("", &outmill.Record{Store: "good"}, nil))
		require.NoError(t, set.PrepareSagas(delivered, "order"))
		require.NoError(t, set.PrepareSagas(tenants.WithTenant(t.Context(), "good"), "invoice"))
		require.Equal(t, []string{"order", "invoice"}, good.kinds)
		require.Empty(t, bad.kinds)
		require.ErrorIs(t, set.PrepareSagas(tenants.WithTenant(t.Context(), "bad"), "order"), errAway)
	})

	t.Run("asks the default tenant, and without any each member", func(t *testing.T) {
		t.Parallel()
		set, good, _ := newSet(t, func(c *tenants.Config) { c.DefaultTenant = "good" })
		require.NoError(t, set.PrepareSagas(t.Context(), "order"))
		require.Equal(t, []string{"order"}, good.kinds)
		set, good, bad := newSet(t, func(*tenants.Config) {})
		require.ErrorIs(t, set.PrepareSagas(t.Context(), "order"), errAway)
		require.Equal(t, []string{"order"}, good.kinds)
		require.Equal(t, []string{"order"}, bad.kinds)
	})
}
