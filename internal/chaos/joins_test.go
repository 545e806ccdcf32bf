//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/joins"
	"github.com/outmill/outmill/roles"
)

const (
	// doomed is the topic of steps that fail.
	doomed = "doomed"
	// joined and parted are the topics of the messages that follow joins. No group reads them,
	// so all of them are there at the end.
	joined = "joined"
	parted = "parted"
)

// promise is an entry of the ledger of joins: the steps of a join, and its expected end, which
// is empty if it depends on the time.
type promise struct {
	steps  int
	wanted roles.JoinStatus
}

// join makes the messages steps of a join, before they are published. Some joins have a
// further step that fails, and some have a deadline.
func (j *job) join(ctx context.Context, s session, messages []*message.Message) error {
	join := roles.Join{ExpectedSteps: len(messages)}
	wanted := roles.JoinCompleted
	fails := j.dice.IntN(3) == 0
	if fails {
		join.ExpectedSteps++
		wanted = roles.JoinFailed
	}
	if j.dice.IntN(4) == 0 {
		join.Timeout = upTo(j.dice, lease)
		wanted = ""
	}
	id, err := joins.Start(ctx, j.db.outbox(), join)
	if err != nil {
		return err
	}
	if err := s.recordJoin(ctx, id, promise{join.ExpectedSteps, wanted}); err != nil {
		return err
	}
	for _, msg := range messages {
		joins.AddStep(msg, id)
	}
	if fails {
		msg := message.NewMessage(watermill.NewUUID(), nil)
		joins.AddStep(msg, id)
		if err := j.pub.WithContext(ctx).Publish(doomed, msg); err != nil {
			return err
		}
	}
	return joins.Wait(ctx, j.pub, joins.WaitRequest{
		Join: id, FailIfAnyStepFailed: true,
		OnComplete: joins.Next{Topic: joined}, OnFail: joins.Next{Topic: parted},
	})
}

// fate has all that the test knows of a join: its entry in the ledger, the join, its steps,
// and the messages that follow it.
type fate struct {
	id     outmill.JoinID
	ledger promise
	// status is empty if the join does not exist.
	status                   roles.JoinStatus
	completed, failed        int
	members                  int
	membersDone, membersDead int
	// followers has the topics of the messages that follow the join, and told the numbers of
	// completed steps in them.
	followers, told []string
}

// neverStarted is the promise of a join that is not in the ledger.
var neverStarted = promise{wanted: "none"}

// fault describes the error in a join, or is "" if there is none.
func (f fate) fault() string {
	follower := map[roles.JoinStatus]string{roles.JoinCompleted: joined, roles.JoinFailed: parted}[f.status]
	wanted := f.ledger.wanted
	switch {
	case follower == "":
		return "it is not decided"
	case wanted != "" && f.status != wanted:
		return "it ended otherwise"
	case f.completed != f.membersDone || f.failed != f.membersDead:
		return "its counters are not those of its members"
	case f.members != f.ledger.steps || wanted != "" && f.completed+f.failed != f.ledger.steps:
		return "it ended without all of its steps"
	case !slices.Equal(f.followers, []string{follower}):
		return "it is not followed by one message"
	case !slices.Equal(f.told, []string{strconv.Itoa(f.completed)}):
		return "the message that follows tells something else"
	}
	return ""
}

// fates returns the fates of all joins, whether they are in the ledger or not.
func fates(ctx context.Context, db database) (map[outmill.JoinID]*fate, error) {
	all := map[outmill.JoinID]*fate{}
	promises, err := db.promised(ctx)
	for id, p := range promises {
		all[id] = &fate{id: id, ledger: p}
	}
	store := db.outbox()
	return all, errors.Join(err, addJoins(ctx, store, all), addFollowers(ctx, store, all))
}

const page = 1000

func addJoins(ctx context.Context, store outbox, all map[outmill.JoinID]*fate) error {
	query := roles.JoinQuery{Limit: page}
	for {
		found, err := store.ListJoins(ctx, query)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, j := range found {
			f := all[j.ID]
			if f == nil {
				f = &fate{id: j.ID, ledger: neverStarted}
				all[j.ID] = f
			}
			f.status, f.completed, f.failed = j.Status, j.CompletedSteps, j.FailedSteps
			if err := f.addSteps(ctx, store); err != nil {
				return err
			}
		}
		query.After = found[len(found)-1].ID
	}
}

func (f *fate) addSteps(ctx context.Context, store outbox) error {
	steps, err := store.ListSteps(ctx, f.id, outmill.WorkItemID{}, page)
	f.members = len(steps)
	for _, step := range steps {
		switch step.Status {
		case roles.StepCompleted:
			f.membersDone++
		case roles.StepFailed:
			f.membersDead++
		case roles.StepPending:
		}
	}
	return err
}

func addFollowers(ctx context.Context, store outbox, all map[outmill.JoinID]*fate) error {
	for _, topic := range []string{joined, parted} {
		query := outmill.ListQuery{Content: true, Topic: topic, Limit: page}
		for {
			found, err := store.List(ctx, query)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				break
			}
			for _, r := range found {
				id, err := outmill.ParseJoinID(r.Metadata["outmill_join_id"])
				if err != nil {
					return err
				}
				if all[id] == nil {
					all[id] = &fate{id: id, ledger: neverStarted}
				}
				all[id].followers = append(all[id].followers, topic)
				all[id].told = append(all[id].told, r.Metadata["outmill_join_completed_steps"])
			}
			query.After = found[len(found)-1].ID
		}
	}
	return nil
}

// judgeJoins returns how many joins ended in which way, and the errors.
func judgeJoins(all map[outmill.JoinID]*fate) (count map[roles.JoinStatus]int, faults []string) {
	count = map[roles.JoinStatus]int{}
	for _, f := range all {
		count[f.status]++
		if fault := f.fault(); fault != "" {
			faults = append(faults, fmt.Sprintf("%s: %+v", fault, *f))
		}
	}
	return count, faults
}

func TestJoins(t *testing.T) {
	t.Parallel()

	t.Run("the judge of joins sees what went wrong", func(t *testing.T) {
		t.Parallel()
		well := fate{ledger: promise{3, "failed"}, status: "failed", completed: 2, failed: 1, members: 3, membersDone: 2, membersDead: 1,
			followers: []string{parted}, told: []string{"2"}}
		require.Empty(t, well.fault())
		for name, spoil := range map[string]func(*fate){
			"forgotten":             func(f *fate) { f.status, f.followers = "pending", nil },
			"lost":                  func(f *fate) { *f = fate{ledger: f.ledger} },
			"never started":         func(f *fate) { f.ledger = neverStarted },
			"ended otherwise":       func(f *fate) { f.status, f.followers = "completed", []string{joined} },
			"counted twice":         func(f *fate) { f.completed++ },
			"a step too few":        func(f *fate) { f.members, f.completed, f.membersDone = 2, 1, 1 },
			"followed by nothing":   func(f *fate) { f.followers, f.told = nil, nil },
			"followed twice":        func(f *fate) { f.followers, f.told = []string{parted, parted}, []string{"2", "2"} },
			"followed by the other": func(f *fate) { f.followers = []string{joined} },
			"told of fewer steps":   func(f *fate) { f.told = []string{"1"} },
		} {
			f := well
			spoil(&f)
			require.NotEmpty(t, f.fault(), name)
		}
	})
}
