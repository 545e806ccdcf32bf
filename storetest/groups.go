package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

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
		{"DropGroup removes the group's registration and its records that another group has, whatever their status", dropGroup},
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
	e.Register("one")
	e.Register("two", orders)
	e.Append(suite.Rec(orders, "m1"), suite.Rec("others", "m2"))
	require.Equal(e.T, []string{"m1", "m2"}, suite.Names(e.List(groupQuery("one"))))
	require.Equal(e.T, []string{"m1"}, suite.Names(e.List(groupQuery("two"))))
	require.ElementsMatch(e.T, []string{"m1", "m2"}, suite.Names(e.ClaimAll(suite.OfGroup("one"))))
	require.ElementsMatch(e.T, []string{"m1"}, suite.Names(e.ClaimAll(suite.OfGroup("two"))))
}

func groupQuery(name string) outmill.ListQuery { return outmill.ListQuery{Group: name} }

func idsOfGroups(e *env) {
	for _, name := range []string{"c", "a", "b"} {
		e.Register(name)
	}
	r := suite.Rec(orders, "m1")
	e.Append(r)
	seen := map[outmill.WorkItemID]bool{}
	for _, name := range []string{"a", "b", "c"} {
		got := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup(name))
		require.False(e.T, seen[got.ID], "two records of one id")
		seen[got.ID] = true
		require.Equal(e.T, name == "a", got.ID == r.ID, "group %q has the id of the record", name)
	}
}

func groupsAreIndependent(e *env) {
	e.Register("one")
	e.Register("two")
	e.Append(suite.Keyed("k", "m1", "m2")...)
	first := e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup("one"), suite.ByKey)
	require.Equal(e.T, []string{"m1", "m2"}, suite.Names(e.ClaimAll(suite.OfGroup("two"), suite.ByKey)))
	e.ParkAndMeet(first)
	require.Empty(e.T, e.ClaimAll(suite.OfGroup("one")), "parked")
	for _, r := range e.List(groupQuery("two")) {
		require.Equal(e.T, outmill.StatusLeased, r.Status)
	}
}

func unroutedWaits(e *env) {
	e.Register(group, "others")
	r := suite.Rec(orders, "m1")
	e.Append(r)
	require.Empty(e.T, e.ClaimAll())
	require.Empty(e.T, e.ClaimAll(suite.OfGroup("")))
	require.Empty(e.T, e.ClaimAll(suite.OfGroup("strangers")))
	e.RequireStatus(outmill.StatusPending, r)
	require.Empty(e.T, e.Get(r).Group)
}

func waitingGoToTheFirst(e *env) {
	e.Append(suite.Rec(orders, "m1"), suite.Rec(orders, "m2"))
	e.Register("first")
	e.Register("second")
	require.ElementsMatch(e.T, []string{"m1", "m2"}, suite.Names(e.ClaimAll(suite.OfGroup("first"))))
	require.Empty(e.T, e.ClaimAll(suite.OfGroup("second")))
	require.Len(e.T, e.List(outmill.ListQuery{}), 2)
}

func waitingKeepsItself(e *env) {
	waited := []*outmill.Record{
		suite.Rec(orders, "m1", suite.WithKey("k")),
		suite.Rec(orders, "delayed", suite.WithDelay(time.Hour)),
		suite.Rec(orders, "m2", suite.WithKey("k")),
	}
	e.Append(waited...)
	e.Elapse(30 * time.Minute)
	e.Register(group)
	e.Append(suite.Rec(orders, "m3", suite.WithKey("k")))
	require.Equal(e.T, []string{"m1", "delayed", "m2", "m3"}, suite.Names(e.List(outmill.ListQuery{})))
	found := e.ClaimAll(suite.ByKey)
	require.Equal(e.T, []string{"m1", "m2", "m3"}, suite.Names(found))
	require.Equal(e.T, waited[0].ID, found[0].ID)
	e.Ack(found...)
	e.Elapse(30 * time.Minute)
	e.ClaimOne(outmill.NewOwnerToken(), "delayed")
}

func laterGroupGetsLater(e *env) {
	e.Register("early")
	e.Append(suite.Rec(orders, "m1"))
	e.Register("late")
	e.Append(suite.Rec(orders, "m2"))
	require.ElementsMatch(e.T, []string{"m1", "m2"}, suite.Names(e.ClaimAll(suite.OfGroup("early"))))
	require.Equal(e.T, []string{"m2"}, suite.Names(e.ClaimAll(suite.OfGroup("late"))))
}

func otherTopicsWait(e *env) {
	e.Append(suite.Rec(orders, "m1"), suite.Rec("invoices", "m2"))
	e.Register("one", "invoices")
	require.Equal(e.T, []string{"m2"}, suite.Names(e.ClaimAll(suite.OfGroup("one"))))
	e.Register("two", orders)
	require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll(suite.OfGroup("two"))))
}

func registrationIsIdempotent(e *env) {
	for range 3 {
		e.Register(group, orders)
	}
	e.Append(suite.Rec(orders, "m1"))
	e.Register(group, orders)
	require.Equal(e.T, []string{"m1"}, suite.Names(e.List(outmill.ListQuery{})))
	groups := e.groups()
	require.Len(e.T, groups, 1)
	require.Len(e.T, groups[0].Registrations, 1, "selections of the group")
}

func (e *env) groups() []outmill.GroupInfo {
	e.T.Helper()
	groups, err := e.Store.Groups(e.Ctx)
	require.NoError(e.T, err, "Groups")
	return groups
}

func registrationsAddUp(e *env) {
	e.Register(group, orders)
	e.Register(group, "inv*", "ord*")
	e.Append(suite.Rec(orders, "m1"), suite.Rec("invoices", "m2"), suite.Rec("others", "m3"))
	require.ElementsMatch(e.T, []string{"m1", "m2"}, suite.Names(e.ClaimAll()))
	require.Len(e.T, e.groups()[0].Registrations, 2, "selections of the group")
}

func excludedTopics(e *env) {
	require.NoError(e.T, e.Store.RegisterGroup(e.Ctx,
		outmill.Registration{Group: group, Topics: outmill.Topics{Exclude: []string{"secret*"}}}))
	e.Append(suite.Rec(orders, "m1"), suite.Rec("secret.orders", "m2"))
	require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll()))
	e.Register("others", "secret.orders")
	require.Equal(e.T, []string{"m2"}, suite.Names(e.ClaimAll(suite.OfGroup("others"))), "the excluded record waited")
}

func registrationRefreshes(e *env) {
	e.Register(group, orders)
	e.Elapse(time.Hour)
	before := e.groups()[0].SeenAt
	e.RequireAbout(e.Now().Add(-time.Hour), before, "seen at")
	e.Register(group, orders)
	e.RequireAbout(e.Now(), e.groups()[0].SeenAt, "seen at, after the refresh")
}

func groupNamesAreExact(e *env) {
	all := []string{"g", "G", "g1", "g%", "g_", "g*", `g\`, `g'; --`, "g\u0301", "ǵ", "日本", "😀"}
	for _, name := range all {
		e.Register(name, outmill.Exact("to "+name))
	}
	for _, name := range all {
		e.Append(suite.Rec("to "+name, "for "+name))
	}
	for _, name := range all {
		want := []string{"for " + name}
		require.Equal(e.T, want, suite.Names(e.List(groupQuery(name))), name)
		require.Equal(e.T, want, suite.Names(e.ClaimAll(suite.OfGroup(name))), name)
	}
}

func emptyGroupName(e *env) {
	e.Append(suite.Rec("others", "waits"))
	e.Register("", orders)
	r := suite.Rec(orders, "m1")
	e.Append(r)
	require.Equal(e.T, outmill.DefaultGroup, e.Get(r).Group)
	infos, err := e.Store.Groups(e.Ctx)
	require.NoError(e.T, err)
	require.Len(e.T, infos, 1)
	require.Equal(e.T, outmill.DefaultGroup, infos[0].Group)
	e.Release(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.OfGroup(outmill.DefaultGroup)))
	require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll(suite.OfGroup(""))))
	e.requireDrop("", 1, 0)
	require.Equal(e.T, []string{"waits", "m1"}, suite.Names(e.List(outmill.ListQuery{})))
}

func unregisteredGroup(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	require.Empty(e.T, e.ClaimAll(suite.OfGroup("strangers")))
}

func groupKnownElsewhere(e *env) {
	other := e.Reopen()
	// The other process uses the database before the group registers.
	require.NoError(e.T, other.Append(e.Ctx, suite.Rec("others", "m0")))
	e.Register(group, orders)
	require.NoError(e.T, other.Append(e.Ctx, suite.Rec(orders, "m1")))
	e.Ack(e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	e.Drop(group)
	require.NoError(e.T, other.Append(e.Ctx, suite.Rec(orders, "m2")))
	e.Register("next", orders)
	require.Equal(e.T, []string{"m2"}, suite.Names(e.ClaimAll(suite.OfGroup("next"))))
}

func dropGroup(e *env) {
	e.Register("stays")
	e.Filled(suite.Rec(orders, "acked"), suite.Rec(orders, "dead"), suite.Rec(orders, "leased"), suite.Rec(orders, "pending"))
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Ack(found["acked"])
	e.Fail(found["dead"])
	e.Release(found["pending"])
	want := len(e.List(groupQuery(group)))
	e.requireDrop(group, 0, want)
	require.Empty(e.T, e.List(groupQuery(group)))
	require.Len(e.T, e.List(groupQuery("stays")), 4)
	require.Len(e.T, e.groups(), 1)
	e.Append(suite.Rec(orders, "later"))
	require.Empty(e.T, e.ClaimAll())
}

func dropUnknownGroup(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	e.requireDrop("strangers", 0, 0)
	require.Len(e.T, e.List(outmill.ListQuery{}), 1)
}

func dropThenWait(e *env) {
	e.Register(group)
	_, err := e.Store.DropGroup(e.Ctx, group)
	require.NoError(e.T, err)
	e.Append(suite.Rec(orders, "m1"))
	e.Register("next")
	require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll(suite.OfGroup("next"))))
}

// appendAcrossRegistration allows two ways: the registration waits for the transaction, or the
// next registration finds the record.
func appendAcrossRegistration(e *env) {
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m1")))
	registered := make(chan error, 1)
	go func() {
		registered <- e.Store.RegisterGroup(e.Ctx, outmill.Registration{Group: group})
	}()
	select {
	case err := <-registered:
		require.NoError(e.T, err)
		registered <- nil
	case <-time.After(200 * time.Millisecond):
	}
	commit()
	require.NoError(e.T, <-registered)
	e.Register(group)
	require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll()))
}

func orderAcrossRegistration(e *env) {
	ctx, commit, _ := e.Begin()
	require.NoError(e.T, e.Store.Append(ctx, suite.Rec(orders, "m1", suite.WithKey("k"))))
	registered := make(chan error, 1)
	go func() {
		registered <- e.Store.RegisterGroup(e.Ctx, outmill.Registration{Group: group})
	}()
	select {
	case err := <-registered:
		require.NoError(e.T, err)
		registered <- nil
	case <-time.After(200 * time.Millisecond):
	}
	commit()
	require.NoError(e.T, <-registered)
	e.Append(suite.Rec(orders, "m2", suite.WithKey("k")))
	found := suite.Names(e.ClaimAll(suite.ByKey))
	e.Register(group)
	require.Equal(e.T, []string{"m1", "m2"}, append(found, suite.Names(e.ClaimAll(suite.ByKey))...))
}

func laterRegistrationAdopts(e *env) {
	e.Append(suite.Rec("a", "m1"), suite.Rec("b", "m2"), suite.Rec("c", "m3"))
	e.Register(group, "a")
	require.Equal(e.T, []string{"m1"}, suite.Names(e.ClaimAll()))
	e.Register(group, "b")
	require.Equal(e.T, []string{"m2"}, suite.Names(e.ClaimAll()))
	e.Register(group)
	require.Equal(e.T, []string{"m3"}, suite.Names(e.ClaimAll()))
}

func appendsBesideRegistration(e *env) {
	const writers, each = 4, 6
	var work errgroup.Group
	var appended atomic.Int64
	for w := range writers {
		work.Go(func() error {
			for i := range each {
				if err := e.Store.Append(e.Ctx, suite.Rec(orders, fmt.Sprintf("m%d.%d", w, i))); err != nil {
					return err
				}
				appended.Add(1)
			}
			return nil
		})
	}
	other := e.Reopen()
	work.Go(func() error {
		for appended.Load() < writers*each/3 && e.Ctx.Err() == nil {
			if _, err := other.Groups(e.Ctx); err != nil {
				return err
			}
		}
		return other.RegisterGroup(e.Ctx, outmill.Registration{Group: group})
	})
	require.NoError(e.T, work.Wait())
	e.Register(group)
	seen := map[string]int{}
	for _, name := range suite.Names(e.ClaimAll()) {
		seen[name]++
	}
	require.Len(e.T, seen, writers*each, "records that reached the group")
	for name, n := range seen {
		require.Equal(e.T, 1, n, name)
	}
}

func registrationsCompete(e *env) {
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprintf("m%d", i))
	}
	e.Append(suite.Recs(orders, suite.Plain, want...)...)
	stores := map[string]outmill.Store{"one": e.Store, "two": e.Reopen()}
	var work errgroup.Group
	for name, store := range stores {
		work.Go(func() error { return store.RegisterGroup(e.Ctx, outmill.Registration{Group: name}) })
	}
	require.NoError(e.T, work.Wait())
	got := append(suite.Names(e.ClaimAll(suite.OfGroup("one"))), suite.Names(e.ClaimAll(suite.OfGroup("two")))...)
	require.ElementsMatch(e.T, want, got)
}
