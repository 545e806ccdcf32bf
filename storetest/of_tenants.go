package storetest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// Fair is a Harness of a store that can have fair topics. Without it, the section "parts" is skipped.
type Fair interface {
	// ReopenFair is Reopen, but the other store has these fair topics: names or patterns as outmill.Topics.Include takes
	// them. A store on package engine does not set them in the database. It returns nil if this store cannot.
	ReopenFair(topics ...string) outmill.Store
}

// ofTenant makes n records of the tenant, each with a key of its own. Their names begin with the
// tenant's.
func ofTenant(tenant string, n int) []*outmill.Record {
	list := make([]*outmill.Record, n)
	for i := range list {
		name := fmt.Sprintf("%s.%04d", tenant, i)
		list[i] = suite.Rec(orders, name, withKeyAndTenant(name, tenant))
	}
	return list
}

// tally counts the records of each tenant.
func tally(records []*outmill.Record) map[string]int {
	counts := map[string]int{}
	for _, r := range records {
		counts[r.TenantID]++
	}
	return counts
}

// endedBeforeLater needs a store that makes due records ready in steps. The owner of leases that
// have ended gets their records before later ones of their keys, whatever tenant has its turn. So
// it is with retries, if claims skip keys that wait.
func endedBeforeLater(e *env) {
	skip := func(r *outmill.ClaimRequest) { r.Order, r.KeyPolicy = outmill.OrderKey, outmill.KeySkip }
	keys := []string{"a", "b", "c", "d", "e", "f"}
	of := func(name string) []*outmill.Record {
		list := make([]*outmill.Record, len(keys))
		for i, key := range keys {
			// The tenants come in another order than the ends of the leases.
			list[i] = suite.Rec(orders, name, withKeyAndTenant(key, keys[len(keys)-1-i]))
		}
		return list
	}
	e.Register(group)
	for _, ends := range []func(found []*outmill.Record){
		func([]*outmill.Record) {},
		func(found []*outmill.Record) { e.Abandon(suite.LeaseOf, found...) },
	} {
		owner := outmill.NewOwnerToken()
		e.Append(of("early")...)
		ends(e.ClaimN(owner, len(keys), skip))
		e.Elapse(2 * suite.LeaseOf)
		e.Append(of("late")...)
		seen := map[string][]string{}
		for _, r := range e.ClaimOn(owner, skip, suite.Limit(1)) {
			seen[r.Key] = append(seen[r.Key], r.MessageID)
			e.Ack(r)
		}
		for _, key := range keys {
			require.Equal(e.T, []string{"early", "late"}, seen[key], "key %s", key)
		}
	}
}
