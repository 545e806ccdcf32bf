package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// roomSentences are those of ClaimRequest.TenantRoom, in one order each.
func roomSentences() []orderedSentence {
	return []orderedSentence{
		{"a claim returns no more of a tenant than it has room for, and fills up from the others", roomOfTenant},
		{"tenants without room do not hold up the others, whatever their number and backlog", roomOfNone},
		{"records without room stay as they are, and come when there is room", roomLater},
		{"the room of a tenant is that of its topic", roomOfTopic},
		{"records that are due again are within the room of their tenant", roomOfLater},
		{"a suspect without room is passed over, and comes alone when there is room", roomOfSuspect},
		{"a tenant that is paused and has no room comes when both are over", roomOfPaused},
		{"a random walk never exceeds the room of a tenant, and hands out each record once", roomWalk},
	}
}

type orderedSentence struct {
	name  string
	check func(*env, func(*outmill.ClaimRequest))
}

// rooms gives the tenants these rooms, and others all the room they want.
func rooms(of map[string]int) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) {
		r.TenantRoom = func(_, _, tenant string) int {
			if room, limited := of[tenant]; limited {
				return room
			}
			return 1_000_000
		}
	}
}

// roomEach gives each tenant the same room.
func roomEach(n int) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.TenantRoom = func(string, string, string) int { return n } }
}

func roomOfTenant(e *env, order func(*outmill.ClaimRequest)) {
	nobody := ofTenant("nobody", 20)
	for _, r := range nobody {
		r.TenantID = ""
	}
	e.Filled(slices.Concat(ofTenant("a", 60), ofTenant("b", 60), ofTenant("c", 3), nobody)...)
	owner := outmill.NewOwnerToken()
	found := e.Claim(owner, order, suite.Limit(40), rooms(map[string]int{"a": 5, "": 7}))
	require.Equal(e.T, map[string]int{"a": 5, "b": 25, "c": 3, "": 7}, tally(found))
	require.Equal(e.T, []string{"a.0000", "a.0001", "a.0002", "a.0003", "a.0004"}, namesOf("a", found))
	require.Equal(e.T, map[string]int{"a": 3, "b": 3, "": 3}, tally(e.Claim(owner, order, roomEach(3))))
}

// roomOfNone has more tenants without room than a claim wants records.
func roomOfNone(e *env, order func(*outmill.ClaimRequest)) {
	const full = 70
	e.Register(group)
	for batch := range slices.Chunk(ofTenant("t0", suite.Large(20_000)), 1000) {
		e.Append(batch...)
	}
	none := map[string]int{"t0": 0}
	for i := range full {
		tenant := fmt.Sprint("t", i+1)
		none[tenant] = -i
		e.Append(ofTenant(tenant, 2)...)
	}
	e.Append(slices.Concat(ofTenant("a", 3), ofTenant("z", 3))...)
	owner := outmill.NewOwnerToken()
	got := map[string]int{}
	for range 6 {
		found := e.Claim(owner, order, suite.Limit(1), rooms(none))
		require.Len(e.T, found, 1)
		got[found[0].TenantID]++
	}
	require.Equal(e.T, map[string]int{"a": 3, "z": 3}, got)
	require.Empty(e.T, e.Claim(owner, order, rooms(none)))
	none["t7"] = 1
	require.Equal(e.T, map[string]int{"t7": 1}, tally(e.Claim(owner, order, rooms(none))))
}

func roomLater(e *env, order func(*outmill.ClaimRequest)) {
	e.Filled(slices.Concat(ofTenant("a", 5), ofTenant("b", 5))...)
	owner := outmill.NewOwnerToken()
	require.Empty(e.T, e.Claim(owner, order, roomEach(0)))
	for _, r := range e.List(outmill.ListQuery{}) {
		require.Equal(e.T, outmill.StatusPending, r.Status)
		require.False(e.T, r.NextAttemptAt.IsZero(), "no record waits for another")
	}
	require.Equal(e.T, map[string]int{"a": 2, "b": 2}, tally(e.Claim(owner, order, roomEach(2))))
	require.Equal(e.T, map[string]int{"a": 3, "b": 3}, tally(e.ClaimAll(order)))
}

func roomOfTopic(e *env, order func(*outmill.ClaimRequest)) {
	var records []*outmill.Record
	for _, topic := range []string{"x", "y"} {
		for i := range 6 {
			records = append(records, suite.Rec(topic, fmt.Sprint(topic, i), withKeyAndTenant(fmt.Sprint("k", i), "a")))
		}
	}
	e.Filled(records...)
	topics := map[string]int{}
	for _, r := range e.Claim(outmill.NewOwnerToken(), order, func(r *outmill.ClaimRequest) {
		r.TenantRoom = func(store, topic, tenant string) int {
			require.Equal(e.T, "a", tenant)
			return map[string]int{"x": 1, "y": 4}[topic]
		}
	}) {
		topics[r.Topic]++
	}
	require.Equal(e.T, map[string]int{"x": 1, "y": 4}, topics)
}

func roomOfLater(e *env, order func(*outmill.ClaimRequest)) {
	delayed := ofTenant("a", 4)
	for _, r := range delayed {
		suite.WithDelay(leaseOf)(r)
	}
	e.Filled(slices.Concat(delayed, ofTenant("b", 8))...)
	dead := outmill.NewOwnerToken()
	require.Len(e.T, e.Claim(dead, order, suite.Limit(4)), 4)
	e.Abandon(leaseOf, e.ClaimN(outmill.NewOwnerToken(), 4, order)...)
	e.Elapse(2 * leaseOf)
	// Four of b wait no longer for their retries, the leases of the four others have ended.
	owner := outmill.NewOwnerToken()
	got := map[string]int{}
	for range 2 {
		found := tally(e.Claim(owner, order, rooms(map[string]int{"a": 2, "b": 3})))
		require.Equal(e.T, map[string]int{"a": 2, "b": 3}, found)
		for tenant, n := range found {
			got[tenant] += n
		}
	}
	require.Equal(e.T, map[string]int{"b": 2}, tally(e.ClaimOn(owner, order)))
}

func roomOfSuspect(e *env, order func(*outmill.ClaimRequest)) {
	e.Filled(ofTenant("b", 1)...)
	for range outmill.SuspectExpiries {
		e.ClaimOne(outmill.NewOwnerToken(), "b.0000", order)
		e.die(true)
	}
	e.Append(slices.Concat(ofTenant("a", 3), ofTenant("b", 2)[1:])...)
	owner := outmill.NewOwnerToken()
	require.Equal(e.T, map[string]int{"a": 3}, tally(e.ClaimOn(owner, order, rooms(map[string]int{"b": 0}))))
	e.ClaimOne(owner, "b.0000", order, rooms(map[string]int{"b": 1}))
	require.Empty(e.T, e.Claim(owner, order, rooms(map[string]int{"b": 0})))
	e.ClaimOne(owner, "b.0001", order, rooms(map[string]int{"b": 1}))
}

func roomOfPaused(e *env, order func(*outmill.ClaimRequest)) {
	scope := roles.PauseScope{TenantID: "a"}
	e.pause(scope)
	e.Filled(slices.Concat(ofTenant("a", 6), ofTenant("b", 6))...)
	owner := outmill.NewOwnerToken()
	require.Equal(e.T, map[string]int{"b": 2}, tally(e.ClaimOn(owner, order, func(r *outmill.ClaimRequest) { r.Limit = 2 })[:2]))
	require.Empty(e.T, e.Claim(owner, order, roomEach(0)))
	e.resume(scope)
	require.Empty(e.T, e.Claim(owner, order, rooms(map[string]int{"a": 0, "b": 0})))
	require.Equal(e.T, map[string]int{"a": 4}, tally(e.Claim(owner, order, rooms(map[string]int{"a": 4, "b": 0}))))
	require.Equal(e.T, map[string]int{"a": 2}, tally(e.ClaimOn(owner, order)))
}

func roomOfSharedKey(e *env) {
	e = e.fair()
	e.Filled(slices.Concat(shared("a1", "b1", "a2", "b2"), ofTenant("b", 2))...)
	owner := outmill.NewOwnerToken()
	require.ElementsMatch(e.T, []string{"b.0000", "b.0001"},
		suite.Names(e.ClaimOn(owner, suite.ByKey, rooms(map[string]int{"a": 0}))), "a1 holds back the key, and nothing else")
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey, rooms(map[string]int{"a": 0})), "another owner gets nothing either")
	e.Append(shared("c1")...)
	require.Empty(e.T, e.Claim(owner, suite.ByKey, rooms(map[string]int{"a": 0})))
	first := e.claimInTime(2, owner, rooms(map[string]int{"a": 1}))
	require.Equal(e.T, []string{"a1", "b1"}, suite.Names(first))
	require.Empty(e.T, e.Claim(owner, suite.ByKey, rooms(map[string]int{"a": 0})))
	e.Ack(first...)
	require.Equal(e.T, []string{"a2", "b2", "c1"}, suite.Names(e.claimInTime(3, owner, rooms(map[string]int{"a": 1}))))
}

// claimInTime claims n records by key, one after the other.
func (e *env) claimInTime(n int, owner outmill.OwnerToken, change func(*outmill.ClaimRequest)) []*outmill.Record {
	e.T.Helper()
	var all []*outmill.Record
	for len(all) < n {
		found := e.Claim(owner, suite.ByKey, suite.Limit(n-len(all)), change)
		require.NotEmpty(e.T, found, "after %q", suite.Names(all))
		all = append(all, found...)
		if len(all) < n {
			taken := tally(all)["a"]
			change = rooms(map[string]int{"a": 1 - taken})
		}
	}
	return all
}

func roomNotOfTopicOrder(e *env) {
	e = e.fair()
	records := slices.Concat(ofTenant("b", 3), ofTenant("a", 3))
	e.Filled(records...)
	e.RequireNames(suite.Names(records), e.Claim(outmill.NewOwnerToken(), suite.ByTopic, roomEach(0)))
}

// roomElsewhere is for every store.
func roomElsewhere(e *env) {
	if turns, ok := outmill.As[storekit.TenantTurns](e.Store); ok && turns.ServesTurns(orders) {
		e.T.Skip("the store serves turns in all topics")
	}
	e.Filled(slices.Concat(ofTenant("a", 3), ofTenant("b", 3))...)
	require.Len(e.T, e.ClaimAll(suite.ByKey, roomEach(0), suite.Limit(2)), 6)
}

// roomWalk is a reader that holds at most so many records of each tenant, and sometimes dies.
func roomWalk(e *env, order func(*outmill.ClaimRequest)) {
	e.Register(group)
	ordered := suite.Request(outmill.OwnerToken{}, order).Order == outmill.OrderKey
	w := &roomWalker{env: e, order: order, ordered: ordered, most: 1 + rand.IntN(3), owner: outmill.NewOwnerToken(),
		appended: map[string][]string{}, counts: suite.NewTally(), waiting: map[string]int{}}
	steps := 40
	if suite.All() {
		steps = 100
	}
	for range steps {
		switch rand.IntN(10) {
		case 0, 1, 2:
			w.append(1 + rand.IntN(6))
		case 3, 4, 5, 6:
			w.claim()
		case 7, 8:
			w.settle()
		case 9:
			w.giveBack()
		}
	}
	for n := 0; !w.counts.Done(len(w.names)); n++ {
		require.Less(e.T, n, 20*len(w.names), "%d of %d records came", len(w.names), n)
		w.claim()
		w.settle()
	}
	w.counts.RequireOnce(e.Env, w.names)
	if ordered {
		require.Equal(e.T, w.appended, w.counts.Order)
	}
}

type roomWalker struct {
	*env
	order   func(*outmill.ClaimRequest)
	ordered bool
	// most is the limit of each tenant, and held the records that the owner has, in their order.
	most  int
	owner outmill.OwnerToken
	held  []*outmill.Record
	// names are all records, appended those of each key, and waiting the numbers of those of each
	// tenant that are not claimed.
	names    []string
	appended map[string][]string
	waiting  map[string]int
	counts   *suite.Tally
	died     bool
}

func (w *roomWalker) append(n int) {
	for range n {
		tenant, key := fmt.Sprint("t", rand.IntN(5)), fmt.Sprint("k", rand.IntN(6))
		name := fmt.Sprintf("m%04d", len(w.names))
		w.Append(suite.Rec(orders, name, withKeyAndTenant(key, tenant)))
		w.names = append(w.names, name)
		w.appended[key] = append(w.appended[key], name)
		w.waiting[tenant]++
	}
}

func (w *roomWalker) claim() {
	before := tally(w.held)
	room := func(tenant string) int { return w.most - before[tenant] }
	limit := 1 + rand.IntN(8)
	found := w.Claim(w.owner, w.order, suite.Limit(limit), func(r *outmill.ClaimRequest) {
		r.TenantRoom = func(_, _, tenant string) int { return room(tenant) }
	})
	want := 0
	for tenant, n := range w.waiting {
		want += max(min(n, room(tenant)), 0)
	}
	if !w.ordered {
		require.Len(w.T, found, min(want, limit), "held %v, waiting %v", before, w.waiting)
	}
	w.held = append(w.held, found...)
	for tenant, n := range tally(found) {
		w.waiting[tenant] -= n
	}
	for tenant, n := range tally(w.held) {
		require.LessOrEqual(w.T, n, w.most, "of tenant %s", tenant)
	}
}

// settle acks some of the records, the first ones of each key.
func (w *roomWalker) settle() {
	n := rand.IntN(len(w.held) + 1)
	for _, r := range w.held[:n] {
		w.counts.Acked(r)
	}
	w.Ack(w.held[:n]...)
	w.held = slices.Clone(w.held[n:])
}

// giveBack gives all records back, as another owner or by the end of their leases.
func (w *roomWalker) giveBack() {
	switch kind := rand.IntN(3); {
	case kind == 0 && !w.died:
		// A second time would make suspects, which come alone.
		w.died = true
		w.die(false)
	case kind == 1:
		w.Abandon(0, w.held...)
	default:
		w.Release(w.held...)
	}
	for tenant, n := range tally(w.held) {
		w.waiting[tenant] += n
	}
	w.held, w.owner = nil, outmill.NewOwnerToken()
}
