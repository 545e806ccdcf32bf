package suite

import (
	"time"

	"github.com/outmill/outmill"
)

// Request claims up to 100 records of Group without an order, unless a change says otherwise.
func Request(owner outmill.OwnerToken, changes ...func(*outmill.ClaimRequest)) outmill.ClaimRequest {
	req := outmill.ClaimRequest{Owner: owner, Group: Group, Limit: 100, Lease: LeaseOf}
	for _, change := range changes {
		change(&req)
	}
	return req
}

// Limit sets the largest number of records of a claim.
func Limit(n int) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Limit = n }
}

// OfGroup sets the group of a claim.
func OfGroup(name string) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Group = name }
}

// From sets the topics of a claim.
func From(include ...string) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Topics.Include = include }
}

// InOrder sets order and policy of a claim.
func InOrder(order outmill.Order, policy outmill.KeyPolicy) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Order, r.KeyPolicy = order, policy }
}

// ByKey orders a claim by key.
func ByKey(r *outmill.ClaimRequest) { r.Order = outmill.OrderKey }

// ByTopic orders a claim by topic.
func ByTopic(r *outmill.ClaimRequest) { r.Order = outmill.OrderTopic }

// ParkOrder orders a claim by key, with KeyPark.
func ParkOrder(r *outmill.ClaimRequest) { r.Order, r.KeyPolicy = outmill.OrderKey, outmill.KeyPark }

// DelayedBy returns settlements with this delay and error.
func DelayedBy(delay time.Duration, reason string, leases []outmill.Lease) []outmill.Settlement {
	list := make([]outmill.Settlement, len(leases))
	for i, l := range leases {
		list[i] = outmill.Settlement{Lease: l, Delay: delay, Err: reason}
	}
	return list
}

// Failures returns settlements for Fail.
func Failures(park bool, reason string, leases []outmill.Lease) []outmill.Settlement {
	list := make([]outmill.Settlement, len(leases))
	for i, l := range leases {
		list[i] = outmill.Settlement{Lease: l, Err: reason, Park: park}
	}
	return list
}

// Ends returns a registration of the group that ends after the TTL.
func Ends(group string, ttl time.Duration, include ...string) outmill.Registration {
	return outmill.Registration{Group: group, TTL: ttl, Topics: outmill.Topics{Include: include}}
}

// Plainly changes nothing, so that a claim has no order.
func Plainly(*outmill.ClaimRequest) {}
