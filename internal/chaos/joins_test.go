//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/joins"
)

const (
	// doomed is the topic of steps that fail.
	doomed = "doomed"
	// joined and parted are the topics of what follows joins. Nobody reads them, so
	// that all that was ever appended is there in the end.
	joined = "joined"
	parted = "parted"
)

// tableOfJoins is the ledger of joins. wanted is how the join has to end; empty
// where that depends on the time.
const tableOfJoins = `CREATE TABLE started (id uuid PRIMARY KEY, steps int NOT NULL, wanted text NOT NULL)`

// join makes the messages, before they are published, the steps of a join. Some
// of the joins have a step more that fails, some a deadline.
func (j *job) join(ctx context.Context, s session, messages []*message.Message) error {
	join := outmill.Join{ExpectedSteps: len(messages)}
	wanted := outmill.JoinCompleted
	fails := j.dice.IntN(3) == 0
	if fails {
		join.ExpectedSteps++
		wanted = outmill.JoinFailed
	}
	if j.dice.IntN(4) == 0 {
		join.Timeout = upTo(j.dice, lease)
		wanted = ""
	}
	id, err := joins.Start(ctx, j.w.store, join)
	if err != nil {
		return err
	}
	if err := s.exec(ctx, "INSERT INTO started (id, steps, wanted) VALUES ($1::text::uuid, $2, $3::text)", id.String(), join.ExpectedSteps, string(wanted)); err != nil {
		return err
	}
	for _, msg := range messages {
		joins.SetMember(msg, id)
	}
	if fails {
		msg := message.NewMessage(watermill.NewUUID(), nil)
		joins.SetMember(msg, id)
		if err := j.w.pub.WithContext(ctx).Publish(doomed, msg); err != nil {
			return err
		}
	}
	return joins.Wait(ctx, j.w.pub, joins.WaitRequest{
		Join: id, FailIfAnyStepFailed: true,
		OnComplete: joins.Next{Topic: joined}, OnFail: joins.Next{Topic: parted},
	})
}

// sqlJoins puts together what is known of each join: of the ledger, the join,
// its members, and what follows it.
const sqlJoins = `SELECT coalesce(s.id, j.id)::text, coalesce(s.steps, 0), coalesce(s.wanted, 'none'), coalesce(j.status, 'lost'),
	coalesce(j.completed_steps, 0), coalesce(j.failed_steps, 0), coalesce(m.steps, 0), coalesce(m.completed, 0), coalesce(m.failed, 0),
	coalesce(f.topics, ''), coalesce(f.completed, '')
FROM started AS s FULL JOIN outmill.joins AS j ON j.id = s.id
LEFT JOIN (SELECT join_id, count(*) AS steps, count(*) FILTER (WHERE status = 'completed') AS completed, count(*) FILTER (WHERE status = 'failed') AS failed
	FROM outmill.join_members GROUP BY join_id) AS m ON m.join_id = j.id
LEFT JOIN (SELECT metadata ->> 'outmill_join_id' AS id, string_agg(topic, ' ') AS topics, string_agg(metadata ->> 'outmill_join_completed_steps', ' ') AS completed
	FROM outmill.records WHERE topic IN ('` + joined + `', '` + parted + `') GROUP BY 1) AS f ON f.id = j.id::text`

// fate is a row of sqlJoins.
type fate struct {
	id                       string
	steps                    int
	wanted, status           string
	completed, failed        int
	members                  int
	membersDone, membersDead int
	// followers are the topics of what follows the join, told what that says of the
	// completed steps.
	followers, told string
}

// fault is what is wrong with a join, "" for nothing.
func (f fate) fault() string {
	follower := map[string]string{string(outmill.JoinCompleted): joined, string(outmill.JoinFailed): parted}[f.status]
	switch {
	case follower == "":
		return "it is not decided"
	case f.wanted != "" && f.status != f.wanted:
		return "it ended otherwise"
	case f.completed != f.membersDone || f.failed != f.membersDead:
		return "its counters are not those of its members"
	case f.members != f.steps || f.wanted != "" && f.completed+f.failed != f.steps:
		return "it ended without all of its steps"
	case f.followers != follower:
		return "it is not followed by one message"
	case f.told != fmt.Sprint(f.completed):
		return "the message that follows tells something else"
	}
	return ""
}

// judgeJoins tells how many joins ended how, and what is wrong with some.
func judgeJoins(t *testing.T, databaseURL string) (count map[string]int, faults []string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), sqlJoins)
	require.NoError(t, err)
	count = map[string]int{}
	for rows.Next() {
		var f fate
		require.NoError(t, rows.Scan(&f.id, &f.steps, &f.wanted, &f.status, &f.completed, &f.failed, &f.members, &f.membersDone, &f.membersDead, &f.followers, &f.told))
		count[f.status]++
		if fault := f.fault(); fault != "" {
			faults = append(faults, fmt.Sprintf("%s: %+v", fault, f))
		}
	}
	require.NoError(t, rows.Err())
	return count, faults
}

func Test_the_judge_of_joins_sees_what_went_wrong(t *testing.T) {
	t.Parallel()
	well := fate{steps: 3, wanted: "failed", status: "failed", completed: 2, failed: 1, members: 3, membersDone: 2, membersDead: 1, followers: parted, told: "2"}
	require.Empty(t, well.fault())
	for name, spoil := range map[string]func(*fate){
		"forgotten":             func(f *fate) { f.status, f.followers = "pending", "" },
		"lost":                  func(f *fate) { *f = fate{steps: 3, wanted: "failed", status: "lost"} },
		"never started":         func(f *fate) { f.wanted, f.steps = "none", 0 },
		"ended otherwise":       func(f *fate) { f.status, f.followers = "completed", joined },
		"counted twice":         func(f *fate) { f.completed++ },
		"a step too few":        func(f *fate) { f.members, f.completed, f.membersDone = 2, 1, 1 },
		"followed by nothing":   func(f *fate) { f.followers, f.told = "", "" },
		"followed twice":        func(f *fate) { f.followers, f.told = parted+" "+parted, "2 2" },
		"followed by the other": func(f *fate) { f.followers = joined },
		"told of fewer steps":   func(f *fate) { f.told = "1" },
	} {
		f := well
		spoil(&f)
		require.NotEmpty(t, f.fault(), name)
	}
}
