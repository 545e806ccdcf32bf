package tenants_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/tenants"
)

func TestSet_Claim(t *testing.T) {
	t.Parallel()

	t.Run("shares its limit among the members, and names the store of each record and lease (OBX-067)", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b", "c"}, nil)
		for _, name := range []string{"a", "b", "c"} {
			r.append(name, 20)
		}
		found := r.claim(30)
		require.Equal(t, map[string]int{"a": 10, "b": 10, "c": 10}, perStore(found))
		for _, rec := range found {
			require.Equal(t, rec.TenantID, rec.Store)
			require.Equal(t, rec.Store, rec.Lease().Store)
		}
	})

	t.Run("takes what one member has where the others have nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b", "c"}, nil)
		r.append("b", 20)
		require.Equal(t, map[string]int{"b": 15}, perStore(r.claim(15)))
		require.Equal(t, map[string]int{"b": 5}, perStore(r.claim(15)))
		require.Empty(t, r.claim(15))
	})

	t.Run("serves members in turn where its limit is small", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b", "c"}, nil)
		for _, name := range []string{"a", "b", "c"} {
			r.append(name, 3)
		}
		var order []string
		for range 9 {
			order = append(order, r.claim(1)[0].Store)
		}
		require.ElementsMatch(t, []string{"a", "b", "c"}, order[:3])
		require.ElementsMatch(t, []string{"a", "b", "c", "a", "b", "c", "a", "b", "c"}, order)
	})

	t.Run("gives the member more whose records wait longer", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		r.append("a", 100)
		r.members["a"].db.Elapse(time.Hour)
		r.append("b", 100)
		r.ack(r.claim(2)...)
		found := perStore(r.claim(60))
		require.Equal(t, 60, found["a"]+found["b"])
		require.Greater(t, found["a"], 3*found["b"])
		require.Positive(t, found["b"], "no member starves")
	})

	t.Run("keeps to the limit of bytes for the sum", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b", "c"}, nil)
		const size = 100 << 10
		for _, name := range []string{"a", "b", "c"} {
			for range 4 {
				require.NoError(t, r.set.Append(t.Context(), &outmill.Record{Topic: topic, TenantID: name, Payload: make([]byte, size)}))
			}
		}
		total := 0
		for total < 12 {
			req := request(100)
			req.MaxBytes = 350 << 10
			found, err := r.set.Claim(t.Context(), req)
			require.NoError(t, err)
			require.NotEmpty(t, found)
			bytes := 0
			for _, rec := range found {
				bytes += rec.Size()
			}
			require.LessOrEqual(t, bytes, req.MaxBytes)
			total += len(found)
		}
		require.Equal(t, 12, total)
	})

	t.Run("hands out a record larger than its limit of bytes, alone", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		for _, name := range []string{"a", "b"} {
			require.NoError(t, r.set.Append(t.Context(), &outmill.Record{Topic: topic, TenantID: name, Payload: make([]byte, 1000)}))
		}
		seen := map[string]int{}
		for range 2 {
			req := request(100)
			req.MaxBytes = 10
			found, err := r.set.Claim(t.Context(), req)
			require.NoError(t, err)
			require.Len(t, found, 1)
			seen[found[0].Store]++
		}
		require.Equal(t, map[string]int{"a": 1, "b": 1}, seen)
	})

	t.Run("hands out a suspect alone, and soon, although other members have records", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		r.append("b", 1)
		for range outmill.SuspectExpiries {
			require.Len(t, r.claim(1), 1)
			r.members["b"].db.Elapse(2 * time.Hour)
		}
		r.append("a", 5)
		first := r.claim(10)
		require.Equal(t, map[string]int{"a": 5}, perStore(first))
		second := r.claim(10)
		require.Equal(t, []string{"b/0"}, ids(second))
		require.True(t, second[0].Suspect())
		require.Equal(t, outmill.SuspectExpiries, second[0].Expiries, "what was given back has not expired")
		r.ack(append(first, second...)...)
	})

	t.Run("returns what the others have where a member fails, and leaves that out for a while", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		r.append("a", 2)
		r.append("b", 2)
		r.members["a"].fail("Claim", errAway)
		require.Equal(t, map[string]int{"b": 2}, perStore(r.claim(10)))
		calls := r.leavesOut("a", "Claim", func() { require.Empty(t, r.claim(10)) })
		status := r.set.Status().Members[0]
		require.Equal(t, tenants.StateFailing, status.State)
		require.ErrorIs(t, status.Err, errAway)
		require.False(t, status.FailingSince.IsZero())
		require.Len(t, r.reported(), calls)
		for _, err := range r.reported() {
			var in *tenants.MemberError
			require.ErrorAs(t, err, &in)
			require.Equal(t, "a", in.Member)
		}

		r.members["a"].fail("Claim", nil)
		require.Eventually(t, func() bool { return len(r.claim(10)) == 2 }, soon, tick)
		require.Equal(t, tenants.StateReady, r.set.Status().Members[0].State)
	})

	t.Run("claims with another owner in a member that failed, and only there", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		req := request(10)
		claim := func() {
			_, err := r.set.Claim(t.Context(), req)
			require.NoError(t, err)
		}
		r.members["a"].fail("Claim", errAway)
		claim()
		r.members["a"].fail("Claim", nil)
		require.Eventually(t, func() bool { claim(); return r.members["a"].called("Claim") > 2 }, soon, tick)
		owners := r.members["a"].owners()
		require.Equal(t, req.Owner, owners[0])
		require.NotEqual(t, req.Owner, owners[1])
		require.Equal(t, owners[1], owners[2], "the new owner stays")
		for _, owner := range r.members["b"].owners() {
			require.Equal(t, req.Owner, owner)
		}
	})

	t.Run("fails where every member fails", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		for _, m := range r.members {
			m.fail("Claim", errAway)
		}
		for range 2 {
			// The second time both are left out.
			_, err := r.set.Claim(t.Context(), request(1))
			require.ErrorIs(t, err, errAway)
			require.ErrorContains(t, err, `"a"`)
			require.ErrorContains(t, err, `"b"`)
		}
	})

	t.Run("does not take the end of its context for the fault of a member", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := r.set.Claim(ctx, request(1))
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, r.reported())
		require.Equal(t, tenants.StateReady, r.set.Status().Members[0].State)
	})

	t.Run("of a set without tenants finds nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, nil, nil)
		require.Empty(t, r.claim(1))
	})

	t.Run("keeps the keys of each store apart", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		for _, name := range []string{"a", "b"} {
			require.NoError(t, r.set.Append(t.Context(), &outmill.Record{Topic: topic, Key: "k", TenantID: name, MessageID: name}))
		}
		claim := func() []*outmill.Record {
			req := request(1)
			req.Order = outmill.OrderKey
			found, err := r.set.Claim(t.Context(), req)
			require.NoError(t, err)
			return found
		}
		require.ElementsMatch(t, []string{"a", "b"}, ids(append(claim(), claim()...)))
	})
}

func TestStrategy(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c"}
	stores := func(r *rig, claims, limit int) (list []string) {
		for range claims {
			for _, rec := range r.claim(limit) {
				list = append(list, rec.Store)
			}
		}
		return list
	}

	t.Run("RoundRobin takes one batch of each member before the next (OBX-068)", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, names, func(c *tenants.Config) { c.Strategy = tenants.RoundRobin{} })
		for _, name := range names {
			r.append(name, 4)
		}
		require.Equal(t, []string{"a", "a", "b", "b", "c", "c", "a", "a", "b", "b", "c", "c"}, stores(r, 6, 2))
		require.Empty(t, r.claim(2))
	})

	t.Run("RoundRobin goes on to the next member where one has nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, names, func(c *tenants.Config) { c.Strategy = tenants.RoundRobin{} })
		r.append("b", 2)
		r.append("c", 1)
		require.Equal(t, []string{"b", "c", "b"}, stores(r, 3, 1))
	})

	t.Run("DrainFirst stays with a member until it has nothing (OBX-069)", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, names, func(c *tenants.Config) { c.Strategy = tenants.DrainFirst{} })
		for _, name := range names {
			r.append(name, 3)
		}
		require.Equal(t, []string{"a", "a", "a", "b", "b", "b", "c", "c", "c"}, stores(r, 9, 1))
		r.append("a", 1)
		require.Equal(t, []string{"a"}, stores(r, 1, 1))
	})

	t.Run("leaves out a member that fails", func(t *testing.T) {
		t.Parallel()
		for _, strategy := range []tenants.Strategy{tenants.RoundRobin{}, tenants.DrainFirst{}} {
			r := newRig(t, names, func(c *tenants.Config) { c.Strategy = strategy })
			r.members["a"].fail("Claim", errAway)
			r.append("b", 1)
			require.Equal(t, []string{"b"}, stores(r, 1, 1))
		}
	})

	t.Run("asks no member for statistics", func(t *testing.T) {
		t.Parallel()
		for _, strategy := range []tenants.Strategy{nil, tenants.RoundRobin{}, tenants.DrainFirst{}} {
			r := newRig(t, names, func(c *tenants.Config) { c.Strategy = strategy })
			for _, name := range names {
				r.append(name, 10)
			}
			for range 100 {
				r.ack(r.claim(1)...)
			}
			for _, name := range names {
				require.Empty(t, r.stored(name))
				require.Zero(t, r.members[name].called("Stats"))
			}
		}
	})

	t.Run("that chooses a name which is not there is refused", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, names, func(c *tenants.Config) { c.Strategy = lost{} })
		_, err := r.set.Claim(t.Context(), request(1))
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "nowhere")
	})
}

type lost struct{}

func (lost) Next([]string, string, int) string { return "nowhere" }
