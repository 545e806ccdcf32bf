package tenants_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/tenants"
)

// withoutPauses is a store that has no role roles.Pauses.
type withoutPauses struct{ outmill.Store }

func TestSet_Pauses(t *testing.T) {
	t.Parallel()
	scope := roles.PauseScope{Topic: topic}

	t.Run("a pause holds in all members, and Resume continues in all", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		r.append("a", 2)
		r.append("b", 2)
		require.NoError(t, r.set.Pause(t.Context(), scope, "ann", "the warehouse is down"))
		require.Empty(t, r.claim(10))
		list, err := r.set.Paused(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Empty(t, list[0].Store)
		groups, err := r.set.Groups(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{list[0].String()}, groups[0].Pauses)
		ended, err := r.set.Resume(t.Context(), scope)
		require.NoError(t, err)
		require.True(t, ended)
		require.Equal(t, map[string]int{"a": 2, "b": 2}, perStore(r.claim(10)))
		ended, err = r.set.Resume(t.Context(), scope)
		require.NoError(t, err)
		require.False(t, ended)
	})

	t.Run("WithTenant names the member that is paused", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b"}, nil)
		found := r.append("a", 2)
		r.append("b", 2)
		require.NoError(t, r.set.Pause(tenants.WithTenant(t.Context(), "a"), scope, "ann", ""))
		require.Equal(t, map[string]int{"b": 2}, perStore(r.claim(10)))
		list, err := r.set.Paused(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "a", list[0].Store)
		require.Contains(t, list[0].String(), `topic "orders" in "a" by ann`)

		last := r.set.LastPauses()
		require.Empty(t, r.claim(10))
		require.Same(t, last, r.set.LastPauses(), "nothing has changed")
		paused := *found[0]
		paused.Group, paused.Store = outmill.DefaultGroup, "a"
		require.True(t, last.Covers(&paused))
		paused.Store = "b"
		require.False(t, last.Covers(&paused), "the pause is of another member")
	})

	t.Run("a member without the role is named, and the others are paused", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, nil, func(cfg *tenants.Config) {
			cfg.Discovery = tenants.Static{{Key: "a", Store: newSpy(t, "a")}, {Key: "b", Store: withoutPauses{newSpy(t, "b")}}}
		})
		r.append("a", 1)
		r.append("b", 1)
		var partial *storekit.PartialError
		require.ErrorAs(t, r.set.Pause(t.Context(), scope, "ann", ""), &partial)
		var lacks *tenants.RoleError
		require.ErrorAs(t, partial.Of("b"), &lacks)
		require.NoError(t, partial.Of("a"))
		require.Equal(t, map[string]int{"b": 1}, perStore(r.claim(10)))
	})

	t.Run("a member that has gone has no pauses", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a", "b": "mem:b"})
		r := w.set(nil)
		require.NoError(t, r.set.Pause(tenants.WithTenant(t.Context(), "b"), scope, "ann", ""))
		r.append("b", 1)
		require.Empty(t, r.claim(10))
		require.False(t, r.set.LastPauses().Empty())
		w.change(func() { delete(w.tenants, "b") })
		require.NoError(t, r.set.Refresh(t.Context()))
		require.Eventually(t, func() bool { return r.set.LastPauses().Empty() }, soon, tick)
	})

	t.Run("the pauses stay the same when members without any are asked for the first time", func(t *testing.T) {
		t.Parallel()
		w := newTown(t, map[string]string{"a": "mem:a"})
		r := w.set(nil)
		require.Empty(t, r.claim(10))
		last := r.set.LastPauses()
		require.NotNil(t, last)
		w.change(func() { w.tenants["b"], w.tenants["c"] = "mem:b", "mem:c" })
		require.NoError(t, r.set.Refresh(t.Context()))
		r.append("b", 1)
		r.append("c", 1)
		require.Equal(t, map[string]int{"b": 1, "c": 1}, perStore(r.claim(10)))
		require.Same(t, last, r.set.LastPauses())
	})

	t.Run("a bad scope is refused before a member is asked", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a"}, nil)
		require.ErrorIs(t, r.set.Pause(t.Context(), roles.PauseScope{}, "ann", ""), outmill.ErrInvalidConfig)
		_, err := r.set.Resume(t.Context(), roles.PauseScope{Key: "one"})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})
}
