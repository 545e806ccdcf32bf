package storetest

import (
	"math"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

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
	e.Filled(
		suite.Rec(orders, "none"),
		suite.Rec(orders, "past", withDue(time.Now().Add(-time.Hour))),
		suite.Rec(orders, "long past", withDue(time.Date(1950, 1, 1, 0, 0, 0, 0, time.UTC))))
	require.ElementsMatch(e.T, []string{"none", "past", "long past"}, suite.Names(e.ClaimAll()))
}

func dueLater(e *env) {
	e.Filled(suite.Rec(orders, "m1", withDue(time.Now().Add(time.Hour))))
	require.Empty(e.T, e.ClaimAll())
	e.Elapse(59 * time.Minute)
	require.Empty(e.T, e.ClaimAll())
	e.Elapse(2 * time.Minute)
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func delayCounts(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithDelay(time.Hour)))
	e.Elapse(59 * time.Minute)
	require.Empty(e.T, e.ClaimAll())
	e.Elapse(2 * time.Minute)
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func delayWins(e *env) {
	e.Filled(
		suite.Rec(orders, "due before the delay", withDue(time.Now().Add(-time.Hour)), suite.WithDelay(time.Hour)),
		suite.Rec(orders, "due behind the delay", withDue(time.Now().Add(100*time.Hour)), suite.WithDelay(time.Hour)))
	require.Empty(e.T, e.ClaimAll())
	e.Elapse(61 * time.Minute)
	require.Len(e.T, e.ClaimAll(), 2)
}

func dueInZone(e *env) {
	due := time.Now().Add(time.Hour)
	r := suite.Rec(orders, "m1", withDue(due.In(time.FixedZone("far east", 14*3600))))
	e.Filled(r)
	require.WithinDuration(e.T, due, e.Get(r).DueAt, 2*time.Millisecond)
	require.Empty(e.T, e.ClaimAll())
	e.Elapse(61 * time.Minute)
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func dueIsFilled(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	found := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.RequireAbout(found.CreatedAt, found.DueAt, "due at")
	require.False(e.T, found.CreatedAt.IsZero())
}

func expiredIsNotClaimed(e *env) {
	e.Filled(
		suite.Rec(orders, "past", withExpiry(time.Now().Add(-time.Hour))),
		suite.Rec(orders, "soon", withExpiry(time.Now().Add(time.Hour))))
	e.Release(e.ClaimOne(outmill.NewOwnerToken(), "soon"))
	e.Elapse(61 * time.Minute)
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		require.Empty(e.T, e.ClaimAll(suite.InOrder(order, outmill.KeyBlock)), "order %s", order)
	}
}

func ttlCounts(e *env) {
	r := suite.Rec(orders, "m1", suite.WithTTL(time.Hour))
	e.Filled(r)
	require.WithinDuration(e.T, e.Get(r).CreatedAt.Add(time.Hour), e.Get(r).ExpiresAt, time.Second)
	e.Elapse(59 * time.Minute)
	e.Release(e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	e.Elapse(2 * time.Minute)
	require.Empty(e.T, e.ClaimAll())
}

func ttlWins(e *env) {
	e.Filled(
		suite.Rec(orders, "expired", withExpiry(time.Now().Add(-time.Hour)), suite.WithTTL(time.Hour)),
		suite.Rec(orders, "long", withExpiry(time.Now().Add(100*time.Hour)), suite.WithTTL(time.Hour)))
	found := e.ClaimAll()
	require.Len(e.T, found, 2)
	e.Release(found...)
	e.Elapse(61 * time.Minute)
	require.Empty(e.T, e.ClaimAll())
}

func expiresBeforeDue(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithDelay(2*time.Hour), suite.WithTTL(time.Hour)))
	for range 3 {
		require.Empty(e.T, e.ClaimAll())
		e.Elapse(61 * time.Minute)
	}
}

func expiresWhileLeased(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithTTL(time.Minute)))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Elapse(2 * time.Minute)
	e.Ack(r)
	e.RequireProcessed(r)
}

func expiredLease(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithTTL(time.Minute)))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Elapse(leaseOf + time.Minute)
	require.Empty(e.T, e.ClaimAll())
	e.Reap(10)
	require.Empty(e.T, e.ClaimAll())
	e.Did(e.Store.ExpireDue, 10)
	e.RequireStatus(outmill.StatusDead, r)
}

func nextAttempt(e *env) {
	delayed := suite.Rec(orders, "m1", suite.WithDelay(time.Hour))
	e.Filled(delayed)
	before := e.Get(delayed)
	require.WithinDuration(e.T, before.CreatedAt.Add(time.Hour), before.DueAt, time.Second)
	require.WithinDuration(e.T, before.DueAt, before.NextAttemptAt, time.Second)
	e.Elapse(61 * time.Minute)
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.True(e.T, r.NextAttemptAt.IsZero(), "next attempt of a leased record")
	require.WithinDuration(e.T, r.CreatedAt.Add(time.Hour), r.DueAt, time.Second, "due at, an hour later")
	e.Abandon(2*time.Hour, r)
	got := e.Get(r)
	require.WithinDuration(e.T, r.DueAt, got.DueAt, time.Millisecond, "due at, after an abandon")
	e.RequireAbout(e.Now().Add(2*time.Hour), got.NextAttemptAt, "next attempt at")
	e.Elapse(121 * time.Minute)
	r = e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Fail(r)
	require.True(e.T, e.Get(r).NextAttemptAt.IsZero(), "next attempt of a dead record")
}

func expiredRetry(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithTTL(time.Hour)))
	e.Abandon(30*time.Minute, e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	e.Elapse(61 * time.Minute)
	require.Empty(e.T, e.ClaimAll())
}

func farTimes(e *env) {
	far := time.Date(9999, 12, 31, 23, 0, 0, 0, time.UTC)
	old := time.Date(1, 6, 1, 0, 0, 0, 0, time.UTC)
	later := suite.Rec(orders, "due far away", withDue(far))
	never := suite.Rec(orders, "expires far away", withExpiry(far))
	gone := suite.Rec(orders, "expired long ago", withExpiry(old))
	early := suite.Rec(orders, "due long ago", withDue(old))
	e.Filled(later, never, gone, early)
	require.WithinDuration(e.T, far, e.Get(later).DueAt, time.Second)
	require.WithinDuration(e.T, far, e.Get(never).ExpiresAt, time.Second)
	require.ElementsMatch(e.T, []string{"expires far away", "due long ago"}, suite.Names(e.ClaimAll()))
}

func longestDurations(e *env) {
	const longest = time.Duration(math.MaxInt64)
	e.Filled(suite.Rec(orders, "later", suite.WithDelay(longest)), suite.Rec(orders, "m1", suite.WithTTL(longest)))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1", func(r *outmill.ClaimRequest) { r.Lease = longest })
	require.Empty(e.T, e.ClaimAll())
	require.True(e.T, r.LeaseUntil.After(time.Now().AddDate(200, 0, 0)), "lease until %s", r.LeaseUntil)
	e.Abandon(longest, r)
	require.Empty(e.T, e.ClaimAll())
	require.True(e.T, e.Get(r).NextAttemptAt.After(time.Now().AddDate(200, 0, 0)), "next attempt at %s", e.Get(r).NextAttemptAt)
}
