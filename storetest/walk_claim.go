package storetest

import (
	"bytes"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

func (w *walk) claim(t *rapid.T) {
	req := outmill.ClaimRequest{
		Owner:    pick(t, "owner", w.owners...),
		Group:    pick(t, "group", "one", "one", "two"),
		Topics:   w.selection(t),
		Limit:    pick(t, "limit", 1, 2, 3, 100, 100),
		MaxBytes: pick(t, "max bytes", 0, 0, 0, 1, 60, 250),
		Lease:    pick(t, "lease", tick, 3*tick),
		Order:    pick(t, "order", outmill.OrderNone, outmill.OrderKey, outmill.OrderKey, outmill.OrderTopic),
	}
	switch req.Order {
	case outmill.OrderKey:
		req.KeyPolicy = pick(t, "key policy", outmill.KeyBlock, outmill.KeyBlock, outmill.KeySkip, outmill.KeyPark)
	case outmill.OrderTopic:
		req.KeyPolicy = pick(t, "key policy", outmill.KeyBlock, outmill.KeyBlock, outmill.KeySkip)
	case outmill.OrderNone:
	}
	w.m.calls++
	found, err := w.store.Claim(w.ctx(), req)
	w.no(err, "Claim")
	w.adoptTidied(req, found)
	if parks(req) {
		w.adoptParked(req, len(found) == 0)
	}
	w.claimed(req, found)
}

// adoptTidied: a claim may reap and expire in passing.
func (w *walk) adoptTidied(req outmill.ClaimRequest, found []*outmill.Record) {
	tidy := func(it *item) bool {
		claimed := slices.ContainsFunc(found, func(r *outmill.Record) bool { return r.ID == it.id })
		expired := it.status == outmill.StatusPending && w.m.expired(it)
		return !claimed && it.group == req.Group && (expired || w.m.leaseEnded(it))
	}
	w.m.tidied = map[*item]tidiedLease{}
	for _, it := range w.filter(tidy) {
		got, err := w.store.Get(w.ctx(), it.id)
		w.no(err, "Get")
		switch {
		case got.Status == outmill.StatusPending && it.status == outmill.StatusLeased:
			w.m.tidied[it] = tidiedLease{it.owner, it.leaseUntil, it.leaseCall}
			it.countExpiry()
			it.toPending()
		case got.Status == outmill.StatusDead && w.m.expired(it):
			it.toDead()
			it.attempts = got.Attempts
		}
	}
}

// adoptParked: which records of parked keys a claim meets is the store's
// affair, unless it met everything and handed out nothing.
func (w *walk) adoptParked(req outmill.ClaimRequest, metAll bool) {
	free := func(it *item) bool {
		return !slices.ContainsFunc(w.m.peers(it, req.Order), func(peer *item) bool { return peer.status == outmill.StatusLeased })
	}
	for _, it := range w.filter(func(it *item) bool { return selects(req, it) && w.m.ready(it) && w.m.keyParked(it) }) {
		got, err := w.store.Get(w.ctx(), it.id)
		w.no(err, "Get")
		if got.Status == outmill.StatusDead {
			it.toDead()
			it.parked, it.attempts = true, got.Attempts
		} else if metAll && it.status == outmill.StatusPending && w.m.parkedBefore(it) && free(it) {
			require.Fail(w.t, "the record of a parked key did not go dead", "%s", it)
		}
	}
}

func (w *walk) claimed(req outmill.ClaimRequest, found []*outmill.Record) {
	if len(found) == 0 {
		it := w.m.owed(req)
		require.Nil(w.t, it, "nothing was claimed by %+v, although there is %s", req, it)
		return
	}
	require.LessOrEqual(w.t, len(found), req.Limit, "limit")
	size := 0
	var taken []*item
	for _, r := range found {
		it := w.m.find(r.ID)
		require.NotNil(w.t, it, "%s was claimed and is not there", r.MessageID)
		require.False(w.t, contains(taken, it), "%s was claimed twice", it.name)
		why := w.m.forbids(req, it, taken)
		require.Empty(w.t, why, "%s was claimed by %+v: %s\n%s", it.name, req, why, &w.m)
		taken = append(taken, it)
		size += it.size
	}
	if req.MaxBytes > 0 && len(found) > 1 {
		require.LessOrEqual(w.t, size, req.MaxBytes, "bytes of %d records", len(found))
	}
	for i, it := range taken {
		w.m.claim(req, it)
		w.requireSame(it, found[i])
		require.True(w.t, bytes.Equal(it.payload, found[i].Payload), "payload of %s", it.name)
		w.leases = append(w.leases, found[i].Lease())
		if it.expiries >= outmill.SuspectExpiries {
			require.Len(w.t, found, 1, "the suspect %s was not claimed alone", it.name)
		}
	}
}

// everythingOver lets every lease end and every delay pass: what is stranded
// then shows.
func (w *walk) everythingOver(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "at 0") > 0 {
		t.Skip("the end of everything often leaves little to see")
	}
	d := 20*tick + time.Second
	w.pass(d)
	w.expireDue(1000)
	for _, name := range walkGroups {
		w.claimAway(t, name)
	}
}

// claimAway claims and acks until nothing more comes, and checks that nothing
// claimable was left.
func (w *walk) claimAway(t *rapid.T, name string) {
	req := outmill.ClaimRequest{
		Owner: w.owners[0], Group: name, Limit: 10, Lease: tick,
		Order: pick(t, "order", outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic),
	}
	for {
		w.m.calls++
		found, err := w.store.Claim(w.ctx(), req)
		w.no(err, "Claim")
		w.adoptTidied(req, found)
		w.claimed(req, found)
		if len(found) == 0 {
			return
		}
		leases := leases(found)
		w.no(w.store.Ack(w.ctx(), worker, leases), "Ack")
		w.settled(leases, w.m.ack)
	}
}
