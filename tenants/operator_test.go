package tenants_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/tenants"
)

// deaf is a store whose Find fails.
type deaf struct{ *spy }

func (d deaf) Find(context.Context, outmill.ListQuery) (roles.Page, error) {
	return roles.Page{}, errAway
}

func (d deaf) RequeueWhere(context.Context, outmill.ListQuery) (roles.Page, error) {
	return roles.Page{}, errAway
}

// allPages calls until done and checks that each page has at most the limit.
func allPages(t *testing.T, call func(context.Context, outmill.ListQuery) (roles.Page, error), query outmill.ListQuery,
) (all []*outmill.Record, changed int) {
	t.Helper()
	for range 200 {
		page, err := call(t.Context(), query)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page.Records), query.Limit)
		require.LessOrEqual(t, page.Changed, query.Limit)
		all, changed = append(all, page.Records...), changed+page.Changed
		if page.Done {
			return all, changed
		}
		query.After = page.Next
	}
	require.Fail(t, "the pages do not end")
	return nil, 0
}

// die has all records of the set go dead.
func (r *rig) die(n int) {
	r.Helper()
	for n > 0 {
		found := r.claim(n)
		outcomes := make([]outmill.Settlement, len(found))
		for i, rec := range found {
			outcomes[i] = outmill.Settlement{Lease: rec.Lease(), Err: "no route"}
		}
		require.NoError(r, r.set.Fail(r.Context(), outcomes))
		n -= len(found)
	}
}

func TestSet_Operator(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}

	t.Run("Find pages through all members in the order of ids, each record once and with its store", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, names, nil)
		var want []string
		for i := range 7 {
			for _, name := range names[:3+i] {
				want = append(want, ids(r.append(name, 1))[0])
			}
		}
		for _, limit := range []int{1, 4, 1000} {
			found, _ := allPages(t, r.set.Find, outmill.ListQuery{Topic: topic, Limit: limit})
			require.Len(t, found, len(want))
			require.True(t, slices.IsSortedFunc(found, func(a, b *outmill.Record) int { return slices.Compare(a.ID[:], b.ID[:]) }))
			for _, rec := range found {
				require.Equal(t, rec.TenantID, rec.Store)
			}
		}
		found, _ := allPages(t, r.set.Find, outmill.ListQuery{TenantID: "b", Limit: 2})
		require.Len(t, found, 7)
	})

	t.Run("RequeueWhere and DeleteWhere change records of all members, no more than the limit in a call", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, names, nil)
		for i, name := range names {
			r.append(name, i)
		}
		r.die(45)
		page, err := r.set.RequeueWhere(t.Context(), outmill.ListQuery{ErrorText: "route", Limit: 3})
		require.NoError(t, err)
		require.Equal(t, 3, page.Changed)
		require.False(t, page.Done)
		_, changed := allPages(t, r.set.RequeueWhere, outmill.ListQuery{ErrorText: "route", Limit: 4})
		require.Equal(t, 42, changed)
		_, changed = allPages(t, r.set.DeleteWhere, outmill.ListQuery{TenantID: "j", Limit: 4})
		require.Equal(t, 9, changed)
		_, changed = allPages(t, r.set.DeleteWhere, outmill.ListQuery{Topic: topic, Limit: 5})
		require.Equal(t, 36, changed)
	})

	t.Run("WithTenant names the member of a call", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, names[:3], nil)
		for _, name := range names[:3] {
			r.append(name, 2)
		}
		ctx := tenants.WithTenant(t.Context(), "b")
		page, err := r.set.Find(ctx, outmill.ListQuery{})
		require.NoError(t, err)
		require.Equal(t, map[string]int{"b": 2}, perStore(page.Records))
		page, err = r.set.DeleteWhere(ctx, outmill.ListQuery{Topic: topic})
		require.NoError(t, err)
		require.Equal(t, 2, page.Changed)
		_, err = r.set.Find(tenants.WithTenant(t.Context(), "nobody"), outmill.ListQuery{})
		var unknown *tenants.UnknownTenantError
		require.ErrorAs(t, err, &unknown)
	})

	t.Run("a member that fails and one that lacks the role are named, and the page is that of the others", func(t *testing.T) {
		t.Parallel()
		well, ill := newSpy(t, "well"), newSpy(t, "ill")
		r := newRig(t, nil, func(c *tenants.Config) {
			c.Discovery = tenants.Static{
				{Key: "ill", Store: &deaf{ill}}, {Key: "well", Store: well}, {Key: "plain", Store: &plain{newSpy(t, "plain")}},
			}
		})
		r.append("well", 2)
		r.append("ill", 2)
		check := func(page roles.Page, err error) {
			t.Helper()
			require.True(t, page.Done)
			var partial *storekit.PartialError
			require.ErrorAs(t, err, &partial)
			require.Len(t, partial.Failed, 2)
			var member *tenants.MemberError
			require.ErrorAs(t, partial.Of("ill"), &member)
			require.Equal(t, "ill", member.Member)
			require.ErrorIs(t, err, errAway)
			var lacks *tenants.RoleError
			require.ErrorAs(t, partial.Of("plain"), &lacks)
			require.Equal(t, tenants.RoleError{Member: "plain", Role: "roles.Repairs"}, *lacks)
		}
		page, err := r.set.Find(t.Context(), outmill.ListQuery{})
		check(page, err)
		require.Equal(t, map[string]int{"well": 2}, perStore(page.Records))
		r.die(4)
		page, err = r.set.RequeueWhere(t.Context(), outmill.ListQuery{})
		check(page, err)
		require.Equal(t, 2, page.Changed)
	})

	t.Run("a requeued record wakes the readers of its member", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, names, nil)
		r.append("g", 1)
		r.die(1)
		require.Empty(t, r.claim(10))
		page, err := r.set.RequeueWhere(t.Context(), outmill.ListQuery{})
		require.NoError(t, err)
		require.Equal(t, 1, page.Changed)
		require.Len(t, r.claim(10), 1)
	})
}

func TestSet_AppendToDefault(t *testing.T) {
	t.Parallel()

	t.Run("records without a tenant id go with those that name the default tenant, in one call", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, func(c *tenants.Config) { c.DefaultTenant = "a" })
		named, bare := &outmill.Record{Topic: topic, TenantID: "a"}, &outmill.Record{Topic: topic}
		require.NoError(t, r.set.Append(t.Context(), named, bare))
		require.NoError(t, r.set.Append(t.Context(), &outmill.Record{Topic: topic}, &outmill.Record{Topic: topic, TenantID: "a"}))
		require.ErrorIs(t, r.set.Append(t.Context(), &outmill.Record{Topic: topic}, &outmill.Record{Topic: topic, TenantID: "b"}),
			tenants.ErrNoTenant)
		require.Equal(t, map[string]int{"a": 4}, perStore(r.claim(10)))
	})
}

func TestSet_SagaRetention(t *testing.T) {
	t.Parallel()

	t.Run("a saga is retained in the member that the context names, and deleted by age from all", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, 2)
		require.NoError(t, f.set.PrepareSagas(t.Context(), "order"))
		type state struct{ N int }
		for _, key := range []string{"tenant00", "tenant01"} {
			ctx := tenants.WithTenant(t.Context(), key)
			saga := &roles.Saga{Type: "order", Correlation: "1", Finished: true}
			require.NoError(t, f.set.InsertSaga(ctx, saga, &state{1}, roles.SagaOptions{}))
			require.NoError(t, f.set.RetainSaga(ctx, saga, time.Microsecond, roles.SagaOptions{}))
		}
		require.Eventually(t, func() bool {
			_, err := f.set.DeleteOldSagas(t.Context(), 100)
			require.NoError(t, err)
			for _, store := range f.stores {
				_, err := store.FindSaga(t.Context(), "order", "1", &state{}, roles.SagaOptions{})
				if !errors.Is(err, roles.ErrSagaNotFound) {
					return false
				}
			}
			return true
		}, soon, tick)
	})

	t.Run("without a tenant it is refused, and so it is in a member without the role", func(t *testing.T) {
		t.Parallel()
		r := newPlain(t, "a")
		saga := &roles.Saga{Type: "order", Correlation: "1"}
		require.ErrorIs(t, r.set.RetainSaga(t.Context(), saga, time.Hour, roles.SagaOptions{}), tenants.ErrNoTenant)
		ctx := tenants.WithTenant(t.Context(), "a")
		var lacks *tenants.RoleError
		require.ErrorAs(t, r.set.RetainSaga(ctx, saga, time.Hour, roles.SagaOptions{}), &lacks)
		require.Equal(t, tenants.RoleError{Member: "a", Role: "roles.Sagas"}, *lacks)
		n, err := r.set.DeleteOldSagas(t.Context(), 10)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

func TestSet_OperatorOnSQLite(t *testing.T) {
	t.Parallel()

	t.Run("pages of two files are one sequence", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		var list tenants.Static
		for _, key := range []string{"a", "b"} {
			store, err := sqlite.Open(t.Context(), "file:"+filepath.Join(dir, key+".db"), sqlite.Config{}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			list = append(list, tenants.Tenant{Key: key, Store: store})
		}
		r := newRig(t, nil, func(c *tenants.Config) { c.Discovery, c.Ensure = list, true })
		for range 5 {
			r.append("a", 3)
			r.append("b", 2)
		}
		found, _ := allPages(t, r.set.Find, outmill.ListQuery{Limit: 4})
		require.Len(t, found, 25)
		_, changed := allPages(t, r.set.DeleteWhere, outmill.ListQuery{Status: outmill.StatusPending, Limit: 4})
		require.Equal(t, 25, changed)
	})
}
