package suite

import (
	"bytes"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

func (w *Walk) claim(t *rapid.T) {
	req := outmill.ClaimRequest{
		Owner:    Pick(t, "owner", w.owners...),
		Group:    Pick(t, "group", "one", "one", "two"),
		Topics:   w.selection(t),
		Limit:    Pick(t, "limit", 1, 2, 3, 100, 100),
		MaxBytes: Pick(t, "max bytes", 0, 0, 0, 1, 60, 250),
		Lease:    Pick(t, "lease", Tick, 3*Tick),
		Order:    Pick(t, "order", w.orders(outmill.OrderKey)...),
	}
	switch req.Order {
	case outmill.OrderKey:
		req.KeyPolicy = Pick(t, "key policy", outmill.KeyBlock, outmill.KeyBlock, outmill.KeySkip, outmill.KeyPark)
	case outmill.OrderTopic:
		req.KeyPolicy = Pick(t, "key policy", outmill.KeyBlock, outmill.KeyBlock, outmill.KeySkip)
	case outmill.OrderNone:
	}
	w.limitParts(t, &req)
	w.Queue.calls++
	found, err := w.Store.Claim(w.Ctx(), req)
	w.NoError(err, "Claim")
	w.adoptTidied(req, found)
	if parks(req) {
		w.adoptParked(req, len(found) == 0)
	}
	w.claimed(req, found)
}

// adoptTidied: a claim may reap and expire in passing.
func (w *Walk) adoptTidied(req outmill.ClaimRequest, found []*outmill.Record) {
	tidy := func(it *Item) bool {
		claimed := slices.ContainsFunc(found, func(r *outmill.Record) bool { return r.ID == it.ID })
		expired := it.Status == outmill.StatusPending && w.Queue.expired(it)
		return !claimed && it.Group == req.Group && (expired || w.Queue.leaseEnded(it))
	}
	w.Queue.tidied = map[*Item]tidiedLease{}
	for _, it := range w.filter(tidy) {
		got, err := w.Store.Get(w.Ctx(), it.ID)
		w.NoError(err, "Get")
		switch {
		case got.Status == outmill.StatusPending && it.Status == outmill.StatusLeased:
			w.Queue.tidied[it] = tidiedLease{it.owner, it.leaseUntil, it.leaseCall}
			it.countExpiry()
			it.toPending()
		case got.Status == outmill.StatusDead && w.Queue.expired(it):
			it.toDead()
			it.Attempts = got.Attempts
		}
	}
}

// adoptParked: which records of parked keys a claim meets is the store's
// affair, unless it met everything and handed out nothing.
func (w *Walk) adoptParked(req outmill.ClaimRequest, metAll bool) {
	free := func(it *Item) bool {
		return !slices.ContainsFunc(w.Queue.peers(it, req.Order), func(peer *Item) bool { return peer.Status == outmill.StatusLeased })
	}
	for _, it := range w.filter(func(it *Item) bool { return selects(req, it) && w.Queue.ready(it) && w.Queue.keyParked(it) }) {
		got, err := w.Store.Get(w.Ctx(), it.ID)
		w.NoError(err, "Get")
		if got.Status == outmill.StatusDead {
			it.toDead()
			it.parked, it.Attempts = true, got.Attempts
		} else if metAll && !w.Queue.full(req, it) && len(w.Queue.pauses) == 0 && it.Status == outmill.StatusPending &&
			w.Queue.parkedBefore(it) && free(it) {
			require.Fail(w.T, "the record of a parked key did not go dead", "%s", it)
		}
	}
}

func (w *Walk) claimed(req outmill.ClaimRequest, found []*outmill.Record) {
	if len(found) == 0 {
		it := w.Queue.owed(req)
		require.Nil(w.T, it, "nothing was claimed by %+v, although there is %s", req, it)
		return
	}
	require.LessOrEqual(w.T, len(found), req.Limit, "limit")
	size := 0
	var taken []*Item
	for _, r := range found {
		it := w.Queue.find(r.ID)
		require.NotNil(w.T, it, "%s was claimed and is not there", r.MessageID)
		require.False(w.T, Contains(taken, it), "%s was claimed twice", it.Name)
		why := w.Queue.forbids(req, it, taken)
		require.Empty(w.T, why, "%s was claimed by %+v: %s\n%s", it.Name, req, why, &w.Queue)
		taken = append(taken, it)
		size += it.size
	}
	if req.MaxBytes > 0 && len(found) > 1 {
		require.LessOrEqual(w.T, size, req.MaxBytes, "bytes of %d records", len(found))
	}
	w.requirePartLimit(req, taken)
	for i, it := range taken {
		w.Queue.claim(req, it)
		w.requireSame(it, found[i])
		require.True(w.T, bytes.Equal(it.payload, found[i].Payload), "payload of %s", it.Name)
		require.Equal(w.T, it.payload == nil, found[i].Payload == nil, "the payload of %s is nil", it.Name)
		w.leases = append(w.leases, found[i].Lease())
		if it.Expiries >= outmill.SuspectExpiries {
			require.Len(w.T, found, 1, "the suspect %s was not claimed alone", it.Name)
		}
	}
}

// everythingOver lets every lease end and every delay pass: what is stranded
// then shows.
func (w *Walk) everythingOver(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "at 0") > 0 {
		t.Skip("the end of everything often leaves little to see")
	}
	d := 20*Tick + time.Second
	w.Pass(d)
	w.expireDue(1000)
	for _, name := range walkGroups {
		w.claimAway(t, name)
	}
}

// claimAway claims and acks until nothing more comes, and checks that nothing
// claimable was left.
func (w *Walk) claimAway(t *rapid.T, name string) {
	req := outmill.ClaimRequest{
		Owner: w.owners[0], Group: name, Limit: 10, Lease: Tick,
		Order: Pick(t, "order", w.orders()...),
	}
	for {
		w.Queue.calls++
		found, err := w.Store.Claim(w.Ctx(), req)
		w.NoError(err, "Claim")
		w.adoptTidied(req, found)
		w.claimed(req, found)
		if len(found) == 0 {
			return
		}
		leases := Leases(found)
		w.NoError(w.Store.Ack(w.Ctx(), Worker, leases), "Ack")
		w.settled(leases, w.Queue.ack)
	}
}
