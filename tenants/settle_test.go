package tenants_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/tenants"
)

func leasesOf(records []*outmill.Record) []outmill.Lease {
	leases := make([]outmill.Lease, len(records))
	for i, rec := range records {
		leases[i] = rec.Lease()
	}
	return leases
}

func TestSet_Settle(t *testing.T) {
	t.Parallel()

	t.Run("settles each lease in its own member", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		r.append("a", 3)
		r.append("b", 3)
		found := r.claim(10)
		require.Len(t, found, 6)
		standing, err := r.set.Extend(t.Context(), time.Hour, leasesOf(found))
		require.NoError(t, err)
		require.ElementsMatch(t, leasesOf(found), standing)

		of := map[string][]outmill.Lease{}
		for _, rec := range found {
			of[rec.Store] = append(of[rec.Store], rec.Lease())
		}
		require.NoError(t, r.set.Ack(t.Context(), "test", []outmill.Lease{of["a"][0], of["b"][0]}))
		require.NoError(t, r.set.Fail(t.Context(), []outmill.Settlement{{Lease: of["a"][1], Err: "bad"}, {Lease: of["b"][1], Err: "bad"}}))
		require.NoError(t, r.set.Release(t.Context(), []outmill.Lease{of["a"][2]}))
		require.NoError(t, r.set.Abandon(t.Context(), []outmill.Settlement{{Lease: of["b"][2], Delay: time.Hour}}))
		stats, err := r.set.Stats(t.Context(), 0)
		require.NoError(t, err)
		for i := range stats {
			stats[i].OldestDue = time.Time{}
		}
		require.Equal(t, []outmill.TopicStats{
			{Store: "a", Group: outmill.DefaultGroup, Topic: topic, Pending: 1, Dead: 1},
			{Store: "b", Group: outmill.DefaultGroup, Topic: topic, Pending: 1, Delayed: 1, Dead: 1},
		}, stats)
	})

	t.Run("names the members that failed, and settles in the others", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		r.append("a", 1)
		r.append("b", 1)
		found := r.claim(10)
		for _, call := range []string{"Ack", "Extend"} {
			r.members["a"].fail(call, errAway)
		}
		standing, err := r.set.Extend(t.Context(), time.Hour, leasesOf(found))
		requirePartial(t, err, "a")
		require.Len(t, standing, 1)
		require.Equal(t, "b", standing[0].Store)
		requirePartial(t, r.set.Ack(t.Context(), "", leasesOf(found)), "a")
		left, err := r.set.List(t.Context(), outmill.ListQuery{})
		require.NoError(t, err)
		require.Equal(t, []string{"a/0"}, ids(left))
	})

	t.Run("ignores a lease of no member", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a"}, nil)
		r.append("a", 1)
		lease := r.claim(1)[0].Lease()
		for _, store := range []string{"", "gone"} {
			lease.Store = store
			require.NoError(t, r.set.Ack(t.Context(), "", []outmill.Lease{lease}))
			standing, err := r.set.Extend(t.Context(), time.Hour, []outmill.Lease{lease})
			require.NoError(t, err)
			require.Empty(t, standing)
		}
		left, err := r.set.List(t.Context(), outmill.ListQuery{})
		require.NoError(t, err)
		require.Len(t, left, 1)
	})
}

func requirePartial(t *testing.T, err error, failed ...string) {
	t.Helper()
	var partial *storekit.PartialError
	require.ErrorAs(t, err, &partial)
	require.Len(t, partial.Failed, len(failed))
	for _, name := range failed {
		var in *tenants.MemberError
		require.ErrorAs(t, partial.Of(name), &in)
		require.Equal(t, name, in.Member)
		require.ErrorIs(t, in, errAway)
	}
}

func TestSet_Inspect(t *testing.T) {
	t.Parallel()

	t.Run("lists the records of all members in the order of their ids, in pages", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b", "c"}, nil)
		var want []string
		for i := range 9 {
			rec := &outmill.Record{Topic: topic, TenantID: string(rune('a' + i%3)), MessageID: string(rune('0' + i))}
			require.NoError(t, r.set.Append(t.Context(), rec))
			want = append(want, rec.MessageID)
		}
		var got []string
		query := outmill.ListQuery{Limit: 4}
		for {
			page, err := r.set.List(t.Context(), query)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, rec := range page {
				require.Equal(t, rec.TenantID, rec.Store)
			}
			got = append(got, ids(page)...)
			query.After = page[len(page)-1].ID
		}
		require.Equal(t, want, got)
	})

	t.Run("gets, requeues and deletes in the tenant that is named, or else in all members", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		rec := r.append("b", 1)[0]
		found, err := r.set.Get(t.Context(), rec.ID)
		require.NoError(t, err)
		require.Equal(t, "b", found.Store)

		inA, inB := tenants.WithTenant(t.Context(), "a"), tenants.WithTenant(t.Context(), "b")
		calls := r.members["a"].called("Get")
		_, err = r.set.Get(inB, rec.ID)
		require.NoError(t, err)
		require.Equal(t, calls, r.members["a"].called("Get"))
		_, err = r.set.Get(inA, rec.ID)
		require.ErrorIs(t, err, outmill.ErrNotFound)
		_, err = r.set.Get(tenants.WithTenant(t.Context(), "x"), rec.ID)
		var unknown *tenants.UnknownTenantError
		require.ErrorAs(t, err, &unknown)

		require.NoError(t, r.set.Fail(t.Context(), []outmill.Settlement{{Lease: r.claim(1)[0].Lease()}}))
		n, err := r.set.Requeue(inA, rec.ID)
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = r.set.Requeue(t.Context(), rec.ID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		n, err = r.set.Delete(inB, rec.ID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		_, err = r.set.Get(t.Context(), rec.ID)
		require.ErrorIs(t, err, outmill.ErrNotFound)
	})

	t.Run("returns what the others have where a member fails", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		rec := r.append("b", 1)[0]
		r.members["a"].fail("Stats", errAway)
		r.members["a"].fail("Get", errAway)
		stats, err := r.set.Stats(t.Context(), 0)
		require.ErrorIs(t, err, errAway)
		require.True(t, storekit.SomeAnswered(err))
		require.Len(t, stats, 1)
		_, err = r.set.Get(t.Context(), rec.ID)
		require.NoError(t, err)
		_, err = r.set.Get(t.Context(), outmill.NewWorkItemID())
		require.ErrorIs(t, err, errAway, "the record may be in the member that failed")
		r.members["b"].fail("Stats", errAway)
		_, err = r.set.Stats(t.Context(), 0)
		require.ErrorIs(t, err, errAway)
		require.False(t, storekit.SomeAnswered(err), "both have failed")
	})

	t.Run("lists a group once, with the workers of all members", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		require.NoError(t, r.members["a"].Store.RegisterGroup(t.Context(), outmill.Registration{Worker: "one"}))
		require.NoError(t, r.members["b"].Store.RegisterGroup(t.Context(), outmill.Registration{Worker: "two"}))
		groups, err := r.set.Groups(t.Context())
		require.NoError(t, err)
		require.Len(t, groups, 1)
		require.Len(t, groups[0].Registrations, 1)
		require.Len(t, groups[0].Workers, 2)
		require.Equal(t, "two", groups[0].Workers[0].Name)
	})
}

func TestSet_Statements(t *testing.T) {
	t.Parallel()

	t.Run("are a member's: the set returns none, StatementsFrom says whom to ask, and the store of Outbox answers", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, 2)
		require.Empty(t, f.set.Statements())
		for version := range 2 {
			statements, err := f.set.StatementsFrom(version)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, "Set.Outbox")
			require.Empty(t, statements)
		}
		store, err := f.set.Outbox("tenant00")
		require.NoError(t, err)
		statements, err := store.StatementsFrom(0)
		require.NoError(t, err)
		require.NotEmpty(t, statements)
		require.Equal(t, statements, store.Statements())
	})
}

func TestSet_Janitor(t *testing.T) {
	t.Parallel()

	t.Run("does no more than its limit in all members, and comes to an end", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b", "c"}, nil)
		for name, n := range map[string]int{"a": 17, "b": 1, "c": 4} {
			r.append(name, n)
		}
		require.Len(t, r.claim(22), 22)
		for _, m := range r.members {
			m.db.Elapse(2 * time.Hour)
		}
		var did []int
		for {
			n, err := r.set.ReapExpired(t.Context(), 10)
			require.NoError(t, err)
			if did = append(did, n); n < 10 {
				break
			}
		}
		require.Equal(t, []int{10, 10, 2}, did)
	})

	t.Run("goes on where a member fails, and leaves that out for a while", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		r.append("b", 1)
		require.Len(t, r.claim(1), 1)
		r.members["b"].db.Elapse(2 * time.Hour)
		r.members["a"].fail("ReapExpired", errAway)
		n, err := r.set.ReapExpired(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		calls := r.leavesOut("a", "ReapExpired", func() {
			_, err := r.set.ReapExpired(t.Context(), 10)
			require.NoError(t, err)
		})
		require.Len(t, r.reported(), calls)
		for _, err := range r.reported() {
			require.ErrorIs(t, err, errAway)
		}
	})

	t.Run("maintains a few members at a time, each in its turn", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b", "c"}, func(c *tenants.Config) { c.Parallel = 2 })
		for _, want := range []bool{true, false, true, false} {
			more, err := r.set.Maintain(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, more)
		}
		for _, m := range r.members {
			require.Equal(t, 2, m.called("Maintain"))
		}
	})
}
