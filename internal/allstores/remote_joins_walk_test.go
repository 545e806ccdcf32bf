package allstores

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/walks"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// TestRemoteJoins_Walk handles the messages of a join and of its steps in any order, twice, at
// the same time, or not at all before they come again, while stores go away and outcomes are
// deleted.
func TestRemoteJoins_Walk(t *testing.T) {
	t.Parallel()
	for name, providers := range remotePairs {
		t.Run("each join ends once with the right counts over "+name, func(t *testing.T) {
			t.Parallel()
			f := newRemoteFleet(t, providers)
			// A walk over servers is slow.
			walks.Check(t, 5, func(rt *rapid.T) {
				f.t = rt
				defer f.purge()
				newRemoteWalk(rt, f).run()
			})
		})
	}
}

// remoteWalk is one join, and the outcomes of its steps.
type remoteWalk struct {
	*fleet
	rt    *rapid.T
	steps int
	join  joins.Join
	id    outmill.JoinID
	// worked has the records of each message of a step, done and died count their ends.
	worked     map[string]map[outmill.WorkItemID]bool
	done, died int
}

func newRemoteWalk(rt *rapid.T, f *fleet) *remoteWalk {
	w := &remoteWalk{fleet: f, rt: rt, worked: map[string]map[outmill.WorkItemID]bool{}}
	to := rapid.SliceOfN(rapid.SampledFrom(everywhere), 1, 5).Draw(rt, "stores of the steps")
	w.steps = len(to)
	policies := []roles.JoinPolicy{joins.All, joins.Any, joins.Quorum}
	w.join = joins.Join{ExpectedSteps: w.steps, Policy: rapid.SampledFrom(policies).Draw(rt, "policy")}
	if w.join.Policy == joins.Quorum {
		w.join.Quorum = rapid.IntRange(1, w.steps).Draw(rt, "quorum")
	}
	w.id = w.start(w.join, to...)
	return w
}

func (w *remoteWalk) run() {
	actions := []func(){w.handleOne, w.handleOne, w.handleOne, w.work, w.work, w.comeOrGo, w.deleteOutcome}
	for range rapid.IntRange(0, 60).Draw(w.rt, "actions") {
		actions[rapid.IntRange(0, len(actions)-1).Draw(w.rt, "action")]()
	}
	for _, store := range everywhere {
		w.leave(store, false)
	}
	w.until(func() bool {
		for _, store := range everywhere {
			for rec := w.claim(store, work); rec != nil; rec = w.claim(store, work) {
				w.end(store, rec, true)
			}
		}
		return w.drainOnce() == 0 && w.pending(work) == 0
	}, "messages are left: %v", &remains{w.fleet})
	w.check()
}

// handleOne handles a record of package joins in one of several ways.
func (w *remoteWalk) handleOne() {
	store := rapid.SampledFrom(everywhere).Draw(w.rt, "store")
	topic := rapid.SampledFrom(storekit.JoinTopics()).Draw(w.rt, "topic")
	rec := w.claim(store, topic)
	if rec == nil {
		return
	}
	switch rapid.SampledFrom([]string{"handle", "handle", "lose before", "lose after", "handle twice"}).Draw(w.rt, "way") {
	case "handle":
		w.settle(store, rec, w.handle(store, rec))
		return
	case "lose after":
		_ = w.handle(store, rec)
	case "handle twice":
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { _, _ = w.tryHandle(store, rec) })
		}
		both.Wait()
	}
	require.NoError(w.rt, w.stores[store].Release(w.rt.Context(), []outmill.Lease{rec.Lease()}))
}

// work handles the message of a step.
func (w *remoteWalk) work() {
	store := rapid.SampledFrom(everywhere).Draw(w.rt, "store")
	rec := w.claim(store, work)
	if rec == nil {
		return
	}
	switch rapid.SampledFrom([]string{"ack", "ack", "die", "retry", "lose"}).Draw(w.rt, "result") {
	case "ack":
		w.end(store, rec, true)
	case "die":
		w.end(store, rec, false)
	case "retry":
		require.NoError(w.rt, w.stores[store].Abandon(w.rt.Context(), []outmill.Settlement{{Lease: rec.Lease(), Err: "timeout"}}))
	case "lose":
		require.NoError(w.rt, w.stores[store].Release(w.rt.Context(), []outmill.Lease{rec.Lease()}))
	}
}

func (w *remoteWalk) end(store string, rec *outmill.Record, ok bool) {
	if w.worked[rec.MessageID] == nil {
		w.worked[rec.MessageID] = map[outmill.WorkItemID]bool{}
	}
	w.worked[rec.MessageID][rec.ID] = true
	if ok {
		w.done++
		w.settle(store, rec, nil)
		return
	}
	w.died++
	w.settle(store, rec, outmill.Permanent(errors.New("the source is broken")))
}

func (w *remoteWalk) comeOrGo() {
	w.leave(rapid.SampledFrom(everywhere).Draw(w.rt, "store"), rapid.Bool().Draw(w.rt, "away"))
}

// deleteOutcome deletes messages with outcomes, as an operator may.
func (w *remoteWalk) deleteOutcome() {
	store := rapid.SampledFrom(everywhere).Draw(w.rt, "store")
	for _, rec := range w.records(store, joins.OutcomeTopic, outmill.StatusPending) {
		_, err := w.stores[store].Delete(w.rt.Context(), rec.ID)
		require.NoError(w.rt, err)
	}
}

// check requires that each message was handled to its end once, and that the join ended once, by
// the outcomes of its steps.
func (w *remoteWalk) check() {
	join := w.fleet.join(w.id)
	require.NotEqual(w.rt, roles.JoinPending, join.Status)
	require.Equal(w.rt, 1, w.follows(w.id, ended)+w.follows(w.id, broke), "messages that follow the join")
	require.Len(w.rt, w.worked, w.done+w.died, "each message comes to its end once")
	for _, records := range w.worked {
		require.Len(w.rt, records, 1, "a message was appended twice")
	}
	counts := []int{join.CompletedSteps, join.FailedSteps}
	if w.join.Policy == joins.All {
		require.Equal(w.rt, w.steps, w.done+w.died)
		require.Equal(w.rt, []int{w.done, w.died}, counts)
		require.Equal(w.rt, w.died == 0, join.Status == roles.JoinCompleted)
		return
	}
	needed := max(w.join.Quorum, 1)
	require.LessOrEqual(w.rt, counts[0], w.done)
	require.LessOrEqual(w.rt, counts[1], w.died)
	require.Equal(w.rt, join.Status == roles.JoinCompleted, join.CompletedSteps >= needed)
	require.Equal(w.rt, join.Status == roles.JoinFailed, w.steps-join.FailedSteps < needed)
}
