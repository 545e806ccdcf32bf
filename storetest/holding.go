package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func holdingSentences() []sentence {
	return []sentence{
		{"a registration that holds leaves what waited waiting", holdingTakesNothing},
		{"neither a claim nor a renewed registration ends the holding", holdingStays},
		{"a message that is appended while a group holds reaches the group once it takes, and no other", holdingIsRouted},
		{"a registration that holds no longer takes what waited, in front of what has come since", holdingEnds},
		{"another group takes what waited beside a group that holds", holdingYields},
		{"a group that has taken does not hold again", takenStays},
		{"each selection of a group holds by itself", holdingBySelection},
		{"the end of the holding leaves a permanent registration permanent, and one with a TTL its TTL", holdingKeepsEnd},
		{"of processes of one group the first that does not hold takes for all", holdingOfTwo},
		{"a group that was dropped may hold again", holdingAfterDrop},
	}
}

func holding(topics ...string) outmill.Registration {
	return outmill.Registration{Group: group, Topics: outmill.Topics{Include: topics}, Hold: true}
}

// requireHolding checks which registrations of the group hold.
func requireHolding(e *env, want ...bool) {
	e.T.Helper()
	infos, err := e.Store.Groups(e.Ctx)
	require.NoError(e.T, err)
	var got []bool
	for _, info := range infos {
		if info.Group == group {
			for _, reg := range info.Registrations {
				got = append(got, reg.Holding)
			}
		}
	}
	require.ElementsMatch(e.T, want, got, "holding registrations")
}

// requireWaiting checks which records have no group.
func requireWaiting(e *env, want ...string) {
	e.T.Helper()
	var got []string
	for _, r := range e.List(outmill.ListQuery{}) {
		if r.Group == "" {
			got = append(got, r.MessageID)
		}
	}
	require.Equal(e.T, want, got, "records without a group")
}

func holdingTakesNothing(e *env) {
	e.Append(suite.Rec(orders, "m1"), suite.Rec("others", "m2"))
	e.RegisterAs(holding())
	requireHolding(e, true)
	requireWaiting(e, "m1", "m2")
	require.Empty(e.T, e.ClaimAll())
}

func holdingStays(e *env) {
	e.Append(suite.Rec(orders, "m1"))
	for range 2 {
		e.RegisterAs(holding())
		require.Empty(e.T, e.ClaimAll())
		require.Empty(e.T, e.ClaimAll(suite.ByKey))
		e.Store = e.Reopen()
	}
	requireHolding(e, true)
	requireWaiting(e, "m1")
}

// holdingIsRouted leaves it to the store whether the message waits without a group, in front of which nothing waits, or is the
// group's already.
func holdingIsRouted(e *env) {
	e.RegisterAs(holding())
	e.Append(suite.Rec(orders, "m1"))
	require.Len(e.T, e.List(outmill.ListQuery{}), 1)
	e.Register(group)
	require.Equal(e.T, []string{"m1"}, suite.Names(e.List(groupQuery(group))))
	e.Register("others")
	require.Empty(e.T, e.ClaimAll(suite.OfGroup("others")))
	require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll()))
}

func holdingEnds(e *env) {
	e.Append(suite.Keyed("k", "m1", "m2")...)
	e.RegisterAs(holding())
	e.Append(suite.Keyed("k", "m3")...)
	e.Register(group)
	requireHolding(e, false)
	requireWaiting(e)
	require.Equal(e.T, []string{"m1", "m2", "m3"}, suite.Names(e.ClaimAll(suite.ByKey)))
}

func holdingYields(e *env) {
	e.Append(suite.Rec(orders, "m1"))
	e.RegisterAs(holding())
	e.Register("others")
	require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll(suite.OfGroup("others"))))
	e.Append(suite.Rec(orders, "m2"))
	e.Register(group)
	require.Equal(e.T, []string{"m2"}, suite.Names(e.ClaimAll()), "the other group has m1")
	require.Equal(e.T, []string{"m2"}, suite.Names(e.ClaimAll(suite.OfGroup("others"))))
}

func takenStays(e *env) {
	e.Register(group)
	e.RegisterAs(holding())
	requireHolding(e, false)
}

func holdingBySelection(e *env) {
	e.Append(suite.Rec("a", "m1"), suite.Rec("b", "m2"), suite.Rec("c", "m3"))
	e.RegisterAs(holding("a", "c"))
	e.Register(group, "b")
	requireHolding(e, true, false)
	requireWaiting(e, "m1", "m3")
	e.Register(group, "c")
	requireWaiting(e, "m1")
	e.Register(group, "a", "c")
	requireWaiting(e)
	require.Equal(e.T, []string{"m1", "m2", "m3"}, suite.Names(e.List(groupQuery(group))))
}

func holdingKeepsEnd(e *env) {
	ends := func() time.Time {
		infos, err := e.Store.Groups(e.Ctx)
		require.NoError(e.T, err)
		require.Len(e.T, infos, 1)
		require.Len(e.T, infos[0].Registrations, 1)
		return infos[0].Registrations[0].ExpiresAt
	}
	temporary := holding()
	temporary.TTL = time.Hour
	e.RegisterAs(temporary)
	require.False(e.T, ends().IsZero())
	temporary.Hold = false
	e.RegisterAs(temporary)
	require.False(e.T, ends().IsZero(), "it had a TTL")
	e.Drop(group)
	e.RegisterAs(holding())
	e.RegisterAs(temporary)
	requireHolding(e, false)
	require.True(e.T, ends().IsZero(), "it was permanent")
}

func holdingOfTwo(e *env) {
	e.Append(suite.Rec(orders, "m1"))
	other := e.Reopen()
	e.RegisterAs(holding())
	require.NoError(e.T, other.RegisterGroup(e.Ctx, holding()))
	requireHolding(e, true)
	require.NoError(e.T, other.RegisterGroup(e.Ctx, outmill.Registration{Group: group}))
	e.RegisterAs(holding())
	requireHolding(e, false)
	require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll()))
}

func holdingAfterDrop(e *env) {
	e.Register(group)
	e.Drop(group)
	e.Append(suite.Rec(orders, "m1"))
	e.RegisterAs(holding())
	requireHolding(e, true)
	requireWaiting(e, "m1")
}
