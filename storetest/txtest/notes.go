package txtest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

const effects = "effects"

// noteSentences are about notes of the store's own messages: a handler may be stopped at any moment,
// and go on late, while others do something with its record.
func noteSentences() []sentence {
	return []sentence{
		{"a note of a lease that was lost is ErrLeaseLost, and nothing is written", noteLost},
		{"a lost lease comes before a duplicate, and leaves the transaction usable", noteLostTwice},
		{"a lease that has ended, and that nobody has taken, is valid for a note", noteAfterEnd},
		{"a note without a transaction is written whatever has become of the lease", noteWithoutTx},
		{"a handler that is stopped before its note, and goes on late, does nothing", stoppedBefore},
		{"a message whose handler is stopped is handled once, also after something was done with its record", stoppedWithin},
		{"a message that was handled and not acked is a duplicate at any time later, whatever was done with its record", stoppedAfter},
		{"an open transaction with a note stalls neither the lease of its record nor claims", noteStallsNothing},
		{"notes of records that are gone or processed are deleted after their retention, and others stay", notesOutlive},
		{"notes that stay keep no others from being deleted", notesThatStay},
	}
}

// fate is what happens to a leased record, m2 of key k, while its handler does not go on.
type fate struct {
	name    string
	happens func(e *env, r *outmill.Record)
	// back makes the record claimable afterwards; nil means that it does not come again.
	back func(e *env, r *outmill.Record)
	// keeps: nobody has taken the lease. expires: its record is one that expires.
	keeps, expires bool
}

func fates() []fate {
	nothing := func(*env, *outmill.Record) {}
	requeue := func(e *env, r *outmill.Record) { require.Positive(e.T, e.Requeue(r)) }
	return []fate{
		{name: "reaped", happens: reaped, back: nothing},
		{name: "claimed again", happens: func(e *env, r *outmill.Record) {
			reaped(e, r)
			e.again(r)
		}, back: reaped},
		{name: "a suspect", happens: func(e *env, r *outmill.Record) {
			for range outmill.SuspectExpiries {
				reaped(e, r)
				e.again(r)
			}
			reaped(e, r)
			require.True(e.T, e.Get(r).Suspect())
		}, back: nothing},
		{name: "dead", happens: dead, back: requeue},
		{name: "edited", happens: func(e *env, r *outmill.Record) {
			dead(e, r)
			workbench, ok := outmill.As[roles.Repairs](e.Store)
			require.True(e.T, ok, "the store is no roles.Repairs")
			_, err := workbench.Edit(e.Ctx, r.ID, roles.Edit{Seen: storekit.FingerprintOf(r), Payload: []byte("edited")})
			require.NoError(e.T, err, "Edit")
		}, back: requeue},
		{name: "expired", expires: true, happens: func(e *env, r *outmill.Record) {
			e.Elapse(ttl + time.Second)
			e.Reap(10)
			e.Did(e.Store.ExpireDue, 10)
			e.RequireStatus(outmill.StatusDead, r)
		}, back: requeue},
		{name: "parked", happens: func(e *env, r *outmill.Record) {
			reaped(e, r)
			e.Park(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ParkOrder))
			e.ClaimAll(suite.ParkOrder)
			e.RequireStatus(outmill.StatusDead, r)
		}, back: requeue},
		{name: "paused", happens: func(e *env, r *outmill.Record) {
			require.NoError(e.T, e.pauses().Pause(e.Ctx, roles.PauseScope{Group: group}, "ann", ""), "Pause")
			reaped(e, r)
			require.Empty(e.T, e.ClaimAll())
		}, back: func(e *env, _ *outmill.Record) {
			resumed, err := e.pauses().Resume(e.Ctx, roles.PauseScope{Group: group})
			require.NoError(e.T, err, "Resume")
			require.True(e.T, resumed)
		}},
		{name: "of a group that nobody reads", happens: func(e *env, _ *outmill.Record) {
			e.Elapse(leaseOf + time.Second)
		}, back: reaped, keeps: true},
		{name: "deleted", happens: func(e *env, r *outmill.Record) {
			reaped(e, r)
			require.Equal(e.T, 1, e.Delete(r))
		}},
	}
}

const ttl = 10 * retention

func (e *env) pauses() roles.Pauses {
	e.T.Helper()
	found, ok := outmill.As[roles.Pauses](e.Store)
	require.True(e.T, ok, "the store is no roles.Pauses")
	return found
}

// reaped lets the lease of the record end.
func reaped(e *env, _ *outmill.Record) {
	e.T.Helper()
	e.Elapse(leaseOf + time.Second)
	require.Positive(e.T, e.Reap(10))
}

func dead(e *env, r *outmill.Record) {
	e.T.Helper()
	reaped(e, r)
	e.Fail(e.again(r))
}

// again claims the record once more.
func (e *env) again(r *outmill.Record) *outmill.Record {
	e.T.Helper()
	found := e.ClaimNamed(outmill.NewOwnerToken())[r.MessageID]
	require.NotNil(e.T, found, "%s is not handed out", r.MessageID)
	return found
}

// leased returns m2, which a handler has, and m1 before it. A log holds such records, unless they expire.
func (e *env) leased() *outmill.Record {
	e.T.Helper()
	return e.leasedWith(0)
}

func (e *env) leasedWith(ttl time.Duration) *outmill.Record {
	e.T.Helper()
	e.Register(group, orders)
	e.Append(suite.Recs(orders, func(r *outmill.Record) { r.Key, r.TimeToLive = "k", ttl }, "m1", "m2")...)
	found := suite.ByName(e.ClaimOn(outmill.NewOwnerToken(), suite.ParkOrder))
	require.Len(e.T, found, 2)
	return found["m2"]
}

func noteOfRecord(r *outmill.Record) roles.Note {
	note := noteOf(r.MessageID)
	note.Lease = r.Lease()
	return note
}

// handle does what an inbox does with the record. Its handler appends an effect.
func (e *env) handle(r *outmill.Record) (duplicate bool, err error) {
	err = e.transactor().Transact(e.Ctx, func(ctx context.Context) (err error) {
		duplicate, err = e.notes().PutNote(ctx, noteOfRecord(r), 20*time.Millisecond)
		if err != nil || duplicate {
			return err
		}
		return e.Store.Append(ctx, suite.Rec(effects, "effect of "+r.MessageID))
	})
	return duplicate, err
}

func (e *env) requireEffects(n int, why string) {
	e.T.Helper()
	require.Len(e.T, e.List(outmill.ListQuery{Topic: effects}), n, why)
}

// requireHandledOnce delivers the record again, which was handled before.
func (e *env) requireHandledOnce(r *outmill.Record, why string) {
	e.T.Helper()
	again := e.again(r)
	duplicate, err := e.handle(again)
	require.NoError(e.T, err, why)
	require.True(e.T, duplicate, why)
	e.requireEffects(1, why)
	e.Ack(again)
	e.RequireProcessed(again)
}

// eachFate checks each fate of a record of its own, on a store of its own.
func (e *env) eachFate(check func(e *env, r *outmill.Record, of fate)) {
	for _, of := range fates() {
		one := e
		if of.name != fates()[0].name {
			one = &env{e.Fresh()}
		}
		lives := time.Duration(0)
		if of.expires {
			lives = ttl
		}
		check(one, one.leasedWith(lives), of)
	}
}

func noteLost(e *env) {
	e.Register(group, orders)
	settled := map[string]func(r *outmill.Record){
		"acked":     func(r *outmill.Record) { e.Ack(r) },
		"abandoned": func(r *outmill.Record) { e.Abandon(time.Hour, r) },
		"failed":    func(r *outmill.Record) { e.Fail(r) },
		"released":  func(r *outmill.Record) { e.Release(r) },
		"snoozed":   func(r *outmill.Record) { e.Snooze(time.Hour, r) },
		"reaped":    func(r *outmill.Record) { reaped(e, r) },
		"deleted":   func(r *outmill.Record) { require.Equal(e.T, 1, e.Delete(r)) },
	}
	for name, settle := range settled {
		e.Append(suite.Rec(orders, name))
		r := e.again(&outmill.Record{MessageID: name})
		settle(r)
		_, err := e.handle(r)
		require.ErrorIs(e.T, err, outmill.ErrLeaseLost, name)
		require.False(e.T, e.has(e.Ctx, "billing", name), name)
	}
	e.requireEffects(0, "of lost leases")
}

func noteLostTwice(e *env) {
	r := e.leased()
	_, err := e.handle(r)
	require.NoError(e.T, err)
	for name, wrong := range map[string]func(l *outmill.Lease){
		"owner": func(l *outmill.Lease) { l.Owner = outmill.NewOwnerToken() },
		"claim": func(l *outmill.Lease) { l.Claim++ },
		"id":    func(l *outmill.Lease) { l.ID = outmill.NewWorkItemID() },
	} {
		note := noteOfRecord(r)
		wrong(&note.Lease)
		ctx, commit, _ := e.Begin()
		_, err := e.notes().PutNote(ctx, note, soon)
		require.ErrorIs(e.T, err, outmill.ErrLeaseLost, name)
		require.True(e.T, e.put(ctx, noteOfRecord(r)), "the transaction is usable, and its own lease is valid")
		commit()
	}
}

func noteAfterEnd(e *env) {
	r := e.leased()
	e.Elapse(leaseOf + time.Second)
	// Another store on the database has not claimed the record itself.
	duplicate, err := e.on(e.Reopen()).handle(r)
	require.NoError(e.T, err)
	require.False(e.T, duplicate)
	e.requireEffects(1, "of a lease that nobody has taken")
}

func noteWithoutTx(e *env) {
	r := e.leased()
	reaped(e, r)
	require.False(e.T, e.put(e.Ctx, noteOfRecord(r)))
	require.True(e.T, e.has(e.Ctx, "billing", r.MessageID))
}

func stoppedBefore(e *env) {
	e.eachFate(func(e *env, r *outmill.Record, of fate) {
		of.happens(e, r)
		e.Elapse(retention)
		_, err := e.handle(r)
		if of.keeps {
			require.NoError(e.T, err, of.name)
			e.requireEffects(1, of.name)
			return
		}
		require.ErrorIs(e.T, err, outmill.ErrLeaseLost, of.name)
		e.requireEffects(0, of.name)
		if of.back == nil {
			return
		}
		of.back(e, r)
		_, err = e.handle(e.again(r))
		require.NoError(e.T, err, of.name)
		e.requireEffects(1, of.name)
	})
}

func stoppedWithin(e *env) {
	for _, commits := range []bool{true, false} {
		e.eachFate(func(e *env, r *outmill.Record, of fate) {
			ctx, commit, rollback := e.Begin()
			require.False(e.T, e.put(ctx, noteOfRecord(r)), of.name)
			require.NoError(e.T, e.Store.Append(ctx, suite.Rec(effects, "effect")), of.name)
			other := e.on(e.Reopen())
			e.promptly("what is done with the record of an open transaction", func(*env) { of.happens(other, r) })
			var again *outmill.Record
			if of.back != nil {
				of.back(other, r)
				again = other.again(r)
				_, err := other.handle(again)
				require.ErrorIs(e.T, err, roles.ErrNoteBusy, of.name)
			}
			if commits {
				commit()
			} else {
				rollback()
			}
			if again == nil {
				return
			}
			duplicate, err := other.handle(again)
			require.NoError(e.T, err, of.name)
			require.Equal(e.T, commits, duplicate, of.name)
			e.requireEffects(1, of.name)
		})
		e = &env{e.Fresh()}
	}
}

func stoppedAfter(e *env) {
	e.eachFate(func(e *env, r *outmill.Record, of fate) {
		_, err := e.handle(r)
		require.NoError(e.T, err, of.name)
		of.happens(e, r)
		for range 2 {
			e.Elapse(retention)
			deleted := e.Did(e.notes().DeleteNotes, 10)
			if of.back != nil {
				require.Zero(e.T, deleted, of.name)
			}
		}
		if of.back == nil {
			require.False(e.T, e.has(e.Ctx, "billing", r.MessageID), of.name)
			return
		}
		of.back(e, r)
		e.requireHandledOnce(r, of.name)
	})
}

func noteStallsNothing(e *env) {
	e.Register(group, orders)
	e.Append(suite.Rec(orders, "m1"), suite.Rec(orders, "m2"), suite.Rec(orders, "m3", suite.WithDelay(time.Minute)))
	got := e.ClaimNamed(outmill.NewOwnerToken())
	r := got["m1"]
	ctx, commit, _ := e.Begin()
	require.False(e.T, e.put(ctx, noteOfRecord(r)))
	other := e.on(e.Reopen())
	e.promptly("calls beside an open transaction with a note", func(*env) {
		standing, err := other.Store.Extend(e.Ctx, leaseOf, suite.Leases([]*outmill.Record{r}))
		require.NoError(e.T, err)
		require.Equal(e.T, []outmill.Lease{r.Lease()}, standing)
		other.Ack(got["m2"])
		e.Elapse(time.Minute + time.Second)
		require.Equal(e.T, []string{"m3"}, suite.Names(other.ClaimAll()))
		e.Elapse(leaseOf)
		require.Equal(e.T, 2, other.Reap(10))
		require.NotNil(e.T, other.again(r))
	})
	commit()
	require.True(e.T, other.has(e.Ctx, "billing", "m1"))
}

func notesOutlive(e *env) {
	e.Register(group, orders)
	e.Append(suite.Recs(orders, suite.Plain, "acked", "deleted", "dead", "leased", "late")...)
	got := e.ClaimNamed(outmill.NewOwnerToken())
	for _, name := range []string{"acked", "deleted", "dead", "leased"} {
		_, err := e.handle(got[name])
		require.NoError(e.T, err)
	}
	e.Ack(got["acked"])
	e.Fail(got["dead"])
	require.Equal(e.T, 1, e.Delete(got["deleted"]))
	e.Elapse(retention / 2)
	_, err := e.handle(got["late"])
	require.NoError(e.T, err)
	e.Ack(got["late"])
	require.Zero(e.T, e.Did(e.notes().DeleteNotes, 10), "before their retention")
	e.Elapse(retention/2 + time.Second)
	require.Equal(e.T, 2, e.Did(e.notes().DeleteNotes, 10))
	e.requireNotes("dead", "late", "leased")
	e.Elapse(retention)
	require.Equal(e.T, 1, e.Did(e.notes().DeleteNotes, 10))
	e.requireNotes("dead", "leased")
	require.Equal(e.T, 1, e.Delete(got["dead"]))
	e.Ack(got["leased"])
	e.Elapse(storekit.NoteKeptFor + time.Second)
	require.Equal(e.T, 2, e.Did(e.notes().DeleteNotes, 10))
	e.requireNotes()
}

// requireNotes checks which of the notes of notesOutlive are there.
func (e *env) requireNotes(want ...string) {
	e.T.Helper()
	found := []string{}
	for _, name := range []string{"acked", "dead", "deleted", "late", "leased"} {
		if e.has(e.Ctx, "billing", name) {
			found = append(found, name)
		}
	}
	require.ElementsMatch(e.T, want, found)
}

func notesThatStay(e *env) {
	e.Register(group, orders)
	e.Append(suite.Recs(orders, suite.Plain, "m1", "m2", "m3", "m4", "m5")...)
	got := e.ClaimNamed(outmill.NewOwnerToken())
	for _, name := range []string{"m1", "m2", "m3", "m4", "m5"} {
		_, err := e.handle(got[name])
		require.NoError(e.T, err)
	}
	e.Ack(got["m4"], got["m5"])
	e.Elapse(retention + time.Second)
	require.Equal(e.T, 2, e.Did(e.notes().DeleteNotes, 2))
	require.Zero(e.T, e.Did(e.notes().DeleteNotes, 2))
	for name, stays := range map[string]bool{"m1": true, "m2": true, "m3": true, "m4": false, "m5": false} {
		require.Equal(e.T, stays, e.has(e.Ctx, "billing", name), name)
	}
}
