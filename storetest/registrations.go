package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func workerNameSentences() []sentence {
	return []sentence{
		{"Groups shows the workers that registered a group, the one seen last first", workersAreShown},
		{"a worker that was not seen for 24 hours goes with the next registration of its group", oldWorkersGo},
		{"a group keeps the 1,000 workers that were seen last", thousandWorkers},
		{"DropGroup forgets the workers of the group", dropForgetsWorkers},
		{"a worker's name that a store cannot keep is refused", refuseWorkerNames},
		{"Groups shows the problems that a worker reported with its last registration", problemsAreShown},
		{"problems that a store cannot keep are refused", refuseProblems},
		{"Groups shows the failing calls that a worker reported with its last registration", failingCallsAreShown},
		{"failing calls that a store cannot keep are refused", refuseFailingCalls},
	}
}

func registrationSentences() []sentence {
	return []sentence{
		{"each registration with a TTL moves its end to now plus the TTL", ttlMovesTheEnd},
		{"a TTL may be of any length", anyTTL},
		{"a registration without a TTL never ends", noTTLNeverEnds},
		{"a permanent registration stays permanent whatever TTL comes later", permanentSticks},
		{"a registration with a TTL becomes permanent by one without", becomesPermanent},
		{"after DropGroup a registration that was permanent may have a TTL", dropEndsPermanence},
		{"a registration whose end has passed goes, with its undelivered records, and both are counted", expireCounts},
		{"a record whose lease has ended goes with its registration, as do those held behind it", expireEndedLease},
		{"dead and processed records outlive their registration, and the group is listed as long as it has records", expireLeavesSettled},
		{"DropGroup removes what an ended registration has left, and gives back what is leased", dropWhatIsLeft},
		{"other groups keep their registrations and records", expireLeavesGroups},
		{"what another registration of the group selects stays", expireLeavesSelections},
		{"a record under a lease that has not ended outlives its registration, and its owner may ack it", expireLeavesLeased},
		{"a record that comes back after its registration has gone goes with a later round", expireTakesReturned},
		{"a message reaches the group between the end of its registration and the janitor's round, and goes with that", appendedBeforeTheRound},
		{"a message appended after its only registration has gone waits for the first group", appendedAfterTheRound},
		{"a record of a transaction that was open when its registration went goes with a later round", appendAcrossTheEnd},
		{"a group that registers again after its end but before the janitor's round loses nothing", renewedInTime},
		{"a group that registers again reads what is appended from then on", registeredAgain},
		{"a group that registers again between two rounds gets what is left, in its order", registeredBetweenRounds},
		{"registrations that are renewed while a janitor is at work stay, with what is appended after that", renewedBesideJanitor},
		{"a process that knew the group notices that its registration has gone", endIsKnownElsewhere},
		{"ExpireRegistrations does no more than its limit of either, and ends all in the end", expireLimit},
		{"ExpireRegistrations with a limit below 1 is refused", refuseExpireLimit},
		{"calls succeed while other processes change the registrations all the time", callsBesideRegistrations},
		{"one call makes several registrations, and renews several", severalAtOnce},
		{"one bad registration refuses the whole call", oneBadRegistration},
		{"a negative TTL is refused", refuseNegativeTTL},
	}
}

func (e *env) groupInfo(name string) outmill.GroupInfo {
	e.T.Helper()
	for _, info := range e.groups() {
		if info.Group == name {
			return info
		}
	}
	require.FailNow(e.T, "not listed", "group %q", name)
	return outmill.GroupInfo{}
}

func (e *env) workerNames(name string) []string {
	e.T.Helper()
	var list []string
	for _, w := range e.groupInfo(name).Workers {
		list = append(list, w.Name)
	}
	return list
}

func namedWorker(name string) outmill.Registration {
	return outmill.Registration{Group: group, Worker: name}
}

func workersAreShown(e *env) {
	e.Register("others")
	e.RegisterAs(namedWorker("host-1:77"))
	e.Elapse(time.Hour)
	e.RegisterAs(namedWorker("日本 'x' 😀"))
	e.Register(group)
	require.Equal(e.T, []string{"日本 'x' 😀", "host-1:77"}, e.workerNames(group))
	e.RequireAbout(e.Now().Add(-time.Hour), e.groupInfo(group).Workers[1].SeenAt, "the other one was seen")
	e.RegisterAs(outmill.Registration{Group: group, Worker: "host-1:77", Topics: outmill.Topics{Include: []string{orders}}})
	e.RequireAbout(e.Now(), e.groupInfo(group).Workers[0].SeenAt, "it was seen")
	require.ElementsMatch(e.T, []string{"host-1:77", "日本 'x' 😀"}, e.workerNames(group))
	require.Empty(e.T, e.workerNames("others"))
}

// withProblems is a registration of the worker that reports problems.
func withProblems(name string, problems map[string]string) outmill.Registration {
	reg := namedWorker(name)
	reg.Problems = problems
	return reg
}

func problemsAreShown(e *env) {
	problemsOf := func(name string) map[string]string {
		for _, w := range e.groupInfo(group).Workers {
			if w.Name == name {
				return w.Problems
			}
		}
		e.T.Fatalf("Groups has no worker %q", name)
		return nil
	}
	problems := map[string]string{"": "the broker 'b' is away: \"EOF\"\n", orders: "日本 😀 </script>"}
	e.RegisterAs(withProblems("one", problems))
	e.RegisterAs(withProblems("two", nil))
	e.RegisterAs(withProblems("", map[string]string{"": "nobody's"}))
	require.Equal(e.T, problems, problemsOf("one"))
	require.Nil(e.T, problemsOf("two"))

	e.RegisterAs(withProblems("two", map[string]string{orders: "held"}))
	e.RegisterAs(withProblems("one", map[string]string{}))
	require.Nil(e.T, problemsOf("one"), "one has registered without problems")
	require.Equal(e.T, map[string]string{orders: "held"}, problemsOf("two"))

	most := map[string]string{}
	for i := range storekit.MaxProblems {
		most[fmt.Sprintf("%s%02d", strings.Repeat("t", outmill.MaxTopicLength-2), i)] = strings.Repeat("é", storekit.MaxProblemText)
	}
	e.RegisterAs(withProblems("one", most))
	require.Equal(e.T, most, problemsOf("one"))
}

func refuseProblems(e *env) {
	many := map[string]string{}
	for i := range storekit.MaxProblems + 1 {
		many[fmt.Sprint("topic", i)] = "held"
	}
	for _, problems := range []map[string]string{
		many, {"": ""}, {"": strings.Repeat("x", storekit.MaxProblemText+1)}, {orders: "a\x00b"}, {orders: "\xff"}, {" t": "held"},
	} {
		err := e.Store.RegisterGroup(e.Ctx, withProblems("one", problems))
		refused := errors.Is(err, outmill.ErrInvalidConfig) || errors.Is(err, outmill.ErrInvalidRecord)
		require.Truef(e.T, refused, "%.80q: %v", fmt.Sprint(problems), err)
	}
	require.Empty(e.T, e.groups(), "a refused registration writes nothing")
}

func oldWorkersGo(e *env) {
	e.RegisterAs(namedWorker("old"))
	e.RegisterAs(outmill.Registration{Group: "others", Worker: "old"})
	e.Elapse(2 * time.Hour)
	e.RegisterAs(namedWorker("young"))
	e.Elapse(23 * time.Hour)
	require.Equal(e.T, []string{"young", "old"}, e.workerNames(group))
	e.Register(group)
	require.Equal(e.T, []string{"young"}, e.workerNames(group))
	require.Equal(e.T, []string{"old"}, e.workerNames("others"))
}

func thousandWorkers(e *env) {
	if suite.Brief() {
		e.T.Skip("skipped: a thousand registrations; " + suite.EnvAll + "=1 has them run, but not under -race")
	}
	for i := range 3 {
		e.RegisterAs(namedWorker(fmt.Sprint("old", i)))
	}
	e.Elapse(time.Hour)
	var work errgroup.Group
	work.SetLimit(8)
	for i := range 1000 {
		work.Go(func() error { return e.Store.RegisterGroup(e.Ctx, namedWorker(fmt.Sprint("young", i))) })
	}
	require.NoError(e.T, work.Wait())
	e.Register(group)
	found := e.workerNames(group)
	require.Len(e.T, found, 1000)
	for _, name := range found {
		require.True(e.T, strings.HasPrefix(name, "young"), name)
	}
}

func dropForgetsWorkers(e *env) {
	e.RegisterAs(namedWorker("w"))
	e.Drop(group)
	e.Register(group)
	require.Empty(e.T, e.workerNames(group))
}

func (e *env) requireEnd(after time.Duration) {
	e.T.Helper()
	registrations := e.groupInfo(group).Registrations
	require.Len(e.T, registrations, 1)
	if after == 0 {
		require.Zero(e.T, registrations[0].ExpiresAt, "the end of a permanent registration")
		return
	}
	e.RequireAbout(e.Now().Add(after), registrations[0].ExpiresAt, "the end")
}

func ttlMovesTheEnd(e *env) {
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.requireEnd(time.Hour)
	e.Elapse(50 * time.Minute)
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.requireEnd(time.Hour)
	e.Elapse(50 * time.Minute)
	e.RequireExpired(0, 0)
	e.RegisterAs(suite.Ends(group, 3*time.Hour, orders))
	e.requireEnd(3 * time.Hour)
	e.RegisterAs(suite.Ends(group, 30*time.Minute, orders))
	e.requireEnd(30 * time.Minute)
	e.Elapse(31 * time.Minute)
	e.RequireExpired(1, 0)
	require.Empty(e.T, e.groups())
}

func anyTTL(e *env) {
	e.RegisterAs(suite.Ends(group, math.MaxInt64, orders))
	e.RequireExpired(0, 0)
	require.Greater(e.T, e.groupInfo(group).Registrations[0].ExpiresAt.Year(), 2200)
	e.RegisterAs(suite.Ends(group, 1, orders))
	e.Elapse(time.Second)
	e.RequireExpired(1, 0)
}

func noTTLNeverEnds(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	e.Elapse(2000 * 24 * time.Hour)
	e.RequireExpired(0, 0)
	e.requireEnd(0)
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func permanentSticks(e *env) {
	e.Register(group, orders)
	for range 2 {
		e.RegisterAs(suite.Ends(group, time.Minute, orders))
		e.requireEnd(0)
		e.Elapse(time.Hour)
		e.RequireExpired(0, 0)
	}
	require.Len(e.T, e.groups(), 1)
}

func becomesPermanent(e *env) {
	e.RegisterAs(suite.Ends(group, time.Minute, orders))
	e.Register(group, orders)
	e.requireEnd(0)
	e.Elapse(time.Hour)
	e.RequireExpired(0, 0)
}

func dropEndsPermanence(e *env) {
	e.Register(group, orders)
	e.Drop(group)
	e.RegisterAs(suite.Ends(group, time.Minute, orders))
	e.requireEnd(time.Minute)
}

func expireCounts(e *env) {
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.Append(suite.Rec(orders, "pending"), suite.Rec(orders, "delayed", suite.WithDelay(10*time.Hour)),
		suite.Rec(orders, "expired", suite.WithTTL(time.Minute)))
	e.Append(suite.Rec(orders, "abandoned"), suite.Rec(orders, "snoozed"), suite.Rec(orders, "released"))
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Abandon(10*time.Hour, found["abandoned"])
	e.Snooze(10*time.Hour, found["snoozed"])
	e.Release(found["released"], found["pending"], found["expired"])
	e.Elapse(59 * time.Minute)
	e.RequireExpired(0, 0)
	require.Len(e.T, e.List(outmill.ListQuery{}), 6)
	e.Elapse(2 * time.Minute)
	e.RequireExpired(1, 6)
	require.Empty(e.T, e.List(outmill.ListQuery{}))
	require.Empty(e.T, e.groups())
	require.Empty(e.T, e.stats(0))
	e.RequireExpired(0, 0)
}

func expireEndedLease(e *env) {
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.Append(suite.Keyed("k", "m1", "m2", "m3")...)
	first := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ByKey)
	require.Empty(e.T, e.ClaimAll(suite.ByKey), "held")
	e.Elapse(leaseOf + time.Hour)
	e.RequireExpired(1, 3)
	e.RequireGone(first)
	e.Ack(first)
	require.Empty(e.T, e.List(outmill.ListQuery{}))
	e.Register(group, orders)
	e.Append(suite.Keyed("k", "m4", "m5")...)
	require.Equal(e.T, []string{"m4", "m5"}, suite.Names(e.ClaimAll(suite.ByKey)))
}

func expireLeavesSettled(e *env) {
	e.RegisterAs(outmill.Registration{Group: group, TTL: time.Hour, Worker: "w"})
	e.Append(suite.Recs(orders, suite.Plain, "acked", "dead", "pending")...)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Ack(found["acked"])
	e.Fail(found["dead"])
	e.Release(found["pending"])
	e.Elapse(2 * time.Hour)
	e.RequireExpired(1, 1)
	e.RequireStatus(outmill.StatusDead, found["dead"])
	e.RequireProcessed(found["acked"])
	require.Equal(e.T, 1, e.stats(0)[group+": "+orders].Dead)

	info := e.groupInfo(group)
	require.Empty(e.T, info.Registrations)
	require.Zero(e.T, info.SeenAt)
	e.RequireAbout(e.Now(), info.EndedAt, "ended at")
	require.Equal(e.T, 1, e.Delete(found["dead"]))
	if e.Options.Retain > 0 {
		require.Equal(e.T, 1, e.Delete(found["acked"]))
	}
	e.Elapse(25 * time.Hour)
	e.RequireExpired(0, 0)
	require.Empty(e.T, e.groups())
}

func dropWhatIsLeft(e *env) {
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.Append(suite.Recs(orders, suite.Plain, "dead", "leased")...)
	found := e.ClaimNamed(outmill.NewOwnerToken(), leased(10*time.Hour))
	e.Fail(found["dead"])
	e.Elapse(2 * time.Hour)
	e.RequireExpired(1, 0)
	e.requireDrop(group, 1, 1)
	require.Empty(e.T, e.groups())
	e.RequireExpired(0, 0)
}

func expireLeavesGroups(e *env) {
	e.RegisterAs(suite.Ends("goes", time.Hour, orders))
	e.RegisterAs(suite.Ends("goes too", time.Hour))
	e.RegisterAs(suite.Ends("stays", 3*time.Hour, orders))
	e.Register("permanent")
	e.Append(suite.Rec(orders, "m1"), suite.Rec("others", "m2"))
	e.Elapse(2 * time.Hour)
	e.RequireExpired(2, 3)
	require.Len(e.T, e.groups(), 2)
	require.ElementsMatch(e.T, []string{"m1"}, suite.Names(e.ClaimAll(suite.OfGroup("stays"))))
	require.ElementsMatch(e.T, []string{"m1", "m2"}, suite.Names(e.ClaimAll(suite.OfGroup("permanent"))))
}

func expireLeavesSelections(e *env) {
	e.RegisterAs(suite.Ends(group, time.Hour, orders, "replies*"))
	e.RegisterAs(suite.Ends(group, 3*time.Hour, "replies.1"))
	e.Register(group, "ord*")
	e.Append(suite.Rec(orders, "order"), suite.Rec("replies.1", "one"), suite.Rec("replies.2", "two"))
	e.Elapse(2 * time.Hour)
	e.RequireExpired(1, 1)
	require.ElementsMatch(e.T, []string{"one", "order"}, suite.Names(e.List(outmill.ListQuery{})))
	e.Elapse(2 * time.Hour)
	e.RequireExpired(1, 1)
	require.Len(e.T, e.groupInfo(group).Registrations, 1)
	require.ElementsMatch(e.T, []string{"order"}, suite.Names(e.ClaimAll()))
}

func expireLeavesLeased(e *env) {
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.Append(suite.Recs(orders, suite.Plain, "leased", "pending")...)
	found := e.ClaimNamed(outmill.NewOwnerToken(), leased(10*time.Hour))
	e.Release(found["pending"])
	e.Elapse(2 * time.Hour)
	for range 2 {
		e.Unchanged(found["leased"], func() { e.Expire(1000) })
	}
	require.Empty(e.T, e.groupInfo(group).Registrations)
	extended, err := e.Store.Extend(e.Ctx, 10*time.Hour, suite.Leases([]*outmill.Record{found["leased"]}))
	require.NoError(e.T, err)
	require.Len(e.T, extended, 1)
	e.Ack(found["leased"])
	e.RequireProcessed(found["leased"])
	e.RequireGone(found["pending"])
}

func expireTakesReturned(e *env) {
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.Append(suite.Recs(orders, suite.Plain, "released", "abandoned", "lost", "failed")...)
	found := e.ClaimNamed(outmill.NewOwnerToken(), leased(3*time.Hour))
	e.Elapse(2 * time.Hour)
	e.RequireExpired(1, 0)
	e.Release(found["released"])
	e.Abandon(time.Hour, found["abandoned"])
	e.Fail(found["failed"])
	e.RequireExpired(0, 2)
	e.Elapse(2 * time.Hour)
	e.RequireExpired(0, 1)
	require.ElementsMatch(e.T, []string{"failed"}, suite.Names(e.List(outmill.ListQuery{})))
	e.RequireStatus(outmill.StatusDead, found["failed"])
}

func appendedBeforeTheRound(e *env) {
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.Elapse(2 * time.Hour)
	e.Append(suite.Rec(orders, "m1"))
	require.ElementsMatch(e.T, []string{"m1"}, suite.Names(e.List(groupQuery(group))))
	e.RequireExpired(1, 1)
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func appendedAfterTheRound(e *env) {
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.Append(suite.Rec(orders, "m1"))
	e.Elapse(2 * time.Hour)
	e.RequireExpired(1, 1)
	m2 := suite.Rec(orders, "m2")
	e.Append(m2)
	require.Empty(e.T, e.Get(m2).Group)
	e.RequireExpired(0, 0)
	require.Empty(e.T, e.ClaimAll())
	e.Register("first")
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	require.ElementsMatch(e.T, []string{"m2"}, suite.Names(e.ClaimAll(suite.OfGroup("first"))))
	require.Empty(e.T, e.ClaimAll())
}

// appendAcrossTheEnd allows two ways: the janitor waits for the transaction, or finds the record
// in a later round.
func appendAcrossTheEnd(e *env) {
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.Elapse(2 * time.Hour)
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m1")))
	expired := make(chan error, 1)
	go func() {
		_, _, err := e.Store.ExpireRegistrations(e.Ctx, 1000)
		expired <- err
	}()
	select {
	case err := <-expired:
		require.NoError(e.T, err)
		expired <- nil
	case <-time.After(200 * time.Millisecond):
	}
	commit()
	require.NoError(e.T, <-expired)
	e.Elapse(2 * time.Hour)
	e.Expire(1000)
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func renewedInTime(e *env) {
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.Append(suite.Rec(orders, "m1"))
	e.Elapse(2 * time.Hour)
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.RequireExpired(0, 0)
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
}

func registeredAgain(e *env) {
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.Elapse(2 * time.Hour)
	e.RequireExpired(1, 0)
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.requireEnd(time.Hour)
	require.Zero(e.T, e.groupInfo(group).EndedAt)
	e.Append(suite.Rec(orders, "m1"))
	for range 3 {
		e.RequireExpired(0, 0)
		e.Elapse(10 * time.Minute)
	}
	e.ClaimOne(outmill.NewOwnerToken(), "m1")
	e.Elapse(time.Hour)
	e.Expire(1000)
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func registeredBetweenRounds(e *env) {
	const n = 9
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	e.Append(suite.Keyed("k", suite.Numbered(n)...)...)
	e.ClaimN(outmill.NewOwnerToken(), 1, suite.ByKey)
	require.Empty(e.T, e.ClaimAll(suite.ByKey), "held")
	e.Elapse(2 * time.Hour)
	registrations, records := e.Expire(4)
	require.Equal(e.T, []int{1, 4}, []int{registrations, records})
	e.Register(group, orders)
	e.RequireExpired(0, 0)
	left := suite.Names(e.List(outmill.ListQuery{}))
	require.Len(e.T, left, n-4)
	e.Append(suite.Rec(orders, "last", suite.WithKey("k")))
	require.Equal(e.T, append(left, "last"), suite.Names(e.ClaimAll(suite.ByKey)))
}

// callsBesideRegistrations has two processes register and drop a group each, without a pause.
func callsBesideRegistrations(e *env) {
	e.Register(group)
	ctx, stop := context.WithCancel(e.Ctx)
	defer stop()
	var others errgroup.Group
	for i := range 2 {
		other, name := e.Reopen(), fmt.Sprint("passing ", i)
		others.Go(func() error {
			for ctx.Err() == nil {
				err := other.RegisterGroup(e.Ctx, outmill.Registration{Group: name})
				if err == nil {
					_, err = other.DropGroup(e.Ctx, name)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	owner, orders := outmill.NewOwnerToken(), []func(*outmill.ClaimRequest){suite.ByKey, suite.ByTopic, suite.Plainly}
	for i, name := range suite.Numbered(9) {
		e.Append(suite.Rec("orders", name, suite.WithKey(name)))
		r := e.ClaimOne(owner, name, orders[i%len(orders)])
		if i%2 == 0 {
			e.Ack(r)
			continue
		}
		e.Release(r)
		require.Equal(e.T, 1, e.Delete(r))
	}
	stop()
	require.NoError(e.T, others.Wait())
}

func renewedBesideJanitor(e *env) {
	const n = 40
	ctx, stop := context.WithCancel(e.Ctx)
	defer stop()
	other := e.Reopen()
	var janitor errgroup.Group
	janitor.Go(func() error {
		for ctx.Err() == nil {
			if _, _, err := other.ExpireRegistrations(e.Ctx, 3); err != nil {
				return err
			}
		}
		return nil
	})
	for i, name := range suite.Numbered(n) {
		topic := fmt.Sprint("t", i)
		e.RegisterAs(suite.Ends(group, 1, topic))
		e.Append(suite.Rec(topic, "before "+name))
		e.RegisterAs(suite.Ends(group, time.Hour, topic))
		e.Append(suite.Rec(topic, name))
	}
	stop()
	require.NoError(e.T, janitor.Wait())
	e.Expire(1000)
	require.Len(e.T, e.groupInfo(group).Registrations, n)
	require.Subset(e.T, suite.Names(e.ClaimAll()), suite.Numbered(n))
}

func endIsKnownElsewhere(e *env) {
	e.RegisterAs(suite.Ends(group, time.Hour, orders))
	other := e.Reopen()
	require.NoError(e.T, other.Append(e.Ctx, suite.Rec(orders, "m1")))
	e.Elapse(2 * time.Hour)
	e.RequireExpired(1, 1)
	require.NoError(e.T, other.Append(e.Ctx, suite.Rec(orders, "m2")))
	e.Register("next", orders)
	require.ElementsMatch(e.T, []string{"m2"}, suite.Names(e.ClaimAll(suite.OfGroup("next"))))
}

func expireLimit(e *env) {
	const groups, each, limit = 7, 4, 3
	for i := range groups {
		e.RegisterAs(suite.Ends(fmt.Sprint("g", i), time.Hour, fmt.Sprint("t", i), "u"))
	}
	for i := range groups {
		e.Append(suite.Recs(fmt.Sprint("t", i), suite.Plain, suite.Numbered(each-1)...)...)
	}
	e.Append(suite.Rec("u", "u"))
	e.Elapse(2 * time.Hour)
	registrations, records := 0, 0
	for calls := 1; ; calls++ {
		r, n := e.Expire(limit)
		require.LessOrEqual(e.T, r, limit, "registrations of one call")
		require.LessOrEqual(e.T, n, limit, "records of one call")
		registrations, records = registrations+r, records+n
		if r < limit && n < limit {
			break
		}
		require.Less(e.T, calls, 100)
	}
	require.Equal(e.T, []int{groups, groups * each}, []int{registrations, records})
	require.Empty(e.T, e.groups())
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func refuseExpireLimit(e *env) {
	for _, limit := range []int{0, -1} {
		_, _, err := e.Store.ExpireRegistrations(e.Ctx, limit)
		e.RequireRefusal(err, "ExpireRegistrations with limit %d", limit)
	}
}

func severalAtOnce(e *env) {
	regs := []outmill.Registration{
		suite.Ends(group, time.Hour, orders), suite.Ends(group, 0, "bills"),
		{Group: "others", Worker: "host-1:77", Topics: outmill.Topics{Exclude: []string{"bills"}}},
	}
	e.Append(suite.Rec("bills", "waited"))
	require.NoError(e.T, e.Store.RegisterGroup(e.Ctx, regs...))
	require.Len(e.T, e.groupInfo(group).Registrations, 2)
	require.Equal(e.T, []string{"host-1:77"}, e.workerNames("others"))
	e.ClaimOne(outmill.NewOwnerToken(), "waited")
	e.Elapse(50 * time.Minute)
	regs[0].Group, regs[1].Group = group, group
	more := append(slices.Clone(regs), suite.Ends(group, time.Hour, "ships"))
	require.NoError(e.T, e.Store.RegisterGroup(e.Ctx, more...))
	found := e.groupInfo(group).Registrations
	require.Len(e.T, found, 3)
	for _, r := range found {
		if len(r.Topics.Include) == 1 && r.Topics.Include[0] == "bills" {
			require.Zero(e.T, r.ExpiresAt)
			continue
		}
		e.RequireAbout(e.Now().Add(time.Hour), r.ExpiresAt, "all were renewed")
	}
	require.NoError(e.T, e.Store.RegisterGroup(e.Ctx), "none")
}

func oneBadRegistration(e *env) {
	e.RequireRefusal(e.Store.RegisterGroup(e.Ctx, suite.Ends(group, 0, orders), suite.Ends("others", -1)), "TTL of -1ns")
	groups, err := e.Store.Groups(e.Ctx)
	require.NoError(e.T, err)
	require.Empty(e.T, groups)
}

func refuseNegativeTTL(e *env) {
	e.RequireRefusal(e.Store.RegisterGroup(e.Ctx, suite.Ends(group, -1)), "TTL of -1ns")
	require.Empty(e.T, e.groups())
}

func refuseWorkerNames(e *env) {
	for _, name := range []string{" w", "w ", "w\x00", "w\xff", strings.Repeat("w", 256)} {
		e.RequireRefusal(e.Store.RegisterGroup(e.Ctx, namedWorker(name)), "worker %q", name)
	}
	require.Empty(e.T, e.groups())
	e.RegisterAs(namedWorker(strings.Repeat("w", 255)))
	require.Len(e.T, e.workerNames(group), 1)
}
