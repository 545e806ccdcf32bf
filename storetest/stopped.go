package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func stoppedSentences() []sentence {
	return []sentence{
		{"a worker that has stopped is marked until it registers again, and nothing else changes", stoppedIsMarked},
		{"a stop makes no group, no registration and no worker, and adopts nothing", stopMakesNothing},
		{"a stop and a registration in one call both count", stopBesideRegistration},
		{"handlers that a registration reports are shown until the worker registers again", handlingIsShown},
		{"how a worker reads is shown until the worker registers again", readsAreShown},
		{"readings that no worker has are refused", refuseReads},
		{"handlers that a store cannot keep, and a stop without a name, are refused", refuseHandling},
	}
}

func (e *env) workerOf(name string) outmill.WorkerInfo {
	e.T.Helper()
	for _, w := range e.groupInfo(group).Workers {
		if w.Name == name {
			return w
		}
	}
	e.T.Fatalf("Groups has no worker %q", name)
	return outmill.WorkerInfo{}
}

func stopOf(name string) outmill.Registration {
	return outmill.Registration{Group: group, Worker: name, Stopped: true}
}

func stoppedIsMarked(e *env) {
	reg := withProblems("one", map[string]string{orders: "held"})
	reg.TTL = 2 * time.Hour
	e.RegisterAs(reg)
	e.RegisterAs(namedWorker("two"))
	before := e.groupInfo(group)
	e.Elapse(time.Hour)
	e.RegisterAs(stopOf("one"))
	after := e.groupInfo(group)
	require.Len(e.T, after.Registrations, len(before.Registrations))
	e.RequireAbout(e.Now().Add(-time.Hour), after.SeenAt, "the group was seen")
	for i, r := range after.Registrations {
		require.Equal(e.T, before.Registrations[i].Topics, r.Topics)
		e.RequireAbout(e.Now().Add(-time.Hour), r.SeenAt, "the registration was seen")
	}
	require.True(e.T, e.workerOf("one").Stopped)
	e.RequireAbout(e.Now(), e.workerOf("one").SeenAt, "it stopped")
	require.Empty(e.T, e.workerOf("one").Problems, "it has none any more")
	require.False(e.T, e.workerOf("two").Stopped)
	e.RegisterAs(reg)
	require.False(e.T, e.workerOf("one").Stopped)
	require.Equal(e.T, reg.Problems, e.workerOf("one").Problems)
}

func stopMakesNothing(e *env) {
	e.Append(suite.Rec(orders, "waits"))
	e.RegisterAs(stopOf("one"))
	require.Empty(e.T, e.groups())
	require.Equal(e.T, 1, e.stats(0)["waiting: "+orders].Pending, "it waits for a first group")
	e.Register(group, "others")
	e.RegisterAs(stopOf("one"))
	require.Empty(e.T, e.workerNames(group))
	require.Equal(e.T, 1, e.stats(0)["waiting: "+orders].Pending)
}

func stopBesideRegistration(e *env) {
	e.RegisterAs(namedWorker("one"))
	require.NoError(e.T, e.Store.RegisterGroup(e.Ctx, stopOf("one"), namedWorker("two")))
	require.True(e.T, e.workerOf("one").Stopped)
	require.False(e.T, e.workerOf("two").Stopped)
}

func handlingIsShown(e *env) {
	since := time.Date(2026, 11, 27, 1, 2, 3, 4_000_000, time.UTC)
	list := make([]outmill.Handling, storekit.MaxHandling)
	for i := range list {
		list[i] = outmill.Handling{
			Record: outmill.NewWorkItemID(), Topic: fmt.Sprint("日本 😀 ", i), Since: since.Add(time.Duration(i) * time.Hour),
		}
	}
	reg := withProblems("one", map[string]string{orders: "held"})
	reg.Handling = list
	e.RegisterAs(reg)
	require.Equal(e.T, list, e.workerOf("one").Handling)
	require.Equal(e.T, reg.Problems, e.workerOf("one").Problems)
	e.RegisterAs(namedWorker("one"))
	require.Empty(e.T, e.workerOf("one").Handling)
}

func refuseHandling(e *env) {
	good := outmill.Handling{Record: outmill.NewWorkItemID(), Topic: orders, Since: time.Date(2026, 11, 27, 1, 2, 3, 0, time.UTC)}
	with := func(change func(*outmill.Handling)) outmill.Registration {
		bad := good
		change(&bad)
		reg := namedWorker("one")
		reg.Handling = []outmill.Handling{bad}
		return reg
	}
	many := namedWorker("one")
	for range storekit.MaxHandling + 1 {
		many.Handling = append(many.Handling, good)
	}
	for name, reg := range map[string]outmill.Registration{
		"no name":   stopOf(""),
		"too many":  many,
		"no record": with(func(h *outmill.Handling) { h.Record = outmill.WorkItemID{} }),
		"no topic":  with(func(h *outmill.Handling) { h.Topic = "" }),
		"a year":    with(func(h *outmill.Handling) { h.Since = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"a store":   with(func(h *outmill.Handling) { h.Store = "a\x00" }),
	} {
		err := e.Store.RegisterGroup(e.Ctx, reg)
		require.Truef(e.T, errors.Is(err, outmill.ErrInvalidConfig) || errors.Is(err, outmill.ErrInvalidRecord), "%s: %v", name, err)
	}
	require.Empty(e.T, e.groups(), "a refused registration writes nothing")
}
