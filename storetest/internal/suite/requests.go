package suite

import (
	"time"

	"github.com/outmill/outmill"
)

func Request(owner outmill.OwnerToken, changes ...func(*outmill.ClaimRequest)) outmill.ClaimRequest {
	req := outmill.ClaimRequest{Owner: owner, Group: Group, Limit: 100, Lease: LeaseOf}
	for _, change := range changes {
		change(&req)
	}
	return req
}

func Limit(n int) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Limit = n }
}

func OfGroup(name string) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Group = name }
}

func From(include ...string) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Topics.Include = include }
}

func InOrder(order outmill.Order, policy outmill.KeyPolicy) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Order, r.KeyPolicy = order, policy }
}

func ByKey(r *outmill.ClaimRequest) { r.Order = outmill.OrderKey }

func ByTopic(r *outmill.ClaimRequest) { r.Order = outmill.OrderTopic }

func ParkOrder(r *outmill.ClaimRequest) { r.Order, r.KeyPolicy = outmill.OrderKey, outmill.KeyPark }

func DelayedBy(delay time.Duration, reason string, leases []outmill.Lease) []outmill.Settlement {
	list := make([]outmill.Settlement, len(leases))
	for i, l := range leases {
		list[i] = outmill.Settlement{Lease: l, Delay: delay, Err: reason}
	}
	return list
}

func Failures(park bool, reason string, leases []outmill.Lease) []outmill.Settlement {
	list := make([]outmill.Settlement, len(leases))
	for i, l := range leases {
		list[i] = outmill.Settlement{Lease: l, Err: reason, Park: park}
	}
	return list
}

// ends returns a registration of the group that ends after the TTL.
func Ends(group string, ttl time.Duration, include ...string) outmill.Registration {
	return outmill.Registration{Group: group, TTL: ttl, Topics: outmill.Topics{Include: include}}
}
