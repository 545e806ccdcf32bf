package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// partsWaiting appends the records of one tenant after those of another, so that a store that shows one part after the
// other shows wrong ones.
func partsWaiting(e *env) {
	e = e.parted(orders)
	e.Register(group)
	tenants := partTenants(6)
	for i := range 5 {
		for _, tenant := range tenants {
			e.Append(suite.Rec(orders, fmt.Sprint(tenant, ".", i), withTenant(tenant)))
			e.Elapse(time.Second)
		}
	}
	var first []string
	for i := range 7 {
		first = append(first, fmt.Sprint(tenants[i%6], ".", i/6))
	}
	found, _ := e.waiting(group, len(first))
	require.Len(e.T, found.Kinds, 1)
	require.True(e.T, found.Kinds[0].More)
	require.Equal(e.T, first, e.namesOf(found.Kinds[0]))

	e.Append(suite.Rec(orders, "late", suite.WithDelay(time.Hour), withTenant(tenants[2])))
	for i, r := range e.ClaimNamed(outmill.NewOwnerToken(), suite.Limit(12)) {
		if i < "t3" {
			e.Abandon(time.Minute, r)
		}
	}
	e.Elapse(leaseOf + time.Minute)
	e.requireBefore()
}

// namesOf returns the message ids of the records, in their order.
func (e *env) namesOf(kind storekit.WaitingKind) (names []string) {
	all := e.List(outmill.ListQuery{Limit: 1000})
	for _, r := range kind.Records {
		i := slices.IndexFunc(all, func(record *outmill.Record) bool { return record.ID == r.ID })
		require.GreaterOrEqual(e.T, i, 0)
		names = append(names, all[i].MessageID)
	}
	return names
}
