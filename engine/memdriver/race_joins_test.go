package memdriver_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

// raceWithJoin has a join of one step and a leased record, in a store that retains.
func raceWithJoin(t *testing.T, joins ...outmill.JoinID) (r *race, join outmill.JoinID, leased *outmill.Record) {
	h := newInterleaved(t, storetest.Options{Retain: time.Hour}, 0)
	r = &race{t, h, h.open()}
	started := &roles.Join{ExpectedSteps: 1}
	r.ok(r.store.StartJoin(r.Context(), started))
	r.register(r.Context())
	one := rec("k1", "k")
	if joins != nil {
		one.Joins = []outmill.JoinID{started.ID}
	}
	r.append(r.Context(), one)
	return r, started.ID, r.claim(r.Context(), a, 1)[0]
}

func (r *race) requireCounts(join outmill.JoinID, completed, failed int) {
	r.Helper()
	got, err := r.store.GetJoin(r.Context(), join)
	r.ok(err)
	require.Equal(r.T, []int{completed, failed}, []int{got.CompletedSteps, got.FailedSteps})
}

// A record that becomes a step while it is acked counts for its join.
func TestRace_AttachBesideAck(t *testing.T) {
	t.Parallel()
	for call, nth := range map[string]int{"Find": 1, "Apply": 1} {
		r, join, leased := raceWithJoin(t)
		ctx := r.at(call, nth, func() { r.ok(r.store.AttachStep(r.Context(), join, leased.ID)) })
		r.ok(r.store.Ack(ctx, "", leases(leased)))
		r.requireCounts(join, 1, 0)
	}
}

// A record that is acked while it becomes a step counts for its join. The attach locks the record before the step and the join, so an
// ack comes before all of it, or behind it.
func TestRace_AckBesideAttach(t *testing.T) {
	t.Parallel()
	r, join, leased := raceWithJoin(t)
	ctx := r.at("Lock", 1, func() { r.ok(r.store.Ack(r.Context(), "", leases(leased))) })
	r.ok(r.store.AttachStep(ctx, join, leased.ID))
	r.requireCounts(join, 1, 0)
	for nth := 1; nth <= 3; nth++ {
		r, join, leased := raceWithJoin(t)
		ctx, acked := r.ackWaits(nth, leased)
		r.ok(r.store.AttachStep(ctx, join, leased.ID))
		r.ok(<-acked)
		r.requireCounts(join, 1, 0)
	}
}

// ackWaits is a context in which an ack begins before the nth call of Entries, and waits for what the transaction has locked.
func (r *race) ackWaits(nth int, leased *outmill.Record) (context.Context, <-chan error) {
	acked := make(chan error, 1)
	return r.at("Entries", nth, func() {
		go func() { acked <- r.store.Ack(r.Context(), "", leases(leased)) }()
		for !r.world.Waiting() {
			runtime.Gosched()
		}
	}), acked
}

// A join that ends while a step is settled keeps the counts that it ended with.
func TestRace_EndBesideAck(t *testing.T) {
	t.Parallel()
	for nth := 1; nth <= 2; nth++ {
		r, join, leased := raceWithJoin(t, outmill.JoinID{})
		ctx := r.at("Entries", nth, func() { r.ok(r.store.CancelJoin(r.Context(), join, "enough")) })
		r.ok(r.store.Ack(ctx, "", leases(leased)))
		r.requireCounts(join, 0, 0)
		steps, err := r.store.ListSteps(r.Context(), join, outmill.WorkItemID{}, 10)
		r.ok(err)
		require.Equal(t, roles.StepPending, steps[0].Status)
	}
}

// A report and an ack of one step count it once, whichever comes first.
func TestRace_ReportBesideAck(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"Find", "Apply"} {
		r, join, leased := raceWithJoin(t, outmill.JoinID{})
		ctx := r.at(call, 1, func() { r.ok(r.store.ReportFailed(r.Context(), join, leased.ID)) })
		r.ok(r.store.Ack(ctx, "", leases(leased)))
		r.requireCounts(join, 0, 1)
	}
	r, join, leased := raceWithJoin(t, outmill.JoinID{})
	ack := func() error { return r.store.Ack(r.Context(), "", leases(leased)) }
	r.ok(r.store.ReportFailed(r.at("Entries", 1, func() { r.ok(ack()) }), join, leased.ID))
	r.requireCounts(join, 1, 0)
}

// An ack that waits for a report of its step does not count the step again in that join.
func TestRace_AckBesideReport(t *testing.T) {
	t.Parallel()
	for nth := 2; nth <= 3; nth++ {
		r, join, leased := raceWithJoin(t, outmill.JoinID{})
		ctx, acked := r.ackWaits(nth, leased)
		r.ok(r.store.ReportFailed(ctx, join, leased.ID))
		r.ok(<-acked)
		r.requireCounts(join, 0, 1)
		steps, err := r.store.ListSteps(ctx, join, outmill.WorkItemID{}, 10)
		r.ok(err)
		require.Equal(t, roles.StepFailed, steps[0].Status)
	}
}
