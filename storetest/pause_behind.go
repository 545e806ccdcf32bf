package storetest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// resumeBehindKeys: what claims by key have noted of keys may stay when others have taken the records.
func resumeBehindKeys(e *env) {
	const keys = 40
	e.Register(suite.Group)
	first, second := make([]*outmill.Record, keys), make([]*outmill.Record, keys)
	for i := range keys {
		key := suite.WithKey(fmt.Sprint("k", i))
		first[i], second[i] = suite.Rec(suite.Orders, fmt.Sprint("first", i), key), suite.Rec(suite.Orders, fmt.Sprint("second", i), key)
	}
	e.Append(first...)
	leased := e.ClaimN(outmill.NewOwnerToken(), keys, suite.ByKey)
	e.Append(second...)
	require.Empty(e.T, suite.Names(e.Claim(outmill.NewOwnerToken(), suite.ByKey)), "the first record of each key is leased")
	e.Ack(leased...)
	e.Ack(e.ClaimN(outmill.NewOwnerToken(), keys)...)

	acme := roles.PauseScope{TenantID: "acme"}
	e.pause(acme)
	e.Append(suite.Rec(suite.Orders, "plain", withTenant("acme")), suite.Rec(suite.Orders, "keyed", withKeyAndTenant("k", "acme")))
	require.Empty(e.T, suite.Names(e.Claim(outmill.NewOwnerToken())), "paused")
	e.resume(acme)
	e.takes([]string{"plain", "keyed"}, suite.Limit(1))
}

// resumeBehindOthers: a claim looks at a part of what a pause has held, and a later record of a key may be in front of it.
func resumeBehindOthers(e *env) {
	const keys = 40
	e.Register(suite.Group)
	leased, paused := make([]*outmill.Record, keys), make([]*outmill.Record, keys)
	for i := range keys {
		key := fmt.Sprint("k", i)
		leased[i] = suite.Rec(suite.Orders, fmt.Sprint("leased", i), suite.WithKey(key))
		paused[i] = suite.Rec(suite.Orders, fmt.Sprint("paused", i), withKeyAndTenant(key, "acme"))
	}
	e.Append(leased...)
	e.ClaimN(outmill.NewOwnerToken(), keys)

	acme := roles.PauseScope{TenantID: "acme"}
	e.pause(acme)
	e.Append(append(paused, suite.Rec(suite.Orders, "first", withKeyAndTenant("k", "acme")))...)
	require.Empty(e.T, suite.Names(e.Claim(outmill.NewOwnerToken())), "paused")
	e.resume(acme)
	e.Append(suite.Rec(suite.Orders, "second", suite.WithKey("k")))
	e.takes([]string{"first", "second"}, suite.ByKey, suite.Limit(1))
}

// resumeManyPauses: where the records of a pause begin is out of date once the first is deleted, and more pauses have held
// records than a claim looks at.
func resumeManyPauses(e *env) {
	const tenants = 40
	e.Register(suite.Group)
	var leased, first, rest []*outmill.Record
	for i := range tenants {
		tenant, key := fmt.Sprint("tenant", i), fmt.Sprint("k", i)
		leased = append(leased, suite.Rec(suite.Orders, fmt.Sprint("leased", i), suite.WithKey(key)))
		first = append(first, suite.Rec(suite.Orders, fmt.Sprint("deleted", i), withKeyAndTenant(key, tenant)))
		rest = append(rest, suite.Rec(suite.Orders, fmt.Sprint("stays", i), withKeyAndTenant(key, tenant)))
	}
	e.Append(leased...)
	leased = e.ClaimN(outmill.NewOwnerToken(), tenants)
	first = append(first, suite.Rec(suite.Orders, "deleted", withKeyAndTenant("k", "tenant")))
	e.Append(first...)
	e.Append(append(rest, suite.Rec(suite.Orders, "first", withKeyAndTenant("k", "tenant")))...)
	for _, r := range first {
		e.pause(roles.PauseScope{TenantID: r.TenantID})
	}
	require.Empty(e.T, suite.Names(e.Claim(outmill.NewOwnerToken(), suite.Limit(3*tenants))), "paused")
	for _, r := range first {
		_, err := e.Store.Delete(e.Ctx, r.ID)
		require.NoError(e.T, err)
		e.resume(roles.PauseScope{TenantID: r.TenantID})
	}
	e.Append(suite.Rec(suite.Orders, "second", suite.WithKey("k")))
	e.takes([]string{"first", "second"}, suite.ByKey, suite.Limit(1))
	e.Ack(leased...)
	tally := suite.NewTally()
	for _, r := range e.takeAll(tenants, suite.ByKey, suite.Limit(1)) {
		tally.Acked(r)
	}
	tally.RequireOnce(e.Env, suite.Names(rest))
}
