package storetest

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func (g readers) request(owner outmill.OwnerToken, lease time.Duration) outmill.ClaimRequest {
	return outmill.ClaimRequest{
		Owner: owner, Group: g.name, Limit: 1 + rand.N(8), Lease: lease, Order: g.order, KeyPolicy: g.policy,
		MaxBytes: rand.N(2) * 200,
	}
}

// wildFor is the number of claims for which a worker gives records back or fails them. Later it
// handles all its records, so that the walk ends.
const wildFor = 40

// read is a worker. It handles the records of a key in order, as the contract requires of it.
func (w *stress) read(ctx context.Context, g readers) {
	owner := outmill.NewOwnerToken()
	for claims := 0; ctx.Err() == nil; {
		store, drops, began := w.store(), w.dropsOf(g), time.Now()
		found, err := store.Claim(ctx, g.request(owner, leaseOf))
		w.failed("Claim", err)
		if len(found) == 0 {
			rest(ctx, began)
			continue
		}
		w.received(g, owner, found)
		w.settle(ctx, store, g, drops, found, claims < wildFor)
		claims++
	}
}

// settle handles all records of a worker, or most of them if the worker is wild.
func (w *stress) settle(ctx context.Context, store outmill.Store, g readers, drops int, found []*outmill.Record, wild bool) {
	if wild && rand.N(10) == 0 {
		w.letGo(g, found...)
		w.failed("Release", store.Release(ctx, suite.Leases(found)))
		return
	}
	var done, back []*outmill.Record
	stopped := map[string]bool{}
	for _, r := range found {
		line := lineOf(g, r)
		switch {
		case stopped[line]:
			back = append(back, r)
		case wild && rand.N(6) == 0 && g.policy != outmill.KeySkip:
			stopped[line] = true
			w.letGo(g, r)
			w.failed("Abandon", store.Abandon(ctx, []outmill.Settlement{{Lease: r.Lease(), Delay: someTime()}}))
		case wild && rand.N(8) == 0 && r.Key[0] == unsafe:
			w.letGo(g, r)
			w.failed("Fail", store.Fail(ctx, []outmill.Settlement{{Lease: r.Lease(), Err: "failed", Park: g.policy == outmill.KeyPark}}))
		default:
			w.handled(g, drops, r)
			done = append(done, r)
		}
	}
	w.letGo(g, back...)
	w.failed("Release", store.Release(ctx, suite.Leases(back)))
	w.letGo(g, done...)
	w.failed("Ack", store.Ack(ctx, "", suite.Leases(done)))
}

// lineOf returns the key or topic by which the group orders the record.
func lineOf(g readers, r *outmill.Record) string {
	if g.order == outmill.OrderTopic {
		return r.Topic
	}
	return r.Topic + " " + r.Key
}

// die claims with a short lease, and then never acks, or acks too late.
func (w *stress) die(ctx context.Context, g readers) {
	const moment = 15 * time.Millisecond
	for ctx.Err() == nil && w.writing.Load() {
		store := w.store()
		found, err := store.Claim(ctx, g.request(outmill.NewOwnerToken(), moment))
		w.failed("Claim", err)
		pause(ctx, moment+time.Millisecond)
		if rand.N(3) == 0 {
			w.ackedLate(g, found)
			w.failed("Ack", store.Ack(ctx, "", suite.Leases(found)))
		}
		pause(ctx, rand.N(100*time.Millisecond))
	}
}
