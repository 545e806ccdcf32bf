package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

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
		{"a limit below 1 is refused", refuseClaim(limit(0), limit(-1), limit(math.MinInt))},
		{"a lease that is not above 0 is refused", refuseClaim(leased(0), leased(-time.Second))},
		{"negative MaxBytes are refused", refuseClaim(maxBytes(-1))},
		{"an unknown order is refused", refuseClaim(inOrder(3, outmill.KeyBlock), inOrder(-1, outmill.KeyBlock))},
		{"an unknown key policy is refused", refuseClaim(inOrder(outmill.OrderKey, 3), inOrder(outmill.OrderNone, -1))},
		{"Park is refused with OrderTopic", refuseClaim(inOrder(outmill.OrderTopic, outmill.KeyPark))},
		{"a group whose name is refused is refused in a claim", refuseClaim(badGroups()...)},
		{"topics that are no patterns are refused in a claim", refuseClaim(badTopics()...)},
		{"a registration of a group whose name is refused is refused", refuseGroupNames},
		{"a registration of topics that are no patterns is refused", refuseRegisteredTopics},
	}
}

func leased(d time.Duration) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.Lease = d }
}

func maxBytes(n int) func(*outmill.ClaimRequest) {
	return func(r *outmill.ClaimRequest) { r.MaxBytes = n }
}

func claimHandsOut(e *env) {
	e.filled(rec(orders, "m1", withKey("k"), func(r *outmill.Record) { r.Metadata = map[string]string{"a": "b"} }))
	r := e.claimOne(outmill.NewOwnerToken(), "m1")
	require.Equal(e.t, orders, r.Topic)
	require.Equal(e.t, "k", r.Key)
	require.Equal(e.t, []byte("payload of m1"), r.Payload)
	require.Equal(e.t, map[string]string{"a": "b"}, r.Metadata)
	require.Equal(e.t, outmill.StatusLeased, r.Status)
	require.Equal(e.t, group, r.Group)
	require.Zero(e.t, r.Attempts)
	require.Zero(e.t, r.Expiries)
	e.requireStatus(outmill.StatusLeased, r)
}

func claimSetsLease(e *env) {
	e.filled(rec(orders, "m1"))
	for _, lease := range []time.Duration{time.Minute, 3 * time.Hour} {
		r := e.claimOne(outmill.NewOwnerToken(), "m1", leased(lease))
		e.requireAbout(e.now().Add(lease), r.LeaseUntil, "lease until, as claimed")
		require.WithinDuration(e.t, r.LeaseUntil, e.get(r).LeaseUntil, 2*time.Millisecond, "lease until, as stored")
		e.release(r)
	}
}

func claimSetsOwner(e *env) {
	e.filled(rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	r := e.claimOne(owner, "m1")
	require.Equal(e.t, owner, r.Owner)
	require.Equal(e.t, owner, e.get(r).Owner)
}

func claimOfNothing(e *env) {
	require.Empty(e.t, e.claim(outmill.NewOwnerToken()))
	e.register(group)
	require.Empty(e.t, e.claim(outmill.NewOwnerToken()))
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byKey))
	require.Empty(e.t, e.claim(outmill.NewOwnerToken(), byTopic))
}

func claimLimit(e *env) {
	e.filled(append(recs(orders, plain, "a", "b", "c", "d", "e"), recs("others", plain, "f", "g")...)...)
	owner := outmill.NewOwnerToken()
	var all []string
	for n := 1; len(all) < 7; n = n%3 + 1 {
		found := e.claim(owner, limit(n))
		require.NotEmpty(e.t, found)
		require.LessOrEqual(e.t, len(found), n)
		all = append(all, names(found)...)
	}
	require.ElementsMatch(e.t, []string{"a", "b", "c", "d", "e", "f", "g"}, all)
}

func leasedIsNotClaimed(e *env) {
	e.filled(rec(orders, "m1"))
	owner := outmill.NewOwnerToken()
	e.claimOne(owner, "m1")
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		require.Empty(e.t, e.claim(owner, inOrder(order, outmill.KeyBlock)), "its owner, order %s", order)
		require.Empty(e.t, e.claim(outmill.NewOwnerToken(), inOrder(order, outmill.KeyBlock)), "another owner, order %s", order)
	}
	found, err := e.reopen().Claim(e.ctx, request(outmill.NewOwnerToken()))
	require.NoError(e.t, err)
	require.Empty(e.t, found, "another process")
}

func processedIsNotClaimed(e *env) {
	e.filled(keyed("k", "m1")...)
	e.ack(e.claimOne(outmill.NewOwnerToken(), "m1"))
	e.requireNeverClaimed()
}

func deadIsNotClaimed(e *env) {
	e.filled(keyed("k", "m1")...)
	e.fail(e.claimOne(outmill.NewOwnerToken(), "m1"))
	e.requireNeverClaimed()
}

func (e *env) requireNeverClaimed() {
	e.t.Helper()
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		require.Empty(e.t, e.claimAll(inOrder(order, outmill.KeyBlock)), "order %s", order)
		e.elapse(2 * time.Hour)
		e.reap(100)
		require.Empty(e.t, e.claimAll(inOrder(order, outmill.KeyBlock)), "order %s, hours later", order)
	}
}

func endedLeaseIsClaimed(e *env) {
	e.filled(rec(orders, "m1"))
	e.claimOne(outmill.NewOwnerToken(), "m1")
	e.elapse(leaseOf - time.Minute)
	require.Empty(e.t, e.claim(outmill.NewOwnerToken()), "a minute before the lease ends")
	e.elapse(2 * time.Minute)
	owner := outmill.NewOwnerToken()
	r := e.claimOne(owner, "m1")
	require.Equal(e.t, owner, r.Owner)
	e.requireAbout(e.now().Add(leaseOf), r.LeaseUntil, "lease until")
	require.Empty(e.t, e.claim(outmill.NewOwnerToken()), "claimed a third time")
}

func claimsCount(e *env) {
	e.filled(rec(orders, "m1"))
	for n := 1; n <= 4; n++ {
		r := e.claimOne(outmill.NewOwnerToken(), "m1")
		require.Equal(e.t, n, r.Claims)
		require.Equal(e.t, n, e.get(r).Claims)
		e.release(r)
	}
}

func sized(name string, size int) *outmill.Record {
	r := rec(orders, name)
	r.Payload = nil
	r.Payload = []byte(strings.Repeat("x", size-r.Size()))
	return r
}

func maxBytesBounds(e *env) {
	e.filled(sized("a", 1000), sized("b", 1000), sized("c", 1000), sized("d", 1000))
	owner := outmill.NewOwnerToken()
	for total := 0; total < 4; {
		found := e.claim(owner, maxBytes(2999))
		require.NotEmpty(e.t, found)
		require.LessOrEqual(e.t, len(found), 2, "records of 1,000 bytes")
		total += len(found)
	}
}

func maxBytesLetsOne(e *env) {
	e.filled(sized("a", 1000), sized("b", 1000), sized("c", 50_000), sized("d", 1000))
	owner := outmill.NewOwnerToken()
	var all []*outmill.Record
	for range 4 {
		found := e.claim(owner, maxBytes(1))
		require.Len(e.t, found, 1)
		all = append(all, found...)
	}
	require.ElementsMatch(e.t, []string{"a", "b", "c", "d"}, names(all))
	for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic} {
		e.release(all...)
		require.Len(e.t, e.claim(owner, maxBytes(1), inOrder(order, outmill.KeyBlock)), 1, "order %s", order)
	}
}

func maxBytesKeepsOrder(e *env) {
	records := []*outmill.Record{sized("m1", 500), sized("m2", 50_000), sized("m3", 100), sized("m4", 100)}
	for _, r := range records {
		withKey("k")(r)
	}
	e.filled(records...)
	e.requireNames([]string{"m1", "m2", "m3", "m4"}, e.claimAll(byKey, maxBytes(1000)))
}

func oldestFirst(e *env) {
	e.filled(
		rec(orders, "third", withDelay(30*time.Minute)),
		rec(orders, "second", withDelay(20*time.Minute)),
		rec(orders, "fourth", withDelay(40*time.Minute)),
		rec(orders, "first", withDelay(10*time.Minute)))
	e.elapse(time.Hour)
	owner := outmill.NewOwnerToken()
	require.ElementsMatch(e.t, []string{"first", "second"}, names(e.claimN(owner, 2)))
	e.claimOne(owner, "third")
	e.claimOne(owner, "fourth")
}

func oldestFirstOfMany(e *env) {
	const each = 60
	batch := func(kind string, change ...func(*outmill.Record)) {
		records := make([]*outmill.Record, each)
		for i := range records {
			records[i] = rec(orders, kind, change...)
		}
		e.append(records...)
	}
	e.register(group)
	batch("later", withDelay(40*time.Minute))
	batch("earlier", withDelay(20*time.Minute))
	batch("at once")
	e.elapse(time.Hour)
	for _, kind := range []string{"at once", "earlier", "later"} {
		for range 3 {
			for _, name := range names(e.claim(outmill.NewOwnerToken(), limit(each/3))) {
				require.Equal(e.t, kind, name)
			}
		}
	}
}

func topicsInTurn(e *env)        { e.checkTurns() }
func topicsInTurnOrdered(e *env) { e.checkTurns(byKey) }

func (e *env) checkTurns(changes ...func(*outmill.ClaimRequest)) {
	var backlog []string
	for i := range 150 {
		backlog = append(backlog, fmt.Sprintf("m%d", i))
	}
	e.filled(recs("large", plain, backlog...)...)
	e.append(rec("small", "one"), rec("smaller", "two"))
	for _, topics := range [][]string{nil, {"large", "small", "smaller"}, {"large", "small*"}} {
		missing := []string{"one", "two"}
		var claimed []*outmill.Record
		for n := 0; n < 50 && len(missing) > 0; n++ {
			found := e.claim(outmill.NewOwnerToken(), append(changes, from(topics...), limit(1))...)
			claimed = append(claimed, found...)
			missing = slices.DeleteFunc(missing, func(name string) bool { return slices.Contains(names(found), name) })
		}
		require.Empty(e.t, missing, "not served within 50 claims of 1 from %q, beside 150 older records", topics)
		e.release(claimed...)
	}
}

func hugeLimit(e *env) {
	e.filled(keyed("k", "a", "b")...)
	owner := outmill.NewOwnerToken()
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		found := e.claimOn(owner, limit(math.MaxInt), maxBytes(math.MaxInt), inOrder(order, outmill.KeyBlock))
		require.Len(e.t, found, 2, "order %s", order)
		e.release(found...)
	}
}

func concurrentClaims(e *env) {
	const records = 100
	e.filled(recs(orders, plain, numbered(records)...)...)
	var mu sync.Mutex
	var all []string
	e.tenOwners(func(store outmill.Store, owner outmill.OwnerToken) error {
		for {
			found, err := store.Claim(e.ctx, request(owner, limit(7)))
			if err != nil || len(found) == 0 {
				return err
			}
			mu.Lock()
			all = append(all, names(found)...)
			mu.Unlock()
		}
	})
	require.ElementsMatch(e.t, numbered(records), append(all, names(e.claimAll())...))
}

func concurrentOrderedClaims(e *env) {
	const keys, each = 15, 4
	var all []*outmill.Record
	for i := range keys {
		all = append(all, keyed(fmt.Sprintf("k%d", i), numbered(each)...)...)
	}
	e.filled(all...)
	var mu sync.Mutex
	holder := map[string]outmill.OwnerToken{}
	claimed := map[string][]string{}
	e.tenOwners(func(store outmill.Store, owner outmill.OwnerToken) error {
		for {
			found, err := store.Claim(e.ctx, request(owner, limit(3), byKey))
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
		require.Equal(e.t, numbered(each)[:len(got)], got, "order of key %s", key)
	}
	require.Len(e.t, claimed, keys, "keys that were handed out")
}

// tenOwners runs ten workers at once, on two stores of one database.
func (e *env) tenOwners(work func(outmill.Store, outmill.OwnerToken) error) {
	e.t.Helper()
	stores := []outmill.Store{e.store, e.reopen()}
	var workers errgroup.Group
	for i := range 10 {
		workers.Go(func() error { return work(stores[i%len(stores)], outmill.NewOwnerToken()) })
	}
	require.NoError(e.t, workers.Wait())
}

func numbered(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("m%04d", i)
	}
	return list
}

// refuseClaim checks that a claim with each of the changes is a typed error
// and claims nothing.
func refuseClaim(changes ...func(*outmill.ClaimRequest)) func(*env) {
	return func(e *env) {
		e.filled(keyed("k", "m1")...)
		for i, change := range changes {
			found, err := e.store.Claim(e.ctx, request(outmill.NewOwnerToken(), change))
			e.requireRefusal(err, "change %d", i)
			require.Empty(e.t, found)
		}
		require.Equal(e.t, []string{"m1"}, names(e.claimAll()))
	}
}

// requireRefusal holds for an error that says that an argument is bad.
func (e *env) requireRefusal(err error, what ...any) {
	e.t.Helper()
	require.Error(e.t, err, what...)
	for _, typed := range []error{outmill.ErrInvalidConfig, outmill.ErrInvalidRecord} {
		if errors.Is(err, typed) {
			return
		}
	}
	require.Fail(e.t, fmt.Sprintf("%q is neither ErrInvalidConfig nor ErrInvalidRecord", err), what...)
}

func badNames() []string {
	return []string{strings.Repeat("x", 256), " a", "a ", "a\x00", "a\xff"}
}

func badGroups() []func(*outmill.ClaimRequest) {
	var changes []func(*outmill.ClaimRequest)
	for _, name := range badNames() {
		changes = append(changes, ofGroup(name))
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
			from(orders, pattern),
			func(r *outmill.ClaimRequest) { r.Topics.Exclude = []string{pattern} })
	}
	return changes
}

func refuseGroupNames(e *env) {
	for _, name := range badNames() {
		e.requireRefusal(e.store.RegisterGroup(e.ctx, outmill.Registration{Group: name}), "group %q", name)
	}
	require.Empty(e.t, e.groups())
}

func refuseRegisteredTopics(e *env) {
	for _, pattern := range badPatterns() {
		e.requireRefusal(e.store.RegisterGroup(e.ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{orders, pattern}}}), "include %q", pattern)
		e.requireRefusal(e.store.RegisterGroup(e.ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Exclude: []string{pattern}}}), "exclude %q", pattern)
	}
	require.Empty(e.t, e.groups())
}
