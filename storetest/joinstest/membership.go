package joinstest

import (
	"fmt"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// requireJoins checks the joins of each record that Get returns.
func (e *env) requireJoins(want []outmill.JoinID, records ...*outmill.Record) {
	e.T.Helper()
	for _, r := range records {
		require.Equal(e.T, want, e.Get(r).Joins, "joins of %s", r.MessageID)
	}
}

func joinsToldByAll(e *env) {
	e.Register(group)
	first, second := e.startJoin(1000), e.startJoin(1000)
	want := map[string][]outmill.JoinID{"waiter": nil}
	waits := waiter(first)
	waits.Delay = 0
	e.Append(waits)
	for _, n := range []int{1, 5, 70} {
		var steps, mixed []*outmill.Record
		for i := range n {
			name := fmt.Sprintf("%d-%d", n, i)
			// The joins are not in the order of their ids.
			steps = append(steps, suite.Rec(orders, "step-"+name, withJoins(second, first), suite.WithKey("k"+name)))
			want["step-"+name] = []outmill.JoinID{second, first}
			mixed = append(mixed, suite.Rec(orders, "one-"+name, withJoins(first)), suite.Rec(orders, "none-"+name))
			want["one-"+name], want["none-"+name] = []outmill.JoinID{first}, nil
		}
		e.Append(steps...)
		e.Append(mixed...)
	}
	check := func(how string, found []*outmill.Record) {
		require.Len(e.T, found, len(want), how)
		for _, r := range found {
			require.Equal(e.T, want[r.MessageID], r.Joins, "%s: joins of %s", how, r.MessageID)
			wantWait := outmill.JoinID{}
			if r.MessageID == "waiter" {
				wantWait = first
			}
			require.Equal(e.T, wantWait, r.WaitsFor, "%s: what %s waits for", how, r.MessageID)
		}
	}
	listed := e.List(outmill.ListQuery{Limit: 1000})
	check("List", listed)
	var got []*outmill.Record
	for _, r := range listed {
		got = append(got, e.Get(r))
	}
	check("Get", got)
	for name, order := range map[string]func(*outmill.ClaimRequest){
		"Claim": func(*outmill.ClaimRequest) {}, "Claim by key": suite.ByKey, "Claim by topic": suite.ByTopic,
	} {
		found := e.ClaimAll(order)
		check(name, found)
		check("List of what is leased, after "+name, e.List(outmill.ListQuery{Status: outmill.StatusLeased, Limit: 1000}))
		e.Release(found...)
	}
}

func joinsToldByGroups(e *env) {
	e.Register(group)
	e.Register("others")
	id := e.startJoin(1)
	e.Append(suite.Rec(orders, "m1", withJoins(id)))
	for _, name := range []string{group, "others"} {
		require.Equal(e.T, []outmill.JoinID{id}, e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup(name)).Joins, "of group %s", name)
	}
}

func joinsToldAlways(e *env) {
	first, second := e.startJoin(2), e.startJoin(2)
	want := []outmill.JoinID{second, first}
	r := suite.Rec(orders, "m1", withJoins(want...), suite.WithKey("k"))
	e.Append(r)
	e.requireJoins(want, r)
	e.Register(group)
	claim := func() *outmill.Record {
		claimed := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
		require.Equal(e.T, want, claimed.Joins, "claimed")
		e.requireJoins(want, r)
		return claimed
	}
	for _, giveBack := range []func(*outmill.Record){
		func(r *outmill.Record) { e.Release(r) },
		func(r *outmill.Record) { e.Abandon(0, r) },
		func(r *outmill.Record) { e.Snooze(0, r) },
		func(*outmill.Record) {
			e.Elapse(leaseOf + time.Minute)
			require.Equal(e.T, 1, e.Reap(10))
		},
		func(r *outmill.Record) {
			e.Fail(r)
			e.requireJoins(want, r)
			require.Equal(e.T, 1, e.Requeue(r))
		},
	} {
		giveBack(claim())
		e.requireJoins(want, r)
	}
	e.Ack(claim())
	e.RequireProcessed(r)
	if e.Options.Retain > 0 {
		e.requireJoins(want, r)
	}
}

func attachIsTold(e *env) {
	first, second, third := e.startJoin(2), e.startJoin(2), e.startJoin(2)
	e.Register(group)
	e.Register("others")
	plain, step := suite.Rec(orders, "plain"), suite.Rec(orders, "step", withJoins(third))
	e.Append(plain, step)
	for _, id := range []outmill.JoinID{second, first, second} {
		e.attach(id, plain, step)
	}
	e.requireJoins([]outmill.JoinID{second, first}, plain)
	e.requireJoins([]outmill.JoinID{third, second, first}, step)
	for _, r := range e.ClaimAll(suite.OfGroup("others")) {
		if r.MessageID == "step" {
			require.Equal(e.T, []outmill.JoinID{third, second, first}, r.Joins, "another record of its message")
		}
	}
}
