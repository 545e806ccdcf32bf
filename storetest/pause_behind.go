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
