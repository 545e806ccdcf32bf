package storetest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func claimSentences() []sentence {
	return []sentence{
		{"OBX-017 OBX-022 a claim hands out what is due, whole and leased", claimHandsOut},
		{"OBX-020 a claim leases until now plus the lease", claimSetsLease},
		{"OBX-021 a claim sets the owner", claimSetsOwner},
		{"OBX-023 a claim of nothing is no records and no error", claimOfNothing},
		{"OBX-026 a claim hands out no more than its limit", claimLimit},
		{"OBX-019 OBX-101 a leased record is not handed out again, not to its owner either", leasedIsNotClaimed},
		{"OBX-024 a processed record is not claimed", processedIsNotClaimed},
		{"OBX-025 a dead record is not claimed", deadIsNotClaimed},
		{"OBX-019 a record whose lease has ended is claimed again before it is reaped", endedLeaseIsClaimed},
		{"each claim of a record counts", claimsCount},
		{"MaxBytes bounds the sum of the records' sizes", maxBytesBounds},
		{"MaxBytes lets one record through whatever its size", maxBytesLetsOne},
		{"MaxBytes does not pass over a large record of a key to a later one", maxBytesKeepsOrder},
		{"the oldest due of a topic is handed out first", oldestFirst},
		{"the oldest due of a topic is handed out first, however many are due", oldestFirstOfMany},
		{"a topic with a large backlog does not starve another one", topicsInTurn},
		{"a topic with a large backlog does not starve another one in ordered claims", topicsInTurnOrdered},
		{"a claim of a huge limit hands out what there is", hugeLimit},
		{"OBX-100 OBX-101 ten owners that claim at once share no record and miss none", concurrentClaims},
		{"ten owners that claim in order at once share no key", concurrentOrderedClaims},
		{"a claim without an owner is refused", refuseClaim(func(r *outmill.ClaimRequest) { r.Owner = outmill.OwnerToken{} })},
		{"a limit below 1 is refused", refuseClaim(suite.Limit(0), suite.Limit(-1), suite.Limit(math.MinInt))},
		{"a lease that is not above 0 is refused", refuseClaim(leased(0), leased(-time.Second))},
		{"negative MaxBytes are refused", refuseClaim(maxBytes(-1))},
		{"an unknown order is refused", refuseClaim(suite.InOrder(3, outmill.KeyBlock), suite.InOrder(-1, outmill.KeyBlock))},
		{"an unknown key policy is refused", refuseClaim(suite.InOrder(outmill.OrderKey, 3), suite.InOrder(outmill.OrderNone, -1))},
		{"Park is refused with OrderTopic", refuseClaim(suite.InOrder(outmill.OrderTopic, outmill.KeyPark))},
		{"a group whose name is refused is refused in a claim", refuseClaim(badGroups()...)},
		{"topics that are no patterns are refused in a claim", refuseClaim(badTopics()...)},
		{"a registration of a group whose name is refused is refused", refuseGroupNames},
		{"a registration of topics that are no patterns is refused", refuseRegisteredTopics},
		{"a raw claim hands out what a claim hands out, with the metadata as a list or as a map", rawClaims},
		{"a store has no raw claims for a type that embeds it", rawOfAnother},
	}
}

func leased(d time.Duration) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Lease = d }
}

func maxBytes(n int) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.MaxBytes = n }
}

func claimHandsOut(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithKey("k"), suite.WithTTL(time.Hour), func(r *outmill.Record) {
		r.CorrelationID, r.CausationID, r.TraceParent, r.TraceState = "correlation", "causation", "parent", "state"
		r.Metadata = map[string]string{"a": "b"}
	}))
	r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	require.Equal(e.T, []string{"correlation", "causation", "parent", "state"},
		[]string{r.CorrelationID, r.CausationID, r.TraceParent, r.TraceState})
	e.RequireAbout(e.Now().Add(time.Hour), r.ExpiresAt, "expires at")
	require.Equal(e.T, orders, r.Topic)
	require.Equal(e.T, "k", r.Key)
	require.Equal(e.T, []byte("payload of m1"), r.Payload)
	require.Equal(e.T, map[string]string{"a": "b"}, r.Metadata)
	require.Equal(e.T, outmill.StatusLeased, r.Status)
	require.Equal(e.T, group, r.Group)
	require.Zero(e.T, r.Attempts)
	require.Zero(e.T, r.Expiries)
	e.RequireStatus(outmill.StatusLeased, r)
}

func claimSetsLease(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	for _, lease := range []time.Duration{time.Minute, 3 * time.Hour} {
		r := e.ClaimOne(outmill.NewOwnerToken(), "m1", leased(lease))
		e.RequireAbout(e.Now().Add(lease), r.LeaseUntil, "lease until, as claimed")
		require.WithinDuration(e.T, r.LeaseUntil, e.Get(r).LeaseUntil, 2*time.Millisecond, "lease until, as stored")
		e.Release(r)
	}
}

func claimSetsOwner(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	r := e.ClaimOne(owner, "m1")
	require.Equal(e.T, owner, r.Owner)
	require.Equal(e.T, owner, e.Get(r).Owner)
}

func claimOfNothing(e *env) {
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken()))
	e.Register(group)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken()))
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey))
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByTopic))
}

func claimLimit(e *env) {
	e.Filled(append(suite.Recs(orders, suite.Plain, "a", "b", "c", "d", "e"), suite.Recs("others", suite.Plain, "f", "g")...)...)
	owner := outmill.NewOwnerToken()
	var all []string
	for n := 1; len(all) < 7; n = n%3 + 1 {
		found := e.Claim(owner, suite.Limit(n))
		require.NotEmpty(e.T, found)
		require.LessOrEqual(e.T, len(found), n)
		all = append(all, suite.Names(found)...)
	}
	require.ElementsMatch(e.T, []string{"a", "b", "c", "d", "e", "f", "g"}, all)
}

func leasedIsNotClaimed(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	e.ClaimOne(owner, "m1")
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		require.Empty(e.T, e.Claim(owner, suite.InOrder(order, outmill.KeyBlock)), "its owner, order %s", order)
		require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.InOrder(order, outmill.KeyBlock)), "another owner, order %s", order)
	}
	found, err := e.Reopen().Claim(e.Ctx, suite.Request(outmill.NewOwnerToken()))
	require.NoError(e.T, err)
	require.Empty(e.T, found, "another process")
}

func processedIsNotClaimed(e *env) {
	e.Filled(suite.Keyed("k", "m1")...)
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	e.requireNeverClaimed()
}

func deadIsNotClaimed(e *env) {
	e.Filled(suite.Keyed("k", "m1")...)
	e.Fail(e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	e.requireNeverClaimed()
}

func (e *env) requireNeverClaimed() {
	e.T.Helper()
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		require.Empty(e.T, e.ClaimAll(suite.InOrder(order, outmill.KeyBlock)), "order %s", order)
		e.Elapse(2 * time.Hour)
		e.Reap(100)
		require.Empty(e.T, e.ClaimAll(suite.InOrder(order, outmill.KeyBlock)), "order %s, hours later", order)
	}
}

func endedLeaseIsClaimed(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Elapse(leaseOf - time.Minute)
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken()), "a minute before the lease ends")
	e.Elapse(2 * time.Minute)
	owner := outmill.NewOwnerToken()
	r := e.ClaimOne(owner, "m1")
	require.Equal(e.T, owner, r.Owner)
	e.RequireAbout(e.Now().Add(leaseOf), r.LeaseUntil, "lease until")
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken()), "claimed a third time")
}

func claimsCount(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	for n := 1; n <= 4; n++ {
		r := e.ClaimOne(outmill.NewOwnerToken(), "m1")
		require.Equal(e.T, n, r.Claims)
		require.Equal(e.T, n, e.Get(r).Claims)
		e.Release(r)
	}
}

func sized(name string, size int) *outmill.Record {
	r := suite.Rec(orders, name)
	r.Payload = nil
	r.Payload = []byte(strings.Repeat("x", size-r.Size()))
	return r
}

func maxBytesBounds(e *env) {
	e.Filled(sized("a", 1000), sized("b", 1000), sized("c", 1000), sized("d", 1000))
	owner := outmill.NewOwnerToken()
	for total := 0; total < 4; {
		found := e.Claim(owner, maxBytes(2999))
		require.NotEmpty(e.T, found)
		require.LessOrEqual(e.T, len(found), 2, "records of 1,000 bytes")
		total += len(found)
	}
}

func maxBytesLetsOne(e *env) {
	e.Filled(sized("a", 1000), sized("b", 1000), sized("c", 50_000), sized("d", 1000))
	owner := outmill.NewOwnerToken()
	var all []*outmill.Record
	for range 4 {
		found := e.Claim(owner, maxBytes(1))
		require.Len(e.T, found, 1)
		all = append(all, found...)
	}
	require.ElementsMatch(e.T, []string{"a", "b", "c", "d"}, suite.Names(all))
	for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic} {
		e.Release(all...)
		require.Len(e.T, e.Claim(owner, maxBytes(1), suite.InOrder(order, outmill.KeyBlock)), 1, "order %s", order)
	}
}

func maxBytesKeepsOrder(e *env) {
	records := []*outmill.Record{sized("m1", 500), sized("m2", 50_000), sized("m3", 100), sized("m4", 100)}
	for _, r := range records {
		suite.WithKey("k")(r)
	}
	e.Filled(records...)
	e.RequireNames([]string{"m1", "m2", "m3", "m4"}, e.ClaimAll(suite.ByKey, maxBytes(1000)))
}

func oldestFirst(e *env) {
	e.Filled(
		suite.Rec(orders, "third", suite.WithDelay(30*time.Minute)),
		suite.Rec(orders, "second", suite.WithDelay(20*time.Minute)),
		suite.Rec(orders, "fourth", suite.WithDelay(40*time.Minute)),
		suite.Rec(orders, "first", suite.WithDelay(10*time.Minute)))
	e.Elapse(time.Hour)
	owner := outmill.NewOwnerToken()
	require.ElementsMatch(e.T, []string{"first", "second"}, suite.Names(e.ClaimN(owner, 2)))
	e.ClaimOne(owner, "third")
	e.ClaimOne(owner, "fourth")
}

func oldestFirstOfMany(e *env) {
	const each = 60
	batch := func(kind string, change ...func(*outmill.Record)) {
		records := make([]*outmill.Record, each)
		for i := range records {
			records[i] = suite.Rec(orders, kind, change...)
		}
		e.Append(records...)
	}
	e.Register(group)
	batch("later", suite.WithDelay(40*time.Minute))
	batch("earlier", suite.WithDelay(20*time.Minute))
	batch("at once")
	e.Elapse(time.Hour)
	for _, kind := range []string{"at once", "earlier", "later"} {
		for range 3 {
			for _, name := range suite.Names(e.Claim(outmill.NewOwnerToken(), suite.Limit(each/3))) {
				require.Equal(e.T, kind, name)
			}
		}
	}
}

func topicsInTurn(e *env)        { e.checkTurns() }
func topicsInTurnOrdered(e *env) { e.checkTurns(suite.ByKey) }

func (e *env) checkTurns(changes ...func(*outmill.ClaimRequest)) {
	var backlog []string
	for i := range 150 {
		backlog = append(backlog, fmt.Sprintf("m%d", i))
	}
	e.Filled(suite.Recs("large", suite.Plain, backlog...)...)
	e.Append(suite.Rec("small", "one"), suite.Rec("smaller", "two"))
	for _, topics := range [][]string{nil, {"large", "small", "smaller"}, {"large", "small*"}} {
		missing := []string{"one", "two"}
		var claimed []*outmill.Record
		for n := 0; n < 50 && len(missing) > 0; n++ {
			found := e.Claim(outmill.NewOwnerToken(), append(changes, suite.From(topics...), suite.Limit(1))...)
			claimed = append(claimed, found...)
			missing = slices.DeleteFunc(missing, func(name string) bool { return slices.Contains(suite.Names(found), name) })
		}
		require.Empty(e.T, missing, "not served within 50 claims of 1 from %q, beside 150 older records", topics)
		e.Release(claimed...)
	}
}

func hugeLimit(e *env) {
	e.Filled(suite.Keyed("k", "a", "b")...)
	owner := outmill.NewOwnerToken()
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		found := e.ClaimOn(owner, suite.Limit(math.MaxInt), maxBytes(math.MaxInt), suite.InOrder(order, outmill.KeyBlock))
		require.Len(e.T, found, 2, "order %s", order)
		e.Release(found...)
	}
}

func concurrentClaims(e *env) {
	const records = 100
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(records)...)...)
	var mu sync.Mutex
	var all []string
	e.tenOwners(func(store outmill.Store, owner outmill.OwnerToken) error {
		for {
			found, err := store.Claim(e.Ctx, suite.Request(owner, suite.Limit(7)))
			if err != nil || len(found) == 0 {
				return err
			}
			mu.Lock()
			all = append(all, suite.Names(found)...)
			mu.Unlock()
		}
	})
	require.ElementsMatch(e.T, suite.Numbered(records), append(all, suite.Names(e.ClaimAll())...))
}

func concurrentOrderedClaims(e *env) {
	const keys, each = 15, 4
	var all []*outmill.Record
	for i := range keys {
		all = append(all, suite.Keyed(fmt.Sprintf("k%d", i), suite.Numbered(each)...)...)
	}
	e.Filled(all...)
	var mu sync.Mutex
	holder := map[string]outmill.OwnerToken{}
	claimed := map[string][]string{}
	e.tenOwners(func(store outmill.Store, owner outmill.OwnerToken) error {
		for {
			found, err := store.Claim(e.Ctx, suite.Request(owner, suite.Limit(3), suite.ByKey))
			if err != nil || len(found) == 0 {
				return err
			}
			mu.Lock()
			for _, r := range found {
				claimed[r.Key] = append(claimed[r.Key], r.MessageID)
				if first, held := holder[r.Key]; held && first != owner {
					mu.Unlock()
					return fmt.Errorf("key %s was handed to two owners", r.Key)
				}
				holder[r.Key] = owner
			}
			mu.Unlock()
		}
	})
	for key, got := range claimed {
		require.Equal(e.T, suite.Numbered(each)[:len(got)], got, "order of key %s", key)
	}
	require.Len(e.T, claimed, keys, "keys that were handed out")
}

// tenOwners runs ten workers at the same time, on two stores of one database.
func (e *env) tenOwners(work func(outmill.Store, outmill.OwnerToken) error) {
	e.T.Helper()
	stores := []outmill.Store{e.Store, e.Reopen()}
	e.Together(10, func(i int) error { return work(stores[i%len(stores)], outmill.NewOwnerToken()) })
}

// refuseClaim checks that a claim with any of the changes returns a typed error and claims no
// record.
func refuseClaim(changes ...func(*outmill.ClaimRequest)) func(*env) {
	return func(e *env) {
		e.Filled(suite.Keyed("k", "m1")...)
		for i, change := range changes {
			found, err := e.Store.Claim(e.Ctx, suite.Request(outmill.NewOwnerToken(), change))
			e.RequireRefusal(err, "change %d", i)
			require.Empty(e.T, found)
		}
		require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll()))
	}
}

func badNames() []string {
	return []string{strings.Repeat("x", 256), " a", "a ", "a\x00", "a\xff"}
}

func badGroups() []func(*outmill.ClaimRequest) {
	var changes []func(*outmill.ClaimRequest)
	for _, name := range badNames() {
		changes = append(changes, suite.OfGroup(name))
	}
	return changes
}

func badPatterns() []string {
	return []string{"", strings.Repeat("x", 2*outmill.MaxTopicLength+1), "a\x00", "a\xff"}
}

func badTopics() []func(*outmill.ClaimRequest) {
	var changes []func(*outmill.ClaimRequest)
	for _, pattern := range badPatterns() {
		changes = append(changes,
			suite.From(orders, pattern),
			func(r *outmill.ClaimRequest) { r.Topics.Exclude = []string{pattern} })
	}
	return changes
}

func refuseGroupNames(e *env) {
	for _, name := range badNames() {
		e.RequireRefusal(e.Store.RegisterGroup(e.Ctx, outmill.Registration{Group: name}), "group %q", name)
	}
	require.Empty(e.T, e.groups())
}

func refuseRegisteredTopics(e *env) {
	for _, pattern := range badPatterns() {
		e.RequireRefusal(e.Store.RegisterGroup(e.Ctx,
			outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{orders, pattern}}}), "include %q", pattern)
		e.RequireRefusal(e.Store.RegisterGroup(e.Ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Exclude: []string{pattern}}}),
			"exclude %q", pattern)
	}
	require.Empty(e.T, e.groups())
}
