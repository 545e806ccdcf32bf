package storetest

import (
	"slices"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func suspectSentences() []sentence {
	return []sentence{
		{"an expiry is counted when the record is reaped", expiryCountsOnReap},
		{"an expiry is counted when the record is claimed again before it is reaped", expiryCountsOnClaim},
		{"the first expiries of a record count no attempt", firstExpiriesAreFree},
		{"each expiry of a suspect counts as an attempt, reaped", suspectExpiryReaped},
		{"each expiry of a suspect counts as an attempt, claimed again", suspectExpiryClaimed},
		{"a suspect is handed out alone", suspectIsAlone},
		{"a suspect is handed out alone when its second expiry is found by the claim", suspectFoundByClaim},
		{"suspects are handed out alone in ordered claims", suspectIsAloneInOrder},
		{"suspects and others all get their turn", suspectsAndOthers},
		{"abandon, snooze and requeue make a suspect one no longer", settledIsNoSuspect},
		{"a released suspect is one still", releasedIsSuspect},
		{"the neighbours of a record that kills its workers are never counted to death", neighboursLive},
		{"a dead worker's records all come to another, in full", deadWorker},
	}
}

// die lets the leases of all leased records end.
func (e *env) die(reaped bool) {
	e.T.Helper()
	e.Elapse(leaseOf + time.Minute)
	if reaped {
		e.Reap(1000)
	}
}

func expiryCountsOnReap(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	for n := 1; n <= 3; n++ {
		r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
		require.Equal(e.T, n-1, r.Expiries)
		e.die(true)
		require.Equal(e.T, n, e.Get(r).Expiries)
	}
}

func expiryCountsOnClaim(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	for n := range 4 {
		r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
		require.Equal(e.T, n, r.Expiries)
		e.die(false)
	}
}

func firstExpiriesAreFree(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	for range outmill.SuspectExpiries {
		require.Zero(e.T, e.ClaimOne(outmill.NewOwnerToken(), "m1").Attempts)
		e.die(true)
	}
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.Zero(e.T, r.Attempts)
	require.True(e.T, r.Suspect())
}

func suspectExpiryReaped(e *env)  { e.checkSuspectExpiries(true) }
func suspectExpiryClaimed(e *env) { e.checkSuspectExpiries(false) }

func (e *env) checkSuspectExpiries(reaped bool) {
	e.Filled(suite.Rec(orders, "m1"))
	for range outmill.SuspectExpiries {
		e.ClaimOne(outmill.NewOwnerToken(), "m1")
		e.die(reaped)
	}
	for n := range 4 {
		r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
		require.Equal(e.T, n, r.Attempts)
		require.Equal(e.T, outmill.SuspectExpiries+n, r.Expiries)
		require.Equal(e.T, n, e.Get(r).Attempts, "attempts, as stored")
		e.die(reaped)
	}
}

// makeSuspects claims all records and lets their leases end, until the records are suspects.
func (e *env) makeSuspects(reaped bool) {
	e.T.Helper()
	for range outmill.SuspectExpiries {
		e.ClaimAll()
		e.die(reaped)
	}
}

func suspectIsAlone(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "s1", "s2")...)
	e.makeSuspects(true)
	e.Append(suite.Recs(orders, suite.Plain, "a", "b", "c")...)
	e.requireAloneAndComplete([]string{"s1", "s2"}, []string{"s1", "s2", "a", "b", "c"})
}

func suspectFoundByClaim(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "s1", "s2")...)
	e.makeSuspects(false)
	e.Append(suite.Recs(orders, suite.Plain, "a", "b", "c")...)
	e.requireAloneAndComplete([]string{"s1", "s2"}, []string{"s1", "s2", "a", "b", "c"})
}

func suspectIsAloneInOrder(e *env) {
	e.Filled(append(suite.Keyed("k", "s1", "s2"), suite.Rec(orders, "s3"))...)
	e.makeSuspects(true)
	e.Append(suite.Keyed("k", "m3", "m4")...)
	e.Append(suite.Keyed("other", "m5")...)
	all := e.requireAloneAndComplete([]string{"s1", "s2", "s3"}, []string{"s1", "s2", "s3", "m3", "m4", "m5"}, suite.ByKey)
	require.Equal(e.T, []string{"s1", "s2", "m3", "m4"}, ofKey("k", all))
}

func ofKey(key string, records []*outmill.Record) []string {
	list := []string{}
	for _, r := range records {
		if r.Key == key {
			list = append(list, r.MessageID)
		}
	}
	return list
}

// requireAloneAndComplete claims and acks until no record is left, and requires that each
// suspect is claimed alone.
func (e *env) requireAloneAndComplete(alone, all []string, changes ...func(*outmill.ClaimRequest)) []*outmill.Record {
	e.T.Helper()
	owner := outmill.NewOwnerToken()
	var got []*outmill.Record
	for {
		found := e.Claim(owner, changes...)
		if len(found) == 0 {
			break
		}
		for _, r := range found {
			require.Equal(e.T, slices.Contains(alone, r.MessageID), r.Suspect(), "suspect %s", r.MessageID)
			require.False(e.T, r.Suspect() && len(found) > 1, "%s was handed out together with %q", r.MessageID, suite.Names(found))
		}
		e.Ack(found...)
		got = append(got, found...)
	}
	require.ElementsMatch(e.T, all, suite.Names(got))
	return got
}

// suspectsAndOthers requires that no suspect waits for ever behind a backlog, and no backlog
// behind suspects.
func suspectsAndOthers(e *env) {
	e.Filled(suite.Rec(orders, "suspect"))
	e.makeSuspects(true)
	e.Append(suite.Recs(orders, suite.Plain, suite.Numbered(100)...)...)
	owner := outmill.NewOwnerToken()
	claims := 0
	for total := 0; total < 101; claims++ {
		found := e.Claim(owner, suite.Limit(10))
		require.NotEmpty(e.T, found)
		total += len(found)
		e.Ack(found...)
	}
	require.LessOrEqual(e.T, claims, 150, "claims for 101 records")
}

func settledIsNoSuspect(e *env) {
	for _, settle := range []func(*outmill.Record){
		func(r *outmill.Record) { e.Abandon(0, r) },
		func(r *outmill.Record) { e.Snooze(0, r) },
		func(r *outmill.Record) { e.Fail(r); e.Requeue(r) },
	} {
		e.Filled(suite.Rec(orders, "m1"))
		e.makeSuspects(true)
		r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
		require.True(e.T, r.Suspect())
		settle(r)
		r = e.ClaimOne(outmill.NewOwnerToken(), "m1")
		require.False(e.T, r.Suspect())
		e.Ack(r)
	}
}

func releasedIsSuspect(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	e.makeSuspects(true)
	e.Release(e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.True(e.T, r.Suspect())
	require.Zero(e.T, r.Attempts)
}

func neighboursLive(e *env) {
	neighbours := suite.Numbered(20)
	e.Filled(append([]*outmill.Record{suite.Rec(orders, "killer")}, suite.Recs(orders, suite.Plain, neighbours...)...)...)
	var lived []string
	for range 100 {
		found := e.Claim(outmill.NewOwnerToken(), suite.Limit(8))
		killer := suite.ByName(found)["killer"]
		switch {
		case killer != nil && killer.Suspect() && killer.Attempts >= 3:
			e.Fail(killer)
		case killer != nil:
			e.die(len(lived)%2 == 0)
		default:
			for _, r := range found {
				require.Zero(e.T, r.Attempts, r.MessageID)
			}
			e.Ack(found...)
			lived = append(lived, suite.Names(found)...)
		}
	}
	require.ElementsMatch(e.T, neighbours, lived)
	dead := e.List(outmill.ListQuery{Status: outmill.StatusDead})
	require.Equal(e.T, []string{"killer"}, suite.Names(dead))
}

func deadWorker(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(30)...)...)
	lost := e.ClaimN(outmill.NewOwnerToken(), 30)
	other := &env{e.On(e.Reopen())}
	e.Elapse(leaseOf + time.Minute)
	found := other.ClaimAll()
	require.ElementsMatch(e.T, suite.Numbered(30), suite.Names(found))
	for _, r := range found {
		require.Equal(e.T, 2, r.Claims)
		require.Equal(e.T, []byte("payload of "+r.MessageID), r.Payload)
	}
	e.Ack(lost...)
	require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusLeased}), 30, "the dead worker's late acks")
	other.Ack(found...)
	require.Empty(e.T, e.ClaimAll())
}
