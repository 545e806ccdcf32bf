package storetest

import (
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

// WalkInSteps makes the random walks of Run over stores of which a claim puts only a
// few records at a time in line that have become due, and Fail parks only a few of
// those behind. A store does so where there are many, which a walk never has: h.New
// returns stores that do it sooner. It checks that handing out between such steps is
// the same as having claimed earlier, and that Requeue, which brings a parked key back
// in such steps, brings back all of it while claims park.
func WalkInSteps(t *testing.T, h Harness) {
	for _, mode := range modes() {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, h, mode.options)
			e.inSteps = true
			randomWalks(e)
			requeueBesideClaims(newEnv(t, h, mode.options))
		})
	}
}

// walking is how long the walks of one store take if -rapid.checks is not given,
// unless they are too few then.
func walking() time.Duration {
	if all() {
		return 5 * time.Second
	}
	return time.Second
}

func fewWalks() int {
	if underRace || !all() {
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
		if limited && !failed && walks >= fewWalks() && time.Since(begin) > walking() {
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
		"maintain":        w.maintain,
	}
}

// walk is one random walk over store and model.
type walk struct {
	t      *rapid.T
	e      *env
	store  outmill.Store
	prefix string
	m      model
	// base is the database's time less the time that has passed in the walk: it stays
	// where Elapse moves the times in the tables, and grows where it moves the clock.
	base       time.Time
	clockMoves bool
	owners     []outmill.OwnerToken
	leases     []outmill.Lease
	messages   int
	steps      int
}

var walkGroups = []string{"one", "two"}

func (w *walk) ctx() context.Context { return w.e.t.Context() }

func (w *walk) no(err error, what string) {
	w.t.Helper()
	require.NoError(w.t, err, what)
}

func (w *walk) begin() {
	for _, r := range listAll(w.ctx(), w.t, w.store, outmill.ListQuery{}) {
		_, err := w.store.Delete(w.ctx(), r.ID)
		w.no(err, "Delete")
	}
	for _, name := range walkGroups {
		_, err := w.store.DropGroup(w.ctx(), name)
		w.no(err, "DropGroup")
	}
	w.m = model{retain: w.e.options.Retain, inSteps: w.e.inSteps, keys: map[[2]string]time.Duration{}}
	w.owners = []outmill.OwnerToken{outmill.NewOwnerToken(), outmill.NewOwnerToken(), outmill.NewOwnerToken()}
	clock := rec(w.prefix+"clock", "tick")
	w.no(w.store.Append(w.ctx(), clock), "Append")
	tick, err := w.store.Get(w.ctx(), clock.ID)
	w.no(err, "Get")
	w.e.h.Elapse(w.e.t, w.store, time.Minute)
	later, err := w.store.Get(w.ctx(), clock.ID)
	w.no(err, "Get")
	w.base, w.clockMoves = tick.CreatedAt, later.CreatedAt.Equal(tick.CreatedAt)
	if w.clockMoves {
		w.base = w.base.Add(time.Minute)
	}
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

// tick is what every duration of a walk is a multiple of.
const tick = 10 * time.Minute

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
	w.no(w.store.RegisterGroup(w.ctx(), outmill.Registration{Group: name, Topics: topics}), "RegisterGroup")
	w.m.register(name, topics)
	w.adoptDeadRouting(name, topics)
}

// adoptDeadRouting: the contract does not say whether a record that went dead
// while it waited goes to the group.
func (w *walk) adoptDeadRouting(name string, topics outmill.Topics) {
	for _, it := range w.m.items {
		if it.group != "" || it.status != outmill.StatusDead || !topics.Match(it.topic) {
			continue
		}
		got, err := w.store.Get(w.ctx(), it.id)
		w.no(err, "Get")
		if got.Group == name {
			it.group = name
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
	require.Equal(t, w.m.remove(func(it *item) bool { return it.group == name }), n, "records of the group")
	w.m.groups = slices.DeleteFunc(w.m.groups, func(g *modelGroup) bool { return g.name == name })
}

func (w *walk) append(t *rapid.T) {
	w.m.calls++
	records := make([]*outmill.Record, rapid.IntRange(1, 3).Draw(t, "records"))
	for i := range records {
		w.messages++
		records[i] = rec(w.topic(t), fmt.Sprintf("m%d", w.messages),
			withPayload(pick(t, "payload", "", "small", strings.Repeat("large ", 30))),
			withKey(pick(t, "key", "", "k", "k", "k", "K")),
			withDelay(pick(t, "delay", 0, 0, 0, tick, 3*tick)),
			withTTL(pick(t, "ttl", 0, 0, 0, 2*tick, 6*tick)),
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
	for _, r := range listAll(w.ctx(), w.t, w.store, outmill.ListQuery{}) {
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

// pass makes d pass for the database and the model.
func (w *walk) pass(d time.Duration) {
	w.e.h.Elapse(w.e.t, w.store, d)
	w.m.now += d
	if w.clockMoves {
		w.base = w.base.Add(d)
	}
}

func (w *walk) elapse(t *rapid.T) {
	lapses := []time.Duration{tick, 2 * tick, 6 * tick}
	if w.m.retain > 0 {
		lapses = append(lapses, w.m.retain)
	}
	d := pick(t, "time", lapses...) + time.Second
	w.pass(d)
}
