package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func attemptSentences() []sentence {
	return []sentence{
		{"a leased record shows the name of the worker that has it, and no other record does", leasedShowsWorker},
		{"Claim by a worker whose name is too long, or no text, is refused", refuseClaimWorker},
		{"a failed record has the number of its handlings as its attempts, without one that had not begun", failedCounts},
		{"Get shows the last ten attempts with their time, worker and error, the newest first", historyOfTen},
		{"Get shows whole attempts only, however long their texts are", historyOfLong},
		{"snoozed and released records, and the first two expiries, leave no attempt", historyOfNone},
		{"an expired lease of a suspect is an attempt of its worker", historyOfSuspect},
		{"no call but Get shows the attempts", historyOnlyByGet},
	}
}

// by names the worker of a claim.
func by(worker string) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Worker = worker }
}

func leasedShowsWorker(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	for _, end := range []func(...*outmill.Record){
		e.Release, func(r ...*outmill.Record) { e.Abandon(0, r...) }, func(r ...*outmill.Record) { e.Snooze(0, r...) },
		func(...*outmill.Record) { e.Elapse(leaseOf + time.Second); e.Reap(1) }, e.Fail,
	} {
		for _, worker := range []string{"host-1:4711", ""} {
			r := e.ClaimOne(outmill.NewOwnerToken(), "m1", by(worker))
			require.Equal(e.T, worker, r.Worker, "claimed")
			require.Equal(e.T, worker, e.Get(r).Worker, "by id")
			require.Equal(e.T, worker, e.List(outmill.ListQuery{})[0].Worker, "listed")
			end(r)
			require.Empty(e.T, e.Get(r).Worker, "after its lease")
			if e.Get(r).Status == outmill.StatusDead {
				return
			}
		}
	}
}

func refuseClaimWorker(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	for _, bad := range []string{strings.Repeat("x", 256), "a\x00", "\xff"} {
		_, err := e.Store.Claim(e.Ctx, suite.Request(outmill.NewOwnerToken(), by(bad)))
		require.ErrorIs(e.T, err, outmill.ErrInvalidRecord)
	}
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func failedCounts(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "at once", "later", "unhandled")...)
	e.Abandon(0, e.ClaimNamed(outmill.NewOwnerToken())["later"])
	e.Elapse(leaseOf + time.Second)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Fail(found["at once"], found["later"])
	require.NoError(e.T, e.Store.Fail(e.Ctx, []outmill.Settlement{{Lease: found["unhandled"].Lease(), Err: "poison", Unhandled: true}}))
	require.Equal(e.T, 1, e.Get(found["at once"]).Attempts)
	require.Equal(e.T, 2, e.Get(found["later"]).Attempts)
	unhandled := e.Get(found["unhandled"])
	require.Zero(e.T, unhandled.Attempts)
	require.Empty(e.T, unhandled.History)
	require.Equal(e.T, "poison", unhandled.LastError)
}

// abandonAs has a worker claim the record m1 and abandon it.
func (e *env) abandonAs(worker, reason string) *outmill.Record {
	e.T.Helper()
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1", by(worker))
	require.NoError(e.T, e.Store.Abandon(e.Ctx, suite.DelayedBy(0, reason, suite.Leases([]*outmill.Record{r}))))
	return r
}

func historyOfTen(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	var r *outmill.Record
	for n := range 12 {
		r = e.abandonAs(fmt.Sprint("worker ", n), fmt.Sprint("error <", n, ">\n"))
		require.Len(e.T, e.Get(r).History, min(n+1, 10))
		e.RequireAbout(e.Now(), e.Get(r).History[0].At, "time of the attempt")
		e.Elapse(time.Minute)
	}
	e.Fail(e.ClaimOne(outmill.NewOwnerToken(), "m1", by("the last")))
	history := e.Get(r).History
	require.Len(e.T, history, 10)
	require.Equal(e.T, []string{"the last", "poison"}, []string{history[0].Worker, history[0].Error})
	for i, a := range history[1:] {
		require.Equal(e.T, fmt.Sprint("worker ", 11-i), a.Worker)
		require.Equal(e.T, fmt.Sprint("error <", 11-i, ">\n"), a.Error)
		require.True(e.T, a.At.Before(history[i].At), "the newest first")
	}
	e.Requeue(r)
	require.Equal(e.T, history, e.Get(r).History, "after a requeue")
}

func historyOfLong(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	long, worker := strings.Repeat("日\"", 2000), strings.Repeat("日", 255)
	var r *outmill.Record
	for range 4 {
		r = e.abandonAs(worker, long)
		history := e.Get(r).History
		require.NotEmpty(e.T, history)
		for _, a := range history {
			require.Equal(e.T, outmill.Attempt{At: a.At, Worker: worker, Error: strings.Repeat("日\"", 128)}, a)
		}
	}
	for range 10 {
		e.abandonAs("w", "short")
	}
	require.Len(e.T, e.Get(r).History, 10)
}

func historyOfNone(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	e.Release(e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	e.Snooze(0, e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	for range outmill.SuspectExpiries {
		e.ClaimOne(outmill.NewOwnerToken(), "m1")
		e.Elapse(leaseOf + time.Second)
	}
	require.Empty(e.T, e.Get(e.ClaimOne(outmill.NewOwnerToken(), "m1")).History)
}

func historyOfSuspect(e *env) {
	for _, takeOver := range []bool{false, true} {
		e.Filled(suite.Rec(orders, "m1"))
		var r *outmill.Record
		for n := range outmill.SuspectExpiries + 2 {
			r = e.ClaimOne(outmill.NewOwnerToken(), "m1", by(fmt.Sprint("worker ", n)))
			e.Elapse(leaseOf + time.Second)
			if !takeOver {
				require.Equal(e.T, 1, e.Reap(10))
			}
		}
		if takeOver {
			e.Fail(e.ClaimOne(outmill.NewOwnerToken(), "m1", by("the last")))
		}
		history := e.Get(r).History
		if takeOver {
			require.Equal(e.T, "the last", history[0].Worker)
			history = history[1:]
		}
		require.Len(e.T, history, 2)
		require.Equal(e.T, []string{"worker 3", "worker 2"}, []string{history[0].Worker, history[1].Worker})
		require.NotEmpty(e.T, history[0].Error)
		e.Delete(r)
	}
}

func historyOnlyByGet(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	r := e.abandonAs("w", "boom")
	require.Empty(e.T, e.List(outmill.ListQuery{})[0].History)
	require.Empty(e.T, e.ClaimOne(outmill.NewOwnerToken(), "m1").History)
	require.Len(e.T, e.Get(r).History, 1)
}
