package storetest

import (
	"slices"
	"time"

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

// die lets the leases of all that is leased end.
func (e *env) die(reaped bool) {
	e.t.Helper()
	e.elapse(leaseOf + time.Minute)
	if reaped {
		e.reap(1000)
	}
}

func expiryCountsOnReap(e *env) {
	e.filled(rec(orders, "m1"))
	for n := 1; n <= 3; n++ {
		r := e.claimOne(outmill.NewOwnerToken(), "m1")
		require.Equal(e.t, n-1, r.Expiries)
		e.die(true)
		require.Equal(e.t, n, e.get(r).Expiries)
	}
}

func expiryCountsOnClaim(e *env) {
	e.filled(rec(orders, "m1"))
	for n := range 4 {
		r := e.claimOne(outmill.NewOwnerToken(), "m1")
		require.Equal(e.t, n, r.Expiries)
		e.die(false)
	}
}

func firstExpiriesAreFree(e *env) {
	e.filled(rec(orders, "m1"))
	for range outmill.SuspectExpiries {
		require.Zero(e.t, e.claimOne(outmill.NewOwnerToken(), "m1").Attempts)
		e.die(true)
	}
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	require.Zero(e.t, r.Attempts)
	require.True(e.t, r.Suspect())
}

func suspectExpiryReaped(e *env)  { e.checkSuspectExpiries(true) }
func suspectExpiryClaimed(e *env) { e.checkSuspectExpiries(false) }

func (e *env) checkSuspectExpiries(reaped bool) {
	e.filled(rec(orders, "m1"))
	for range outmill.SuspectExpiries {
		e.claimOne(outmill.NewOwnerToken(), "m1")
		e.die(reaped)
	}
	for n := range 4 {
		r := e.claimOne(outmill.NewOwnerToken(), "m1")
		require.Equal(e.t, n, r.Attempts)
		require.Equal(e.t, outmill.SuspectExpiries+n, r.Expiries)
		require.Equal(e.t, n, e.get(r).Attempts, "attempts, as stored")
		e.die(reaped)
	}
}

// makeSuspects lets a worker die over all that is claimable, so often that it
// is suspected.
func (e *env) makeSuspects(reaped bool) {
	e.t.Helper()
	for range outmill.SuspectExpiries {
		e.claimAll()
		e.die(reaped)
	}
}

func suspectIsAlone(e *env) {
	e.filled(recs(orders, plain, "s1", "s2")...)
	e.makeSuspects(true)
	e.append(recs(orders, plain, "a", "b", "c")...)
	e.requireAloneAndComplete([]string{"s1", "s2"}, []string{"s1", "s2", "a", "b", "c"})
}

func suspectFoundByClaim(e *env) {
	e.filled(recs(orders, plain, "s1", "s2")...)
	e.makeSuspects(false)
	e.append(recs(orders, plain, "a", "b", "c")...)
	e.requireAloneAndComplete([]string{"s1", "s2"}, []string{"s1", "s2", "a", "b", "c"})
}

func suspectIsAloneInOrder(e *env) {
	e.filled(append(keyed("k", "s1", "s2"), rec(orders, "s3"))...)
	e.makeSuspects(true)
	e.append(keyed("k", "m3", "m4")...)
	e.append(keyed("other", "m5")...)
	all := e.requireAloneAndComplete([]string{"s1", "s2", "s3"}, []string{"s1", "s2", "s3", "m3", "m4", "m5"}, byKey)
	require.Equal(e.t, []string{"s1", "s2", "m3", "m4"}, ofKey("k", all))
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

// requireAloneAndComplete claims and acks until nothing is left.
func (e *env) requireAloneAndComplete(alone, all []string, changes ...func(*outmill.ClaimRequest)) []*outmill.Record {
	e.t.Helper()
	owner := outmill.NewOwnerToken()
	var got []*outmill.Record
	for {
		found := e.claim(owner, changes...)
		if len(found) == 0 {
			break
		}
		for _, r := range found {
			require.Equal(e.t, slices.Contains(alone, r.MessageID), r.Suspect(), "suspect %s", r.MessageID)
			require.False(e.t, r.Suspect() && len(found) > 1, "%s was handed out together with %q", r.MessageID, names(found))
		}
		e.ack(found...)
		got = append(got, found...)
	}
	require.ElementsMatch(e.t, all, names(got))
	return got
}

// suspectsAndOthers: neither may a suspect wait behind a backlog for ever, nor
// a backlog behind suspects.
func suspectsAndOthers(e *env) {
	e.filled(rec(orders, "suspect"))
	e.makeSuspects(true)
	e.append(recs(orders, plain, numbered(100)...)...)
	owner := outmill.NewOwnerToken()
	claims := 0
	for total := 0; total < 101; claims++ {
		found := e.claim(owner, limit(10))
		require.NotEmpty(e.t, found)
		total += len(found)
		e.ack(found...)
	}
	require.LessOrEqual(e.t, claims, 150, "claims for 101 records")
}

func settledIsNoSuspect(e *env) {
	for _, settle := range []func(*outmill.Record){
		func(r *outmill.Record) { e.abandon(0, r) },
		func(r *outmill.Record) { e.snooze(0, r) },
		func(r *outmill.Record) { e.fail(r); e.requeue(r) },
	} {
		e.filled(rec(orders, "m1"))
		e.makeSuspects(true)
		r := e.claimOne(outmill.NewOwnerToken(), "m1")
		require.True(e.t, r.Suspect())
		settle(r)
		r = e.claimOne(outmill.NewOwnerToken(), "m1")
		require.False(e.t, r.Suspect())
		e.ack(r)
	}
}

func releasedIsSuspect(e *env) {
	e.filled(rec(orders, "m1"))
	e.makeSuspects(true)
	e.release(e.claimOne(outmill.NewOwnerToken(), "m1"))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	require.True(e.t, r.Suspect())
	require.Zero(e.t, r.Attempts)
}

func neighboursLive(e *env) {
	neighbours := numbered(20)
	e.filled(append([]*outmill.Record{rec(orders, "killer")}, recs(orders, plain, neighbours...)...)...)
	var lived []string
	for range 100 {
		found := e.claim(outmill.NewOwnerToken(), limit(8))
		killer := byName(found)["killer"]
		switch {
		case killer != nil && killer.Suspect() && killer.Attempts >= 3:
			e.fail(killer)
		case killer != nil:
			e.die(len(lived)%2 == 0)
		default:
			for _, r := range found {
				require.Zero(e.t, r.Attempts, r.MessageID)
			}
			e.ack(found...)
			lived = append(lived, names(found)...)
		}
	}
	require.ElementsMatch(e.t, neighbours, lived)
	dead := e.list(outmill.ListQuery{Status: outmill.StatusDead})
	require.Equal(e.t, []string{"killer"}, names(dead))
}

func deadWorker(e *env) {
	e.filled(recs(orders, plain, numbered(30)...)...)
	lost := e.claimN(outmill.NewOwnerToken(), 30)
	other := e.on(e.reopen())
	e.elapse(leaseOf + time.Minute)
	found := other.claimAll()
	require.ElementsMatch(e.t, numbered(30), names(found))
	for _, r := range found {
		require.Equal(e.t, 2, r.Claims)
		require.Equal(e.t, []byte("payload of "+r.MessageID), r.Payload)
	}
	e.ack(lost...)
	require.Len(e.t, e.list(outmill.ListQuery{Status: outmill.StatusLeased}), 30, "the dead worker's late acks")
	other.ack(found...)
	require.Empty(e.t, e.claimAll())
}
