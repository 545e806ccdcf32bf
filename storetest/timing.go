package storetest

import (
	"math"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func timeSentences() []sentence {
	return []sentence{
		{"OBX-013 a record without a due time, or with one that is past, is due at once", dueAtOnce},
		{"OBX-012 OBX-018 a record is not claimed before its due time", dueLater},
		{"a delay counts from the append", delayCounts},
		{"a delay wins over a due time", delayWins},
		{"a due time in any time zone is that instant", dueInZone},
		{"a store fills DueAt on delivery", dueIsFilled},
		{"a record is never claimed after its expiry, even before the janitor comes", expiredIsNotClaimed},
		{"a time to live counts from the append", ttlCounts},
		{"a time to live wins over an expiry", ttlWins},
		{"a record that expires before it is due is never claimed", expiresBeforeDue},
		{"a record that expires while it is leased may still be acked", expiresWhileLeased},
		{"a record that expired while it was leased is not claimed again", expiredLease},
		{"a record that expired while it waited for a retry is not claimed again", expiredRetry},
		{"retries do not move DueAt, and NextAttemptAt says when a pending record may be claimed", nextAttempt},
		{"times far away are times like others", farTimes},
		{"the longest delay, time to live and lease are no overflow", longestDurations},
	}
}

func withDue(due time.Time) func(*outmill.Record) {
	return func(r *outmill.Record) { r.DueAt = due }
}

func withExpiry(expires time.Time) func(*outmill.Record) {
	return func(r *outmill.Record) { r.ExpiresAt = expires }
}

func dueAtOnce(e *env) {
	e.filled(
		rec(orders, "none"),
		rec(orders, "past", withDue(time.Now().Add(-time.Hour))),
		rec(orders, "long past", withDue(time.Date(1950, 1, 1, 0, 0, 0, 0, time.UTC))))
	require.ElementsMatch(e.t, []string{"none", "past", "long past"}, names(e.claimAll()))
}

func dueLater(e *env) {
	e.filled(rec(orders, "m1", withDue(time.Now().Add(time.Hour))))
	require.Empty(e.t, e.claimAll())
	e.elapse(59 * time.Minute)
	require.Empty(e.t, e.claimAll())
	e.elapse(2 * time.Minute)
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

func delayCounts(e *env) {
	e.filled(rec(orders, "m1", withDelay(time.Hour)))
	e.elapse(59 * time.Minute)
	require.Empty(e.t, e.claimAll())
	e.elapse(2 * time.Minute)
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

func delayWins(e *env) {
	e.filled(
		rec(orders, "due before the delay", withDue(time.Now().Add(-time.Hour)), withDelay(time.Hour)),
		rec(orders, "due behind the delay", withDue(time.Now().Add(100*time.Hour)), withDelay(time.Hour)))
	require.Empty(e.t, e.claimAll())
	e.elapse(61 * time.Minute)
	require.Len(e.t, e.claimAll(), 2)
}

func dueInZone(e *env) {
	due := time.Now().Add(time.Hour)
	r := rec(orders, "m1", withDue(due.In(time.FixedZone("far east", 14*3600))))
	e.filled(r)
	require.WithinDuration(e.t, due, e.get(r).DueAt, 2*time.Millisecond)
	require.Empty(e.t, e.claimAll())
	e.elapse(61 * time.Minute)
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

func dueIsFilled(e *env) {
	e.filled(rec(orders, "m1"))
	found := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.requireAbout(found.CreatedAt, found.DueAt, "due at")
	require.False(e.t, found.CreatedAt.IsZero())
}

func expiredIsNotClaimed(e *env) {
	e.filled(
		rec(orders, "past", withExpiry(time.Now().Add(-time.Hour))),
		rec(orders, "soon", withExpiry(time.Now().Add(time.Hour))))
	e.release(e.claimOne(outmill.NewOwnerToken(), "soon"))
	e.elapse(61 * time.Minute)
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		require.Empty(e.t, e.claimAll(inOrder(order, outmill.KeyBlock)), "order %s", order)
	}
}

func ttlCounts(e *env) {
	r := rec(orders, "m1", withTTL(time.Hour))
	e.filled(r)
	require.WithinDuration(e.t, e.get(r).CreatedAt.Add(time.Hour), e.get(r).ExpiresAt, time.Second)
	e.elapse(59 * time.Minute)
	e.release(e.claimOne(outmill.NewOwnerToken(), "m1"))
	e.elapse(2 * time.Minute)
	require.Empty(e.t, e.claimAll())
}

func ttlWins(e *env) {
	e.filled(
		rec(orders, "expired", withExpiry(time.Now().Add(-time.Hour)), withTTL(time.Hour)),
		rec(orders, "long", withExpiry(time.Now().Add(100*time.Hour)), withTTL(time.Hour)))
	found := e.claimAll()
	require.Len(e.t, found, 2)
	e.release(found...)
	e.elapse(61 * time.Minute)
	require.Empty(e.t, e.claimAll())
}

func expiresBeforeDue(e *env) {
	e.filled(rec(orders, "m1", withDelay(2*time.Hour), withTTL(time.Hour)))
	for range 3 {
		require.Empty(e.t, e.claimAll())
		e.elapse(61 * time.Minute)
	}
}

func expiresWhileLeased(e *env) {
	e.filled(rec(orders, "m1", withTTL(time.Minute)))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.elapse(2 * time.Minute)
	e.ack(r)
	e.requireProcessed(r)
}

func expiredLease(e *env) {
	e.filled(rec(orders, "m1", withTTL(time.Minute)))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	e.elapse(leaseOf + time.Minute)
	require.Empty(e.t, e.claimAll())
	e.reap(10)
	require.Empty(e.t, e.claimAll())
	e.did(e.store.ExpireDue, 10)
	e.requireStatus(outmill.StatusDead, r)
}

func nextAttempt(e *env) {
	delayed := rec(orders, "m1", withDelay(time.Hour))
	e.filled(delayed)
	before := e.get(delayed)
	require.WithinDuration(e.t, before.CreatedAt.Add(time.Hour), before.DueAt, time.Second)
	require.WithinDuration(e.t, before.DueAt, before.NextAttemptAt, time.Second)
	e.elapse(61 * time.Minute)
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	require.True(e.t, r.NextAttemptAt.IsZero(), "next attempt of a leased record")
	require.WithinDuration(e.t, r.CreatedAt.Add(time.Hour), r.DueAt, time.Second, "due at, an hour later")
	e.abandon(2*time.Hour, r)
	got := e.get(r)
	require.WithinDuration(e.t, r.DueAt, got.DueAt, time.Millisecond, "due at, after an abandon")
	e.requireAbout(e.now().Add(2*time.Hour), got.NextAttemptAt, "next attempt at")
	e.elapse(121 * time.Minute)
	r = e.claimOne(outmill.NewOwnerToken(), "m1")
	e.fail(r)
	require.True(e.t, e.get(r).NextAttemptAt.IsZero(), "next attempt of a dead record")
}

func expiredRetry(e *env) {
	e.filled(rec(orders, "m1", withTTL(time.Hour)))
	e.abandon(30*time.Minute, e.claimOne(outmill.NewOwnerToken(), "m1"))
	e.elapse(61 * time.Minute)
	require.Empty(e.t, e.claimAll())
}

func farTimes(e *env) {
	far := time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC)
	old := time.Date(1, 6, 1, 0, 0, 0, 0, time.UTC)
	later := rec(orders, "due far away", withDue(far))
	never := rec(orders, "expires far away", withExpiry(far))
	gone := rec(orders, "expired long ago", withExpiry(old))
	early := rec(orders, "due long ago", withDue(old))
	e.filled(later, never, gone, early)
	require.WithinDuration(e.t, far, e.get(later).DueAt, time.Second)
	require.WithinDuration(e.t, far, e.get(never).ExpiresAt, time.Second)
	require.ElementsMatch(e.t, []string{"expires far away", "due long ago"}, names(e.claimAll()))
}

func longestDurations(e *env) {
	const longest = time.Duration(math.MaxInt64)
	e.filled(rec(orders, "later", withDelay(longest)), rec(orders, "m1", withTTL(longest)))
	r := e.claimOne(outmill.NewOwnerToken(), "m1", func(r *outmill.ClaimRequest) { r.Lease = longest })
	require.Empty(e.t, e.claimAll())
	require.True(e.t, r.LeaseUntil.After(time.Now().AddDate(200, 0, 0)), "lease until %s", r.LeaseUntil)
	e.abandon(longest, r)
	require.Empty(e.t, e.claimAll())
	require.True(e.t, e.get(r).NextAttemptAt.After(time.Now().AddDate(200, 0, 0)), "next attempt at %s", e.get(r).NextAttemptAt)
}
