package storetest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

func modelSentences() []sentence {
	return []sentence{{"random walks leave the store as the model of a queue", randomWalks}}
}

// If -rapid.checks is not given, walking is how long the walks of one store
// take, unless they are too few then.
const walking = 5 * time.Second

func fewWalks() int {
	if underRace || testing.Short() {
		return 5
	}
	return 30
}

// randomWalks makes all its walks on one store, which each walk empties first.
func randomWalks(e *env) {
	store := e.store
	walks, failed := 0, false
	limited := flag.Lookup("rapid.checks").Value.String() == flag.Lookup("rapid.checks").DefValue
	begin := time.Now()
	rapid.Check(e.t, func(t *rapid.T) {
		// Once a walk has failed, rapid makes more of them to find a short one.
		if limited && !failed && walks >= fewWalks() && time.Since(begin) > walking {
			return
		}
		passed := false
		defer func() { failed = failed || !passed }()
		walks++
		w := &walk{t: t, e: e, store: store, prefix: fmt.Sprintf("w%d.", walks)}
		w.begin()
		// Twice, because a walk must be long to get anywhere.
		t.Repeat(w.actions())
		t.Repeat(w.actions())
		passed = true
	})
	e.t.Logf("%d walks", walks)
}

// actions has the frequent ones under several names.
func (w *walk) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":                w.check,
		"append":          w.append,
		"append again":    w.append,
		"append more":     w.append,
		"claim":           w.claim,
		"claim again":     w.claim,
		"claim more":      w.claim,
		"settle":          w.settle,
		"settle again":    w.settle,
		"settle more":     w.settle,
		"settle others":   w.settle,
		"elapse":          w.elapse,
		"elapse again":    w.elapse,
		"everything over": w.everythingOver,
		"register":        w.register,
		"drop group":      w.dropGroup,
		"reap":            w.reap,
		"expire":          w.expire,
		"requeue":         w.requeue,
		"delete":          w.delete,
		"delete old":      w.deleteOld,
	}
}

// walk is one random walk over store and model.
type walk struct {
	t      *rapid.T
	e      *env
	store  outmill.Store
	prefix string
	m      model
	// base is the database's time at the beginning of the walk.
	base     time.Time
	owners   []outmill.OwnerToken
	leases   []outmill.Lease
	messages int
	steps    int
}

var walkGroups = []string{"one", "two"}

func (w *walk) ctx() context.Context { return w.e.t.Context() }

func (w *walk) no(err error, what string) {
	w.t.Helper()
	require.NoError(w.t, err, what)
}

func (w *walk) begin() {
	for _, r := range listAll(w.t, w.ctx(), w.store, outmill.ListQuery{}) {
		_, err := w.store.Delete(w.ctx(), r.ID)
		w.no(err, "Delete")
	}
	for _, name := range walkGroups {
		_, err := w.store.DropGroup(w.ctx(), name)
		w.no(err, "DropGroup")
	}
	w.m = model{retain: w.e.options.Retain, keys: map[[2]string]time.Duration{}}
	w.owners = []outmill.OwnerToken{outmill.NewOwnerToken(), outmill.NewOwnerToken(), outmill.NewOwnerToken()}
	clock := rec(w.prefix+"clock", "tick")
	w.no(w.store.Append(w.ctx(), clock), "Append")
	tick, err := w.store.Get(w.ctx(), clock.ID)
	w.no(err, "Get")
	w.base = tick.CreatedAt
	_, err = w.store.Delete(w.ctx(), clock.ID)
	w.no(err, "Delete")
	w.registered(walkGroups[0], outmill.Topics{Exclude: []string{w.prefix + "c"}})
}

func withPayload(payload string) func(*outmill.Record) {
	return func(r *outmill.Record) { r.Payload = []byte(payload) }
}

func pick[T any](t *rapid.T, what string, choices ...T) T {
	return rapid.SampledFrom(choices).Draw(t, what)
}

const tenMinutes = 10 * time.Minute

func (w *walk) topic(t *rapid.T) string { return w.prefix + pick(t, "topic", "a", "a", "b", "c") }

func (w *walk) selection(t *rapid.T) outmill.Topics {
	return pick(t, "topics",
		outmill.Topics{},
		outmill.Topics{},
		outmill.Topics{Include: []string{w.prefix + "a"}},
		outmill.Topics{Include: []string{w.prefix + "a", w.prefix + "b"}},
		outmill.Topics{Include: []string{w.prefix + "*"}, Exclude: []string{"*a"}},
		outmill.Topics{Exclude: []string{w.prefix + "b"}})
}

func (w *walk) register(t *rapid.T) {
	w.registered(pick(t, "group", walkGroups...), w.selection(t))
}

func (w *walk) registered(name string, topics outmill.Topics) {
	w.no(w.store.RegisterGroup(w.ctx(), name, topics), "RegisterGroup")
	w.m.register(name, topics)
	w.adoptDeadRouting(name, topics)
}

// adoptDeadRouting: the contract does not say whether a record that went dead
// while it waited goes to the group.
func (w *walk) adoptDeadRouting(name string, topics outmill.Topics) {
	for _, it := range w.m.items {
		if it.routed || it.status != outmill.StatusDead || !topics.Match(it.topic) {
			continue
		}
		got, err := w.store.Get(w.ctx(), it.id)
		w.no(err, "Get")
		if got.Group == name {
			it.group, it.routed = name, true
		}
	}
}

func (w *walk) dropGroup(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "drop at 0") > 0 {
		t.Skip("dropping groups often leaves little to see")
	}
	name := pick(t, "group", walkGroups...)
	n, err := w.store.DropGroup(w.ctx(), name)
	w.no(err, "DropGroup")
	require.Equal(t, w.m.remove(func(it *item) bool { return it.routed && it.group == name }), n, "records of the group")
	w.m.groups = slices.DeleteFunc(w.m.groups, func(g *modelGroup) bool { return g.name == name })
}

func (w *walk) append(t *rapid.T) {
	records := make([]*outmill.Record, rapid.IntRange(1, 3).Draw(t, "records"))
	for i := range records {
		w.messages++
		records[i] = rec(w.topic(t), fmt.Sprintf("m%d", w.messages),
			withPayload(pick(t, "payload", "", "small", strings.Repeat("large ", 30))),
			withKey(pick(t, "key", "", "k", "k", "k", "K")),
			withDelay(pick(t, "delay", 0, 0, 0, tenMinutes, 3*tenMinutes)),
			withTTL(pick(t, "ttl", 0, 0, 0, 2*tenMinutes, 6*tenMinutes)),
			withDedup(pick(t, "dedup key", "", "", "", "d", "D")))
	}
	switch pick(t, "transaction", "none", "none", "commit", "rollback") {
	case "none":
		w.no(w.store.Append(w.ctx(), records...), "Append")
	case "commit":
		ctx, commit, _ := w.e.h.Begin(w.e.t, w.store)
		w.no(w.store.Append(ctx, records...), "Append")
		w.no(commit(), "commit")
	case "rollback":
		ctx, _, rollback := w.e.h.Begin(w.e.t, w.store)
		w.no(w.store.Append(ctx, records...), "Append")
		w.no(rollback(), "rollback")
		return
	}
	w.appended(records)
}

// appended learns the ids of what the records became.
func (w *walk) appended(records []*outmill.Record) {
	var added []*item
	for _, r := range records {
		items := w.m.appendMessage(r, w.messageOf(r.MessageID))
		require.Equal(w.t, len(items) == 0, r.Duplicate, "%s is a duplicate", r.MessageID)
		if len(items) > 0 {
			items[0].id = r.ID
			added = append(added, items[1:]...)
		}
	}
	if len(added) == 0 {
		return
	}
	for _, r := range listAll(w.t, w.ctx(), w.store, outmill.ListQuery{}) {
		for _, it := range added {
			if it.name == r.MessageID && it.group == r.Group {
				it.id = r.ID
				break
			}
		}
	}
	for _, it := range added {
		require.False(w.t, it.id.IsZero(), "the store does not list %s", it)
	}
}

func (w *walk) messageOf(name string) int {
	var n int
	_, err := fmt.Sscanf(name, "m%d", &n)
	w.no(err, "message name")
	return n
}

func (w *walk) elapse(t *rapid.T) {
	lapses := []time.Duration{tenMinutes, 2 * tenMinutes, 6 * tenMinutes}
	if w.m.retain > 0 {
		lapses = append(lapses, w.m.retain)
	}
	d := pick(t, "time", lapses...) + time.Second
	w.e.h.Elapse(w.e.t, w.store, d)
	w.m.now += d
}

func (w *walk) claim(t *rapid.T) {
	req := outmill.ClaimRequest{
		Owner:    pick(t, "owner", w.owners...),
		Group:    pick(t, "group", "one", "one", "two"),
		Topics:   w.selection(t),
		Limit:    pick(t, "limit", 1, 2, 3, 100, 100),
		MaxBytes: pick(t, "max bytes", 0, 0, 0, 1, 60, 250),
		Lease:    pick(t, "lease", tenMinutes, 3*tenMinutes),
		Order:    pick(t, "order", outmill.OrderNone, outmill.OrderKey, outmill.OrderKey, outmill.OrderTopic),
	}
	switch req.Order {
	case outmill.OrderKey:
		req.KeyPolicy = pick(t, "key policy", outmill.Block, outmill.Block, outmill.Skip, outmill.Park)
	case outmill.OrderTopic:
		req.KeyPolicy = pick(t, "key policy", outmill.Block, outmill.Block, outmill.Skip)
	}
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
		return !claimed && it.routed && it.group == req.Group && (expired || w.m.leaseEnded(it))
	}
	for _, it := range w.filter(tidy) {
		got, err := w.store.Get(w.ctx(), it.id)
		w.no(err, "Get")
		switch {
		case got.Status == outmill.StatusPending && it.status == outmill.StatusLeased:
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

// someLeases draws leases, those that stand and others.
func (w *walk) someLeases(t *rapid.T) []outmill.Lease {
	standing := slices.DeleteFunc(slices.Clone(w.leases), func(l outmill.Lease) bool { return w.m.standing(l) == nil })
	from := standing
	if rapid.IntRange(0, 3).Draw(t, "any lease at 0") == 0 {
		from = w.leases
	}
	if len(from) == 0 {
		t.Skip("no leases")
	}
	list := make([]outmill.Lease, rapid.IntRange(1, 3).Draw(t, "leases"))
	for i := range list {
		list[i] = pick(t, "lease", from...)
	}
	return list
}

// settled applies f to the items whose leases stand, once each.
func (w *walk) settled(leases []outmill.Lease, f func(*item)) {
	for _, l := range leases {
		if it := w.m.standing(l); it != nil {
			f(it)
		}
	}
}

func (w *walk) settle(t *rapid.T) {
	leases := w.someLeases(t)
	pick(t, "settlement", w.ack, w.ack, w.abandon, w.fail, w.fail, w.release, w.snooze, w.extend)(t, leases)
}

func (w *walk) ack(_ *rapid.T, leases []outmill.Lease) {
	w.no(w.store.Ack(w.ctx(), leases), "Ack")
	w.settled(leases, w.m.ack)
}

func (w *walk) abandon(t *rapid.T, leases []outmill.Lease) {
	delay := pick(t, "delay", 0, tenMinutes, 3*tenMinutes)
	w.no(w.store.Abandon(w.ctx(), abandonments(delay, "boom", leases)), "Abandon")
	w.settled(leases, func(it *item) {
		it.toPending()
		it.next = w.m.now + delay
		it.attempts++
		it.expiries = 0
	})
}

func (w *walk) snooze(t *rapid.T, leases []outmill.Lease) {
	delay := pick(t, "delay", 0, tenMinutes, 3*tenMinutes)
	w.no(w.store.Snooze(w.ctx(), snoozings(delay, leases)), "Snooze")
	w.settled(leases, func(it *item) {
		it.toPending()
		it.next = w.m.now + delay
		it.expiries = 0
	})
}

func (w *walk) release(_ *rapid.T, leases []outmill.Lease) {
	w.no(w.store.Release(w.ctx(), leases), "Release")
	w.settled(leases, (*item).toPending)
}

func (w *walk) fail(t *rapid.T, leases []outmill.Lease) {
	park := rapid.Bool().Draw(t, "park")
	if park {
		leases = leases[:1]
		it := w.m.standing(leases[0])
		park = it != nil && !w.parkArguable(it)
	}
	w.no(w.store.Fail(w.ctx(), failures(park, "poison", leases)), "Fail")
	w.settled(leases, func(it *item) { w.m.fail(it, park) })
}

// parkArguable: the contract does not say what becomes of records of the key
// that went dead on their own before it is parked.
func (w *walk) parkArguable(it *item) bool {
	return slices.ContainsFunc(w.m.items, func(other *item) bool {
		return other != it && sameKey(it, other) && other.status == outmill.StatusDead && !other.parked
	})
}

func (w *walk) extend(t *rapid.T, leases []outmill.Lease) {
	standing, err := w.store.Extend(w.ctx(), 2*tenMinutes, leases)
	w.no(err, "Extend")
	want := map[outmill.Lease]bool{}
	for _, l := range leases {
		if it := w.m.standing(l); it != nil {
			want[l] = true
			it.leaseUntil = w.m.now + 2*tenMinutes
		}
	}
	got := map[outmill.Lease]bool{}
	for _, l := range standing {
		got[l] = true
	}
	require.Equal(t, want, got, "leases that Extend returned")
}

func (w *walk) reap(t *rapid.T) {
	limit := pick(t, "limit", 1, 2, 100)
	ended := w.filter(w.m.leaseEnded)
	n, err := w.store.ReapExpired(w.ctx(), limit)
	w.no(err, "ReapExpired")
	w.adopt(n, limit, ended, outmill.StatusPending, func(it *item, _ *outmill.Record) {
		it.countExpiry()
		it.toPending()
	})
}

func (w *walk) expire(t *rapid.T) {
	limit := pick(t, "limit", 1, 2, 100)
	w.expireDue(limit)
}

func (w *walk) expireDue(limit int) {
	expired := w.filter(func(it *item) bool {
		return w.m.expired(it) && (it.status == outmill.StatusPending || w.m.leaseEnded(it))
	})
	n, err := w.store.ExpireDue(w.ctx(), limit)
	w.no(err, "ExpireDue")
	w.adopt(n, limit, expired, outmill.StatusDead, func(it *item, got *outmill.Record) {
		it.toDead()
		it.attempts = got.Attempts
	})
}

func (w *walk) filter(f func(*item) bool) []*item {
	var list []*item
	for _, it := range w.m.items {
		if f(it) {
			list = append(list, it)
		}
	}
	return list
}

// adopt checks that a bounded call did as much as it could, and follows the
// store in which of the candidates it took.
func (w *walk) adopt(n, limit int, candidates []*item, to outmill.Status, f func(*item, *outmill.Record)) {
	require.Equal(w.t, min(limit, len(candidates)), n, "records done with limit %d", limit)
	for _, it := range candidates {
		got, err := w.store.Get(w.ctx(), it.id)
		w.no(err, "Get")
		if got.Status == to {
			f(it, got)
			n--
		}
	}
	require.Zero(w.t, n, "records counted and not done")
}

func (w *walk) requeue(t *rapid.T) {
	candidates := w.filter(func(it *item) bool {
		return it.routed && (it.parked || it.status != outmill.StatusDead || !w.m.keyParked(it))
	})
	dead := slices.DeleteFunc(slices.Clone(candidates), func(it *item) bool { return it.status != outmill.StatusDead })
	if len(dead) > 0 && rapid.IntRange(0, 3).Draw(t, "any record at 0") > 0 {
		candidates = dead
	}
	if len(candidates) == 0 {
		t.Skip("no records")
	}
	it := pick(t, "record", candidates...)
	n, err := w.store.Requeue(w.ctx(), it.id)
	w.no(err, "Requeue")
	require.Equal(t, w.m.requeue(it), n, "records requeued with %s", it.name)
}

func (w *walk) delete(t *rapid.T) {
	if len(w.m.items) == 0 {
		t.Skip("no records")
	}
	it := pick(t, "record", w.m.items...)
	n, err := w.store.Delete(w.ctx(), it.id)
	w.no(err, "Delete")
	require.Equal(t, w.m.remove(func(other *item) bool { return other == it }), n)
}

func (w *walk) deleteOld(t *rapid.T) {
	n, err := w.store.DeleteProcessed(w.ctx(), 100)
	w.no(err, "DeleteProcessed")
	old := func(it *item) bool {
		return it.status == outmill.StatusProcessed && it.processed+w.m.retain <= w.m.now
	}
	require.Equal(t, w.m.remove(old), n, "processed records deleted")
	_, err = w.store.DeleteDedupKeys(w.ctx(), 100)
	w.no(err, "DeleteDedupKeys")
}

// everythingOver lets every lease end and every delay pass: what is stranded
// then shows.
func (w *walk) everythingOver(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "at 0") > 0 {
		t.Skip("the end of everything often leaves little to see")
	}
	d := 20*tenMinutes + time.Second
	w.e.h.Elapse(w.e.t, w.store, d)
	w.m.now += d
	w.expireDue(1000)
	for _, name := range walkGroups {
		w.claimAway(t, name)
	}
}

// claimAway claims and acks until nothing more comes, and checks that nothing
// claimable was left.
func (w *walk) claimAway(t *rapid.T, name string) {
	req := outmill.ClaimRequest{
		Owner: w.owners[0], Group: name, Limit: 10, Lease: tenMinutes,
		Order: pick(t, "order", outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic),
	}
	for {
		found, err := w.store.Claim(w.ctx(), req)
		w.no(err, "Claim")
		w.adoptTidied(req, found)
		w.claimed(req, found)
		if len(found) == 0 {
			return
		}
		leases := leases(found)
		w.no(w.store.Ack(w.ctx(), leases), "Ack")
		w.settled(leases, w.m.ack)
	}
}

// check compares all that can be seen of the store with the model.
func (w *walk) check(t *rapid.T) {
	listed := listAll(t, w.ctx(), w.store, outmill.ListQuery{})
	require.Len(t, listed, len(w.m.items), "records\nstore: %q\nmodel:\n%s", names(listed), &w.m)
	last := outmill.WorkItemID{}
	for _, r := range listed {
		it := w.m.find(r.ID)
		require.NotNil(t, it, "%s is in the store, but not in the model", r.MessageID)
		w.requireSame(it, r)
		require.Negative(t, bytes.Compare(last[:], r.ID[:]), "List is not in the order of the ids: %q", names(listed))
		last = r.ID
	}
	// Statistics cost more than anything else.
	if w.steps++; w.steps%4 == 0 {
		w.checkStats(t)
	}
}

func (w *walk) requireSame(it *item, r *outmill.Record) {
	w.t.Helper()
	type visible struct {
		Name, Group, Topic, Key string
		Routed                  bool
		Status                  outmill.Status
		Attempts, Claims        int
		Owner, ProcessedBy      outmill.OwnerToken
	}
	require.Equal(w.t,
		visible{it.name, it.group, it.topic, it.key, it.routed, it.status, it.attempts, it.claims, it.owner, it.processor},
		visible{r.MessageID, r.Group, r.Topic, r.Key, r.Routed, r.Status, r.Attempts, r.Claims, r.Owner, r.ProcessedBy},
		"model, store: %s", it)
	if it.status == outmill.StatusPending || it.status == outmill.StatusLeased {
		require.Equal(w.t, it.expiries, r.Expiries, "expiries of %s", it)
	}
	w.requireTime(it.due, r.DueAt, "due time of "+it.name)
	w.requireNext(it, r)
	if it.status == outmill.StatusLeased {
		w.requireTime(it.leaseUntil, r.LeaseUntil, "lease of "+it.name)
	} else {
		require.True(w.t, r.LeaseUntil.IsZero(), "lease of %s", it)
	}
	if it.mayExpire {
		w.requireTime(it.expires, r.ExpiresAt, "expiry of "+it.name)
	} else {
		require.True(w.t, r.ExpiresAt.IsZero(), "expiry of %s", it)
	}
}

func (w *walk) requireNext(it *item, r *outmill.Record) {
	w.t.Helper()
	behind := len(w.m.peers(it, outmill.OrderTopic)) > 0
	switch {
	case it.status != outmill.StatusPending:
		require.True(w.t, r.NextAttemptAt.IsZero(), "next attempt of %s", it)
	case behind && r.NextAttemptAt.IsZero():
	case it.next > w.m.now:
		w.requireTime(it.next, r.NextAttemptAt, "next attempt of "+it.name)
	default:
		require.False(w.t, r.NextAttemptAt.IsZero(), "next attempt of %s", it)
		require.True(w.t, r.NextAttemptAt.Before(w.base.Add(tenMinutes/2)), "next attempt of %s at %s", it, r.NextAttemptAt)
	}
}

func (w *walk) requireTime(want time.Duration, got time.Time, what string) {
	w.t.Helper()
	require.WithinDuration(w.t, w.base.Add(want-w.m.now), got, tenMinutes/2, what)
}

func (w *walk) checkStats(t *rapid.T) {
	type row struct {
		group  string
		routed bool
		topic  string
	}
	type counts struct{ pending, leased, processed, dead int }
	want, got := map[row]counts{}, map[row]counts{}
	for _, it := range w.m.items {
		c := want[row{it.group, it.routed, it.topic}]
		switch it.status {
		case outmill.StatusPending:
			c.pending++
		case outmill.StatusLeased:
			c.leased++
		case outmill.StatusProcessed:
			c.processed++
		case outmill.StatusDead:
			c.dead++
		}
		want[row{it.group, it.routed, it.topic}] = c
	}
	stats, err := w.store.Stats(w.ctx(), 0)
	w.no(err, "Stats")
	for _, s := range stats {
		if c := (counts{s.Pending, s.Leased, s.Processed, s.Dead}); c != (counts{}) {
			got[row{s.Group, s.Routed, s.Topic}] = c
		}
	}
	require.Equal(t, want, got, "pending, leased, processed, dead")
}
