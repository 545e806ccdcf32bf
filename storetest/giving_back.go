package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func givingBackSentences() []sentence {
	return []sentence{
		{"a dropped group gives back what it has not settled and no other group reads, and the next group gets it", givesBack},
		{"what is given back keeps its order, in front of what comes later", givesBackInOrder},
		{"what is given back is due as when it was appended, with no attempt and no expiry", givesBackAsAppended},
		{"what is given back before it is due holds up nothing of its key, though it was claimed before", givesBackAsNew},
		{"a lease of a record that was given back is invalid", givesBackLeased},
		{"what is given back keeps its end", givesBackExpiring},
		{"a group that reads some of the topics keeps only these from being given back", givesBackByTopic},
		{"a group that holds counts as a reader of what is dropped", givesBackBesideHolding},
		{"a group that was dropped may register again and gets what it gave back", givesBackToItself},
		{"thousands of records are given back, each once", givesBackThousands},
		{"an interrupted drop goes on as it began, although another group has registered since", interruptedDrop},
		{"a group that registers after an interrupted drop keeps what it still has", interruptedThenBack},
		{"the end of registrations leaves a drop that was interrupted alone", interruptedAndSwept},
	}
}

// requireDrop drops a group and checks both numbers.
func (e *env) requireDrop(name string, givenBack, deleted int) {
	e.T.Helper()
	dropped, err := e.Store.DropGroup(e.Ctx, name)
	require.NoError(e.T, err, "DropGroup")
	require.Equal(e.T, outmill.Dropped{GivenBack: givenBack, Deleted: deleted}, dropped)
}

func givesBack(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "acked", "dead", "leased", "pending", "waits")...)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Ack(found["acked"])
	e.Fail(found["dead"])
	e.Release(found["pending"])
	e.Abandon(time.Hour, found["waits"])
	deleted := len(e.List(groupQuery(group))) - 3
	e.requireDrop(group, 3, deleted)
	requireWaiting(e, "leased", "pending", "waits")
	require.Len(e.T, e.List(outmill.ListQuery{}), 3)
	require.Empty(e.T, e.groups())
	e.Register("next")
	require.Equal(e.T, []string{"leased", "pending", "waits"}, suite.Names(e.ClaimAll(suite.OfGroup("next"), suite.ByKey)))
}

// givesBackInOrder leaves one key with a record that waits for its retry, and one that is leased, each with others
// behind it.
func givesBackInOrder(e *env) {
	var records []*outmill.Record
	for i := range 3 {
		for _, key := range []string{"k", "l"} {
			records = append(records, suite.Keyed(key, fmt.Sprintf("%s%d", key, i))...)
		}
	}
	e.Filled(records...)
	found := e.ClaimNamed(outmill.NewOwnerToken(), suite.ByKey, suite.Limit(2))
	e.Abandon(time.Hour, found["k0"])
	require.Empty(e.T, e.Claim(outmill.NewOwnerToken(), suite.ByKey), "behind the first of their key")
	e.requireDrop(group, 6, 0)
	e.Append(suite.Keyed("k", "k3")...)
	e.Register("next")
	e.Append(suite.Keyed("l", "l3")...)
	got := map[string][]string{}
	for _, r := range e.ClaimAll(suite.OfGroup("next"), suite.ByKey) {
		got[r.Key] = append(got[r.Key], r.MessageID)
	}
	require.Equal(e.T, map[string][]string{"k": {"k0", "k1", "k2", "k3"}, "l": {"l0", "l1", "l2", "l3"}}, got)
}

func givesBackAsAppended(e *env) {
	e.Filled(suite.Rec(orders, "tried"), suite.Rec(orders, "expired"), suite.Rec(orders, "later", suite.WithDelay(time.Hour)))
	found := e.ClaimNamed(outmill.NewOwnerToken())
	claims := found["tried"].Claims
	e.Abandon(48*time.Hour, found["tried"])
	for range outmill.SuspectExpiries {
		e.Elapse(10 * time.Minute)
		e.Claim(outmill.NewOwnerToken())
	}
	e.requireDrop(group, 3, 0)
	e.Register("next")
	got := suite.ByName(e.ClaimAll(suite.OfGroup("next")))
	require.Len(e.T, got, 2, "the one that is due later is not due yet")
	require.Zero(e.T, got["tried"].Attempts)
	require.Equal(e.T, "", got["expired"].LastError)
	require.Zero(e.T, got["expired"].Expiries)
	require.False(e.T, got["expired"].Suspect())
	require.Greater(e.T, got["tried"].Claims, claims)
	e.Ack(got["tried"], got["expired"])
	e.Elapse(time.Hour)
	e.ClaimOne(outmill.NewOwnerToken(), "later", suite.OfGroup("next"))
}

// givesBackAsNew has a record that an operator has made due before its time, so that it was claimed and is given back
// before it is due.
func givesBackAsNew(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithKey("k"), suite.WithDelay(2*time.Hour), suite.WithTTL(time.Hour)))
	e.Elapse(time.Hour + time.Minute)
	e.Did(e.Store.ExpireDue, 10)
	require.Equal(e.T, 1, e.Requeue(e.List(groupQuery(group))...))
	e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
	e.requireDrop(group, 1, 0)
	e.Register("next")
	e.Append(suite.Keyed("k", "m2")...)
	next := suite.OfGroup("next")
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m2", next, suite.ByKey))
	e.Elapse(2 * time.Hour)
	e.ClaimOne(outmill.NewOwnerToken(), "m1", next, suite.ByKey)
}

func givesBackLeased(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	old := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.requireDrop(group, 1, 0)
	e.Ack(old)
	requireWaiting(e, "m1")
	e.Register("next")
	e.Ack(old)
	e.Fail(old)
	e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("next"))
}

func givesBackExpiring(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithTTL(time.Hour)))
	e.requireDrop(group, 1, 0)
	e.Elapse(2 * time.Hour)
	e.Register("next")
	require.Empty(e.T, e.ClaimAll(suite.OfGroup("next")))
}

func givesBackByTopic(e *env) {
	e.Register("others", "a", "c*")
	e.Register(group)
	e.Append(suite.Rec("a", "m1"), suite.Rec("b", "m2"), suite.Rec("c1", "m3"), suite.Rec("d", "m4"))
	e.requireDrop(group, 2, 2)
	requireWaiting(e, "m2", "m4")
	require.ElementsMatch(e.T, []string{"m1", "m3"}, suite.Names(e.ClaimAll(suite.OfGroup("others"))))
}

func givesBackBesideHolding(e *env) {
	e.RegisterAs(holding())
	e.Register("leaves")
	e.Append(suite.Rec(orders, "m1"))
	e.requireDrop("leaves", 0, 1)
	require.Equal(e.T, []string{"m1"}, suite.Names(e.List(outmill.ListQuery{})))
}

func givesBackToItself(e *env) {
	e.Filled(suite.Keyed("k", "m1", "m2")...)
	e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
	e.requireDrop(group, 2, 0)
	e.Register(group)
	require.Equal(e.T, []string{"m1", "m2"}, suite.Names(e.ClaimAll(suite.ByKey)))
}

func givesBackThousands(e *env) {
	n := suite.Large(2500)
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(n)...)...)
	e.requireDrop(group, n, 0)
	e.Register("next")
	require.Len(e.T, e.ClaimAll(suite.OfGroup("next")), n)
}

// expiring is a context that ends when it is asked for the nth time whether it has.
type expiring struct {
	context.Context
	mu   sync.Mutex
	left int
	done chan struct{}
}

func (c *expiring) Done() <-chan struct{} { return c.done }

func (c *expiring) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left > 0 {
		return nil
	}
	if c.left == 0 {
		close(c.done)
	}
	return context.Canceled
}

const dropTopics = 12

// interrupt drops the group until some of its records are given back and some are not, and returns
// how many are.
func interrupt(e *env) int {
	for n := 1; ; n++ {
		require.NoError(e.T, e.Store.RegisterGroup(e.Ctx, outmill.Registration{Group: group}))
		var records []*outmill.Record
		for i := range dropTopics {
			r := suite.Rec(fmt.Sprintf("t%02d", i), fmt.Sprintf("m%02d", i))
			// A log gives back all at once that it holds. It holds none with an id of the writer's.
			r.ID = outmill.NewWorkItemID()
			records = append(records, r)
		}
		e.Append(records...)
		ctx := &expiring{Context: e.Ctx, left: n, done: make(chan struct{})}
		_, err := e.Store.DropGroup(ctx, group)
		given := 0
		for _, r := range e.List(outmill.ListQuery{}) {
			if r.Group == "" {
				given++
			}
		}
		require.False(e.T, err == nil && given < dropTopics, "the drop ended without an error and gave back %d", given)
		if given > 0 && given < dropTopics {
			require.Error(e.T, err)
			return given
		}
		require.Less(e.T, given, dropTopics, "no drop was interrupted between two steps")
		e.Drop(group)
		for _, r := range e.List(outmill.ListQuery{}) {
			e.Delete(r)
		}
	}
}

func interruptedDrop(e *env) {
	given := interrupt(e)
	require.Len(e.T, e.groups(), 1, "a group that has ended, with records")
	e.Register("next")
	first := e.ClaimAll(suite.OfGroup("next"))
	require.Len(e.T, first, given)
	e.Store = e.Reopen()
	e.requireDrop(group, dropTopics-given, 0)
	require.Len(e.T, e.groups(), 1)
	e.Register("next")
	require.Len(e.T, e.ClaimAll(suite.OfGroup("next")), dropTopics-given)
	require.Len(e.T, e.List(groupQuery("next")), dropTopics)
}

func interruptedThenBack(e *env) {
	given := interrupt(e)
	e.Register("next")
	require.Len(e.T, e.ClaimAll(suite.OfGroup("next")), given)
	e.Register(group)
	require.Len(e.T, e.ClaimAll(), dropTopics-given)
	e.requireDrop(group, 0, dropTopics-given)
}

func interruptedAndSwept(e *env) {
	given := interrupt(e)
	e.RegisterAs(suite.Ends("others", time.Hour))
	e.Elapse(2 * time.Hour)
	e.RequireExpired(1, given)
	e.RequireExpired(0, 0)
	e.requireDrop(group, dropTopics-given, 0)
}
