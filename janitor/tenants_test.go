package janitor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/janitor"
	"github.com/outmill/outmill/tenants"
)

func TestJanitor_Tenants(t *testing.T) {
	t.Parallel()

	t.Run("the janitor of a set of tenants does each kind of work in every member", func(t *testing.T) {
		t.Parallel()
		one, two := newRig(t), newRig(t)
		set, err := tenants.New(t.Context(), tenants.Config{
			Discovery: tenants.Static{{Key: "one", Store: one.store}, {Key: "two", Store: two.store}},
		}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, set.Close()) })
		for _, member := range []*rig{one, two} {
			member.leftovers()
			member.elapse(2 * kept)
			member.backlog(3000)
		}
		report, err := newJanitor(t, set, janitor.Config{Share: 1}).RunOnce(t.Context())
		require.NoError(t, err)
		require.Equal(t, janitor.Report{
			Reaped: 2, Expired: 2, Registrations: 2, Unread: 2, Processed: 2, Joins: 2, Notes: 6002, Sagas: 2, Audit: 2, DedupKeys: 2,
		}, report)
	})
}
