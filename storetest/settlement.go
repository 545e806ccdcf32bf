package storetest

import (
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// settlement is one of the calls that act on leases.
type settlement struct {
	name string
	// does, only and passes have the numbers of the functional specification for its effect, for
	// the leases on which it acts, and for those that it ignores.
	does, only, passes string
	apply              func(e *env, leases ...outmill.Lease) error
	// requireDone checks its effect on a record, which was before.
	requireDone func(e *env, before *outmill.Record)
}

const retryDelay = time.Hour

func settlements() []settlement {
	return []settlement{
		{"Ack", "OBX-027 OBX-028 OBX-029 ", "OBX-030 ", "OBX-031 ", applyAck, requireAcked},
		{"Abandon", "OBX-035 OBX-036 OBX-037 OBX-041 ", "OBX-038 ", "OBX-039 ", applyAbandon, requireAbandoned},
		{"Fail", "OBX-042 OBX-043 ", "OBX-044 ", "OBX-045 ", applyFail, requireFailed},
		{"Release", "", "", "", applyRelease, requireReleased},
		{"Snooze", "", "", "", applySnooze, requireSnoozed},
		{"Extend", "", "", "", applyExtend, requireExtended},
	}
}

func applyAck(e *env, leases ...outmill.Lease) error { return e.Store.Ack(e.Ctx, worker, leases) }

func applyAbandon(e *env, leases ...outmill.Lease) error {
	return e.Store.Abandon(e.Ctx, suite.DelayedBy(retryDelay, "boom", leases))
}

func applyFail(e *env, leases ...outmill.Lease) error {
	return e.Store.Fail(e.Ctx, suite.Failures(false, "poison", leases))
}

func applyRelease(e *env, leases ...outmill.Lease) error { return e.Store.Release(e.Ctx, leases) }

func applySnooze(e *env, leases ...outmill.Lease) error {
	return e.Store.Snooze(e.Ctx, suite.DelayedBy(retryDelay, "", leases))
}

func applyExtend(e *env, leases ...outmill.Lease) error {
	_, err := e.Store.Extend(e.Ctx, 3*leaseOf, leases)
	return err
}

func requireAcked(e *env, before *outmill.Record) {
	e.T.Helper()
	if e.Options.Retain == 0 {
		e.RequireGone(before)
		return
	}
	got := e.Get(before)
	require.Equal(e.T, outmill.StatusProcessed, got.Status)
	require.Equal(e.T, worker, got.ProcessedBy, "processed by")
	e.RequireAbout(e.Now(), got.ProcessedAt, "processed at")
	requireNoLease(e, got)
	require.Equal(e.T, before.Payload, got.Payload)
	require.Equal(e.T, before.Attempts, got.Attempts)
}

func requireAbandoned(e *env, before *outmill.Record) {
	e.T.Helper()
	got := e.Get(before)
	requirePending(e, before, got)
	require.Equal(e.T, before.Attempts+1, got.Attempts, "attempts")
	require.Equal(e.T, "boom", got.LastError)
	require.Zero(e.T, got.Expiries, "expiries")
	requireNextAttempt(e, before, got, e.Now().Add(retryDelay))
}

func requireNextAttempt(e *env, before, got *outmill.Record, want time.Time) {
	e.T.Helper()
	e.RequireAbout(want, got.NextAttemptAt, "next attempt at")
	require.WithinDuration(e.T, before.DueAt, got.DueAt, time.Millisecond, "due at")
}

func requireFailed(e *env, before *outmill.Record) {
	e.T.Helper()
	got := e.Get(before)
	require.Equal(e.T, outmill.StatusDead, got.Status)
	require.Equal(e.T, "poison", got.LastError)
	require.Equal(e.T, before.Attempts+1, got.Attempts, "attempts")
	require.Equal(e.T, before.Payload, got.Payload)
	requireNoLease(e, got)
}

func requireReleased(e *env, before *outmill.Record) {
	e.T.Helper()
	got := e.Get(before)
	requirePending(e, before, got)
	require.Equal(e.T, before.Attempts, got.Attempts, "attempts")
	require.Equal(e.T, before.Expiries, got.Expiries, "expiries")
	require.Equal(e.T, before.LastError, got.LastError)
	require.WithinDuration(e.T, before.DueAt, got.DueAt, time.Millisecond, "due at")
	require.False(e.T, got.NextAttemptAt.After(e.Now()), "next attempt at %s", got.NextAttemptAt)
}

func requireSnoozed(e *env, before *outmill.Record) {
	e.T.Helper()
	got := e.Get(before)
	requirePending(e, before, got)
	require.Equal(e.T, before.Attempts, got.Attempts, "attempts")
	require.Zero(e.T, got.Expiries, "expiries")
	require.Equal(e.T, before.LastError, got.LastError)
	requireNextAttempt(e, before, got, e.Now().Add(retryDelay))
}

func requireExtended(e *env, before *outmill.Record) {
	e.T.Helper()
	got := e.Get(before)
	require.Equal(e.T, outmill.StatusLeased, got.Status)
	require.Equal(e.T, before.Owner, got.Owner)
	require.Equal(e.T, before.Claims, got.Claims)
	require.Equal(e.T, before.Expiries, got.Expiries)
	e.RequireAbout(e.Now().Add(3*leaseOf), got.LeaseUntil, "lease until")
}

func requirePending(e *env, before, got *outmill.Record) {
	e.T.Helper()
	require.Equal(e.T, outmill.StatusPending, got.Status)
	require.Equal(e.T, before.Claims, got.Claims, "claims")
	requireNoLease(e, got)
}

func requireNoLease(e *env, got *outmill.Record) {
	e.T.Helper()
	require.True(e.T, got.Owner.IsZero(), "owner")
	require.True(e.T, got.LeaseUntil.IsZero(), "lease until")
}
