package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// Fair is a Harness of a store that can have fair topics. Without it, the section "parts" is skipped, and with Old the
// section "turns".
type Fair interface {
	// ReopenFair is Reopen, but the other store has these fair topics: names or patterns as outmill.Topics.Include takes
	// them. A store on package engine does not set them in the database. It returns nil if this store cannot.
	ReopenFair(topics ...string) outmill.Store
}

func turnSentences() []sentence {
	list := []sentence{
		{"ServesTurns is true for the topics of the setting only", turnsOfTopics},
		{"the order of a key holds when tenants share it", turnsKeepKeys},
		{"a key that waits for a retry holds up its records of other tenants, and no other key", turnsPassKeys},
		{"records that a leased record of another tenant holds up come when it is acked", turnsAfterLease},
		{"a record behind an expired one of another tenant in its key is handed out", turnsPastExpired},
		{"a record behind expired ones of several tenants in its key is handed out, wherever the claim begins", turnsPastSeveralExpired},
		{"a claim of a whole topic is in the order of the appends", turnsNotOfTopic},
		{"a topic that the setting does not name is served as without it", turnsElsewhere},
		{"records that were appended before the setting take turns, each key in its order", turnsFromBefore},
		{"a store without the setting hands out all that one with it has appended, each key in its order", turnsTurnedOff},
		{"stores with the setting and without it hand out each record once and in the order of its key", turnsMixed},
		{"records that a claim without an order left behind take turns in order, and the other way round", turnsInBothOrders},
		{"a record without room holds back the later records of its key, whatever their tenants are, and no others", roomOfSharedKey},
		{"a claim of a whole topic has no room of tenants", roomNotOfTopicOrder},
	}
	for _, order := range []struct {
		name  string
		claim func(*outmill.ClaimRequest)
	}{{"without an order", suite.Plainly}, {"by key", suite.ByKey}} {
		bind := func(check func(*env, func(*outmill.ClaimRequest))) func(*env) {
			return func(e *env) { check(e.fair(), order.claim) }
		}
		for _, s := range slices.Concat([]orderedSentence{
			{"a claim takes as much of each tenant", equalShares},
			{"a tenant with thousands of records does not hold up 49 tenants with ten", bigTenant},
			{"what the others leave of a claim goes to the tenants that have more", restOfShares},
			{"records without a tenant are those of one more tenant", turnsOfNobody},
			{"a claim begins with the tenants that the last one did not serve", turnsGoOn},
			{"a claim with a limit of bytes begins with the tenant whose record did not fit", turnsOfBytes},
			{"records that are due again, or for the first time, take turns", turnsOfLater},
			{"a suspect is handed out alone, and its tenant takes its turn", turnsOfSuspects},
			{"a paused tenant takes turns again after Resume", turnsOfPaused},
			{"records that waited for a group take turns", turnsOfAdopted},
			{"an expired record is not handed out, and holds up no other of its tenant", turnsOfExpired},
			{"workers ack each record of many tenants once", turnsOfWorkers},
		}, roomSentences()) {
			list = append(list, sentence{s.name + ", " + order.name, bind(s.check)})
		}
	}
	return list
}

// fair returns e with a store that serves turns in the topics, or in all of them if none is
// named.
func (e *env) fair(topics ...string) *env {
	e.T.Helper()
	if _, ok := outmill.As[storekit.TenantTurns](e.Store); !ok {
		e.T.Skip("the store is no storekit.TenantTurns")
	}
	harness, ok := e.Harness.(Fair)
	if _, old := e.Harness.(Old); !old || !ok {
		e.T.Skip("the harness has no ReopenFair of a store that serves turns")
	}
	if len(topics) == 0 {
		topics = []string{"*"}
	}
	store := harness.ReopenFair(topics...)
	if store == nil {
		e.T.Skip("the store cannot serve turns")
	}
	return &env{e.On(store)}
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

// shared makes records of the key k. The tenants are the first letters of the names.
func shared(names ...string) []*outmill.Record {
	list := make([]*outmill.Record, len(names))
	for i, name := range names {
		list[i] = suite.Rec(orders, name, withKeyAndTenant("k", name[:1]))
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

func turnsOfTopics(e *env) {
	fair := e.fair(orders, "bill*")
	turns, ok := outmill.As[storekit.TenantTurns](fair.Store)
	require.True(e.T, ok)
	for topic, want := range map[string]bool{orders: true, "bills": true, "order": false, "mail": false} {
		require.Equal(e.T, want, turns.ServesTurns(topic), topic)
	}
}

func equalShares(e *env, order func(*outmill.ClaimRequest)) {
	e.Filled(slices.Concat(ofTenant("a", 20), ofTenant("b", 10), ofTenant("c", 10))...)
	found := e.Claim(outmill.NewOwnerToken(), order, suite.Limit(9))
	require.Equal(e.T, map[string]int{"a": 3, "b": 3, "c": 3}, tally(found))
	for _, tenant := range []string{"a", "b", "c"} {
		require.Equal(e.T, []string{tenant + ".0000", tenant + ".0001", tenant + ".0002"}, namesOf(tenant, found))
	}
}

// namesOf returns the names of the tenant's records, in their order.
func namesOf(tenant string, records []*outmill.Record) (names []string) {
	for _, r := range records {
		if r.TenantID == tenant {
			names = append(names, r.MessageID)
		}
	}
	return names
}

// bigTenant has 50 tenants. A claim of 100 has two records of each, so the ten of each small
// tenant come within five claims, whatever the big one has.
func bigTenant(e *env, order func(*outmill.ClaimRequest)) {
	const small, each, limit = 49, 10, 100
	e.Register(group)
	backlog := suite.Large(50_000)
	if suite.All() {
		backlog = suite.Large(100_000)
	}
	for batch := range slices.Chunk(ofTenant("big", backlog), 1000) {
		e.Append(batch...)
	}
	for i := range small {
		e.Append(ofTenant(fmt.Sprintf("small%02d", i), each)...)
	}
	share := limit / (small + 1)
	bound := (each + share - 1) / share
	var all []*outmill.Record
	for n := range bound {
		found := e.Claim(outmill.NewOwnerToken(), order, suite.Limit(limit))
		require.Len(e.T, found, limit, "claim %d", n+1)
		all = append(all, found...)
	}
	counts := tally(all)
	for i := range small {
		require.Equal(e.T, each, counts[fmt.Sprintf("small%02d", i)], "of tenant %d within %d claims", i, bound)
	}
}

func restOfShares(e *env, order func(*outmill.ClaimRequest)) {
	e.Filled(slices.Concat(ofTenant("a", 60), ofTenant("b", 1), ofTenant("c", 2), ofTenant("d", 60))...)
	found := e.Claim(outmill.NewOwnerToken(), order, suite.Limit(43))
	require.Equal(e.T, map[string]int{"a": 20, "b": 1, "c": 2, "d": 20}, tally(found))
	require.Len(e.T, e.Claim(outmill.NewOwnerToken(), order, suite.Limit(70)), 70, "two tenants are left")
	require.Len(e.T, e.ClaimAll(order), 10, "the rest")
}

func turnsOfNobody(e *env, order func(*outmill.ClaimRequest)) {
	nobody := ofTenant("nobody", 30)
	for _, r := range nobody {
		r.TenantID = ""
	}
	e.Filled(slices.Concat(nobody, ofTenant("b", 3), ofTenant("c", 3))...)
	require.Equal(e.T, map[string]int{"": 3, "b": 3, "c": 3}, tally(e.Claim(outmill.NewOwnerToken(), order, suite.Limit(9))))
	require.Equal(e.T, map[string]int{"": 27}, tally(e.ClaimAll(order)))
}

func turnsGoOn(e *env, order func(*outmill.ClaimRequest)) {
	for _, tenant := range []string{"a", "b", "c", "d", "e"} {
		e.Filled(ofTenant(tenant, 4)...)
	}
	owner := outmill.NewOwnerToken()
	for round := range 4 {
		var turns []string
		for range 5 {
			found := e.Claim(owner, order, suite.Limit(1))
			require.Len(e.T, found, 1)
			turns = append(turns, found[0].TenantID)
		}
		require.ElementsMatch(e.T, []string{"a", "b", "c", "d", "e"}, turns, "round %d", round)
	}
}

func turnsOfBytes(e *env, order func(*outmill.ClaimRequest)) {
	var records []*outmill.Record
	for _, tenant := range []string{"a", "b", "c"} {
		for _, r := range ofTenant(tenant, 4) {
			r.Payload = []byte(strings.Repeat("x", 1000))
			records = append(records, r)
		}
	}
	e.Filled(records...)
	owner := outmill.NewOwnerToken()
	for round := range 2 {
		var found []*outmill.Record
		for range 3 {
			found = append(found, e.Claim(owner, order, maxBytes(2500))...)
		}
		require.Equal(e.T, map[string]int{"a": 2, "b": 2, "c": 2}, tally(found), "round %d", round)
	}
}

func turnsOfLater(e *env, order func(*outmill.ClaimRequest)) {
	delayed := ofTenant("a", 30)
	for _, r := range delayed {
		suite.WithDelay(leaseOf)(r)
	}
	e.Filled(slices.Concat(delayed, ofTenant("b", 20))...)
	owner := outmill.NewOwnerToken()
	e.Abandon(leaseOf, e.ClaimN(owner, 20, order)...)
	require.Empty(e.T, e.Claim(owner, order))
	e.Elapse(2 * leaseOf)
	e.Append(ofTenant("c", 20)...)
	require.Equal(e.T, map[string]int{"a": 5, "b": 5, "c": 5}, tally(e.Claim(owner, order, suite.Limit(15))))
	require.Equal(e.T, map[string]int{"a": 25, "b": 15, "c": 15}, tally(e.ClaimAll(order)))
}

func turnsOfSuspects(e *env, order func(*outmill.ClaimRequest)) {
	e.Filled(ofTenant("b", 1)...)
	for range outmill.SuspectExpiries {
		e.ClaimOne(outmill.NewOwnerToken(), "b.0000", order)
		e.die(true)
	}
	e.Append(slices.Concat(ofTenant("a", 5), ofTenant("c", 5))...)
	owner := outmill.NewOwnerToken()
	alone := 0
	for range 8 {
		found := e.Claim(owner, order, suite.Limit(4))
		if counts := tally(found); counts["b"] > 0 {
			require.Equal(e.T, map[string]int{"b": 1}, counts, "the suspect is not alone")
			alone++
		}
	}
	require.Equal(e.T, 1, alone, "claims of the suspect")
	require.Empty(e.T, e.Claim(owner, order))
}

func turnsOfPaused(e *env, order func(*outmill.ClaimRequest)) {
	scope := roles.PauseScope{TenantID: "a"}
	e.pause(scope)
	e.Filled(slices.Concat(ofTenant("a", 30), ofTenant("b", 6), ofTenant("c", 6))...)
	owner := outmill.NewOwnerToken()
	require.Equal(e.T, map[string]int{"b": 3, "c": 3}, tally(e.ClaimN(owner, 6, order)))
	e.resume(scope)
	require.Equal(e.T, map[string]int{"a": 2, "b": 2, "c": 2}, tally(e.ClaimN(owner, 6, order)))
	require.Equal(e.T, map[string]int{"a": 28, "b": 1, "c": 1}, tally(e.ClaimAll(order)))
}

func turnsOfAdopted(e *env, order func(*outmill.ClaimRequest)) {
	e.Append(slices.Concat(ofTenant("a", 30), ofTenant("b", 5))...)
	e.Register(group)
	e.Append(ofTenant("c", 5)...)
	require.Equal(e.T, map[string]int{"a": 4, "b": 4, "c": 4}, tally(e.ClaimN(outmill.NewOwnerToken(), 12, order)))
}

func turnsOfExpired(e *env, order func(*outmill.ClaimRequest)) {
	expired := ofTenant("a", 12)
	for _, r := range expired[:10] {
		suite.WithTTL(leaseOf)(r)
	}
	e.Filled(slices.Concat(expired, ofTenant("b", 2))...)
	e.Elapse(2 * leaseOf)
	found := e.ClaimAll(order)
	require.Equal(e.T, []string{"a.0010", "a.0011"}, namesOf("a", found))
	require.Len(e.T, found, 4)
}

// turnsOfWorkers has records of nine tenants, of which each three share their keys.
func turnsOfWorkers(e *env, order func(*outmill.ClaimRequest)) {
	e.Register(group)
	want, perKey := e.sharedKeys(72)
	counts := suite.NewTally()
	e.fairOwners(func(store outmill.Store, owner outmill.OwnerToken) error {
		for !counts.Done(len(want)) {
			found, err := store.Claim(e.Ctx, suite.Request(owner, suite.Limit(1+rand.IntN(9)), order))
			if err != nil {
				return err
			}
			if err := e.settleInOrder(store, counts, found); err != nil {
				return err
			}
		}
		return nil
	}, e.fair, e.fair)
	counts.RequireOnce(e.Env, want)
	if suite.Request(outmill.OwnerToken{}, order).Order == outmill.OrderKey {
		require.Equal(e.T, perKey, counts.Order)
	}
}

// sharedKeys appends records of nine tenants, and returns their names, all and by key.
func (e *env) sharedKeys(n int) (names []string, perKey map[string][]string) {
	perKey = map[string][]string{}
	var records []*outmill.Record
	for i := range n {
		key, tenant := fmt.Sprint("k", i%7), fmt.Sprint("t", rand.IntN(9))
		name := fmt.Sprintf("m%04d", i)
		records = append(records, suite.Rec(orders, name, withKeyAndTenant(key, tenant)))
		names = append(names, name)
		perKey[key] = append(perKey[key], name)
	}
	e.Append(records...)
	return names, perKey
}

// fairOwners runs work for four owners, on stores that make opens in turn.
func (e *env) fairOwners(work func(outmill.Store, outmill.OwnerToken) error, makers ...func(...string) *env) {
	e.T.Helper()
	stores := make([]outmill.Store, len(makers))
	for i, open := range makers {
		stores[i] = open().Store
	}
	var workers errgroup.Group
	for i := range 4 {
		workers.Go(func() error { return work(stores[i%len(stores)], outmill.NewOwnerToken()) })
	}
	require.NoError(e.T, workers.Wait())
}

func turnsKeepKeys(e *env) {
	e = e.fair()
	e.Filled(slices.Concat(shared("a1", "b1", "b2", "a2", "c1", "a3"), ofTenant("a", 5), ofTenant("d", 5))...)
	owner := outmill.NewOwnerToken()
	var got []string
	for len(got) < 6 {
		found := e.Claim(owner, suite.ByKey, suite.Limit(2))
		require.NotEmpty(e.T, found, "after %q", got)
		for _, r := range found {
			if r.Key == "k" {
				got = append(got, r.MessageID)
			}
		}
		if rand.IntN(2) == 0 {
			e.Ack(found...)
		}
	}
	require.Equal(e.T, []string{"a1", "b1", "b2", "a2", "c1", "a3"}, got)
	e.RequireNames([]string{"m1", "m2", "m3"}, e.moreOfKey("m1", "m2", "m3"))
}

// moreOfKey appends records of a key to tenants in turn, one append each, and claims them.
func (e *env) moreOfKey(names ...string) []*outmill.Record {
	e.ClaimAll(suite.ByKey)
	for i, name := range names {
		e.Append(suite.Rec(orders, name, withKeyAndTenant("another", fmt.Sprint("t", 9-i))))
	}
	return e.ClaimAll(suite.ByKey, suite.Limit(2))
}

func turnsPassKeys(e *env) {
	e = e.fair()
	e.Filled(shared("a1", "b1", "c1", "b2")...)
	owner := outmill.NewOwnerToken()
	e.Abandon(leaseOf, e.ClaimOne(owner, "a1", suite.ByKey))
	e.Append(ofTenant("b", 2)...)
	other := e.ClaimAll(suite.ByKey)
	require.ElementsMatch(e.T, []string{"b.0000", "b.0001"}, suite.Names(other))
	e.Ack(other...)
	e.Elapse(2 * leaseOf)
	e.RequireNames([]string{"a1", "b1", "c1", "b2"}, e.ClaimAll(suite.ByKey, suite.Limit(1)))
}

func turnsAfterLease(e *env) {
	e = e.fair()
	e.Filled(shared("a1", "b1", "a2", "b2")...)
	a1 := e.ClaimOne(outmill.NewOwnerToken(), "a1", suite.ByKey)
	require.Empty(e.T, e.ClaimAll(suite.ByKey), "the key is held")
	e.Append(ofTenant("b", 3)...)
	require.Len(e.T, e.ClaimAll(suite.ByKey), 3)
	e.Ack(a1)
	e.RequireNames([]string{"b1", "a2", "b2"}, e.ClaimAll(suite.ByKey, suite.Limit(1)))
}

// turnsPastExpired has a claim hold z1 behind a1, because it is full before it comes to a1. The
// next one finds only that a1 has expired.
func turnsPastExpired(e *env) {
	e = e.fair()
	owner := outmill.NewOwnerToken()
	e.Filled(ofTenant("m", 1)...)
	e.Ack(e.ClaimOne(owner, "m.0000", suite.ByKey))
	key := shared("a1", "z1")
	suite.WithTTL(leaseOf)(key[0])
	e.Append(slices.Concat(key, ofTenant("y", 1), ofTenant("zz", 1))...)
	full := e.Claim(owner, suite.ByKey, suite.Limit(2))
	if slices.Contains(suite.Names(full), "a1") {
		e.T.Skip("the store serves its tenants in another order, so the claim comes to a1")
	}
	require.ElementsMatch(e.T, []string{"y.0000", "zz.0000"}, suite.Names(full))
	e.Ack(full...)
	e.Elapse(2 * leaseOf)
	e.RequireNames([]string{"z1"}, e.Claim(owner, suite.ByKey, suite.Limit(1)))
}

// turnsPastSeveralExpired has two keys, so that in one of them the claim comes to the second record
// before the first.
func turnsPastSeveralExpired(e *env) {
	e = e.fair()
	var records []*outmill.Record
	for key, tenants := range map[string][]string{"k": {"a", "b", "a"}, "l": {"b", "a", "b"}} {
		for i, tenant := range tenants {
			r := suite.Rec(orders, fmt.Sprint(key, i), withKeyAndTenant(key, tenant))
			if i < 2 {
				suite.WithTTL(leaseOf)(r)
			}
			records = append(records, r)
		}
	}
	e.Filled(records...)
	e.Elapse(2 * leaseOf)
	require.ElementsMatch(e.T, []string{"k2", "l2"}, suite.Names(e.ClaimAll(suite.ByKey)))
}

func turnsNotOfTopic(e *env) {
	e = e.fair()
	records := slices.Concat(ofTenant("b", 5), ofTenant("a", 3), ofTenant("c", 2))
	e.Filled(records...)
	e.RequireNames(suite.Names(records), e.ClaimAll(suite.ByTopic, suite.Limit(4)))
}

func turnsElsewhere(e *env) {
	e = e.fair("bills")
	if turns, _ := outmill.As[storekit.TenantTurns](e.Store); turns.ServesTurns(orders) {
		e.T.Skip("the store serves turns in all topics")
	}
	e.Filled(slices.Concat(ofTenant("a", 10), ofTenant("b", 10))...)
	for _, order := range []func(*outmill.ClaimRequest){suite.Plainly, suite.ByKey} {
		require.Equal(e.T, map[string]int{"a": 5}, tally(e.Claim(outmill.NewOwnerToken(), order, suite.Limit(5))))
	}
}

func turnsFromBefore(e *env) {
	fair := e.fair()
	names := []string{"a1", "b1", "a2", "c1"}
	e.Filled(slices.Concat(ofTenant("a", 300), shared(names...), ofTenant("b", 5))...)
	fair.Append(slices.Concat(shared("b3", "a3"), ofTenant("d", 5))...)
	owner := outmill.NewOwnerToken()
	var got []*outmill.Record
	for range 3 {
		got = append(got, fair.Claim(owner, suite.ByKey, suite.Limit(20))...)
	}
	counts := tally(got)
	require.GreaterOrEqual(e.T, counts["b"], 5, "the records of b within three claims of 20")
	require.Equal(e.T, 5, counts["d"], "the records of d within three claims of 20")
	got = append(got, fair.ClaimOn(owner, suite.ByKey)...)
	e.requireKey("k", []string{"a1", "b1", "a2", "c1", "b3", "a3"}, got)
	require.Len(e.T, got, 316)
}

// requireKey checks the records of the key, in their order.
func (e *env) requireKey(key string, want []string, records []*outmill.Record) {
	e.T.Helper()
	var got []string
	for _, r := range records {
		if r.Key == key {
			got = append(got, r.MessageID)
		}
	}
	require.Equal(e.T, want, got)
}

func turnsTurnedOff(e *env) {
	fair := e.fair()
	fair.Filled(slices.Concat(shared("a1", "b1"), ofTenant("a", 40), shared("c1", "a2"))...)
	require.Len(e.T, fair.Claim(outmill.NewOwnerToken(), suite.Limit(1)), 1)
	e.Elapse(2 * leaseOf)
	e.Append(shared("b2", "a3")...)
	got := e.ClaimAll(suite.ByKey, suite.Limit(7))
	require.Len(e.T, got, 46)
	e.requireKey("k", []string{"a1", "b1", "c1", "a2", "b2", "a3"}, got)
}

func turnsMixed(e *env) {
	e.Register(group)
	fair := e.fair()
	counts := suite.NewTally()
	want, perKey := e.sharedKeys(30)
	more, others := fair.renamed(30)
	want = append(want, more...)
	for key, names := range others {
		perKey[key] = append(perKey[key], names...)
	}
	e.fairOwners(func(store outmill.Store, owner outmill.OwnerToken) error {
		for !counts.Done(len(want)) {
			found, err := store.Claim(e.Ctx, suite.Request(owner, suite.Limit(1+rand.IntN(9)), suite.ByKey))
			if err != nil {
				return err
			}
			if err := e.settleInOrder(store, counts, found); err != nil {
				return err
			}
		}
		return nil
	}, e.fair, func(...string) *env { return &env{e.On(e.Reopen())} })
	counts.RequireOnce(e.Env, want)
	require.Equal(e.T, perKey, counts.Order)
}

// renamed is sharedKeys with other names.
func (e *env) renamed(n int) (names []string, perKey map[string][]string) {
	perKey = map[string][]string{}
	for i := range n {
		key, name := fmt.Sprint("k", i%7), fmt.Sprintf("n%04d", i)
		e.Append(suite.Rec(orders, name, withKeyAndTenant(key, fmt.Sprint("t", rand.IntN(9)))))
		names = append(names, name)
		perKey[key] = append(perKey[key], name)
	}
	return names, perKey
}

func turnsInBothOrders(e *env) {
	e = e.fair()
	e.Filled(shared("a1", "b1", "a2", "c1")...)
	first := e.ClaimOne(outmill.NewOwnerToken(), "a1", suite.ByKey)
	require.Empty(e.T, e.ClaimAll(suite.ByKey), "the rest is held")
	any1 := e.Claim(outmill.NewOwnerToken(), suite.Limit(1))
	require.Len(e.T, any1, 1)
	e.Release(any1...)
	e.Ack(first)
	e.RequireNames([]string{"b1", "a2", "c1"}, e.ClaimAll(suite.ByKey, suite.Limit(1)))
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
			// The tenants' turns come in another order than the ends of the leases.
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
