package tenants_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

// hanging is a store whose calls do not return before their context ends, while it hangs.
type hanging struct {
	*spy
	mu    sync.Mutex
	hangs bool
	// hung counts the calls that hung.
	hung int
}

func (h *hanging) waits() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hung
}

func (h *hanging) set(hangs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hangs = hangs
}

func (h *hanging) wait(ctx context.Context) error {
	h.mu.Lock()
	hangs := h.hangs
	if hangs {
		h.hung++
	}
	h.mu.Unlock()
	if !hangs {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h *hanging) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.spy.Claim(ctx, req)
}

func (h *hanging) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	if err := h.wait(ctx); err != nil {
		return err
	}
	return h.spy.Ack(ctx, by, leases)
}

func (h *hanging) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	if err := h.wait(ctx); err != nil {
		return err
	}
	return h.spy.RegisterGroup(ctx, regs...)
}

// withHanging makes a set of the members slow, which can hang, and quick.
func withHanging(t *testing.T, change func(*tenants.Config)) (*rig, *hanging) {
	t.Helper()
	slow := &hanging{spy: newSpy(t, "slow")}
	return newRig(t, nil, func(c *tenants.Config) {
		// The quick one answers within it, on a busy machine too.
		c.CallTimeout = time.Duration(testenv.Steps(1, 5)) * time.Second
		c.Discovery = tenants.Static{{Key: "slow", Store: slow}, {Key: "quick", Store: newSpy(t, "quick")}}
		change(c)
	}), slow
}

// claimOne claims until a record comes, and returns the member that it is of. On a busy machine each member
// may be late, and a claim does not wait for one that was.
func (r *rig) claimOne() string {
	r.Helper()
	req, deadline := request(1), time.After(soon)
	for {
		found, err := r.set.Claim(r.Context(), req)
		if len(found) == 1 {
			return found[0].Store
		}
		select {
		case <-deadline:
			require.FailNow(r, "no record comes", "%v", err)
		case <-time.After(tick):
		}
	}
}

func TestSet_Outage(t *testing.T) {
	t.Parallel()

	t.Run("a member that fails holds up no other, and what is in it comes when it is back", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, []string{"a", "b", "c"}, nil)
		sub, err := subscriber.New(r.set, subscriber.Config{MaxErrorBackoff: 50 * time.Millisecond}, nil)
		require.NoError(t, err)
		messages, err := sub.Subscribe(t.Context(), topic)
		require.NoError(t, err)
		calls := []string{"Claim", "Ack", "Extend", "RegisterGroup", "Stats", "ReapExpired", "Get"}
		for _, call := range calls {
			r.members["a"].fail(call, errAway)
		}
		// Not by the set: it would refuse the records while a registration of the subscriber's fails.
		r.appendBy(r.members["a"], "a", 20)
		r.append("b", 20)
		r.append("c", 20)
		seen := map[string]int{}
		take := func(n int) {
			for range n {
				select {
				case msg := <-messages:
					seen[msg.UUID]++
					msg.Ack()
				case <-time.After(soon):
					require.FailNow(t, "nothing comes", "%d came", len(seen))
				}
			}
		}
		take(40)
		for id, times := range seen {
			require.Equal(t, 1, times, id)
			require.NotContains(t, id, "a/")
		}
		require.Eventually(t, func() bool { return len(r.stored("b")) == 0 && len(r.stored("c")) == 0 }, soon, tick, "all are acked")
		for _, call := range calls {
			r.members["a"].fail(call, nil)
		}
		take(20)
		for i := range 20 {
			require.Equal(t, 1, seen[fmt.Sprintf("a/%d", i)])
		}
		require.Eventually(t, func() bool { return len(r.stored("a")) == 0 }, soon, tick)
		require.NoError(t, sub.Close())
	})

	t.Run("a member that hangs holds up others for the timeout, and not with each call", func(t *testing.T) {
		t.Parallel()
		r, slow := withHanging(t, func(*tenants.Config) {})
		r.append("slow", 1)
		r.append("quick", 100)
		var found []*outmill.Record
		// A claim waits for a late member for a short time only.
		require.Eventually(t, func() bool {
			found = append(found, r.claim(2)...)
			return perStore(found)["slow"] == 1 && perStore(found)["quick"] > 0
		}, soon, tick)
		slow.set(true)
		require.Equal(t, "quick", r.claimOne())
		// Until it is known to hang it may be asked first.
		require.Eventually(t, func() bool {
			_ = r.set.Ack(t.Context(), "", leasesOf(found))
			return r.set.Status().Members[1].State == tenants.StateFailing
		}, soon, tick)
		err := r.set.Ack(t.Context(), "", leasesOf(found))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "quick", r.claimOne())
		slow.set(false)
		require.Eventually(t, func() bool { return r.set.Ack(t.Context(), "", leasesOf(found)) == nil }, soon, tick)
		require.Eventually(t, func() bool {
			_, _ = r.set.Claim(t.Context(), request(1))
			return r.set.Status().Members[1].State == tenants.StateReady
		}, soon, tick)
	})

	t.Run("a member that hangs is not claimed from until it answers, in a large set too", func(t *testing.T) {
		t.Parallel()
		for _, parallel := range []int{1, 8} {
			r, slow := withHanging(t, func(c *tenants.Config) { c.Parallel, c.MaxIdle = parallel, 1 })
			r.append("slow", 1)
			slow.set(true)
			// The probe fails too.
			slow.fail("ReapExpired", errAway)
			require.Eventually(t, func() bool {
				_, _ = r.set.Claim(t.Context(), request(1))
				return r.set.Status().Members[1].State == tenants.StateFailing
			}, soon, tick)
			r.append("quick", 20)
			hung := slow.waits()
			for range 20 {
				require.Equal(t, "quick", r.claimOne())
			}
			require.Equal(t, hung, slow.waits(), "parallel %d", parallel)
			slow.set(false)
			slow.fail("ReapExpired", nil)
			require.Equal(t, "slow", r.claimOne())
		}
	})

	t.Run("a member that hangs holds up a registration for some time only, and is registered before it is claimed from", func(t *testing.T) {
		t.Parallel()
		r, slow := withHanging(t, func(c *tenants.Config) { c.MaxIdle = time.Second })
		slow.set(true)
		// The probe fails too.
		slow.fail("ReapExpired", errAway)
		registration := outmill.Registration{Group: "audit"}
		require.NoError(t, r.set.RegisterGroup(t.Context(), registration))
		require.Equal(t, tenants.StateFailing, r.set.Status().Members[1].State)
		hung := slow.waits()
		require.NoError(t, r.set.RegisterGroup(t.Context(), outmill.Registration{Group: "billing"}))
		require.Equal(t, hung, slow.waits(), "it is known to hang")
		r.append("quick", 1)
		req := request(1)
		req.Group = registration.Group
		require.Eventually(t, func() bool {
			found, err := r.set.Claim(t.Context(), req)
			require.True(t, err == nil || errors.Is(err, storekit.ErrStoreAway), "%v", err)
			return len(found) == 1
		}, soon, tick)
		slow.set(false)
		slow.fail("ReapExpired", nil)
		require.Eventually(t, func() bool {
			_, err := r.set.Claim(t.Context(), req)
			require.True(t, err == nil || errors.Is(err, storekit.ErrStoreAway), "%v", err)
			groups, err := slow.Groups(t.Context())
			require.NoError(t, err)
			return len(groups) == 3
		}, soon, tick, "the group of the rig, audit and billing")
	})

	t.Run("a registration ends in time while an append that hangs registers in the same member", func(t *testing.T) {
		t.Parallel()
		r, slow := withHanging(t, func(*tenants.Config) {})
		slow.set(true)
		slow.fail("ReapExpired", errAway)
		require.NoError(t, r.set.RegisterGroup(t.Context(), outmill.Registration{Group: "audit"}))
		slow.fail("ReapExpired", nil)
		require.Eventually(t, func() bool { return r.set.Status().Members[1].State == tenants.StateReady }, soon, tick)
		hung := slow.waits()
		ctx, giveUp := context.WithCancel(t.Context())
		appended := make(chan error, 1)
		go func() {
			appended <- r.set.Append(ctx, &outmill.Record{MessageID: "m1", Topic: topic, TenantID: "slow"})
		}()
		require.Eventually(t, func() bool { return slow.waits() > hung }, soon, tick, "the append registers")
		registered := make(chan error, 1)
		go func() { registered <- r.set.RegisterGroup(t.Context(), outmill.Registration{Group: "billing"}) }()
		select {
		case err := <-registered:
			require.NoError(t, err)
		case <-time.After(soon):
			require.FailNow(t, "the registration waits for the append")
		}
		giveUp()
		require.Error(t, <-appended)
	})

	t.Run("operators need not wait for a member that is known to hang", func(t *testing.T) {
		t.Parallel()
		r, slow := withHanging(t, func(*tenants.Config) {})
		there, away := r.append("quick", 1)[0].ID, r.append("slow", 1)[0].ID
		slow.set(true)
		slow.fail("ReapExpired", errAway)
		require.Eventually(t, func() bool {
			_, _ = r.set.Claim(t.Context(), request(1))
			return r.set.Status().Members[1].State == tenants.StateFailing
		}, soon, tick)
		ctx, all := t.Context(), outmill.ListQuery{}
		for name, call := range map[string]func() error{
			"Get":          func() error { _, err := r.set.Get(ctx, away); return err },
			"Requeue":      func() error { _, err := r.set.Requeue(ctx, away); return err },
			"Delete":       func() error { _, err := r.set.Delete(ctx, away); return err },
			"List":         func() error { _, err := r.set.List(ctx, all); return err },
			"Find":         func() error { _, err := r.set.Find(ctx, all); return err },
			"RequeueWhere": func() error { _, err := r.set.RequeueWhere(ctx, all); return err },
			"DeleteWhere":  func() error { _, err := r.set.DeleteWhere(ctx, outmill.ListQuery{Topic: "none"}); return err },
			"DeadLetters":  func() error { _, err := r.set.DeadLetters(ctx, all); return err },
			"Audited":      func() error { _, err := r.set.Audited(ctx, roles.AuditQuery{}); return err },
			"Paused":       func() error { _, err := r.set.Paused(ctx); return err },
			"Pause":        func() error { return r.set.Pause(ctx, roles.PauseScope{Topic: "none"}, "me", "") },
		} {
			var partly *storekit.PartialError
			require.ErrorAs(t, call(), &partly, name)
			require.Contains(t, partly.Failed, "slow", name)
		}
		found, err := r.set.Get(ctx, there)
		require.NoError(t, err)
		require.Equal(t, "quick", found.Store)
		left, err := slow.List(ctx, all)
		require.NoError(t, err)
		require.Len(t, left, 1, "nothing was deleted there")
	})
}
