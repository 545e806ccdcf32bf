package tenants_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

const manySick, inParallel = 6, 2

// crowdedWard is a set of one member that is well, the last in order, and of more others than are asked in
// parallel, which may hang. Each has a record.
type crowdedWard struct {
	*rig
	well *spy
	sick []*spy
}

func newCrowdedWard(t *testing.T, callTimeout time.Duration) *crowdedWard {
	t.Helper()
	w := &crowdedWard{well: newSpy(t, "well")}
	var list tenants.Static
	for i := range manySick {
		w.sick = append(w.sick, newSpy(t, fmt.Sprint("sick", i)))
	}
	for _, s := range append(slices.Clone(w.sick), w.well) {
		list = append(list, tenants.Tenant{Key: s.Name(), Store: s})
	}
	w.rig = newRig(t, nil, func(c *tenants.Config) {
		c.Discovery, c.Parallel, c.CallTimeout = list, inParallel, callTimeout
	})
	for _, m := range list {
		w.append(m.Key, 1)
	}
	return w
}

// hang has the sick members answer after so long.
func (w *crowdedWard) hang(by time.Duration) {
	for _, s := range w.sick {
		s.db.Delay(by)
	}
}

// claimAll claims the records of all members. The lease of the one that is well is the last.
func (w *crowdedWard) claimAll() (leases []outmill.Lease) {
	w.Helper()
	owner := outmill.NewOwnerToken()
	for len(leases) <= manySick {
		leases = append(leases, leasesOf(w.claimFor(owner, manySick+1))...)
	}
	slices.SortFunc(leases, func(a, b outmill.Lease) int { return strings.Compare(a.Store, b.Store) })
	return leases
}

// ofWell is the record of the member that is well; nil is none.
func (w *crowdedWard) ofWell() *outmill.Record {
	w.Helper()
	list, err := w.well.List(w.Context(), outmill.ListQuery{})
	require.NoError(w, err)
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

func TestSet_ManySick(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]struct {
		do   func(ctx context.Context, set *tenants.Set, leases []outmill.Lease) error
		done func(was, is *outmill.Record) bool
	}{
		"extended": {
			func(ctx context.Context, set *tenants.Set, leases []outmill.Lease) error {
				_, err := set.Extend(ctx, 2*time.Hour, leases)
				return err
			},
			func(was, is *outmill.Record) bool { return is.LeaseUntil.After(was.LeaseUntil.Add(time.Minute)) },
		},
		"settled": {
			func(ctx context.Context, set *tenants.Set, leases []outmill.Lease) error {
				return set.Ack(ctx, "", leases)
			},
			func(_, is *outmill.Record) bool { return is == nil },
		},
		"released": {
			func(ctx context.Context, set *tenants.Set, leases []outmill.Lease) error {
				return set.Release(ctx, leases)
			},
			func(_, is *outmill.Record) bool { return is.Status == outmill.StatusPending },
		},
	} {
		t.Run("a lease is "+name+" while more members hang than are asked in parallel", func(t *testing.T) {
			t.Parallel()
			w := newCrowdedWard(t, time.Minute)
			leases := w.claimAll()
			was := w.ofWell()
			w.hang(time.Hour)
			ctx, giveUp := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- call.do(ctx, w.set, leases) }()
			require.Eventually(t, func() bool { return call.done(was, w.ofWell()) }, soon, tick)
			select {
			case err := <-ended:
				require.Fail(t, "no member hangs", "%v", err)
			default:
			}
			giveUp()
			require.Error(t, <-ended)
		})
	}

	t.Run("a member is claimed from while more members hang than are asked in parallel", func(t *testing.T) {
		t.Parallel()
		for _, limit := range []int{1, 100} {
			// The first claim waits for 6 s.
			w := newCrowdedWard(t, time.Minute)
			w.hang(time.Hour)
			require.Eventually(t, func() bool {
				found, err := w.set.Claim(t.Context(), request(limit))
				require.NoError(t, err)
				return perStore(found)["well"] == 1
			}, soon, tick, "limit %d", limit)
			for _, m := range w.set.Status().Members {
				require.Equal(t, tenants.StateReady, m.State, "it does not wait until they are found to hang")
			}
		}
	})

	t.Run("a handler keeps its lease while more members hang than are asked in parallel", func(t *testing.T) {
		t.Parallel()
		w := newCrowdedWard(t, 2*time.Second)
		// It is extended after a third of it.
		lease := time.Duration(testenv.Steps(12, 60)) * time.Second
		sub, err := subscriber.New(w.set, subscriber.Config{Lease: lease}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sub.Close()) })
		messages, err := sub.Subscribe(t.Context(), topic)
		require.NoError(t, err)
		var handled []*message.Message
		for range manySick + 1 {
			handled = append(handled, <-messages)
		}
		was := w.ofWell()
		w.hang(time.Hour)
		require.Eventually(t, func() bool { return w.ofWell().LeaseUntil.After(was.LeaseUntil) }, soon, tick)
		require.Equal(t, was.Claims, w.ofWell().Claims)
		for _, msg := range handled {
			msg.Ack()
		}
		require.Eventually(t, func() bool { return w.ofWell() == nil }, soon, tick, "its outcome is stored")
		w.hang(0)
	})
}
