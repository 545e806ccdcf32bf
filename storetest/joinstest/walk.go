package joinstest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func modelSentences() []sentence {
	return []sentence{{"random walks leave the joins of the store as the model of them", randomJoinWalks}}
}

// randomJoinWalks is RandomWalks with joins.
func randomJoinWalks(e *env) {
	suite.MakeWalks(e.Env, 15, func(queue *suite.Walk) map[string]func(*rapid.T) {
		w := &joinWalk{Walk: queue}
		w.begin()
		return w.actions()
	})
}

// joinWalk is a random walk over the queue and its joins.
type joinWalk struct {
	*suite.Walk
	joins joinModel
	// before is what the queue had before the last action.
	before map[*suite.Item]outmill.Status
}

func (w *joinWalk) api() roles.Joins { return w.Store.(roles.Joins) }

// begin ends and deletes all joins that there are: they are of former walks.
func (w *joinWalk) begin() {
	w.Begin(false)
	for _, join := range listAllJoins(w.Ctx(), w.T, w.api(), roles.JoinQuery{}) {
		if join.Status == roles.JoinPending {
			w.NoError(w.api().CancelJoin(w.Ctx(), join.ID, "the walk is over"), "CancelJoin")
		}
	}
	w.Pass(joinRetention + time.Second)
	_, err := w.api().DeleteJoins(w.Ctx(), 1000)
	w.NoError(err, "DeleteJoins")
	require.Empty(w.T, listAllJoins(w.Ctx(), w.T, w.api(), roles.JoinQuery{}), "joins after DeleteJoins")
	w.joins = joinModel{}
}

// actions are those of the queue, and those of joins under several names.
func (w *joinWalk) actions() map[string]func(*rapid.T) {
	all := w.Actions()
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
		w.checkJoins()
		w.follow()
		check(t)
	}
	return all
}

// followed lets the joins follow what the action does to the queue.
func (w *joinWalk) followed(name string, action func(*rapid.T)) func(*rapid.T) {
	return func(t *rapid.T) {
		w.before = map[*suite.Item]outmill.Status{}
		for _, it := range w.Queue.Items {
			w.before[it] = it.Status
		}
		groups := map[string]bool{}
		for _, g := range w.Queue.Groups {
			groups[g.Name] = true
		}
		due := w.dueOfWaiters()
		action(t)
		due()
		gone := ackedAway
		switch name {
		case "delete":
			gone = deletedAway
		case "drop group":
			gone = dropped
			for _, g := range w.Queue.Groups {
				delete(groups, g.Name)
			}
			for g := range groups {
				w.joins.drops(g)
			}
		}
		w.joins.fates(func(it *suite.Item) bool { return suite.Contains(w.Queue.Items, it) }, gone)
		w.follow()
		w.snoozed()
	}
}

// dueOfWaiters returns a function that makes records due as now that wait for a join and are given back
// by a drop: a drop leaves their time to the join.
func (w *joinWalk) dueOfWaiters() func() {
	before := map[*suite.Item]suite.Item{}
	for _, waiter := range w.joins.waiters {
		before[waiter.it] = *waiter.it
	}
	return func() {
		for it, was := range before {
			if was.Group != "" && it.Group == "" {
				it.Next = was.Next
			}
		}
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

func (w *joinWalk) wake(it *suite.Item) {
	if it.Status == outmill.StatusPending {
		it.Next = min(it.Next, w.Queue.Now)
	}
}

// snoozed: a record that is snoozed while its join is decided is due at once.
// One that was abandoned then, or whose join was cancelled or deleted, leaves
// the walk, because the contract says nothing of it.
func (w *joinWalk) snoozed() {
	for _, waiter := range w.joins.waiters {
		it, said := waiter.it, waiter.join.Status != roles.JoinCancelled && w.join(waiter.join.ID) != nil
		asleep := suite.Contains(w.Queue.Items, it) && it.Status == outmill.StatusPending && it.Next > w.Queue.Now
		switch {
		case !asleep || !waiter.join.decided:
		case w.before[it] == outmill.StatusLeased && it.Expiries == 0 && it.Attempts == 0 && said:
			w.wake(it)
		default:
			w.takeOut(it)
		}
	}
}

func (w *joinWalk) takeOut(it *suite.Item) {
	n, err := w.Store.Delete(w.Ctx(), it.ID)
	w.NoError(err, "Delete")
	require.Equal(w.T, 1, n, "deleted")
	w.Queue.Remove(func(other *suite.Item) bool { return other == it })
}

func (w *joinWalk) startJoin(t *rapid.T) {
	if len(w.joins.joins) >= 6 {
		t.Skip("enough joins")
	}
	join := newJoin(rapid.IntRange(1, 4).Draw(t, "steps"), suite.Pick(t, "policy", plainJoin, plainJoin, anyStep, quorumOf(1), quorumOf(2)))
	if join.Quorum > join.ExpectedSteps || rapid.IntRange(0, 3).Draw(t, "unsealed at 0") == 0 {
		unsealed(join)
	}
	join.Timeout = suite.Pick(t, "timeout", 0, 0, 2*suite.Tick, 6*suite.Tick)
	join.CompleteAtDeadline = rapid.Bool().Draw(t, "complete at deadline")
	join.GroupingKey = suite.Pick(t, "grouping key", "", "g", "G")
	kept := w.MayRollBack(t, func(ctx context.Context) { w.NoError(w.api().StartJoin(ctx, join), "StartJoin") })
	if !kept {
		return
	}
	j := &modelJoin{Join: *join, hasDeadline: join.Timeout > 0, deadline: w.Queue.Now + join.Timeout}
	j.Status = roles.JoinPending
	if j.Policy == "" {
		j.Policy = roles.JoinAll
	}
	w.joins.joins = append(w.joins.joins, j)
}

func (w *joinWalk) pickJoin(t *rapid.T, which func(*modelJoin) bool) *modelJoin {
	list := slices.DeleteFunc(slices.Clone(w.joins.joins), func(j *modelJoin) bool { return !which(j) })
	if len(list) == 0 {
		t.Skip("no such join")
	}
	return suite.Pick(t, "join", list...)
}

// append draws records of which most are steps of joins that have room.
func (w *joinWalk) append(t *rapid.T) {
	records := make([]*outmill.Record, rapid.IntRange(1, 3).Draw(t, "records"))
	taken := map[*modelJoin]int{}
	for i := range records {
		w.Messages++
		records[i] = suite.Rec(w.Topic(t), fmt.Sprintf("m%d", w.Messages),
			suite.WithKey(suite.Pick(t, "key", "", "", "k", "K")),
			suite.WithDelay(suite.Pick(t, "delay", 0, 0, 0, suite.Tick)),
			suite.WithTTL(suite.Pick(t, "ttl", 0, 0, 0, 2*suite.Tick)))
		for _, j := range w.joins.joins {
			if j.pending() && taken[j] < j.room() && rapid.Bool().Draw(t, "step") {
				taken[j]++
				records[i].Joins = append(records[i].Joins, j.ID)
			}
		}
		if len(records[i].Joins) == 0 {
			records[i].DedupKey = suite.Pick(t, "dedup key", "", "", "d")
		}
	}
	kept := w.MayRollBack(t, func(ctx context.Context) { w.NoError(w.Store.Append(ctx, records...), "Append") })
	if kept {
		w.attached(records)
	}
}

// attached notes records that were appended, in both models.
func (w *joinWalk) attached(records []*outmill.Record) {
	had := len(w.Queue.Items)
	w.Appended(records)
	for _, r := range records {
		if r.Duplicate {
			continue
		}
		var items []*suite.Item
		for _, it := range w.Queue.Items[had:] {
			if it.Name == r.MessageID {
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
	id, want := outmill.NewJoinID(), roles.ErrUnknownJoin
	closed := func(j *modelJoin) bool { return !j.pending() || j.room() <= 0 }
	if slices.ContainsFunc(w.joins.joins, closed) && rapid.IntRange(0, 3).Draw(t, "unknown join at 0") > 0 {
		j := w.pickJoin(t, closed)
		id, want = j.ID, roles.ErrTooManySteps
		if !j.pending() {
			want = roles.ErrJoinFinished
		}
	}
	ctx, commit, _ := w.Env.Begin()
	w.Messages++
	good := suite.Rec(w.Topic(t), fmt.Sprintf("m%d", w.Messages))
	err := w.Store.Append(ctx, suite.Rec(w.Topic(t), "never"), suite.Rec(w.Topic(t), "never", withJoins(id)))
	require.ErrorIs(w.T, err, want)
	w.NoError(w.Store.Append(ctx, good), "Append after an error")
	commit()
	w.attached([]*outmill.Record{good})
}

// appendWaiter: a join with a deadline may count as decided by it.
func (w *joinWalk) appendWaiter(t *rapid.T) {
	j := w.pickJoin(t, func(j *modelJoin) bool { return j.pending() && !j.decided && !j.hasDeadline })
	w.Messages++
	r := suite.Rec(w.Topic(t), fmt.Sprintf("m%d", w.Messages), waitsFor(j.ID),
		suite.WithKey(suite.Pick(t, "key", "", "", "k")), suite.WithDelay(suite.Pick(t, "delay", 0, suite.Tick, 3*suite.Tick)))
	w.NoError(w.Store.Append(w.Ctx(), r), "Append")
	had := len(w.Queue.Items)
	w.Appended([]*outmill.Record{r})
	for _, it := range w.Queue.Items[had:] {
		w.joins.waiters = append(w.joins.waiters, &modelWaiter{it: it, join: j})
	}
}
