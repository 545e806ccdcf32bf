package storetest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
)

func workerNameSentences() []sentence {
	return []sentence{
		{"Groups shows the workers that registered a group, the one seen last first", workersAreShown},
		{"a worker that was not seen for 24 hours goes with the next registration of its group", oldWorkersGo},
		{"a group keeps the 1,000 workers that were seen last", thousandWorkers},
		{"DropGroup forgets the workers of the group", dropForgetsWorkers},
		{"a worker's name that a store cannot keep is refused", refuseWorkerNames},
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
		{"DropGroup removes what an ended registration has left", dropWhatIsLeft},
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
		{"one call makes several registrations, and renews several", severalAtOnce},
		{"one bad registration refuses the whole call", oneBadRegistration},
		{"a negative TTL is refused", refuseNegativeTTL},
	}
}

// ends returns a registration of the group that ends after the TTL.
func ends(group string, ttl time.Duration, include ...string) outmill.Registration {
	return outmill.Registration{Group: group, TTL: ttl, Topics: outmill.Topics{Include: include}}
}

func (e *env) registerAs(reg outmill.Registration) {
	e.t.Helper()
	require.NoError(e.t, e.store.RegisterGroup(e.ctx, reg), "RegisterGroup")
}

func (e *env) expire(limit int) (registrations, records int) {
	e.t.Helper()
	registrations, records, err := e.store.ExpireRegistrations(e.ctx, limit)
	require.NoError(e.t, err, "ExpireRegistrations")
	return registrations, records
}

func (e *env) requireExpired(registrations, records int) {
	e.t.Helper()
	r, n := e.expire(1000)
	require.Equal(e.t, []int{registrations, records}, []int{r, n}, "registrations and records that went")
}

func (e *env) groupInfo(name string) outmill.GroupInfo {
	e.t.Helper()
	for _, info := range e.groups() {
		if info.Group == name {
			return info
		}
	}
	require.FailNow(e.t, "not listed", "group %q", name)
	return outmill.GroupInfo{}
}

func (e *env) workerNames(name string) []string {
	e.t.Helper()
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
	e.register("others")
	e.registerAs(namedWorker("host-1:77"))
	e.elapse(time.Hour)
	e.registerAs(namedWorker("日本 'x' 😀"))
	e.register(group)
	require.Equal(e.t, []string{"日本 'x' 😀", "host-1:77"}, e.workerNames(group))
	e.requireAbout(e.now().Add(-time.Hour), e.groupInfo(group).Workers[1].SeenAt, "the other one was seen")
	e.registerAs(outmill.Registration{Group: group, Worker: "host-1:77", Topics: outmill.Topics{Include: []string{orders}}})
	e.requireAbout(e.now(), e.groupInfo(group).Workers[0].SeenAt, "it was seen")
	require.ElementsMatch(e.t, []string{"host-1:77", "日本 'x' 😀"}, e.workerNames(group))
	require.Empty(e.t, e.workerNames("others"))
}

func oldWorkersGo(e *env) {
	e.registerAs(namedWorker("old"))
	e.registerAs(outmill.Registration{Group: "others", Worker: "old"})
	e.elapse(2 * time.Hour)
	e.registerAs(namedWorker("young"))
	e.elapse(23 * time.Hour)
	require.Equal(e.t, []string{"young", "old"}, e.workerNames(group))
	e.register(group)
	require.Equal(e.t, []string{"young"}, e.workerNames(group))
	require.Equal(e.t, []string{"old"}, e.workerNames("others"))
}

func thousandWorkers(e *env) {
	if underRace || !all() {
		e.t.Skip("skipped: a thousand registrations; " + envAll + "=1 has them run, but not under -race")
	}
	for i := range 3 {
		e.registerAs(namedWorker(fmt.Sprint("old", i)))
	}
	e.elapse(time.Hour)
	var work errgroup.Group
	work.SetLimit(8)
	for i := range 1000 {
		work.Go(func() error { return e.store.RegisterGroup(e.ctx, namedWorker(fmt.Sprint("young", i))) })
	}
	require.NoError(e.t, work.Wait())
	e.register(group)
	found := e.workerNames(group)
	require.Len(e.t, found, 1000)
	for _, name := range found {
		require.True(e.t, strings.HasPrefix(name, "young"), name)
	}
}

func dropForgetsWorkers(e *env) {
	e.registerAs(namedWorker("w"))
	e.drop(group)
	e.register(group)
	require.Empty(e.t, e.workerNames(group))
}

func (e *env) requireEnd(after time.Duration) {
	e.t.Helper()
	registrations := e.groupInfo(group).Registrations
	require.Len(e.t, registrations, 1)
	if after == 0 {
		require.Zero(e.t, registrations[0].ExpiresAt, "the end of a permanent registration")
		return
	}
	e.requireAbout(e.now().Add(after), registrations[0].ExpiresAt, "the end")
}

func ttlMovesTheEnd(e *env) {
	e.registerAs(ends(group, time.Hour, orders))
	e.requireEnd(time.Hour)
	e.elapse(50 * time.Minute)
	e.registerAs(ends(group, time.Hour, orders))
	e.requireEnd(time.Hour)
	e.elapse(50 * time.Minute)
	e.requireExpired(0, 0)
	e.registerAs(ends(group, 3*time.Hour, orders))
	e.requireEnd(3 * time.Hour)
	e.registerAs(ends(group, 30*time.Minute, orders))
	e.requireEnd(30 * time.Minute)
	e.elapse(31 * time.Minute)
	e.requireExpired(1, 0)
	require.Empty(e.t, e.groups())
}

func anyTTL(e *env) {
	e.registerAs(ends(group, math.MaxInt64, orders))
	e.requireExpired(0, 0)
	require.Greater(e.t, e.groupInfo(group).Registrations[0].ExpiresAt.Year(), 2200)
	e.registerAs(ends(group, 1, orders))
	e.elapse(time.Second)
	e.requireExpired(1, 0)
}

func noTTLNeverEnds(e *env) {
	e.filled(rec(orders, "m1"))
	e.elapse(2000 * 24 * time.Hour)
	e.requireExpired(0, 0)
	e.requireEnd(0)
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

func permanentSticks(e *env) {
	e.register(group, orders)
	for range 2 {
		e.registerAs(ends(group, time.Minute, orders))
		e.requireEnd(0)
		e.elapse(time.Hour)
		e.requireExpired(0, 0)
	}
	require.Len(e.t, e.groups(), 1)
}

func becomesPermanent(e *env) {
	e.registerAs(ends(group, time.Minute, orders))
	e.register(group, orders)
	e.requireEnd(0)
	e.elapse(time.Hour)
	e.requireExpired(0, 0)
}

func dropEndsPermanence(e *env) {
	e.register(group, orders)
	e.drop(group)
	e.registerAs(ends(group, time.Minute, orders))
	e.requireEnd(time.Minute)
}

func expireCounts(e *env) {
	e.registerAs(ends(group, time.Hour, orders))
	e.append(rec(orders, "pending"), rec(orders, "delayed", withDelay(10*time.Hour)), rec(orders, "expired", withTTL(time.Minute)))
	e.append(rec(orders, "abandoned"), rec(orders, "snoozed"), rec(orders, "released"))
	found := e.claimNamed(outmill.NewOwnerToken())
	e.abandon(10*time.Hour, found["abandoned"])
	e.snooze(10*time.Hour, found["snoozed"])
	e.release(found["released"], found["pending"], found["expired"])
	e.elapse(59 * time.Minute)
	e.requireExpired(0, 0)
	require.Len(e.t, e.list(outmill.ListQuery{}), 6)
	e.elapse(2 * time.Minute)
	e.requireExpired(1, 6)
	require.Empty(e.t, e.list(outmill.ListQuery{}))
	require.Empty(e.t, e.groups())
	require.Empty(e.t, e.stats(0))
	e.requireExpired(0, 0)
}

func expireEndedLease(e *env) {
	e.registerAs(ends(group, time.Hour, orders))
	e.append(keyed("k", "m1", "m2", "m3")...)
	first := e.claimOne(outmill.NewOwnerToken(), "m1", byKey)
	require.Empty(e.t, e.claimAll(byKey), "held")
	e.elapse(leaseOf + time.Hour)
	e.requireExpired(1, 3)
	e.requireGone(first)
	e.ack(first)
	require.Empty(e.t, e.list(outmill.ListQuery{}))
	e.register(group, orders)
	e.append(keyed("k", "m4", "m5")...)
	require.Equal(e.t, []string{"m4", "m5"}, names(e.claimAll(byKey)))
}

func expireLeavesSettled(e *env) {
	e.registerAs(outmill.Registration{Group: group, TTL: time.Hour, Worker: "w"})
	e.append(recs(orders, plain, "acked", "dead", "pending")...)
	found := e.claimNamed(outmill.NewOwnerToken())
	e.ack(found["acked"])
	e.fail(found["dead"])
	e.release(found["pending"])
	e.elapse(2 * time.Hour)
	e.requireExpired(1, 1)
	e.requireStatus(outmill.StatusDead, found["dead"])
	e.requireProcessed(found["acked"])
	require.Equal(e.t, 1, e.stats(0)[group+": "+orders].Dead)

	info := e.groupInfo(group)
	require.Empty(e.t, info.Registrations)
	require.Zero(e.t, info.SeenAt)
	e.requireAbout(e.now(), info.EndedAt, "ended at")
	require.Equal(e.t, 1, e.delete(found["dead"]))
	if e.options.Retain > 0 {
		require.Equal(e.t, 1, e.delete(found["acked"]))
	}
	e.elapse(25 * time.Hour)
	e.requireExpired(0, 0)
	require.Empty(e.t, e.groups())
}

func dropWhatIsLeft(e *env) {
	e.registerAs(ends(group, time.Hour, orders))
	e.append(recs(orders, plain, "dead", "leased")...)
	found := e.claimNamed(outmill.NewOwnerToken(), leased(10*time.Hour))
	e.fail(found["dead"])
	e.elapse(2 * time.Hour)
	e.requireExpired(1, 0)
	n, err := e.store.DropGroup(e.ctx, group)
	require.NoError(e.t, err)
	require.Equal(e.t, 2, n)
	require.Empty(e.t, e.groups())
	e.requireExpired(0, 0)
}

func expireLeavesGroups(e *env) {
	e.registerAs(ends("goes", time.Hour, orders))
	e.registerAs(ends("goes too", time.Hour))
	e.registerAs(ends("stays", 3*time.Hour, orders))
	e.register("permanent")
	e.append(rec(orders, "m1"), rec("others", "m2"))
	e.elapse(2 * time.Hour)
	e.requireExpired(2, 3)
	require.Len(e.t, e.groups(), 2)
	require.ElementsMatch(e.t, []string{"m1"}, names(e.claimAll(ofGroup("stays"))))
	require.ElementsMatch(e.t, []string{"m1", "m2"}, names(e.claimAll(ofGroup("permanent"))))
}

func expireLeavesSelections(e *env) {
	e.registerAs(ends(group, time.Hour, orders, "replies*"))
	e.registerAs(ends(group, 3*time.Hour, "replies.1"))
	e.register(group, "ord*")
	e.append(rec(orders, "order"), rec("replies.1", "one"), rec("replies.2", "two"))
	e.elapse(2 * time.Hour)
	e.requireExpired(1, 1)
	require.ElementsMatch(e.t, []string{"one", "order"}, names(e.list(outmill.ListQuery{})))
	e.elapse(2 * time.Hour)
	e.requireExpired(1, 1)
	require.Len(e.t, e.groupInfo(group).Registrations, 1)
	require.ElementsMatch(e.t, []string{"order"}, names(e.claimAll()))
}

func expireLeavesLeased(e *env) {
	e.registerAs(ends(group, time.Hour, orders))
	e.append(recs(orders, plain, "leased", "pending")...)
	found := e.claimNamed(outmill.NewOwnerToken(), leased(10*time.Hour))
	e.release(found["pending"])
	e.elapse(2 * time.Hour)
	for range 2 {
		e.unchanged(found["leased"], func() { e.expire(1000) })
	}
	require.Empty(e.t, e.groupInfo(group).Registrations)
	extended, err := e.store.Extend(e.ctx, 10*time.Hour, leases([]*outmill.Record{found["leased"]}))
	require.NoError(e.t, err)
	require.Len(e.t, extended, 1)
	e.ack(found["leased"])
	e.requireProcessed(found["leased"])
	e.requireGone(found["pending"])
}

func expireTakesReturned(e *env) {
	e.registerAs(ends(group, time.Hour, orders))
	e.append(recs(orders, plain, "released", "abandoned", "lost", "failed")...)
	found := e.claimNamed(outmill.NewOwnerToken(), leased(3*time.Hour))
	e.elapse(2 * time.Hour)
	e.requireExpired(1, 0)
	e.release(found["released"])
	e.abandon(time.Hour, found["abandoned"])
	e.fail(found["failed"])
	e.requireExpired(0, 2)
	e.elapse(2 * time.Hour)
	e.requireExpired(0, 1)
	require.ElementsMatch(e.t, []string{"failed"}, names(e.list(outmill.ListQuery{})))
	e.requireStatus(outmill.StatusDead, found["failed"])
}

func appendedBeforeTheRound(e *env) {
	e.registerAs(ends(group, time.Hour, orders))
	e.elapse(2 * time.Hour)
	e.append(rec(orders, "m1"))
	require.ElementsMatch(e.t, []string{"m1"}, names(e.list(groupQuery(group))))
	e.requireExpired(1, 1)
	require.Empty(e.t, e.list(outmill.ListQuery{}))
}

func appendedAfterTheRound(e *env) {
	e.registerAs(ends(group, time.Hour, orders))
	e.append(rec(orders, "m1"))
	e.elapse(2 * time.Hour)
	e.requireExpired(1, 1)
	m2 := rec(orders, "m2")
	e.append(m2)
	require.Empty(e.t, e.get(m2).Group)
	e.requireExpired(0, 0)
	require.Empty(e.t, e.claimAll())
	e.register("first")
	e.registerAs(ends(group, time.Hour, orders))
	require.ElementsMatch(e.t, []string{"m2"}, names(e.claimAll(ofGroup("first"))))
	require.Empty(e.t, e.claimAll())
}

// appendAcrossTheEnd: a store may make the janitor wait for the transaction, or
// find the record in a later round.
func appendAcrossTheEnd(e *env) {
	e.registerAs(ends(group, time.Hour, orders))
	e.elapse(2 * time.Hour)
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.store.Append(ctx, rec(orders, "m1")))
	expired := make(chan error, 1)
	go func() {
		_, _, err := e.store.ExpireRegistrations(e.ctx, 1000)
		expired <- err
	}()
	select {
	case err := <-expired:
		require.NoError(e.t, err)
		expired <- nil
	case <-time.After(200 * time.Millisecond):
	}
	commit()
	require.NoError(e.t, <-expired)
	e.elapse(2 * time.Hour)
	e.expire(1000)
	require.Empty(e.t, e.list(outmill.ListQuery{}))
}

func renewedInTime(e *env) {
	e.registerAs(ends(group, time.Hour, orders))
	e.append(rec(orders, "m1"))
	e.elapse(2 * time.Hour)
	e.registerAs(ends(group, time.Hour, orders))
	e.requireExpired(0, 0)
	e.claimOne(outmill.NewOwnerToken(), "m1")
}

func registeredAgain(e *env) {
	e.registerAs(ends(group, time.Hour, orders))
	e.elapse(2 * time.Hour)
	e.requireExpired(1, 0)
	e.registerAs(ends(group, time.Hour, orders))
	e.requireEnd(time.Hour)
	require.Zero(e.t, e.groupInfo(group).EndedAt)
	e.append(rec(orders, "m1"))
	for range 3 {
		e.requireExpired(0, 0)
		e.elapse(10 * time.Minute)
	}
	e.claimOne(outmill.NewOwnerToken(), "m1")
	e.elapse(time.Hour)
	e.expire(1000)
	require.Empty(e.t, e.list(outmill.ListQuery{}))
}

func registeredBetweenRounds(e *env) {
	const n = 9
	e.registerAs(ends(group, time.Hour, orders))
	e.append(keyed("k", numbered(n)...)...)
	e.claimN(outmill.NewOwnerToken(), 1, byKey)
	require.Empty(e.t, e.claimAll(byKey), "held")
	e.elapse(2 * time.Hour)
	registrations, records := e.expire(4)
	require.Equal(e.t, []int{1, 4}, []int{registrations, records})
	e.register(group, orders)
	e.requireExpired(0, 0)
	left := names(e.list(outmill.ListQuery{}))
	require.Len(e.t, left, n-4)
	e.append(rec(orders, "last", withKey("k")))
	require.Equal(e.t, append(left, "last"), names(e.claimAll(byKey)))
}

func renewedBesideJanitor(e *env) {
	const n = 40
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	other := e.reopen()
	var janitor errgroup.Group
	janitor.Go(func() error {
		for ctx.Err() == nil {
			if _, _, err := other.ExpireRegistrations(e.ctx, 3); err != nil {
				return err
			}
		}
		return nil
	})
	for i, name := range numbered(n) {
		topic := fmt.Sprint("t", i)
		e.registerAs(ends(group, 1, topic))
		e.append(rec(topic, "before "+name))
		e.registerAs(ends(group, time.Hour, topic))
		e.append(rec(topic, name))
	}
	stop()
	require.NoError(e.t, janitor.Wait())
	e.expire(1000)
	require.Len(e.t, e.groupInfo(group).Registrations, n)
	require.Subset(e.t, names(e.claimAll()), numbered(n))
}

func endIsKnownElsewhere(e *env) {
	e.registerAs(ends(group, time.Hour, orders))
	other := e.reopen()
	require.NoError(e.t, other.Append(e.ctx, rec(orders, "m1")))
	e.elapse(2 * time.Hour)
	e.requireExpired(1, 1)
	require.NoError(e.t, other.Append(e.ctx, rec(orders, "m2")))
	e.register("next", orders)
	require.ElementsMatch(e.t, []string{"m2"}, names(e.claimAll(ofGroup("next"))))
}

func expireLimit(e *env) {
	const groups, each, limit = 7, 4, 3
	for i := range groups {
		e.registerAs(ends(fmt.Sprint("g", i), time.Hour, fmt.Sprint("t", i), "u"))
	}
	for i := range groups {
		e.append(recs(fmt.Sprint("t", i), plain, numbered(each-1)...)...)
	}
	e.append(rec("u", "u"))
	e.elapse(2 * time.Hour)
	registrations, records := 0, 0
	for calls := 1; ; calls++ {
		r, n := e.expire(limit)
		require.LessOrEqual(e.t, r, limit, "registrations of one call")
		require.LessOrEqual(e.t, n, limit, "records of one call")
		registrations, records = registrations+r, records+n
		if r < limit && n < limit {
			break
		}
		require.Less(e.t, calls, 100)
	}
	require.Equal(e.t, []int{groups, groups * each}, []int{registrations, records})
	require.Empty(e.t, e.groups())
	require.Empty(e.t, e.list(outmill.ListQuery{}))
}

func refuseExpireLimit(e *env) {
	for _, limit := range []int{0, -1} {
		_, _, err := e.store.ExpireRegistrations(e.ctx, limit)
		e.requireRefusal(err, "ExpireRegistrations with limit %d", limit)
	}
}

func severalAtOnce(e *env) {
	regs := []outmill.Registration{
		ends(group, time.Hour, orders), ends(group, 0, "bills"),
		{Group: "others", Worker: "host-1:77", Topics: outmill.Topics{Exclude: []string{"bills"}}},
	}
	e.append(rec("bills", "waited"))
	require.NoError(e.t, e.store.RegisterGroup(e.ctx, regs...))
	require.Len(e.t, e.groupInfo(group).Registrations, 2)
	require.Equal(e.t, []string{"host-1:77"}, e.workerNames("others"))
	e.claimOne(outmill.NewOwnerToken(), "waited")
	e.elapse(50 * time.Minute)
	regs[0].Group, regs[1].Group = group, group
	more := append(slices.Clone(regs), ends(group, time.Hour, "ships"))
	require.NoError(e.t, e.store.RegisterGroup(e.ctx, more...))
	found := e.groupInfo(group).Registrations
	require.Len(e.t, found, 3)
	for _, r := range found {
		if len(r.Topics.Include) == 1 && r.Topics.Include[0] == "bills" {
			require.Zero(e.t, r.ExpiresAt)
			continue
		}
		e.requireAbout(e.now().Add(time.Hour), r.ExpiresAt, "all were renewed")
	}
	require.NoError(e.t, e.store.RegisterGroup(e.ctx), "none")
}

func oneBadRegistration(e *env) {
	e.requireRefusal(e.store.RegisterGroup(e.ctx, ends(group, 0, orders), ends("others", -1)), "TTL of -1ns")
	groups, err := e.store.Groups(e.ctx)
	require.NoError(e.t, err)
	require.Empty(e.t, groups)
}

func refuseNegativeTTL(e *env) {
	e.requireRefusal(e.store.RegisterGroup(e.ctx, ends(group, -1)), "TTL of -1ns")
	require.Empty(e.t, e.groups())
}

func refuseWorkerNames(e *env) {
	for _, name := range []string{" w", "w ", "w\x00", "w\xff", strings.Repeat("w", 256)} {
		e.requireRefusal(e.store.RegisterGroup(e.ctx, namedWorker(name)), "worker %q", name)
	}
	require.Empty(e.t, e.groups())
	e.registerAs(namedWorker(strings.Repeat("w", 255)))
	require.Len(e.t, e.workerNames(group), 1)
}
