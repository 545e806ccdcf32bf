package storetest

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func joinModelSentences() []sentence {
	return []sentence{{"random walks leave the joins of the store as the model of them", randomJoinWalks}}
}

func fewJoinWalks() int {
	if underRace || !all() {
		return 1
	}
	return 15
}

// randomJoinWalks is randomWalks with joins.
func randomJoinWalks(e *env) {
	walks, failed := 0, false
	limited := flag.Lookup("rapid.checks").Value.String() == flag.Lookup("rapid.checks").DefValue
	begin := time.Now()
	rapid.Check(e.t, func(t *rapid.T) {
		if limited && !failed && walks >= fewJoinWalks() && time.Since(begin) > walking() {
			return
		}
		passed := false
		defer func() { failed = failed || !passed }()
		walks++
		w := &joinWalk{walk: &walk{t: t, e: e, store: e.store, prefix: fmt.Sprintf("w%d.", walks)}}
		w.begin()
		t.Repeat(w.actions())
		t.Repeat(w.actions())
		passed = true
	})
	e.t.Logf("%d walks", walks)
}

// joinWalk is a random walk over the queue and its joins.
type joinWalk struct {
	*walk
	joins joinModel
	// before is what the queue had before the last action.
	before map[*item]outmill.Status
}

func (w *joinWalk) api() storekit.Joins { return w.store.(storekit.Joins) }

// begin ends and deletes all joins that there are: they are of former walks.
func (w *joinWalk) begin() {
	w.walk.begin()
	for _, join := range listAllJoins(w.ctx(), w.t, w.api(), storekit.JoinQuery{}) {
		if join.Status == storekit.JoinPending {
			w.no(w.api().CancelJoin(w.ctx(), join.ID, "the walk is over"), "CancelJoin")
		}
	}
	w.e.h.Elapse(w.e.t, w.store, joinRetention+time.Second)
	w.m.now += joinRetention + time.Second
	_, err := w.api().DeleteJoins(w.ctx(), 1000)
	w.no(err, "DeleteJoins")
	require.Empty(w.t, listAllJoins(w.ctx(), w.t, w.api(), storekit.JoinQuery{}), "joins after DeleteJoins")
	w.joins = joinModel{}
}

// actions are those of the queue, and those of joins under several names.
func (w *joinWalk) actions() map[string]func(*rapid.T) {
	all := w.walk.actions()
	check := all[""]
	delete(all, "")
	for name, action := range all {
		all[name] = w.followed(name, action)
	}
	own := map[string]func(*rapid.T){
		"append":           w.append,
		"append again":     w.append,
		"append more":      w.append,
		"append a step":    w.append,
		"append wrongly":   w.appendWrongly,
		"append a waiter":  w.appendWaiter,
		"start join":       w.startJoin,
		"start join again": w.startJoin,
		"attach":           w.attachLate,
		"report":           w.report,
		"seal":             w.seal,
		"finish":           w.finish,
		"finish again":     w.finish,
		"cancel":           w.cancel,
		"delete joins":     w.deleteJoins,
		"elapse a day":     w.elapseDay,
	}
	maps.Copy(all, own)
	all[""] = func(t *rapid.T) {
		w.checkJoins(t)
		w.follow()
		check(t)
	}
	return all
}

// followed lets the joins follow what the action does to the queue.
func (w *joinWalk) followed(name string, action func(*rapid.T)) func(*rapid.T) {
	return func(t *rapid.T) {
		w.before = map[*item]outmill.Status{}
		for _, it := range w.m.items {
			w.before[it] = it.status
		}
		groups := map[string]bool{}
		for _, g := range w.m.groups {
			groups[g.name] = true
		}
		action(t)
		gone := ackedAway
		switch name {
		case "delete":
			gone = deletedAway
		case "drop group":
			gone = dropped
			for _, g := range w.m.groups {
				delete(groups, g.name)
			}
			for g := range groups {
				w.joins.drops(g)
			}
		}
		w.joins.fates(func(it *item) bool { return contains(w.m.items, it) }, gone)
		w.follow()
		w.snoozed()
	}
}

// follow counts, and makes records due that wait for joins that are decided by
// now.
func (w *joinWalk) follow() {
	for _, j := range w.joins.joins {
		j.follow()
		was := j.decided
		if j.pending() {
			state := storekit.JoinState{Join: j.Join}
			j.decided = state.Decided()
		}
		if !j.decided || was {
			continue
		}
		for _, waiter := range w.joins.waiters {
			if waiter.join == j {
				w.wake(waiter.it)
			}
		}
	}
}

func (w *joinWalk) wake(it *item) {
	if it.status == outmill.StatusPending {
		it.next = min(it.next, w.m.now)
	}
}

// snoozed: a record that is snoozed while its join is decided is due at once.
// One that was abandoned then, or whose join was cancelled or deleted, leaves
// the walk, because the contract says nothing of it.
func (w *joinWalk) snoozed() {
	for _, waiter := range w.joins.waiters {
		it, said := waiter.it, waiter.join.Status != storekit.JoinCancelled && w.join(waiter.join.ID) != nil
		asleep := contains(w.m.items, it) && it.status == outmill.StatusPending && it.next > w.m.now
		switch {
		case !asleep || !waiter.join.decided:
		case w.before[it] == outmill.StatusLeased && it.expiries == 0 && it.attempts == 0 && said:
			w.wake(it)
		default:
			w.takeOut(it)
		}
	}
}

func (w *joinWalk) takeOut(it *item) {
	n, err := w.store.Delete(w.ctx(), it.id)
	w.no(err, "Delete")
	require.Equal(w.t, 1, n, "deleted")
	w.m.remove(func(other *item) bool { return other == it })
}

func (w *joinWalk) startJoin(t *rapid.T) {
	if len(w.joins.joins) >= 6 {
		t.Skip("enough joins")
	}
	join := newJoin(rapid.IntRange(1, 4).Draw(t, "steps"), pick(t, "policy", plainJoin, plainJoin, anyStep, quorumOf(1), quorumOf(2)))
	if join.Quorum > join.ExpectedSteps || rapid.IntRange(0, 3).Draw(t, "unsealed at 0") == 0 {
		unsealed(join)
	}
	join.Timeout = pick(t, "timeout", 0, 0, 2*tick, 6*tick)
	join.CompleteAtDeadline = rapid.Bool().Draw(t, "complete at deadline")
	join.GroupingKey = pick(t, "grouping key", "", "g", "G")
	switch pick(t, "transaction", "none", "commit", "rollback") {
	case "none":
		w.no(w.api().StartJoin(w.ctx(), join), "StartJoin")
	case "commit":
		ctx, commit, _ := w.e.h.Begin(w.e.t, w.store)
		w.no(w.api().StartJoin(ctx, join), "StartJoin")
		w.no(commit(), "commit")
	case "rollback":
		ctx, _, rollback := w.e.h.Begin(w.e.t, w.store)
		w.no(w.api().StartJoin(ctx, join), "StartJoin")
		w.no(rollback(), "rollback")
		return
	}
	j := &modelJoin{Join: *join, hasDeadline: join.Timeout > 0, deadline: w.m.now + join.Timeout}
	j.Status = storekit.JoinPending
	if j.Policy == "" {
		j.Policy = storekit.JoinAll
	}
	w.joins.joins = append(w.joins.joins, j)
}

func (w *joinWalk) pickJoin(t *rapid.T, which func(*modelJoin) bool) *modelJoin {
	list := slices.DeleteFunc(slices.Clone(w.joins.joins), func(j *modelJoin) bool { return !which(j) })
	if len(list) == 0 {
		t.Skip("no such join")
	}
	return pick(t, "join", list...)
}

// append draws records of which most are steps of joins that have room.
func (w *joinWalk) append(t *rapid.T) {
	records := make([]*outmill.Record, rapid.IntRange(1, 3).Draw(t, "records"))
	taken := map[*modelJoin]int{}
	for i := range records {
		w.messages++
		records[i] = rec(w.topic(t), fmt.Sprintf("m%d", w.messages),
			withKey(pick(t, "key", "", "", "k", "K")),
			withDelay(pick(t, "delay", 0, 0, 0, tick)),
			withTTL(pick(t, "ttl", 0, 0, 0, 2*tick)))
		for _, j := range w.joins.joins {
			if j.pending() && taken[j] < j.room() && rapid.Bool().Draw(t, "step") {
				taken[j]++
				records[i].Joins = append(records[i].Joins, j.ID)
			}
		}
		if len(records[i].Joins) == 0 {
			records[i].DedupKey = pick(t, "dedup key", "", "", "d")
		}
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
	w.attached(records)
}

// attached notes records that were appended, in both models.
func (w *joinWalk) attached(records []*outmill.Record) {
	had := len(w.m.items)
	w.appended(records)
	for _, r := range records {
		if r.Duplicate {
			continue
		}
		var items []*item
		for _, it := range w.m.items[had:] {
			if it.name == r.MessageID {
				items = append(items, it)
			}
		}
		msg := w.joins.appended(items)
		for _, id := range r.Joins {
			w.joins.attach(w.join(id), msg)
		}
	}
	w.follow()
}

func (w *joinWalk) join(id outmill.JoinID) *modelJoin {
	for _, j := range w.joins.joins {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// appendWrongly appends a step of a join that takes none, together with a good record.
func (w *joinWalk) appendWrongly(t *rapid.T) {
	id, want := outmill.NewJoinID(), storekit.ErrUnknownJoin
	closed := func(j *modelJoin) bool { return !j.pending() || j.room() <= 0 }
	if slices.ContainsFunc(w.joins.joins, closed) && rapid.IntRange(0, 3).Draw(t, "unknown join at 0") > 0 {
		j := w.pickJoin(t, closed)
		id, want = j.ID, storekit.ErrTooManySteps
		if !j.pending() {
			want = storekit.ErrJoinFinished
		}
	}
	ctx, commit, _ := w.e.h.Begin(w.e.t, w.store)
	w.messages++
	good := rec(w.topic(t), fmt.Sprintf("m%d", w.messages))
	err := w.store.Append(ctx, rec(w.topic(t), "never"), rec(w.topic(t), "never", withJoins(id)))
	require.ErrorIs(t, err, want)
	w.no(w.store.Append(ctx, good), "Append after an error")
	w.no(commit(), "commit")
	w.attached([]*outmill.Record{good})
}

// appendWaiter: a join with a deadline may count as decided by it.
func (w *joinWalk) appendWaiter(t *rapid.T) {
	j := w.pickJoin(t, func(j *modelJoin) bool { return j.pending() && !j.decided && !j.hasDeadline })
	w.messages++
	r := rec(w.topic(t), fmt.Sprintf("m%d", w.messages), waitsFor(j.ID),
		withKey(pick(t, "key", "", "", "k")), withDelay(pick(t, "delay", 0, tick, 3*tick)))
	w.no(w.store.Append(w.ctx(), r), "Append")
	had := len(w.m.items)
	w.appended([]*outmill.Record{r})
	for _, it := range w.m.items[had:] {
		w.joins.waiters = append(w.joins.waiters, &modelWaiter{it: it, join: j})
	}
}
