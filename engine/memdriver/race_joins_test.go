package memdriver_test

import (
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

// A record that is acked while it becomes a step counts for its join.
func TestRace_AckBesideAttach(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"Entries", "Lock"} {
		r, join, leased := raceWithJoin(t)
		ctx := r.at(call, 1, func() { r.ok(r.store.Ack(r.Context(), "", leases(leased))) })
		r.ok(r.store.AttachStep(ctx, join, leased.ID))
		r.requireCounts(join, 1, 0)
	}
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

// Of an ack that waits for a join and of the report that has locked the join, one counts. They may wait for each
// other: then the report runs again.
func TestRace_AckBesideReport(t *testing.T) {
	t.Parallel()
	r, join, leased := raceWithJoin(t, outmill.JoinID{})
	acked := make(chan error, 1)
	ctx := r.at("Find", 1, func() {
		go func() { acked <- r.store.Ack(r.Context(), "", leases(leased)) }()
		for !r.world.Waiting() {
			runtime.Gosched()
		}
	})
	r.ok(r.store.ReportFailed(ctx, join, leased.ID))
	r.ok(<-acked)
	got, err := r.store.GetJoin(ctx, join)
	r.ok(err)
	require.Equal(t, 1, got.CompletedSteps+got.FailedSteps)
	steps, err := r.store.ListSteps(ctx, join, outmill.WorkItemID{}, 10)
	r.ok(err)
	require.Equal(t, got.CompletedSteps == 1, steps[0].Status == roles.StepCompleted)
}
