package storetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// withFailing is a registration of the worker that reports failing calls.
func withFailing(name string, calls ...outmill.FailingCall) outmill.Registration {
	reg := namedWorker(name)
	reg.Failing = calls
	return reg
}

func failingCallsAreShown(e *env) {
	callsOf := func(name string) []outmill.FailingCall {
		for _, w := range e.groupInfo(group).Workers {
			if w.Name == name {
				return w.Failing
			}
		}
		e.T.Fatalf("Groups has no worker %q", name)
		return nil
	}
	since := time.Date(2026, 11, 27, 1, 2, 3, 4_000_000, time.UTC)
	claim := outmill.FailingCall{Call: storekit.CallClaim, Since: since, Times: 12, Err: "server 'db' \"EOF\" 日本 😀 </script>\n"}
	note := outmill.FailingCall{Call: storekit.CallUpkeep, Part: "delete notes", Since: since.Add(time.Hour), Times: 1, Err: ""}
	both := withFailing("one", claim, note)
	both.Problems = map[string]string{orders: "held"}
	e.RegisterAs(both)
	e.RegisterAs(withFailing("two"))
	e.RegisterAs(withFailing("", claim))
	require.Equal(e.T, []outmill.FailingCall{claim, note}, callsOf("one"))
	require.Nil(e.T, callsOf("two"))

	e.RegisterAs(withFailing("two", note))
	e.RegisterAs(withProblems("one", map[string]string{orders: "held"}))
	require.Nil(e.T, callsOf("one"), "one has registered without failing calls")
	require.Equal(e.T, []outmill.FailingCall{note}, callsOf("two"))

	most := make([]outmill.FailingCall, storekit.MaxFailing)
	for i := range most {
		most[i] = claim
		most[i].Part, most[i].Err = fmt.Sprint(i), strings.Repeat("é", storekit.MaxProblemText)
	}
	e.RegisterAs(withFailing("one", most...))
	require.Equal(e.T, most, callsOf("one"))
}

func refuseFailingCalls(e *env) {
	call := outmill.FailingCall{Call: storekit.CallClaim, Since: time.Date(2026, 11, 27, 1, 2, 3, 0, time.UTC), Times: 1, Err: "away"}
	with := func(change func(*outmill.FailingCall)) []outmill.FailingCall {
		wrong := call
		change(&wrong)
		return []outmill.FailingCall{call, wrong}
	}
	many := make([]outmill.FailingCall, storekit.MaxFailing+1)
	for i := range many {
		many[i] = call
	}
	for _, calls := range [][]outmill.FailingCall{
		many,
		with(func(c *outmill.FailingCall) { c.Call = "" }),
		with(func(c *outmill.FailingCall) { c.Err = "a\x00b" }),
		with(func(c *outmill.FailingCall) { c.Part = "\xff" }),
		with(func(c *outmill.FailingCall) { c.Store = strings.Repeat("x", storekit.MaxProblemText+1) }),
		with(func(c *outmill.FailingCall) { c.Since = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC) }),
	} {
		err := e.Store.RegisterGroup(e.Ctx, withFailing("one", calls...))
		refused := errors.Is(err, outmill.ErrInvalidConfig) || errors.Is(err, outmill.ErrInvalidRecord)
		require.Truef(e.T, refused, "%.80q: %v", fmt.Sprint(calls), err)
	}
	require.Empty(e.T, e.groups(), "a refused registration writes nothing")
}
