package memdriver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// The janitor leaves a dedup key that was taken again since it has read it.
func TestRace_DedupKeyTakenAgain(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	dup := func() *outmill.Record { return &outmill.Record{DedupKey: "d"} }
	r.append(ctx, dup())
	r.Elapse(r.store, 48*time.Hour)
	_, err := r.store.DeleteDedupKeys(r.at("Delete", 1, func() { r.append(ctx, dup()) }), 10)
	r.ok(err)
	r.append(ctx, dup()) // within the window of the second
	require.Len(t, r.claim(ctx, a, 10), 2, "the first, the second, and no third")
}

// A lease that is extended while the reaper reads it stays, also where searches lock nothing.
func TestRace_ExtendBesideSweepOfLeases(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	r.world.NoLocks = true
	ctx := r.Context()
	r.register(ctx)
	r.append(ctx, rec("k1", "k"))
	k1 := r.claim(ctx, a, 1)
	r.Elapse(r.store, time.Hour)
	var valid []outmill.Lease
	reaped, err := r.store.ReapExpired(r.at("Apply", 1, func() {
		var err error
		valid, err = r.store.Extend(ctx, time.Hour, leases(k1...))
		r.ok(err)
	}), 10)
	r.ok(err)
	require.False(t, len(valid) == 1 && reaped == 1, "the lease was extended by an hour, and reaped")
}

// Claims of several topics do not wait for each other. A claim and a settlement of several topics may, seldom:
// then one of them runs again.
func TestRace_DeadlocksOfTopics(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	topics := []string{"t1", "t2", "t3"}
	r.ok(r.store.RegisterGroup(ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Include: topics}}))
	for range 200 {
		for _, one := range topics {
			r.ok(r.store.Append(ctx, &outmill.Record{Topic: one, Key: "k"}))
		}
	}
	done := make(chan bool)
	for range 4 {
		go func() {
			defer func() { done <- true }()
			owner := outmill.NewOwnerToken()
			for range 40 {
				records := r.claim(ctx, owner, 6, func(q *outmill.ClaimRequest) { q.Topics.Include = topics })
				r.store.Ack(ctx, "", leases(records...))
			}
		}()
	}
	for range 4 {
		<-done
	}
	require.Less(t, 50*r.world.Deadlocks, r.world.Runs, "%d deadlocks in %d transactions", r.world.Deadlocks, r.world.Runs)
}

// Appends with the same dedup keys do not wait for each other in a circle.
func TestRace_DedupDeadlocks(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	done := make(chan bool)
	for range 2 {
		go func() {
			defer func() { done <- true }()
			for i := range 50 {
				var list []*outmill.Record
				for n := range 4 {
					list = append(list, &outmill.Record{DedupKey: string(rune('a'+n)) + string(rune('0'+i))})
				}
				r.append(ctx, list...)
			}
		}()
	}
	<-done
	<-done
	require.Zero(t, r.world.Deadlocks, "deadlocks in %d transactions", r.world.Runs)
}

// A lease begins when it is given, however long the claim has waited for its topic.
func TestRace_LeaseOfAClaimThatWaited(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	r.append(ctx, rec("k1", "k"))
	require.Len(t, r.claim(r.at("Page", 1, func() { r.Elapse(r.store, 2*time.Minute) }), a, 1), 1)
	require.Empty(t, r.claim(ctx, b, 1), "the lease of a minute had ended when it was given")
}

// A page with Unrouted may have nothing else (godoc of Page): the claim then returns nothing, for ever.
// By reading: claim_by_key.go, open: "if _, takes := routes.First(...); !takes { return page, true, nil }".

// List leaves out a record that is deleted while it reads.
func TestRace_ListBesideAck(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	r.world.Views = true
	ctx := r.Context()
	r.register(ctx)
	r.append(ctx, rec("m", ""))
	got := r.claim(ctx, a, 1)
	require.NotPanics(t, func() {
		_, err := r.store.List(r.at("Load", 1, func() { r.ok(r.store.Ack(ctx, "", leases(got...))) }), outmill.ListQuery{Group: group, Limit: 5})
		r.ok(err)
	})
}

// A claim looks for topics again if pauses have changed, also when its transaction runs again.
func TestRace_RepausedIsForgotten(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	both := outmill.Topics{Include: []string{"t1", "t2"}}
	r.ok(r.store.RegisterGroup(ctx, outmill.Registration{Group: group, Topics: both}))
	other := r.open() // another process pauses
	scope := roles.PauseScope{Topic: "t2"}
	r.ok(other.Pause(ctx, scope, "ann", "x"))
	r.ok(r.store.Append(ctx, &outmill.Record{Topic: "t1"}, &outmill.Record{Topic: "t1"}, &outmill.Record{Topic: "t2"}))
	of := func(q *outmill.ClaimRequest) { q.Topics = both }
	require.Len(t, r.claim(ctx, a, 1, of), 1)
	_, err := other.Resume(ctx, scope)
	r.ok(err)
	once := true
	r.world.Again = func() bool { again := once; once = false; return again }
	require.Len(t, r.claim(ctx, a, 5, of), 2)
}

// Paused returns each pause once, also when its transaction runs again.
func TestRace_PausedTwice(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.ok(r.store.Pause(ctx, roles.PauseScope{Topic: topic}, "ann", "x"))
	r.world.Views = true
	once := true
	r.world.Again = func() bool { again := once; once = false; return again }
	list, err := r.store.Paused(ctx)
	r.ok(err)
	require.Len(t, list, 1)
}
