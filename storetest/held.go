package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// A store may keep apart the records that an earlier one of their key, or a pause, holds. What operators see of them, and what
// a claim without an order takes, does not depend on that.

// waitingOfEachKind has more paused records than FirstWaiting shows before one that a key holds, and the other way round.
func waitingOfEachKind(e *env) {
	e.Register(group)
	e.pause(roles.PauseScope{TenantID: "acme"})
	paused := func(names ...string) {
		for _, name := range names {
			e.Append(suite.Rec(orders, name, withTenant("acme")))
		}
	}
	keyed := func(names ...string) {
		for _, name := range names {
			e.Append(suite.Rec(orders, name, suite.WithKey("k")))
		}
	}
	paused("p1", "p2")
	keyed("k1", "k2", "k3", "k4")
	paused("p3")
	e.ClaimOne(outmill.NewOwnerToken(), "k1", suite.ByKey)
	require.Empty(e.T, suite.Names(e.Claim(outmill.NewOwnerToken(), suite.ByKey)), "k1 is leased, and the others are paused")
	_, shown := e.waiting(group, 2)
	require.Contains(e.T, shown, "p1")
	require.Contains(e.T, shown, "k2")

	for _, name := range []string{"p1", "p2"} {
		for _, r := range e.List(outmill.ListQuery{Topic: orders}) {
			if r.MessageID == name {
				_, err := e.Store.Delete(e.Ctx, r.ID)
				require.NoError(e.T, err)
			}
		}
	}
	_, shown = e.waiting(group, 2)
	require.Contains(e.T, shown, "k2")
	require.Contains(e.T, shown, "p3")
}

// heldStats has only records that are held because of a record that is leased.
func heldStats(e *env) {
	e.pauses()
	e.Filled(suite.Recs(orders, suite.WithKey("k"), "k1", "k2")...)
	e.ClaimOne(outmill.NewOwnerToken(), "k1", suite.ByKey)
	require.Empty(e.T, suite.Names(e.Claim(outmill.NewOwnerToken(), suite.ByKey)), "k1 is leased")
	oldest := func() time.Time {
		stats, err := e.Store.Stats(e.Ctx, 0)
		require.NoError(e.T, err)
		require.Len(e.T, stats, 1)
		return stats[0].OldestDue
	}
	before := oldest()
	require.NotZero(e.T, before)
	e.pause(roles.PauseScope{TenantID: "acme"}, roles.PauseScope{Topic: orders, Key: "other"})
	require.Equal(e.T, before, oldest())
}

// partsFreeOfHeld has in several parts nothing but records that claims by key have held.
func partsFreeOfHeld(e *env) {
	e = e.parted(orders)
	e.Register(group)
	tenants := partTenants(3)
	var first, second []string
	for _, tenant := range tenants {
		first, second = append(first, tenant+".1"), append(second, tenant+".2")
		for i := range 2 {
			e.Append(suite.Rec(orders, fmt.Sprint(tenant, ".", i+1), withKeyAndTenant("k", tenant)))
		}
	}
	var got []string
	for len(got) < len(first) {
		// With an owner of its own a claim gets no second record of a key, also where it loses the first one of another part.
		got = append(got, suite.Names(e.Claim(outmill.NewOwnerToken(), suite.ByKey, suite.Limit(1)))...)
	}
	require.ElementsMatch(e.T, first, got)
	require.Empty(e.T, suite.Names(e.Claim(outmill.NewOwnerToken(), suite.ByKey)), "the first record of each key is leased")
	require.ElementsMatch(e.T, second, suite.Names(e.takeAll(len(second), suite.Plainly)))
}
