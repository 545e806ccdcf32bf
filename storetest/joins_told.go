package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// requireJoins checks the joins that each record tells of, by Get.
func (e *env) requireJoins(want []outmill.JoinID, records ...*outmill.Record) {
	e.t.Helper()
	for _, r := range records {
		require.Equal(e.t, want, e.get(r).Joins, "joins of %s", r.MessageID)
	}
}

func joinsToldByAll(e *env) {
	e.register(group)
	first, second := e.startJoin(1000), e.startJoin(1000)
	want := map[string][]outmill.JoinID{"waiter": nil}
	waits := waiter(first)
	waits.Delay = 0
	e.append(waits)
	for _, n := range []int{1, 5, 70} {
		var steps, mixed []*outmill.Record
		for i := range n {
			name := fmt.Sprintf("%d-%d", n, i)
			// Not in the order of the ids.
			steps = append(steps, rec(orders, "step-"+name, withJoins(second, first), withKey("k"+name)))
			want["step-"+name] = []outmill.JoinID{second, first}
			mixed = append(mixed, rec(orders, "one-"+name, withJoins(first)), rec(orders, "none-"+name))
			want["one-"+name], want["none-"+name] = []outmill.JoinID{first}, nil
		}
		e.append(steps...)
		e.append(mixed...)
	}
	check := func(how string, found []*outmill.Record) {
		require.Len(e.t, found, len(want), how)
		for _, r := range found {
			require.Equal(e.t, want[r.MessageID], r.Joins, "%s: joins of %s", how, r.MessageID)
			wantWait := outmill.JoinID{}
			if r.MessageID == "waiter" {
				wantWait = first
			}
			require.Equal(e.t, wantWait, r.WaitsFor, "%s: what %s waits for", how, r.MessageID)
		}
	}
	listed := e.list(outmill.ListQuery{Limit: 1000})
	check("List", listed)
	var got []*outmill.Record
	for _, r := range listed {
		got = append(got, e.get(r))
	}
	check("Get", got)
	for name, order := range map[string]func(*outmill.ClaimRequest){
		"Claim": func(*outmill.ClaimRequest) {}, "Claim by key": byKey, "Claim by topic": byTopic,
	} {
		found := e.claimAll(order)
		check(name, found)
		check("List of what is leased, after "+name, e.list(outmill.ListQuery{Status: outmill.StatusLeased, Limit: 1000}))
		e.release(found...)
	}
}

func joinsToldByGroups(e *env) {
	e.register(group)
	e.register("others")
	id := e.startJoin(1)
	e.append(rec(orders, "m1", withJoins(id)))
	for _, name := range []string{group, "others"} {
		require.Equal(e.t, []outmill.JoinID{id}, e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup(name)).Joins, "of group %s", name)
	}
}

func joinsToldAlways(e *env) {
	first, second := e.startJoin(2), e.startJoin(2)
	want := []outmill.JoinID{second, first}
	r := rec(orders, "m1", withJoins(want...), withKey("k"))
	e.append(r)
	e.requireJoins(want, r)
	e.register(group)
	claim := func() *outmill.Record {
		claimed := e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
		require.Equal(e.t, want, claimed.Joins, "claimed")
		e.requireJoins(want, r)
		return claimed
	}
	for _, giveBack := range []func(*outmill.Record){
		func(r *outmill.Record) { e.release(r) },
		func(r *outmill.Record) { e.abandon(0, r) },
		func(r *outmill.Record) { e.snooze(0, r) },
		func(*outmill.Record) {
			e.elapse(leaseOf + time.Minute)
			require.Equal(e.t, 1, e.reap(10))
		},
		func(r *outmill.Record) {
			e.fail(r)
			e.requireJoins(want, r)
			require.Equal(e.t, 1, e.requeue(r))
		},
	} {
		giveBack(claim())
		e.requireJoins(want, r)
	}
	e.ack(claim())
	e.requireProcessed(r)
	if e.options.Retain > 0 {
		e.requireJoins(want, r)
	}
}

func attachIsTold(e *env) {
	first, second, third := e.startJoin(2), e.startJoin(2), e.startJoin(2)
	e.register(group)
	e.register("others")
	plain, step := rec(orders, "plain"), rec(orders, "step", withJoins(third))
	e.append(plain, step)
	for _, id := range []outmill.JoinID{second, first, second} {
		e.attach(id, plain, step)
	}
	e.requireJoins([]outmill.JoinID{second, first}, plain)
	e.requireJoins([]outmill.JoinID{third, second, first}, step)
	for _, r := range e.claimAll(ofGroup("others")) {
		if r.MessageID == "step" {
			require.Equal(e.t, []outmill.JoinID{third, second, first}, r.Joins, "another record of its message")
		}
	}
}
