package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func parkSentences() []sentence {
	return []sentence{
		{"a record failed with Park takes the later pending records of its key along", parkTakesLater},
		{"a record failed with Park leaves the earlier records of its key", parkLeavesEarlier},
		{"records appended to a parked key go dead when a claim with Park meets them", parkedKeyTakesAppended},
		{"records appended to a parked key in a caller's transaction go dead when a claim with Park meets them", parkedKeyInTransaction},
		{"records of a parked key do not come when time passes", parkedNeverComes},
		{"a delayed record of a parked key goes dead when it is due and a claim with Park meets it", parkedKeyTakesDelayed},
		{"a later record that was leased when its key was parked stays leased, and goes dead when it was given back", parkedWhileLeased},
		{"a record that expires parks nothing", expiryParksNothing},
		{"Park leaves other keys, topics and groups, and records without a key", parkLeavesOthers},
		{"a record without a key that is failed with Park takes nothing along", parkWithoutKey},
		{"one call of Fail parks some keys and not others", parkSome},
		{"Requeue of the record that failed brings the parked ones back, in order", requeueHead},
		{"Requeue of a record that was parked brings all that were parked with it, in order", requeueFollower},
		{"Requeue of some or all of the parked records counts each once", requeueAllParked},
		{"after a Requeue the key goes on", keyGoesOnAfterRequeue},
		{"a key may be parked again", parkAgain},
		{"Requeue of one parked key leaves another parked", requeueOneKey},
		{"a key stays parked until the last of its parked records is deleted", keyGoesOnAfterDelete},
		{"a key is free when its group was dropped", keyFreeAfterDrop},
	}
}

func parkOrder(r *outmill.ClaimRequest) { r.Order, r.KeyPolicy = outmill.OrderKey, outmill.KeyPark }

// parked appends records of key k and fails the first with Park.
func (e *env) parked(list ...string) []*outmill.Record {
	e.t.Helper()
	records := keyed("k", list...)
	e.filled(records...)
	e.park(e.claimOne(outmill.NewOwnerToken(), list[0], parkOrder))
	return records
}

func parkTakesLater(e *env) {
	records := e.parked("m1", "m2", "m3")
	e.requireStatus(outmill.StatusDead, records...)
	require.Equal(e.t, "poison", e.get(records[0]).LastError)
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), parkOrder))
}

func parkLeavesEarlier(e *env) {
	records := keyed("k", "m1", "m2", "m3")
	e.filled(records...)
	found := e.claimN(outmill.NewOwnerToken(), 2, parkOrder)
	e.park(found[1])
	e.requireStatus(outmill.StatusLeased, records[0])
	e.requireStatus(outmill.StatusDead, records[1:]...)
	e.ack(found[0])
	e.requireProcessed(found[0])
}

func parkedKeyTakesAppended(e *env) {
	e.parked("m1", "m2")
	later := keyed("k", "m3", "m4")
	e.append(later...)
	require.Empty(e.t, e.claimAll(parkOrder))
	e.requireStatus(outmill.StatusDead, later...)
}

func parkedKeyInTransaction(e *env) {
	e.parked("m1")
	ctx, commit, _ := e.begin()
	later := keyed("k", "m2")
	require.NoError(e.t, e.store.Append(ctx, later...))
	commit()
	require.Empty(e.t, e.claimAll(parkOrder))
	e.requireStatus(outmill.StatusDead, later...)
}

func parkedNeverComes(e *env) {
	e.parked("m1", "m2")
	e.append(keyed("k", "m3")...)
	require.Empty(e.t, e.claimAll(parkOrder))
	e.requireNeverClaimed()
}

func parkedKeyTakesDelayed(e *env) {
	e.parked("m1")
	later := rec(orders, "m2", withKey("k"), withDelay(time.Hour))
	e.append(later)
	require.Empty(e.t, e.claimAll(parkOrder))
	e.elapse(61 * time.Minute)
	require.Empty(e.t, e.claimAll(parkOrder))
	e.requireStatus(outmill.StatusDead, later)
}

func expiryParksNothing(e *env) {
	e.filled(rec(orders, "m1", withKey("k"), withTTL(30*time.Minute)))
	e.append(keyed("k", "m2")...)
	e.abandon(time.Hour, e.claimOne(outmill.NewOwnerToken(), "m1", parkOrder))
	require.Empty(e.t, e.claimAll(parkOrder))
	e.elapse(31 * time.Minute)
	e.did(e.store.ExpireDue, 10)
	e.requireNames([]string{"m2"}, e.claimAll(parkOrder))
}

func parkedWhileLeased(e *env) {
	e.filled(keyed("k", "m1", "m2", "m3")...)
	owner := outmill.NewOwnerToken()
	found := e.claimN(owner, 2, parkOrder)
	e.unchanged(found[1], func() { e.park(found[0]) })
	e.release(found[1])
	require.Empty(e.t, e.claimOn(owner, parkOrder))
	require.Empty(e.t, e.claimAll(parkOrder))
	e.requireStatus(outmill.StatusDead, found[1])
	require.Equal(e.t, 3, e.requeue(found[0]))
	e.requireNames([]string{"m1", "m2", "m3"}, e.claimAll(parkOrder))
}

func parkLeavesOthers(e *env) {
	e.register("others")
	e.parked("m1", "m2")
	e.append(rec("invoices", "topic", withKey("k")), rec(orders, "key", withKey("K")), rec(orders, "keyless"))
	require.ElementsMatch(e.t, []string{"topic", "key", "keyless"}, names(e.claimAll(parkOrder)))
	require.ElementsMatch(e.t, []string{"m1", "m2", "topic", "key", "keyless"}, names(e.claimAll(parkOrder, ofGroup("others"))))
}

func parkWithoutKey(e *env) {
	e.filled(recs(orders, plain, "m1", "m2", "m3")...)
	found := e.claim(outmill.NewOwnerToken(), parkOrder, limit(1))
	e.park(found...)
	e.append(rec(orders, "m4"))
	require.Len(e.t, e.claimAll(parkOrder), 3, "m4 and two others")
	require.Len(e.t, e.list(outmill.ListQuery{Status: outmill.StatusDead}), 1)
}

func parkSome(e *env) {
	e.filled(append(append(keyed("a", "a1", "a2"), keyed("b", "b1", "b2")...), keyed("c", "c1", "c2")...)...)
	owner := outmill.NewOwnerToken()
	var heads []*outmill.Record
	for range 3 {
		heads = append(heads, e.claim(outmill.NewOwnerToken(), parkOrder, limit(1))...)
	}
	list := failures(true, "poison", leases(heads))
	for i, r := range heads {
		list[i].Park = r.Key != "b"
	}
	require.NoError(e.t, e.store.Fail(e.ctx, list))
	e.requireNames([]string{"b2"}, e.claimOn(owner, parkOrder))
	require.Len(e.t, e.list(outmill.ListQuery{Status: outmill.StatusDead}), 5)
}

func requeueHead(e *env) {
	records := e.parked("m1", "m2", "m3")
	e.append(keyed("k", "m4")...)
	require.Empty(e.t, e.claimAll(parkOrder))
	require.Equal(e.t, 4, e.requeue(records[0]))
	e.requireNames([]string{"m1", "m2", "m3", "m4"}, e.claimAll(parkOrder))
}

// requeueBesideClaims needs a store that brings a key back in steps, while claims park
// again what they meet of it.
func requeueBesideClaims(e *env) {
	names := make([]string, 150)
	for i := range names {
		names[i] = fmt.Sprintf("m%d", i)
	}
	records := e.parked(names...)
	owner := outmill.NewOwnerToken()
	for e.get(records[len(records)-1]).Status != outmill.StatusDead {
		require.Empty(e.t, e.claimOn(owner, parkOrder))
	}
	few := request(owner, parkOrder, func(r *outmill.ClaimRequest) { r.Limit = 10 })
	requeued := make(chan error, 1)
	go func() {
		_, err := e.store.Requeue(e.ctx, records[0].ID)
		requeued <- err
	}()
	var found []*outmill.Record
	for back := false; !back; {
		select {
		case err := <-requeued:
			require.NoError(e.t, err)
			back = true
		default:
		}
		some, err := e.store.Claim(e.ctx, few)
		require.NoError(e.t, err)
		found = append(found, some...)
	}
	e.requireNames(names, append(found, e.claimOn(owner, parkOrder)...))
}

func requeueFollower(e *env) {
	e.parked("m1", "m2", "m3")
	appended := keyed("k", "m4")
	e.append(appended...)
	require.Empty(e.t, e.claimAll(parkOrder))
	require.Equal(e.t, 4, e.requeue(appended...))
	e.requireNames([]string{"m1", "m2", "m3", "m4"}, e.claimAll(parkOrder))
}

func requeueAllParked(e *env) {
	records := e.parked("m1", "m2", "m3")
	require.Equal(e.t, 3, e.requeue(records[2], records[0], records[2]))
	require.Zero(e.t, e.requeue(records...))
	e.requireStatus(outmill.StatusPending, records...)
}

func keyGoesOnAfterRequeue(e *env) {
	records := e.parked("m1", "m2")
	e.requeue(records[0])
	e.append(keyed("k", "m3")...)
	e.requireNames([]string{"m1", "m2", "m3"}, e.claimAcked(3))
	e.append(keyed("k", "m4")...)
	e.requireNames([]string{"m4"}, e.claimAcked(1))
}

func parkAgain(e *env) {
	records := e.parked("m1", "m2")
	e.requeue(records[0])
	e.park(e.claimOne(outmill.NewOwnerToken(), "m1", parkOrder))
	e.requireStatus(outmill.StatusDead, records...)
	require.Equal(e.t, 2, e.requeue(records[0]))
	e.requireNames([]string{"m1", "m2"}, e.claimAll(parkOrder))
}

func requeueOneKey(e *env) {
	records := e.parked("m1", "m2")
	others := keyed("other", "o1", "o2")
	e.append(others...)
	e.park(e.claimOne(outmill.NewOwnerToken(), "o1", parkOrder))
	require.Equal(e.t, 2, e.requeue(records[0]))
	e.requireStatus(outmill.StatusDead, others...)
	e.requireNames([]string{"m1", "m2"}, e.claimAll(parkOrder))
}

func keyGoesOnAfterDelete(e *env) {
	records := e.parked("m1", "m2")
	require.Equal(e.t, 1, e.delete(records[0]))
	later := keyed("k", "m3")
	e.append(later...)
	require.Empty(e.t, e.claimAll(parkOrder))
	e.requireStatus(outmill.StatusDead, later...)
	require.Equal(e.t, 2, e.delete(records[1], later[0]))
	e.append(keyed("k", "m4")...)
	e.claimOne(outmill.NewOwnerToken(), "m4", parkOrder)
}

func keyFreeAfterDrop(e *env) {
	e.parked("m1", "m2")
	_, err := e.store.DropGroup(e.ctx, group)
	require.NoError(e.t, err)
	e.filled(keyed("k", "m3")...)
	e.claimOne(outmill.NewOwnerToken(), "m3", parkOrder)
}
