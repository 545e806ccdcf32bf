package memdriver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

// A claim that still knows an ended pause loses no record to it.
func TestRace_PauseNoteDropped(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	scope := roles.PauseScope{TenantID: "acme"}
	r.append(ctx, &outmill.Record{TenantID: "acme", TimeToLive: time.Second}) // leaves an empty note behind
	r.ok(r.store.Pause(ctx, scope, "ann", "x"))
	require.Empty(t, r.claim(ctx, a, 5, anyOrder))
	r.Elapse(r.store, 2*time.Second)
	_, err := r.store.ExpireDue(ctx, 10)
	r.ok(err)
	r.append(ctx, &outmill.Record{MessageID: "stuck", TenantID: "acme"})
	// F2 has read the pauses. The pause ends, F1 sees the note empty, F2 holds the row, F1 drops the note.
	r.claim(r.at("Apply", 1, func() {
		_, err := r.store.Resume(ctx, scope)
		r.ok(err)
		r.append(ctx, rec("other", ""))
		first := make(chan bool)
		done := make(chan bool)
		go func() {
			defer close(done)
			r.claim(r.at("Apply", 1, func() { close(first); <-r.world.Step }), b, 1, anyOrder)
		}()
		// F1 is there, or it waits for F2.
		r.reaches(first)
		r.world.AfterEnd = func() { r.world.AfterEnd = nil; r.world.Step <- true; <-done }
	}), a, 5, anyOrder)
	r.Elapse(r.store, time.Hour)
	r.store.ReapExpired(ctx, 10)
	got := append(ids(r.claim(ctx, c, 5, anyOrder)), ids(r.claim(ctx, c, 5))...)
	require.Contains(t, got, "stuck")
}

// A claim parks no record after the operator has requeued its key.
func TestRace_ParkedAfterRequeue(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	r.append(ctx, rec("k1", "k"))
	k1 := r.claim(ctx, a, 1, parks)
	r.ok(r.store.Fail(ctx, []outmill.Settlement{{Lease: leases(k1...)[0], Err: "x", Park: true}}))
	r.append(ctx, rec("k2", "k"))
	requeued := make(chan error, 1)
	records := r.claim(r.at("Apply", 1, func() {
		go func() {
			_, err := r.store.Requeue(ctx, k1[0].ID)
			requeued <- err
		}()
		// It ends, or it waits for the claim.
		require.Eventually(t, func() bool { return len(requeued) > 0 || r.world.Waiting() }, time.Minute, time.Millisecond)
	}), b, 5, parks)
	r.ok(<-requeued)
	got := ids(records)
	r.ok(r.store.Ack(ctx, "", leases(records...)))
	for range 5 {
		records := r.claim(ctx, b, 5, parks)
		got = append(got, ids(records)...)
		r.ok(r.store.Ack(ctx, "", leases(records...)))
	}
	require.Equal(t, []string{"k1", "k2"}, got)
}

// A key is free soon after the paused record that blocks it was deleted.
func TestRace_DeletedWhileNoted(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	r.ok(r.store.Pause(ctx, roles.PauseScope{TenantID: "acme"}, "ann", "x"))
	k1 := &outmill.Record{MessageID: "k1", Key: "k", TenantID: "acme", TimeToLive: 24 * time.Hour}
	r.append(ctx, k1)
	r.append(ctx, rec("k2", "k"))
	list, err := r.store.List(ctx, outmill.ListQuery{Group: group, Limit: 5})
	r.ok(err)
	require.Empty(t, r.claim(r.at("Apply", 1, func() {
		n, err := r.store.Delete(ctx, list[0].ID)
		r.ok(err)
		require.Equal(t, 1, n)
	}), a, 5))
	r.Elapse(r.store, 10*time.Minute)
	require.Equal(t, []string{"k2"}, ids(r.claim(ctx, a, 5)))
}

// Readers of a group that claim with and without an order leave no key that nobody claims.
func TestRace_KeyNoteDropped(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	r.append(ctx, rec("k1", "k"), rec("k2", "k"))
	k1 := r.claim(ctx, a, 1)
	require.Empty(t, r.claim(ctx, b, 5))      // holds k2 under a note
	r.ok(r.store.Ack(ctx, "", leases(k1...))) // opens it
	k2 := r.claim(ctx, a, 1, anyOrder)        // takes k2: the note is empty, and open
	require.Equal(t, []string{"k2"}, ids(k2))
	// F has seen the note empty, and no row. B holds k3 under the note, or waits for F. F drops it.
	held := make(chan bool)
	k3 := r.claim(r.at("Apply", 1, func() {
		r.append(ctx, rec("k3", "k"))
		go func() {
			defer close(held)
			r.claim(ctx, b, 5)
		}()
		r.reaches(held)
	}), c, 1, anyOrder) // F looks again, and may take k3 then
	<-held
	r.ok(r.store.Ack(ctx, "", leases(append(k2, k3...)...)))
	r.Elapse(r.store, time.Hour)
	r.append(ctx, rec("k4", "k"))
	var got []string
	for range 5 {
		records := r.claim(ctx, b, 5)
		got = append(got, ids(records)...)
		r.ok(r.store.Ack(ctx, "", leases(records...)))
	}
	require.Contains(t, got, "k4")
}

// A key is free when the lease of an expired record ends.
func TestRace_NoteOfAnExpiredLease(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	r.store = r.serial // serial
	ctx := r.Context()
	r.register(ctx)
	k1 := rec("k1", "k")
	k1.TimeToLive = 30 * time.Second
	r.append(ctx, k1, rec("k2", "k"))
	require.Len(t, r.claim(ctx, a, 1), 1)
	require.Empty(t, r.claim(ctx, b, 5)) // holds k2
	r.Elapse(r.store, 2*time.Minute)
	require.Equal(t, []string{"k2"}, ids(r.claim(ctx, b, 5)))
}

// A held record that changes while a claim takes it stays under a note that claims look at, although a pause blocks the later ones.
func TestRace_HeldChangesBesideClaim(t *testing.T) {
	t.Parallel()
	h := newInterleaved(t, storetest.Options{Retain: time.Hour}, 0)
	r := &race{t, h, h.open()}
	ctx := r.Context()
	r.register(ctx)
	join := &roles.Join{ExpectedSteps: 1}
	r.ok(r.store.StartJoin(ctx, join))
	k2, k3 := rec("k2", "k"), rec("k3", "k")
	k3.TenantID = "acme"
	r.append(ctx, rec("k1", "k"), k2, k3)
	k1 := r.claim(ctx, a, 1)
	require.Empty(t, r.claim(ctx, b, 5)) // holds k2 and k3
	r.ok(r.store.Ack(ctx, "", leases(k1...)))
	r.ok(r.store.Pause(ctx, roles.PauseScope{TenantID: "acme"}, "ann", "x"))
	// The claim loses k2, and closes the note for k3. It looks at the note again.
	got := r.claim(r.at("Apply", 1, func() { r.ok(r.store.AttachStep(ctx, join.ID, k2.ID)) }), b, 5)
	require.Equal(t, []string{"k2"}, ids(got))
}
