package tenants_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/tenants"
)

// wrapper is a store whose roles are behind it. It counts how often they are looked for.
type wrapper struct {
	outmill.Store
	looked *atomic.Int64
}

func (w wrapper) Unwrap() outmill.Store {
	w.looked.Add(1)
	return w.Store
}

func TestSet_Able(t *testing.T) {
	t.Parallel()

	t.Run("the roles of a member are looked up once, when it is admitted", func(t *testing.T) {
		t.Parallel()
		var looked atomic.Int64
		r := newRig(t, nil, func(c *tenants.Config) {
			c.Discovery = tenants.Static{{Key: "a", Store: wrapper{newSpy(t, "a"), &looked}}}
		})
		admitted := looked.Load()
		require.Positive(t, admitted)
		ctx := tenants.WithTenant(t.Context(), "a")
		scope := roles.PauseScope{Topic: topic}
		require.NoError(t, r.set.Pause(ctx, scope, "ann", ""))
		_, err := r.set.Resume(ctx, scope)
		require.NoError(t, err)
		r.set.Wake(t.Context(), func(string) {})
		r.append("a", 1)
		require.NoError(t, r.set.Ack(t.Context(), "", leasesOf(r.claim(10))))
		_, err = r.set.Find(ctx, outmill.ListQuery{})
		require.NoError(t, err)
		_, err = r.set.Audited(ctx, roles.AuditQuery{})
		require.NoError(t, err)
		_, err = r.set.DeadLetters(ctx, outmill.ListQuery{})
		require.NoError(t, err)
		_, err = r.set.HasNote(ctx, "c", "k")
		require.NoError(t, err)
		_, err = r.set.ListJoins(ctx, roles.JoinQuery{})
		require.NoError(t, err)
		_, err = r.set.DeleteNotes(ctx, 10)
		require.NoError(t, err)
		_, err = r.set.FirstWaiting(ctx, outmill.DefaultGroup, topic, 10)
		require.NoError(t, err)
		_, err = r.set.Examine(ctx, roles.ExamineRequest{})
		require.NoError(t, err)
		r.set.ServesTurns(topic)
		require.Equal(t, admitted, looked.Load())
	})

	t.Run("a chore for which a failing member lacks the role does not make it well", func(t *testing.T) {
		t.Parallel()
		member := newSpy(t, "a")
		r := newRig(t, nil, func(c *tenants.Config) {
			c.Discovery = tenants.Static{{Key: "a", Store: &plain{member}}}
		})
		member.fail("ReapExpired", errAway)
		_, err := r.set.ReapExpired(t.Context(), 10)
		require.ErrorIs(t, err, errAway)
		// Longer than the member is left out after its first failure.
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); <-time.After(tick) {
			_, err := r.set.DeleteNotes(t.Context(), 10)
			require.NoError(t, err)
			require.Equal(t, tenants.StateFailing, r.set.Status().Members[0].State)
		}
	})
}
