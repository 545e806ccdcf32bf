package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
)

func groupSentences() []sentence {
	return []sentence{
		{"a record reaches every group that is registered for its topic, once", everyGroupOnce},
		{"the first group by name gets the id of the record, others ids of their own, and all the message id", idsOfGroups},
		{"what one group does to its record is nothing to another group", groupsAreIndependent},
		{"a record of a topic that nobody registered for waits and is handed to nobody", unroutedWaits},
		{"records that waited go to the group that registers first, and to that one only", waitingGoToTheFirst},
		{"a record that waited keeps its id, its due time and its place in the order", waitingKeepsItself},
		{"a group gets what is appended after it registered, not what others got before", laterGroupGetsLater},
		{"a registration for other topics leaves records waiting", otherTopicsWait},
		{"registering is idempotent", registrationIsIdempotent},
		{"registrations of one group add up, and a record that several match comes once", registrationsAddUp},
		{"excluded topics do not reach the group", excludedTopics},
		{"a registration refreshes the time at which the group was last seen", registrationRefreshes},
		{"group names are compared exactly", groupNamesAreExact},
		{"a group without a name is DefaultGroup", emptyGroupName},
		{"a claim of a group that never registered gets nothing", unregisteredGroup},
		{"a group registered by one process is known to another at once", groupKnownElsewhere},
		{"DropGroup removes the group's registration and its records, whatever their status", dropGroup},
		{"DropGroup of a group that is not there removes nothing", dropUnknownGroup},
		{"after DropGroup records wait for the next group", dropThenWait},
		{"a record of a transaction that was open during a registration comes when the group registers again", appendAcrossRegistration},
		{"a record of a transaction that was open during a registration comes before later ones of its key", orderAcrossRegistration},
		{"each registration takes in what waits for its topics", laterRegistrationAdopts},
		{"appends concurrent with a registration lose nothing and duplicate nothing", appendsBesideRegistration},
		{"of two groups that register at once each waiting record goes to one", registrationsCompete},
	}
}

func everyGroupOnce(e *env) {
	e.register("one")
	e.register("two", orders)
	e.append(rec(orders, "m1"), rec("others", "m2"))
	require.Equal(e.t, []string{"m1", "m2"}, names(e.list(groupQuery("one"))))
	require.Equal(e.t, []string{"m1"}, names(e.list(groupQuery("two"))))
	require.ElementsMatch(e.t, []string{"m1", "m2"}, names(e.claimAll(ofGroup("one"))))
	require.ElementsMatch(e.t, []string{"m1"}, names(e.claimAll(ofGroup("two"))))
}

func groupQuery(name string) outmill.ListQuery { return outmill.ListQuery{Group: name} }

func idsOfGroups(e *env) {
	for _, name := range []string{"c", "a", "b"} {
		e.register(name)
	}
	r := rec(orders, "m1")
	e.append(r)
	seen := map[outmill.WorkItemID]bool{}
	for _, name := range []string{"a", "b", "c"} {
		got := e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup(name))
		require.False(e.t, seen[got.ID], "two records of one id")
		seen[got.ID] = true
		require.Equal(e.t, name == "a", got.ID == r.ID, "group %q has the id of the record", name)
	}
}

func groupsAreIndependent(e *env) {
	e.register("one")
	e.register("two")
	e.append(keyed("k", "m1", "m2")...)
	first := e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup("one"), byKey)
	require.Equal(e.t, []string{"m1", "m2"}, names(e.claimAll(ofGroup("two"), byKey)))
	e.park(first)
	require.Empty(e.t, e.claimAll(ofGroup("one")), "parked")
	for _, r := range e.list(groupQuery("two")) {
		require.Equal(e.t, outmill.StatusLeased, r.Status)
	}
}

func unroutedWaits(e *env) {
	e.register(group, "others")
	r := rec(orders, "m1")
	e.append(r)
	require.Empty(e.t, e.claimAll())
	require.Empty(e.t, e.claimAll(ofGroup("")))
	require.Empty(e.t, e.claimAll(ofGroup("strangers")))
	e.requireStatus(outmill.StatusPending, r)
	require.Empty(e.t, e.get(r).Group)
}

func waitingGoToTheFirst(e *env) {
	e.append(rec(orders, "m1"), rec(orders, "m2"))
	e.register("first")
	e.register("second")
	require.ElementsMatch(e.t, []string{"m1", "m2"}, names(e.claimAll(ofGroup("first"))))
	require.Empty(e.t, e.claimAll(ofGroup("second")))
	require.Len(e.t, e.list(outmill.ListQuery{}), 2)
}

func waitingKeepsItself(e *env) {
	waited := []*outmill.Record{
		rec(orders, "m1", withKey("k")),
		rec(orders, "delayed", withDelay(time.Hour)),
		rec(orders, "m2", withKey("k")),
	}
	e.append(waited...)
	e.elapse(30 * time.Minute)
	e.register(group)
	e.append(rec(orders, "m3", withKey("k")))
	require.Equal(e.t, []string{"m1", "delayed", "m2", "m3"}, names(e.list(outmill.ListQuery{})))
	found := e.claimAll(byKey)
	require.Equal(e.t, []string{"m1", "m2", "m3"}, names(found))
	require.Equal(e.t, waited[0].ID, found[0].ID)
	e.ack(found...)
	e.elapse(30 * time.Minute)
	e.claimOne(outmill.NewOwnerToken(), "delayed")
}

func laterGroupGetsLater(e *env) {
	e.register("early")
	e.append(rec(orders, "m1"))
	e.register("late")
	e.append(rec(orders, "m2"))
	require.ElementsMatch(e.t, []string{"m1", "m2"}, names(e.claimAll(ofGroup("early"))))
	require.Equal(e.t, []string{"m2"}, names(e.claimAll(ofGroup("late"))))
}

func otherTopicsWait(e *env) {
	e.append(rec(orders, "m1"), rec("invoices", "m2"))
	e.register("one", "invoices")
	require.Equal(e.t, []string{"m2"}, names(e.claimAll(ofGroup("one"))))
	e.register("two", orders)
	require.Equal(e.t, []string{"m1"}, names(e.claimAll(ofGroup("two"))))
}

func registrationIsIdempotent(e *env) {
	for range 3 {
		e.register(group, orders)
	}
	e.append(rec(orders, "m1"))
	e.register(group, orders)
	require.Equal(e.t, []string{"m1"}, names(e.list(outmill.ListQuery{})))
	groups := e.groups()
	require.Len(e.t, groups, 1)
	require.Len(e.t, groups[0].Registrations, 1, "selections of the group")
}

func (e *env) groups() []outmill.GroupInfo {
	e.t.Helper()
	groups, err := e.store.Groups(e.ctx)
	require.NoError(e.t, err, "Groups")
	return groups
}

func registrationsAddUp(e *env) {
	e.register(group, orders)
	e.register(group, "inv*", "ord*")
	e.append(rec(orders, "m1"), rec("invoices", "m2"), rec("others", "m3"))
	require.ElementsMatch(e.t, []string{"m1", "m2"}, names(e.claimAll()))
	require.Len(e.t, e.groups()[0].Registrations, 2, "selections of the group")
}

func excludedTopics(e *env) {
	require.NoError(e.t, e.store.RegisterGroup(e.ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Exclude: []string{"secret*"}}}))
	e.append(rec(orders, "m1"), rec("secret.orders", "m2"))
	require.Equal(e.t, []string{"m1"}, names(e.claimAll()))
	e.register("others", "secret.orders")
	require.Equal(e.t, []string{"m2"}, names(e.claimAll(ofGroup("others"))), "the excluded record waited")
}

func registrationRefreshes(e *env) {
	e.register(group, orders)
	e.elapse(time.Hour)
	before := e.groups()[0].SeenAt
	e.requireAbout(e.now().Add(-time.Hour), before, "seen at")
	e.register(group, orders)
	e.requireAbout(e.now(), e.groups()[0].SeenAt, "seen at, after the refresh")
}

func groupNamesAreExact(e *env) {
	all := []string{"g", "G", "g1", "g%", "g_", "g*", `g\`, `g'; --`, "g\u0301", "ǵ", "日本", "😀"}
	for _, name := range all {
		e.register(name, outmill.Exact("to "+name))
	}
	for _, name := range all {
		e.append(rec("to "+name, "for "+name))
	}
	for _, name := range all {
		want := []string{"for " + name}
		require.Equal(e.t, want, names(e.list(groupQuery(name))), name)
		require.Equal(e.t, want, names(e.claimAll(ofGroup(name))), name)
	}
}

func emptyGroupName(e *env) {
	e.append(rec("others", "waits"))
	e.register("", orders)
	r := rec(orders, "m1")
	e.append(r)
	require.Equal(e.t, outmill.DefaultGroup, e.get(r).Group)
	infos, err := e.store.Groups(e.ctx)
	require.NoError(e.t, err)
	require.Len(e.t, infos, 1)
	require.Equal(e.t, outmill.DefaultGroup, infos[0].Group)
	e.release(e.claimOne(outmill.NewOwnerToken(), "m1", ofGroup(outmill.DefaultGroup)))
	require.Equal(e.t, []string{"m1"}, names(e.claimAll(ofGroup(""))))
	n, err := e.store.DropGroup(e.ctx, "")
	require.NoError(e.t, err)
	require.Equal(e.t, 1, n)
	require.Equal(e.t, []string{"waits"}, names(e.list(outmill.ListQuery{})))
}

func unregisteredGroup(e *env) {
	e.filled(rec(orders, "m1"))
	require.Empty(e.t, e.claimAll(ofGroup("strangers")))
}

func groupKnownElsewhere(e *env) {
	other := e.reopen()
	// The other process has seen the database before the group is there.
	require.NoError(e.t, other.Append(e.ctx, rec("others", "m0")))
	e.register(group, orders)
	require.NoError(e.t, other.Append(e.ctx, rec(orders, "m1")))
	require.Equal(e.t, []string{"m1"}, names(e.claimAll()))
	_, err := e.store.DropGroup(e.ctx, group)
	require.NoError(e.t, err)
	require.NoError(e.t, other.Append(e.ctx, rec(orders, "m2")))
	e.register("next", orders)
	require.Equal(e.t, []string{"m2"}, names(e.claimAll(ofGroup("next"))))
}

func dropGroup(e *env) {
	e.register("stays")
	e.filled(rec(orders, "acked"), rec(orders, "dead"), rec(orders, "leased"), rec(orders, "pending"))
	found := e.claimNamed(outmill.NewOwnerToken())
	e.ack(found["acked"])
	e.fail(found["dead"])
	e.release(found["pending"])
	want := len(e.list(groupQuery(group)))
	n, err := e.store.DropGroup(e.ctx, group)
	require.NoError(e.t, err)
	require.Equal(e.t, want, n)
	require.Empty(e.t, e.list(groupQuery(group)))
	require.Len(e.t, e.list(groupQuery("stays")), 4)
	require.Len(e.t, e.groups(), 1)
	e.append(rec(orders, "later"))
	require.Empty(e.t, e.claimAll())
}

func dropUnknownGroup(e *env) {
	e.filled(rec(orders, "m1"))
	n, err := e.store.DropGroup(e.ctx, "strangers")
	require.NoError(e.t, err)
	require.Zero(e.t, n)
	require.Len(e.t, e.list(outmill.ListQuery{}), 1)
}

func dropThenWait(e *env) {
	e.register(group)
	_, err := e.store.DropGroup(e.ctx, group)
	require.NoError(e.t, err)
	e.append(rec(orders, "m1"))
	e.register("next")
	require.Equal(e.t, []string{"m1"}, names(e.claimAll(ofGroup("next"))))
}

// appendAcrossRegistration: a store may make the registration wait for the
// transaction, or find the record in the next one.
func appendAcrossRegistration(e *env) {
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.store.Append(ctx, rec(orders, "m1")))
	registered := make(chan error, 1)
	go func() {
		registered <- e.store.RegisterGroup(e.ctx, outmill.Registration{Group: group})
	}()
	select {
	case err := <-registered:
		require.NoError(e.t, err)
		registered <- nil
	case <-time.After(200 * time.Millisecond):
	}
	commit()
	require.NoError(e.t, <-registered)
	e.register(group)
	require.Equal(e.t, []string{"m1"}, names(e.claimAll()))
}

func orderAcrossRegistration(e *env) {
	ctx, commit, _ := e.begin()
	require.NoError(e.t, e.store.Append(ctx, rec(orders, "m1", withKey("k"))))
	registered := make(chan error, 1)
	go func() {
		registered <- e.store.RegisterGroup(e.ctx, outmill.Registration{Group: group})
	}()
	select {
	case err := <-registered:
		require.NoError(e.t, err)
		registered <- nil
	case <-time.After(200 * time.Millisecond):
	}
	commit()
	require.NoError(e.t, <-registered)
	e.append(rec(orders, "m2", withKey("k")))
	found := names(e.claimAll(byKey))
	e.register(group)
	require.Equal(e.t, []string{"m1", "m2"}, append(found, names(e.claimAll(byKey))...))
}

func laterRegistrationAdopts(e *env) {
	e.append(rec("a", "m1"), rec("b", "m2"), rec("c", "m3"))
	e.register(group, "a")
	require.Equal(e.t, []string{"m1"}, names(e.claimAll()))
	e.register(group, "b")
	require.Equal(e.t, []string{"m2"}, names(e.claimAll()))
	e.register(group)
	require.Equal(e.t, []string{"m3"}, names(e.claimAll()))
}

func appendsBesideRegistration(e *env) {
	const writers, each = 4, 6
	var work errgroup.Group
	var appended atomic.Int64
	for w := range writers {
		work.Go(func() error {
			for i := range each {
				if err := e.store.Append(e.ctx, rec(orders, fmt.Sprintf("m%d.%d", w, i))); err != nil {
					return err
				}
				appended.Add(1)
			}
			return nil
		})
	}
	other := e.reopen()
	work.Go(func() error {
		for appended.Load() < writers*each/3 && e.ctx.Err() == nil {
			if _, err := other.Groups(e.ctx); err != nil {
				return err
			}
		}
		return other.RegisterGroup(e.ctx, outmill.Registration{Group: group})
	})
	require.NoError(e.t, work.Wait())
	e.register(group)
	seen := map[string]int{}
	for _, name := range names(e.claimAll()) {
		seen[name]++
	}
	require.Len(e.t, seen, writers*each, "records that reached the group")
	for name, n := range seen {
		require.Equal(e.t, 1, n, name)
	}
}

func registrationsCompete(e *env) {
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprintf("m%d", i))
	}
	e.append(recs(orders, plain, want...)...)
	stores := map[string]outmill.Store{"one": e.store, "two": e.reopen()}
	var work errgroup.Group
	for name, store := range stores {
		work.Go(func() error { return store.RegisterGroup(e.ctx, outmill.Registration{Group: name}) })
	}
	require.NoError(e.t, work.Wait())
	got := append(names(e.claimAll(ofGroup("one"))), names(e.claimAll(ofGroup("two")))...)
	require.ElementsMatch(e.t, want, got)
}
