package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// settlement is one of the calls that act on leases.
type settlement struct {
	name string
	// Numbers of the functional specification for what it does, and for what
	// it passes over.
	does, passes string
	apply        func(e *env, leases ...outmill.Lease) error
	// requireDone checks what it did to a record that was as before.
	requireDone func(e *env, before *outmill.Record)
}

const retryDelay = time.Hour

func settlements() []settlement {
	return []settlement{
		{"Ack", "OBX-027 OBX-028 OBX-029 ", "OBX-030 OBX-031 ", applyAck, requireAcked},
		{"Abandon", "OBX-035 OBX-036 OBX-037 OBX-041 ", "OBX-038 OBX-039 ", applyAbandon, requireAbandoned},
		{"Fail", "OBX-042 OBX-043 ", "OBX-044 OBX-045 ", applyFail, requireFailed},
		{"Release", "", "", applyRelease, requireReleased},
		{"Snooze", "", "", applySnooze, requireSnoozed},
		{"Extend", "", "", applyExtend, requireExtended},
	}
}

func applyAck(e *env, leases ...outmill.Lease) error { return e.store.Ack(e.ctx, worker, leases) }

func applyAbandon(e *env, leases ...outmill.Lease) error {
	return e.store.Abandon(e.ctx, delayedBy(retryDelay, "boom", leases))
}

func applyFail(e *env, leases ...outmill.Lease) error {
	return e.store.Fail(e.ctx, failures(false, "poison", leases))
}

func applyRelease(e *env, leases ...outmill.Lease) error { return e.store.Release(e.ctx, leases) }

func applySnooze(e *env, leases ...outmill.Lease) error {
	return e.store.Snooze(e.ctx, delayedBy(retryDelay, "", leases))
}

func applyExtend(e *env, leases ...outmill.Lease) error {
	_, err := e.store.Extend(e.ctx, 3*leaseOf, leases)
	return err
}

func requireAcked(e *env, before *outmill.Record) {
	e.t.Helper()
	if e.options.Retain == 0 {
		e.requireGone(before)
		return
	}
	got := e.get(before)
	require.Equal(e.t, outmill.StatusProcessed, got.Status)
	require.Equal(e.t, worker, got.ProcessedBy, "processed by")
	e.requireAbout(e.now(), got.ProcessedAt, "processed at")
	requireNoLease(e, got)
	require.Equal(e.t, before.Payload, got.Payload)
	require.Equal(e.t, before.Attempts, got.Attempts)
}

func requireAbandoned(e *env, before *outmill.Record) {
	e.t.Helper()
	got := e.get(before)
	requirePending(e, before, got)
	require.Equal(e.t, before.Attempts+1, got.Attempts, "attempts")
	require.Equal(e.t, "boom", got.LastError)
	require.Zero(e.t, got.Expiries, "expiries")
	requireNextAttempt(e, before, got, e.now().Add(retryDelay))
}

func requireNextAttempt(e *env, before, got *outmill.Record, want time.Time) {
	e.t.Helper()
	e.requireAbout(want, got.NextAttemptAt, "next attempt at")
	require.WithinDuration(e.t, before.DueAt, got.DueAt, time.Millisecond, "due at")
}

func requireFailed(e *env, before *outmill.Record) {
	e.t.Helper()
	got := e.get(before)
	require.Equal(e.t, outmill.StatusDead, got.Status)
	require.Equal(e.t, "poison", got.LastError)
	require.Equal(e.t, before.Attempts, got.Attempts, "attempts count what was abandoned")
	require.Equal(e.t, before.Payload, got.Payload)
	requireNoLease(e, got)
}

func requireReleased(e *env, before *outmill.Record) {
	e.t.Helper()
	got := e.get(before)
	requirePending(e, before, got)
	require.Equal(e.t, before.Attempts, got.Attempts, "attempts")
	require.Equal(e.t, before.Expiries, got.Expiries, "expiries")
	require.Equal(e.t, before.LastError, got.LastError)
	require.WithinDuration(e.t, before.DueAt, got.DueAt, time.Millisecond, "due at")
	require.False(e.t, got.NextAttemptAt.After(e.now()), "next attempt at %s", got.NextAttemptAt)
}

func requireSnoozed(e *env, before *outmill.Record) {
	e.t.Helper()
	got := e.get(before)
	requirePending(e, before, got)
	require.Equal(e.t, before.Attempts, got.Attempts, "attempts")
	require.Zero(e.t, got.Expiries, "expiries")
	require.Equal(e.t, before.LastError, got.LastError)
	requireNextAttempt(e, before, got, e.now().Add(retryDelay))
}

func requireExtended(e *env, before *outmill.Record) {
	e.t.Helper()
	got := e.get(before)
	require.Equal(e.t, outmill.StatusLeased, got.Status)
	require.Equal(e.t, before.Owner, got.Owner)
	require.Equal(e.t, before.Claims, got.Claims)
	require.Equal(e.t, before.Expiries, got.Expiries)
	e.requireAbout(e.now().Add(3*leaseOf), got.LeaseUntil, "lease until")
}

func requirePending(e *env, before, got *outmill.Record) {
	e.t.Helper()
	require.Equal(e.t, outmill.StatusPending, got.Status)
	require.Equal(e.t, before.Claims, got.Claims, "claims")
	requireNoLease(e, got)
}

func requireNoLease(e *env, got *outmill.Record) {
	e.t.Helper()
	require.True(e.t, got.Owner.IsZero(), "owner")
	require.True(e.t, got.LeaseUntil.IsZero(), "lease until")
}
