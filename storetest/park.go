package storetest

import (
	"fmt"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func parkSentences() []sentence {
	return []sentence{
		{"a record failed with Park takes the later pending records of its key along", parkTakesLater},
		{"Fail parks a later record at once, or leaves it as it is to the next claim with Park; lists and counts say which", parkAtOnceOrMet},
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
		{"one call of Fail parks the key of a message in each group", parkInEachGroup},
		{"Requeue of the record that failed brings the parked ones back, in order", requeueHead},
		{"Requeue of a record that was parked brings all that were parked with it, in order", requeueFollower},
		{"Requeue of some or all of the parked records counts each once", requeueAllParked},
		{"a record that was parked along keeps its own attempts, and its last error is ParkedError", parkKeepsHistory},
		{"after a Requeue the key goes on", keyGoesOnAfterRequeue},
		{"a key may be parked again", parkAgain},
		{"Requeue of one parked key leaves another parked", requeueOneKey},
		{"a key stays parked until the last of its parked records is deleted", keyGoesOnAfterDelete},
		{"a key is free when its group was dropped", keyFreeAfterDrop},
	}
}

func parkTakesLater(e *env) {
	records := e.Parked("m1", "m2", "m3")
	e.RequireStatus(outmill.StatusDead, records...)
	require.Equal(e.T, "poison", e.Get(records[0]).LastError)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ParkOrder))
}

func parkAtOnceOrMet(e *env) {
	records := suite.Keyed("k", "m1", "m2", "m3", "m4")
	e.Filled(records...)
	e.Abandon(0, e.ClaimN(outmill.NewOwnerToken(), 2, suite.ParkOrder)...)
	before := []*outmill.Record{e.Get(records[1]), e.Get(records[2]), e.Get(records[3])}
	e.Park(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ParkOrder))
	dead := 1
	for _, was := range before {
		is := e.Get(was)
		if is.Status != outmill.StatusDead {
			require.Equal(e.T, was, is, "a record that Fail leaves to the next claim")
			continue
		}
		require.Equal(e.T, storekit.ParkedError, is.LastError)
		dead++
	}
	require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusDead}), dead)
	stats := e.stats(0)[group+": "+orders]
	require.Equal(e.T, []int{dead, len(records) - dead}, []int{stats.Dead, stats.Pending}, "dead and pending")
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	e.RequireStatus(outmill.StatusDead, records...)
}

func parkKeepsHistory(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2")...)
	owner := outmill.NewOwnerToken()
	found := e.ClaimN(owner, 2, suite.ParkOrder)
	e.Abandon(0, found[1])
	e.Park(found[0])
	later := e.Get(found[1])
	require.Equal(e.T, outmill.StatusDead, later.Status)
	require.Equal(e.T, 1, later.Attempts)
	require.Equal(e.T, storekit.ParkedError, later.LastError)
}

func parkLeavesEarlier(e *env) {
	records := suite.Keyed("k", "m1", "m2", "m3")
	e.Filled(records...)
	found := e.ClaimN(outmill.NewOwnerToken(), 2, suite.ParkOrder)
	e.ParkAndMeet(found[1])
	e.RequireStatus(outmill.StatusLeased, records[0])
	e.RequireStatus(outmill.StatusDead, records[1:]...)
	e.Ack(found[0])
	e.RequireProcessed(found[0])
}

func parkedKeyTakesAppended(e *env) {
	e.Parked("m1", "m2")
	later := suite.Keyed("k", "m3", "m4")
	e.Append(later...)
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	e.RequireStatus(outmill.StatusDead, later...)
}

func parkedKeyInTransaction(e *env) {
	e.Parked("m1")
	ctx, commit, _ := e.Begin()
	later := suite.Keyed("k", "m2")
	require.NoError(e.T, e.Store.Append(ctx, later...))
	commit()
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	e.RequireStatus(outmill.StatusDead, later...)
}

func parkedNeverComes(e *env) {
	e.Parked("m1", "m2")
	e.Append(suite.Keyed("k", "m3")...)
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	e.requireNeverClaimed()
}

func parkedKeyTakesDelayed(e *env) {
	e.Parked("m1")
	later := suite.Rec(orders, "m2", suite.WithKey("k"), suite.WithDelay(time.Hour))
	e.Append(later)
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	e.Elapse(61 * time.Minute)
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	e.RequireStatus(outmill.StatusDead, later)
}

func expiryParksNothing(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithKey("k"), suite.WithTTL(30*time.Minute)))
	e.Append(suite.Keyed("k", "m2")...)
	e.Abandon(time.Hour, e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ParkOrder))
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	e.Elapse(31 * time.Minute)
	e.Did(e.Store.ExpireDue, 10)
	e.RequireNames([]string{"m2"}, e.ClaimAll(suite.ParkOrder))
}

func parkedWhileLeased(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2", "m3")...)
	owner := outmill.NewOwnerToken()
	found := e.ClaimN(owner, 2, suite.ParkOrder)
	e.Unchanged(found[1], func() { e.Park(found[0]) })
	e.Release(found[1])
	require.Empty(e.T, e.ClaimOn(owner, suite.ParkOrder))
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	e.RequireStatus(outmill.StatusDead, found[1])
	require.Equal(e.T, 3, e.Requeue(found[0]))
	e.RequireNames([]string{"m1", "m2", "m3"}, e.ClaimAll(suite.ParkOrder))
}

func parkLeavesOthers(e *env) {
	e.Register("others")
	e.Parked("m1", "m2")
	e.Append(suite.Rec("invoices", "topic", suite.WithKey("k")), suite.Rec(orders, "key", suite.WithKey("K")), suite.Rec(orders, "keyless"))
	require.ElementsMatch(e.T, []string{"topic", "key", "keyless"}, suite.Names(e.ClaimAll(suite.ParkOrder)))
	require.ElementsMatch(e.T, []string{"m1", "m2", "topic", "key", "keyless"},
		suite.Names(e.ClaimAll(suite.ParkOrder, suite.OfGroup("others"))))
}

func parkWithoutKey(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "m1", "m2", "m3")...)
	found := e.Claim(outmill.NewOwnerToken(), suite.ParkOrder, suite.Limit(1))
	e.Park(found...)
	e.Append(suite.Rec(orders, "m4"))
	require.Len(e.T, e.ClaimAll(suite.ParkOrder), 3, "m4 and two others")
	require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusDead}), 1)
}

func parkSome(e *env) {
	e.Filled(append(append(suite.Keyed("a", "a1", "a2"), suite.Keyed("b", "b1", "b2")...), suite.Keyed("c", "c1", "c2")...)...)
	owner := outmill.NewOwnerToken()
	var heads []*outmill.Record
	for range 3 {
		heads = append(heads, e.Claim(outmill.NewOwnerToken(), suite.ParkOrder, suite.Limit(1))...)
	}
	list := suite.Failures(true, "poison", suite.Leases(heads))
	for i, r := range heads {
		list[i].Park = r.Key != "b"
	}
	require.NoError(e.T, e.Store.Fail(e.Ctx, list))
	e.RequireNames([]string{"b2"}, e.ClaimOn(owner, suite.ParkOrder))
	require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusDead}), 5)
}

// parkInEachGroup: the records that a message has in two groups may share a place in a log.
func parkInEachGroup(e *env) {
	groups := []string{"a", "b"}
	for _, group := range groups {
		e.Register(group)
	}
	e.Append(suite.Keyed("k", "m1", "m2", "m3")...)
	var first []*outmill.Record
	for _, group := range groups {
		first = append(first, e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ParkOrder, suite.OfGroup(group)))
	}
	e.ParkAndMeet(first...)
	for _, r := range suite.ListAll(e.Ctx, e.T, e.Store, outmill.ListQuery{}) {
		require.Equal(e.T, outmill.StatusDead, r.Status, "%s of group %s", r.MessageID, r.Group)
	}
}

func requeueHead(e *env) {
	records := e.Parked("m1", "m2", "m3")
	e.Append(suite.Keyed("k", "m4")...)
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	require.Equal(e.T, 4, e.Requeue(records[0]))
	e.RequireNames([]string{"m1", "m2", "m3", "m4"}, e.ClaimAll(suite.ParkOrder))
}

// requeueBesideClaims needs a store that requeues a parked key in steps. During these steps
// claims park the records of the key that they meet again.
func requeueBesideClaims(e *env) {
	names := make([]string, 150)
	for i := range names {
		names[i] = fmt.Sprintf("m%d", i)
	}
	records := e.Parked(names...)
	owner := outmill.NewOwnerToken()
	for e.Get(records[len(records)-1]).Status != outmill.StatusDead {
		require.Empty(e.T, e.ClaimOn(owner, suite.ParkOrder))
	}
	few := suite.Request(owner, suite.ParkOrder, func(r *outmill.ClaimRequest) { r.Limit = 10 })
	requeued := make(chan error, 1)
	go func() {
		_, err := e.Store.Requeue(e.Ctx, records[0].ID)
		requeued <- err
	}()
	var found []*outmill.Record
	for back := false; !back; {
		select {
		case err := <-requeued:
			require.NoError(e.T, err)
			back = true
		default:
		}
		some, err := e.Store.Claim(e.Ctx, few)
		require.NoError(e.T, err)
		found = append(found, some...)
	}
	e.RequireNames(names, append(found, e.ClaimOn(owner, suite.ParkOrder)...))
}

// requeueBeforeUnmet needs a store that makes due records ready in steps. The last record of the key
// was appended before the requeue, and no claim has met it and parked it.
func requeueBeforeUnmet(e *env) {
	for _, order := range []func(*outmill.ClaimRequest){suite.ParkOrder, suite.ByKey, suite.ByTopic} {
		records := e.Parked("m1", "m2", "m3", "m4")
		owner := outmill.NewOwnerToken()
		for e.Get(records[len(records)-1]).Status != outmill.StatusDead {
			require.Empty(e.T, e.ClaimOn(owner, suite.ParkOrder))
		}
		e.Append(suite.Keyed("k", "m5")...)
		require.Equal(e.T, 4, e.Requeue(records[0]))
		found := e.ClaimOn(owner, order)
		e.RequireNames([]string{"m1", "m2", "m3", "m4", "m5"}, found)
		e.Ack(found...)
	}
}

func requeueFollower(e *env) {
	e.Parked("m1", "m2", "m3")
	appended := suite.Keyed("k", "m4")
	e.Append(appended...)
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	require.Equal(e.T, 4, e.Requeue(appended...))
	e.RequireNames([]string{"m1", "m2", "m3", "m4"}, e.ClaimAll(suite.ParkOrder))
}

func requeueAllParked(e *env) {
	records := e.Parked("m1", "m2", "m3")
	require.Equal(e.T, 3, e.Requeue(records[2], records[0], records[2]))
	require.Zero(e.T, e.Requeue(records...))
	e.RequireStatus(outmill.StatusPending, records...)
}

func keyGoesOnAfterRequeue(e *env) {
	records := e.Parked("m1", "m2")
	e.Requeue(records[0])
	e.Append(suite.Keyed("k", "m3")...)
	e.RequireNames([]string{"m1", "m2", "m3"}, e.ClaimAcked(3))
	e.Append(suite.Keyed("k", "m4")...)
	e.RequireNames([]string{"m4"}, e.ClaimAcked(1))
}

func parkAgain(e *env) {
	records := e.Parked("m1", "m2")
	e.Requeue(records[0])
	e.ParkAndMeet(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ParkOrder))
	e.RequireStatus(outmill.StatusDead, records...)
	require.Equal(e.T, 2, e.Requeue(records[0]))
	e.RequireNames([]string{"m1", "m2"}, e.ClaimAll(suite.ParkOrder))
}

func requeueOneKey(e *env) {
	records := e.Parked("m1", "m2")
	others := suite.Keyed("other", "o1", "o2")
	e.Append(others...)
	e.ParkAndMeet(e.ClaimOne(outmill.NewOwnerToken(), "o1", suite.ParkOrder))
	require.Equal(e.T, 2, e.Requeue(records[0]))
	e.RequireStatus(outmill.StatusDead, others...)
	e.RequireNames([]string{"m1", "m2"}, e.ClaimAll(suite.ParkOrder))
}

func keyGoesOnAfterDelete(e *env) {
	records := e.Parked("m1", "m2")
	require.Equal(e.T, 1, e.Delete(records[0]))
	later := suite.Keyed("k", "m3")
	e.Append(later...)
	require.Empty(e.T, e.ClaimAll(suite.ParkOrder))
	e.RequireStatus(outmill.StatusDead, later...)
	require.Equal(e.T, 2, e.Delete(records[1], later[0]))
	e.Append(suite.Keyed("k", "m4")...)
	e.ClaimOne(outmill.NewOwnerToken(), "m4", suite.ParkOrder)
}

func keyFreeAfterDrop(e *env) {
	e.Parked("m1", "m2")
	_, err := e.Store.DropGroup(e.Ctx, group)
	require.NoError(e.T, err)
	e.Filled(suite.Keyed("k", "m3")...)
	e.ClaimOne(outmill.NewOwnerToken(), "m3", suite.ParkOrder)
}
