package suite

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

// walking is how long the walks of one store take if -rapid.checks is not given,
// unless they are too few then.
func walking() time.Duration {
	if All() {
		return 5 * time.Second
	}
	return time.Second
}

// few is how many walks are made at least: some, or one where walks are dear.
func few(some int) int {
	if Brief() {
		return max(1, some/6)
	}
	return some
}

// RandomWalks compares the store with the model of a queue. inSteps: see
// storetest.WalkInSteps.
func RandomWalks(e *Env, inSteps bool) { randomWalks(e, inSteps, false) }

// RandomWalksInParts are RandomWalks over a store whose topics are all fair.
func RandomWalksInParts(e *Env, inSteps bool) { randomWalks(e, inSteps, true) }

func randomWalks(e *Env, inSteps, fair bool) {
	MakeWalks(e, 30, func(w *Walk) map[string]func(*rapid.T) {
		w.Begin(inSteps)
		w.Queue.fair = fair
		return w.Actions()
	})
}

// Actions has the frequent ones under several names.
func (w *Walk) Actions() map[string]func(*rapid.T) {
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
		"pause":           w.pause,
		"resume":          w.resume,
		"resume again":    w.resume,
	}
}

// Walk is one random walk over store and model.
type Walk struct {
	T      *WalkT
	Env    *Env
	Store  outmill.Store
	prefix string
	Queue  model
	// base is the database's time less the time that has passed in the walk: it stays
	// where Elapse moves the times in the tables, and grows where it moves the clock.
	base       time.Time
	clockMoves bool
	owners     []outmill.OwnerToken
	leases     []outmill.Lease
	Messages   int
	steps      int
}

var walkGroups = []string{"one", "two"}

// Ctx is the context of the test.
func (w *Walk) Ctx() context.Context { return w.Env.T.Context() }

// NoError ends the walk where a call failed.
func (w *Walk) NoError(err error, what string) {
	w.T.Helper()
	require.NoError(w.T, err, what)
}

// Begin empties the store, which has what former walks left.
func (w *Walk) Begin(inSteps bool) {
	for _, r := range ListAll(w.Ctx(), w.T, w.Store, outmill.ListQuery{}) {
		_, err := w.Store.Delete(w.Ctx(), r.ID)
		w.NoError(err, "Delete")
	}
	for _, name := range walkGroups {
		_, err := w.Store.DropGroup(w.Ctx(), name)
		w.NoError(err, "DropGroup")
	}
	w.Queue = model{Retain: w.Env.Options.Retain, inSteps: inSteps, keys: map[[2]string]time.Duration{}}
	w.endPauses()
	w.owners = []outmill.OwnerToken{outmill.NewOwnerToken(), outmill.NewOwnerToken(), outmill.NewOwnerToken()}
	clock := Rec(w.prefix+"clock", "tick")
	w.NoError(w.Store.Append(w.Ctx(), clock), "Append")
	tick, err := w.Store.Get(w.Ctx(), clock.ID)
	w.NoError(err, "Get")
	w.Env.Elapse(time.Minute)
	later, err := w.Store.Get(w.Ctx(), clock.ID)
	w.NoError(err, "Get")
	w.base, w.clockMoves = tick.CreatedAt, later.CreatedAt.Equal(tick.CreatedAt)
	if w.clockMoves {
		w.base = w.base.Add(time.Minute)
	}
	_, err = w.Store.Delete(w.Ctx(), clock.ID)
	w.NoError(err, "Delete")
	w.registered(walkGroups[0], outmill.Topics{Exclude: []string{w.prefix + "c"}})
}

// Pick draws one of the choices.
func Pick[T any](t *rapid.T, what string, choices ...T) T {
	return rapid.SampledFrom(choices).Draw(t, what)
}

// Tick is what every duration of a walk is a multiple of.
const Tick = 10 * time.Minute

// Topic draws a topic of the walk.
func (w *Walk) Topic(t *rapid.T) string { return w.prefix + Pick(t, "topic", "a", "a", "b", "c") }

func (w *Walk) selection(t *rapid.T) outmill.Topics {
	return Pick(t, "topics",
		outmill.Topics{},
		outmill.Topics{},
		outmill.Topics{Include: []string{w.prefix + "a"}},
		outmill.Topics{Include: []string{w.prefix + "a", w.prefix + "b"}},
		outmill.Topics{Include: []string{w.prefix + "*"}, Exclude: []string{"*a"}},
		outmill.Topics{Exclude: []string{w.prefix + "b"}})
}

func (w *Walk) register(t *rapid.T) {
	w.registered(Pick(t, "group", walkGroups...), w.selection(t))
}

func (w *Walk) registered(name string, topics outmill.Topics) {
	w.NoError(w.Store.RegisterGroup(w.Ctx(), outmill.Registration{Group: name, Topics: topics}), "RegisterGroup")
	w.Queue.register(name, topics)
	w.adoptDeadRouting(name, topics)
}

// adoptDeadRouting: the contract does not say whether a record that went dead
// while it waited goes to the group.
func (w *Walk) adoptDeadRouting(name string, topics outmill.Topics) {
	for _, it := range w.Queue.Items {
		if it.Group != "" || it.Status != outmill.StatusDead || !topics.Match(it.topic) {
			continue
		}
		got, err := w.Store.Get(w.Ctx(), it.ID)
		w.NoError(err, "Get")
		if got.Group == name {
			it.Group = name
		}
	}
}

func (w *Walk) dropGroup(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "drop at 0") > 0 {
		t.Skip("dropping groups often leaves little to see")
	}
	name := Pick(t, "group", walkGroups...)
	dropped, err := w.Store.DropGroup(w.Ctx(), name)
	w.NoError(err, "DropGroup")
	require.Equal(w.T, w.Queue.drop(name), dropped, "records of the group")
}

func (w *Walk) append(t *rapid.T) {
	w.Queue.calls++
	records := make([]*outmill.Record, rapid.IntRange(1, 3).Draw(t, "records"))
	for i := range records {
		w.Messages++
		records[i] = Rec(w.Topic(t), fmt.Sprintf("m%d", w.Messages),
			withPayload(Pick(t, "payload", "nil", "", "small", strings.Repeat("large ", 30))),
			WithKey(Pick(t, "key", "", "k", "k", "k", "K")),
			WithDelay(Pick(t, "delay", 0, 0, 0, Tick, 3*Tick)),
			WithTTL(Pick(t, "ttl", 0, 0, 0, 2*Tick, 6*Tick)),
			WithDedup(Pick(t, "dedup key", "", "", "", "d", "D")),
			withTenant(Pick(t, "tenant", "", "", "acme")))
	}
	kept := w.MayRollBack(t, func(ctx context.Context) { w.NoError(w.Store.Append(ctx, records...), "Append") })
	if kept {
		w.Appended(records)
	}
}

// MayRollBack runs the call without a transaction, or in one that commits or rolls
// back. It returns whether what the call wrote is kept.
func (w *Walk) MayRollBack(t *rapid.T, call func(ctx context.Context)) bool {
	how := Pick(t, "transaction", "none", "none", "commit", "rollback")
	if how == "none" {
		call(w.Ctx())
		return true
	}
	ctx, commit, rollback := w.Env.Begin()
	call(ctx)
	if how == "rollback" {
		rollback()
		return false
	}
	commit()
	return true
}

// Appended learns the ids of what the records became.
func (w *Walk) Appended(records []*outmill.Record) {
	var added []*Item
	for _, r := range records {
		items := w.Queue.appendMessage(r, w.messageOf(r.MessageID))
		require.Equal(w.T, len(items) == 0, r.Duplicate, "%s is a duplicate", r.MessageID)
		if len(items) > 0 {
			items[0].ID = r.ID
			added = append(added, items[1:]...)
		}
	}
	if len(added) == 0 {
		return
	}
	for _, r := range ListAll(w.Ctx(), w.T, w.Store, outmill.ListQuery{}) {
		for _, it := range added {
			if it.Name == r.MessageID && it.Group == r.Group {
				it.ID = r.ID
				break
			}
		}
	}
	for _, it := range added {
		require.False(w.T, it.ID.IsZero(), "the store does not list %s", it)
	}
}

func (w *Walk) messageOf(name string) int {
	var n int
	_, err := fmt.Sscanf(name, "m%d", &n)
	w.NoError(err, "message name")
	return n
}

// Pass makes d pass for the database and the model.
func (w *Walk) Pass(d time.Duration) {
	w.Env.Elapse(d)
	w.Queue.Now += d
	if w.clockMoves {
		w.base = w.base.Add(d)
	}
}

func (w *Walk) elapse(t *rapid.T) {
	lapses := []time.Duration{Tick, 2 * Tick, 6 * Tick}
	if w.Queue.Retain > 0 {
		lapses = append(lapses, w.Queue.Retain)
	}
	d := Pick(t, "time", lapses...) + time.Second
	w.Pass(d)
}
