package joinstest

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

func startSentences() []sentence {
	list := []sentence{
		{"OBX-080 a join begins with the grouping key, the steps and the metadata that it was given", joinBegins},
		{"OBX-081 StartJoin fills an id, a new one for each join", joinIDs},
		{"StartJoin keeps the id that a join has", joinKeepsID},
		{"an id that another join has is ErrJoinExists, leaves that join and a caller's transaction usable", takenJoinID},
		{"OBX-082 a join begins pending with no steps counted, whatever its writer set", joinBeginsAtZero},
		{"policy, quorum, deadline and its effect are read back unchanged", joinRoundTrip},
		{"an unsealed join expects no number of steps", unsealedRoundTrip},
		{"Timeout sets the deadline by the database's clock and wins over Deadline", joinTimeout},
		{"metadata of any text is read back from a join unchanged", joinMetadata},
		{"a grouping key of 255 UTF-16 units and a million steps are taken", joinLimits},
		{"StartJoin keeps no reference to the join", joinIsCopied},
		{"a join that is started in a transaction is there when it commits, and not before", joinCommits},
		{"a join that is started in a transaction is gone when it rolls back", joinRollsBack},
		{"StartJoin in a transaction of another store is ErrForeignTx and nothing is written", joinForeign},
		{"StartJoin in a transaction that has ended is an error and nothing is written", joinTooLate},
	}
	for _, refused := range refusedJoins() {
		list = append(list, sentence{refused.name + " is refused, and a caller's transaction stays usable", refused.check})
	}
	return list
}

// refusedJoin is an invalid join, which a store must refuse.
type refusedJoin struct {
	name  string
	field string
	bad   []func(*roles.Join)
}

func refusedJoins() []refusedJoin {
	steps := func(n int) func(*roles.Join) { return func(j *roles.Join) { j.ExpectedSteps = n } }
	metadata := func(name, value string) func(*roles.Join) {
		return func(j *roles.Join) { j.Metadata = map[string]string{name: value} }
	}
	deadline := func(year int) func(*roles.Join) {
		return func(j *roles.Join) { j.Deadline = time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC) }
	}
	policy := func(p roles.JoinPolicy, quorum int) func(*roles.Join) {
		return func(j *roles.Join) { j.Policy, j.Quorum = p, quorum }
	}
	return []refusedJoin{
		{"a join of less than one step", "expected steps", []func(*roles.Join){steps(0), steps(-1), steps(math.MinInt)}},
		{"a join of more than a million steps", "expected steps", []func(*roles.Join){steps(roles.MaxJoinSteps + 1), steps(math.MaxInt)}},
		{"an unsealed join of some steps", "expected steps", []func(*roles.Join){func(j *roles.Join) { j.Unsealed = true }}},
		{"a negative timeout", "timeout", []func(*roles.Join){func(j *roles.Join) { j.Timeout = -1 }}},
		{"a deadline outside the years 1 to 9999", "deadline", []func(*roles.Join){deadline(0), deadline(10_000)}},
		{"a quorum that cannot be", "quorum", []func(*roles.Join){quorumOf(0), quorumOf(-1), quorumOf(4)}},
		{"a quorum without JoinQuorum", "quorum",
			[]func(*roles.Join){policy("", 1), policy(roles.JoinAll, 2), policy(roles.JoinAny, -1)}},
		{"an unknown policy", "policy", []func(*roles.Join){policy("most", 0), policy("ALL", 0)}},
		{"a grouping key that is not a name", "grouping key", []func(*roles.Join){
			grouped(strings.Repeat("x", 256)), grouped(strings.Repeat("😀", 128)), grouped("a\x00"), grouped("\xff"), grouped("a "), grouped(" a"),
		}},
		{"metadata of a join that is not text", `metadata "name"`, []func(*roles.Join){metadata("name", "\xff"), metadata("name", "\x00")}},
		{"a name in a join's metadata that is not text", `metadata name "\xff"`, []func(*roles.Join){metadata("\xff", "value")}},
	}
}

func (r refusedJoin) check(e *env) {
	ctx, commit, _ := e.Begin()
	for _, bad := range r.bad {
		err := e.joins().StartJoin(ctx, newJoin(3, bad))
		require.ErrorIs(e.T, err, outmill.ErrInvalidRecord)
		var invalid *outmill.InvalidRecordError
		require.ErrorAs(e.T, err, &invalid)
		require.Equal(e.T, r.field, invalid.Field)
		require.Equal(e.T, -1, invalid.Index)
	}
	good := newJoin(3)
	require.NoError(e.T, e.joins().StartJoin(ctx, good))
	commit()
	for _, bad := range r.bad {
		require.ErrorIs(e.T, e.joins().StartJoin(e.Ctx, newJoin(3, bad)), outmill.ErrInvalidRecord)
	}
	require.Len(e.T, e.allJoins(), 1)
	e.requireJoin(good.ID, roles.JoinPending)
}

func joinBegins(e *env) {
	metadata := map[string]string{"type": "etl", "phase": "extract"}
	id := e.startJoin(3, grouped("customer 7"), func(j *roles.Join) { j.Metadata = metadata })
	got := e.getJoin(id)
	require.Equal(e.T, "customer 7", got.GroupingKey)
	require.Equal(e.T, 3, got.ExpectedSteps)
	require.Equal(e.T, metadata, got.Metadata)
	require.Equal(e.T, roles.JoinAll, got.Policy)
	require.False(e.T, got.Unsealed)
	require.True(e.T, got.Deadline.IsZero(), "deadline")
	e.RequireAbout(e.Now(), got.CreatedAt, "created at")
	e.RequireAbout(e.Now(), got.UpdatedAt, "updated at")
}

func joinIDs(e *env) {
	var last outmill.JoinID
	for range 20 {
		id := e.startJoin(1)
		require.Equal(e.T, uuid.Version(7), uuid.UUID(id).Version())
		require.Negative(e.T, bytes.Compare(last[:], id[:]), "ids do not ascend")
		last = id
	}
	require.Len(e.T, e.allJoins(), 20)
}

func joinKeepsID(e *env) {
	want := outmill.NewJoinID()
	require.Equal(e.T, want, e.startJoin(1, func(j *roles.Join) { j.ID = want }))
	e.getJoin(want)
}

func takenJoinID(e *env) {
	id := e.startJoin(1, grouped("first"))
	before := e.getJoin(id)
	again := newJoin(2, grouped("second"), func(j *roles.Join) { j.ID = id })
	require.ErrorIs(e.T, e.joins().StartJoin(e.Ctx, again), roles.ErrJoinExists)
	ctx, commit, _ := e.Begin()
	require.ErrorIs(e.T, e.joins().StartJoin(ctx, again), roles.ErrJoinExists)
	require.NoError(e.T, e.joins().StartJoin(ctx, newJoin(1)))
	commit()
	require.Equal(e.T, before, e.getJoin(id))
	require.Len(e.T, e.allJoins(), 2)
}

func joinBeginsAtZero(e *env) {
	id := e.startJoin(3, func(j *roles.Join) {
		j.Status, j.Reason = roles.JoinCompleted, "because"
		j.CompletedSteps, j.FailedSteps = 2, 1
		j.FinishedAt = time.Now()
	})
	got := e.getJoin(id)
	require.Equal(e.T, roles.JoinPending, got.Status)
	require.Empty(e.T, got.Reason)
	require.True(e.T, got.FinishedAt.IsZero(), "finished at")
	e.requireCounts(id, 0, 0)
	require.Empty(e.T, e.steps(id))
}

func joinRoundTrip(e *env) {
	deadline := time.Date(2049, 12, 31, 23, 59, 59, 123_456_000, time.UTC)
	got := e.getJoin(e.startJoin(5, quorumOf(3), func(j *roles.Join) { j.Deadline, j.CompleteAtDeadline = deadline, true }))
	require.Equal(e.T, roles.JoinQuorum, got.Policy)
	require.Equal(e.T, 3, got.Quorum)
	require.True(e.T, got.CompleteAtDeadline)
	require.WithinDuration(e.T, deadline, got.Deadline, time.Millisecond)
	got = e.getJoin(e.startJoin(5, anyStep))
	require.Equal(e.T, roles.JoinAny, got.Policy)
	require.False(e.T, got.CompleteAtDeadline)
}

func unsealedRoundTrip(e *env) {
	got := e.getJoin(e.startJoin(0, unsealed))
	require.True(e.T, got.Unsealed)
	require.Zero(e.T, got.ExpectedSteps)
	got = e.getJoin(e.startJoin(0, unsealed, quorumOf(7)))
	require.True(e.T, got.Unsealed)
	require.Equal(e.T, 7, got.Quorum)
}

func joinTimeout(e *env) {
	far := e.startJoin(1, inAnHour, func(j *roles.Join) { j.Deadline = time.Date(2049, 1, 1, 0, 0, 0, 0, time.UTC) })
	e.RequireAbout(e.Now().Add(time.Hour), e.getJoin(far).Deadline, "deadline")
	past := e.startJoin(1, func(j *roles.Join) { j.Deadline = e.Now().Add(-time.Hour) })
	e.RequireAbout(e.Now().Add(-time.Hour), e.getJoin(past).Deadline, "deadline")
}

func joinMetadata(e *env) {
	metadata := map[string]string{
		"plain": "value", "empty": "", "": "empty name", "$dollar": "$where", "dots.in.name": "a.b",
		`quotes"'`: `"'` + "`", `back\slash`: `\u0041\n`, "line\nbreak": "tab\tand\r\nbreak",
		"ümläut": "日本 😀 \u2028 \ufeff", "null": "null", "json": `{"a":[1,2]}`,
		"long": strings.Repeat("x", 100_000), "sql": "'); DROP TABLE joins; --",
	}
	set := func(j *roles.Join) { j.Metadata = metadata }
	id := e.startJoin(1, set)
	require.Equal(e.T, metadata, e.getJoin(id).Metadata)
	require.Empty(e.T, e.getJoin(e.startJoin(1)).Metadata)
}

func joinLimits(e *env) {
	for _, key := range []string{strings.Repeat("日", 255), strings.Repeat("😀", 127) + "x"} {
		got := e.getJoin(e.startJoin(roles.MaxJoinSteps, grouped(key)))
		require.Equal(e.T, key, got.GroupingKey)
		require.Equal(e.T, roles.MaxJoinSteps, got.ExpectedSteps)
	}
}

func joinIsCopied(e *env) {
	join := newJoin(1, func(j *roles.Join) { j.Metadata = map[string]string{"name": "as given"} })
	require.NoError(e.T, e.joins().StartJoin(e.Ctx, join))
	join.Metadata["name"] = "changed"
	got := e.getJoin(join.ID)
	require.Equal(e.T, "as given", got.Metadata["name"])
	got.Metadata["name"] = "changed"
	require.Equal(e.T, "as given", e.getJoin(join.ID).Metadata["name"])
}

func joinCommits(e *env) {
	ctx, commit, _ := e.Begin()
	join := newJoin(2, grouped("g"))
	require.NoError(e.T, e.joins().StartJoin(ctx, join))
	require.False(e.T, join.ID.IsZero())
	e.requireNoJoin(join.ID)
	require.Empty(e.T, e.allJoins(), "before the commit")
	commit()
	require.Equal(e.T, "g", e.getJoin(join.ID).GroupingKey)
	require.Len(e.T, e.allJoins(), 1)
}

func joinRollsBack(e *env) {
	ctx, _, rollback := e.Begin()
	join := newJoin(2)
	require.NoError(e.T, e.joins().StartJoin(ctx, join))
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m1", withJoins(join.ID))))
	rollback()
	e.requireNoJoin(join.ID)
	require.Empty(e.T, e.allJoins())
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func joinForeign(e *env) {
	require.ErrorIs(e.T, e.joins().StartJoin(suite.Foreign(e.Ctx), newJoin(1)), outmill.ErrForeignTx)
	require.Empty(e.T, e.allJoins())
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.joins().StartJoin(suite.Foreign(ctx), newJoin(1)), "beside that of another store")
	commit()
	require.Len(e.T, e.allJoins(), 1)
}

func joinTooLate(e *env) {
	ctx, commit, _ := e.Begin()
	commit()
	require.Error(e.T, e.joins().StartJoin(ctx, newJoin(1)), "after the commit")
	ctx, _, rollback := e.Begin()
	rollback()
	require.Error(e.T, e.joins().StartJoin(ctx, newJoin(1)), "after the rollback")
	require.Empty(e.T, e.allJoins())
}

func numberedJoins(e *env, n int) []outmill.JoinID {
	e.T.Helper()
	list := make([]outmill.JoinID, n)
	for i := range list {
		list[i] = e.startJoin(1, grouped(fmt.Sprintf("join %d", i)))
	}
	return list
}
