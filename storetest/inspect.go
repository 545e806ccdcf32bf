package storetest

import (
	"fmt"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func inspectSentences() []sentence {
	return []sentence{
		{"Stats counts the records of each group and topic by status", statsCount},
		{"Stats counts the records that wait for a group apart", statsUnrouted},
		{"Stats counts the pending records that are not due yet, no further than its limit", statsDelayed},
		{"Stats is sorted by group and topic, with records that wait for a group first", statsOrder},
		{"Stats counts no further than its limit", statsLimit},
		{"OldestDue is when the record that has been due longest became due", statsOldestDue},
		{"Stats counts a record whose lease has ended as due, and not as leased", statsEndedLease},
		{"Groups lists the groups with the selections that were registered", groupsAreListed},
		{"List returns records in the order of their ids", listOrder},
		{"List returns records whose ids the store made about in the order of the appends", listAboutAppends},
		{"List pages by the last record of the page before", listPages},
		{"a page of List continues behind a record whatever became of the others", listPagesWhileChanging},
		{"List filters by group, topic and status", listFilters},
		{"List of a group leaves out records that wait for a group", listRouted},
		{"List without a limit returns 100 records", listDefaultLimit},
		{"List of hostile filters finds nothing but what has that name", listHostile},
		{"Get returns the whole record", getWhole},
		{"Get of an unknown id is ErrNotFound", getUnknown},
		{"Requeue makes dead records pending and due at once, with no attempts and no expiry", requeueRevives},
		{"Requeue passes over records that are not dead and ids that do not exist", requeuePassesOver},
		{"Delete removes records, whatever their status, and counts them", deleteRemoves},
		{"Delete and Requeue take thousands of ids in one call", inspectThousands},
		{"Delete and Requeue of nothing do nothing", inspectNothing},
		{"the view for people agrees with Stats and List", readableAgrees},
		{"the view for people shows records that wait for a group", readableUnrouted},
		{"a negative limit of Stats or List is refused", refuseInspectLimits},
		{"an unknown status in a list query is refused", refuseListStatus},
	}
}

// stats returns the rows with a count above 0, by group and topic.
func (e *env) stats(limit int) map[string]outmill.TopicStats {
	e.T.Helper()
	rows, err := e.Store.Stats(e.Ctx, limit)
	require.NoError(e.T, err, "Stats")
	all := map[string]outmill.TopicStats{}
	for _, row := range rows {
		name := "waiting: " + row.Topic
		if row.Group != "" {
			name = row.Group + ": " + row.Topic
		}
		require.NotContains(e.T, all, name, "two rows")
		if row.Pending+row.Leased+row.Processed+row.Dead > 0 {
			all[name] = row
		}
	}
	return all
}

func statsCount(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "acked", "dead", "leased", "pending")...)
	e.Append(suite.Rec(orders, "delayed", suite.WithDelay(time.Hour)), suite.Rec("others", "other"))
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Ack(found["acked"])
	e.Fail(found["dead"])
	e.Release(found["pending"], found["other"])
	got := e.stats(0)
	require.Len(e.T, got, 2)
	row := got[group+": "+orders]
	processed := 0
	if e.Options.Retain > 0 {
		processed = 1
	}
	require.Equal(e.T, []int{2, 1, processed, 1}, []int{row.Pending, row.Leased, row.Processed, row.Dead}, "pending, leased, processed, dead")
	require.Equal(e.T, group, row.Group)
	require.Equal(e.T, 1, got[group+": others"].Pending)
}

func statsDelayed(e *env) {
	e.Append(suite.Rec("unread", "late", suite.WithDelay(time.Hour)), suite.Rec("unread", "now"))
	unread := e.stats(0)["waiting: unread"]
	require.Equal(e.T, []int{2, 1}, []int{unread.Pending, unread.Delayed}, "pending, delayed of those that wait for a group")
	e.Register(group, orders)
	e.Append(suite.Recs(orders, suite.Plain, "due", "abandoned", "snoozed", "acked")...)
	e.Append(suite.Rec(orders, "delayed", suite.WithDelay(time.Hour)), suite.Rec(orders, "soon", suite.WithDelay(time.Minute)))
	found := e.ClaimNamed(outmill.NewOwnerToken())
	require.NoError(e.T, e.Store.Abandon(e.Ctx, []outmill.Settlement{{Lease: found["abandoned"].Lease(), Delay: 2 * time.Hour}}))
	require.NoError(e.T, e.Store.Snooze(e.Ctx, []outmill.Settlement{{Lease: found["snoozed"].Lease(), Delay: 2 * time.Hour}}))
	e.Ack(found["acked"])
	e.Release(found["due"])
	counts := func(limit int) []int {
		row := e.stats(limit)[group+": "+orders]
		return []int{row.Pending, row.Delayed}
	}
	require.Equal(e.T, []int{5, 4}, counts(0), "pending, delayed")
	require.Equal(e.T, []int{3, 3}, counts(3), "pending, delayed up to 3")
	e.Elapse(10 * time.Minute)
	require.Equal(e.T, []int{5, 3}, counts(0), "one more is due")
	e.Elapse(3 * time.Hour)
	require.Equal(e.T, []int{5, 0}, counts(0), "all are due")
}

// statsEndedLease is also checked by the random walks.
func statsEndedLease(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(6)...)...)
	e.ClaimN(outmill.NewOwnerToken(), 4)
	e.Elapse(leaseOf + time.Minute)
	held := e.ClaimN(outmill.NewOwnerToken(), 1)
	row := e.stats(0)[group+": "+orders]
	require.Equal(e.T, []int{5, 0, 1}, []int{row.Pending, row.Delayed, row.Leased}, "pending, delayed, leased: 3 leases have ended")
	row = e.stats(2)[group+": "+orders]
	require.Equal(e.T, []int{2, 0, 1}, []int{row.Pending, row.Delayed, row.Leased}, "pending, delayed, leased up to 2")
	e.Ack(append(held, e.ClaimN(outmill.NewOwnerToken(), 2)...)...)
	e.ClaimN(outmill.NewOwnerToken(), 3)
	e.Elapse(leaseOf + 20*time.Minute)
	e.RequireAbout(e.Now().Add(-20*time.Minute), e.stats(0)[group+": "+orders].OldestDue, "oldest due is the end of a lease")
	require.Positive(e.T, e.Reap(10))
	require.Zero(e.T, e.stats(0)[group+": "+orders].Leased)
}

func statsOrder(e *env) {
	e.Register("b", "x*")
	e.Register("a", "x*")
	for _, topic := range []string{"x2", "waits", "x1"} {
		e.Append(suite.Rec(topic, topic))
	}
	found, err := e.Store.Stats(e.Ctx, 0)
	require.NoError(e.T, err)
	var got []string
	for _, s := range found {
		got = append(got, s.Group+": "+s.Topic)
	}
	require.Equal(e.T, []string{": waits", "a: x1", "a: x2", "b: x1", "b: x2"}, got)
}

func statsUnrouted(e *env) {
	e.Register("", "others")
	e.Append(suite.Rec(orders, "m1"), suite.Rec(orders, "m2"), suite.Rec("others", "m3"))
	got := e.stats(0)
	require.Len(e.T, got, 2)
	require.Equal(e.T, 2, got["waiting: "+orders].Pending)
	require.Empty(e.T, got["waiting: "+orders].Group)
	require.Equal(e.T, 1, got[outmill.DefaultGroup+": others"].Pending)
}

func statsLimit(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(30)...)...)
	e.Append(suite.Recs("others", suite.Plain, "a", "b")...)
	e.Fail(e.ClaimN(outmill.NewOwnerToken(), 12, suite.From(orders))...)
	require.Equal(e.T, 10, e.stats(10)[group+": "+orders].Pending)
	require.Equal(e.T, 10, e.stats(10)[group+": "+orders].Dead)
	require.Equal(e.T, 2, e.stats(10)[group+": others"].Pending)
	require.Equal(e.T, 1, e.stats(1)[group+": others"].Pending)
	require.Equal(e.T, 18, e.stats(0)[group+": "+orders].Pending)
}

func statsOldestDue(e *env) {
	e.Filled(suite.Rec(orders, "young", suite.WithDelay(40*time.Minute)), suite.Rec(orders, "old", suite.WithDelay(20*time.Minute)))
	require.True(e.T, e.stats(0)[group+": "+orders].OldestDue.IsZero(), "nothing is due")
	e.Elapse(time.Hour)
	for _, limit := range []int{0, 1} {
		e.RequireAbout(e.Now().Add(-40*time.Minute), e.stats(limit)[group+": "+orders].OldestDue, "oldest due")
	}
	e.ClaimN(outmill.NewOwnerToken(), 2)
	require.True(e.T, e.stats(0)[group+": "+orders].OldestDue.IsZero(), "nothing is due, all is leased")
}

func groupsAreListed(e *env) {
	require.Empty(e.T, e.groups())
	selections := []outmill.Topics{
		{Include: []string{"a", `b\*`}, Exclude: []string{"c*", "日本", "it's"}},
		{},
	}
	for _, topics := range selections {
		require.NoError(e.T, e.Store.RegisterGroup(e.Ctx, outmill.Registration{Group: group, Topics: topics}))
	}
	e.Register("", orders)
	all := map[string]outmill.GroupInfo{}
	for _, info := range e.groups() {
		all[info.Group] = info
		e.RequireAbout(e.Now(), info.SeenAt, "seen at")
	}
	require.Len(e.T, all, 2)
	require.Len(e.T, all[group].Registrations, 2)
	for _, want := range selections {
		require.True(e.T, containsTopics(all[group].Registrations, want), "%+v in %+v", want, all[group].Registrations)
	}
}

// containsTopics compares topics. Nil and empty lists are equal, and the order of the entries
// does not matter.
func containsTopics(list []outmill.RegistrationInfo, want outmill.Topics) bool {
	for _, r := range list {
		if sameEntries(r.Topics.Include, want.Include) && sameEntries(r.Topics.Exclude, want.Exclude) {
			return true
		}
	}
	return false
}

func sameEntries(a, b []string) bool {
	count := map[string]int{}
	for _, s := range a {
		count[s]++
	}
	for _, s := range b {
		count[s]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

func listOrder(e *env) {
	e.Register(group)
	for _, first := range []byte{0x80, 0x10, 0xff, 0x20, 0x7f} {
		e.Append(suite.Rec(orders, fmt.Sprintf("%02x", first), func(r *outmill.Record) { r.ID = outmill.WorkItemID{first, 15: 1} }))
	}
	e.Abandon(time.Hour, e.ClaimN(outmill.NewOwnerToken(), 2)...)
	e.RequireNames([]string{"10", "20", "7f", "80", "ff"}, e.List(outmill.ListQuery{}))
	page, err := e.Store.List(e.Ctx, outmill.ListQuery{After: outmill.WorkItemID{0x21}, Limit: 2})
	require.NoError(e.T, err)
	e.RequireNames([]string{"7f", "80"}, page)
}

func listAboutAppends(e *env) {
	want := suite.Numbered(30)
	e.Register(group)
	for i := 0; i < len(want); i += 3 {
		e.Append(suite.Recs(orders, suite.Plain, want[i:i+3]...)...)
	}
	e.RequireNames(want, e.List(outmill.ListQuery{}))
}

func listPages(e *env) {
	want := suite.Numbered(25)
	e.Filled(suite.Recs(orders, suite.Plain, want...)...)
	var got []string
	query := outmill.ListQuery{Limit: 10}
	for _, n := range []int{10, 10, 5, 0} {
		page, err := e.Store.List(e.Ctx, query)
		require.NoError(e.T, err)
		require.Len(e.T, page, n)
		got = append(got, suite.Names(page)...)
		if n > 0 {
			query.After = page[n-1].ID
		}
	}
	require.Equal(e.T, want, got)
}

func listPagesWhileChanging(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(6)...)...)
	page, err := e.Store.List(e.Ctx, outmill.ListQuery{Limit: 3})
	require.NoError(e.T, err)
	e.RequireNames([]string{"m0000", "m0001", "m0002"}, page)
	e.Delete(page...)
	e.Append(suite.Rec(orders, "new"))
	page, err = e.Store.List(e.Ctx, outmill.ListQuery{Limit: 10, After: page[2].ID})
	require.NoError(e.T, err)
	e.RequireNames([]string{"m0003", "m0004", "m0005", "new"}, page)
}

func listFilters(e *env) {
	e.Register("one")
	e.Register("two", "a")
	e.Append(suite.Rec("a", "m1"), suite.Rec("b", "m2"), suite.Rec("a", "m3"))
	found := e.ClaimNamed(outmill.NewOwnerToken(), suite.OfGroup("one"))
	e.Fail(found["m3"])
	e.Release(found["m2"])
	one := "one"
	for _, c := range []struct {
		want  []string
		query outmill.ListQuery
	}{
		{[]string{"m1", "m2", "m3"}, outmill.ListQuery{Group: one}},
		{[]string{"m1", "m3"}, outmill.ListQuery{Group: one, Topic: "a"}},
		{[]string{"m3"}, outmill.ListQuery{Group: one, Topic: "a", Status: outmill.StatusDead}},
		{[]string{"m1"}, outmill.ListQuery{Status: outmill.StatusLeased}},
		{[]string{"m2"}, outmill.ListQuery{Topic: "b"}},
		{[]string{}, outmill.ListQuery{Topic: "b", Status: outmill.StatusDead}},
		{[]string{}, outmill.ListQuery{Topic: "A"}},
		{[]string{}, outmill.ListQuery{Status: outmill.StatusProcessed}},
	} {
		require.Equal(e.T, c.want, suite.Names(e.List(c.query)), "%+v", c.query)
	}
	require.ElementsMatch(e.T, []string{"m1", "m2", "m3"}, suite.Names(e.List(outmill.ListQuery{Status: outmill.StatusPending})))
}

func listRouted(e *env) {
	e.Register(group, orders)
	e.Append(suite.Rec(orders, "m1"), suite.Rec("others", "waits"))
	e.RequireNames([]string{"m1"}, e.List(groupQuery(group)))
	e.RequireNames([]string{"m1", "waits"}, e.List(outmill.ListQuery{}))
}

func listDefaultLimit(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(120)...)...)
	page, err := e.Store.List(e.Ctx, outmill.ListQuery{})
	require.NoError(e.T, err)
	require.Equal(e.T, suite.Numbered(120)[:100], suite.Names(page))
}

func listHostile(e *env) {
	e.Filled(hostileRecords()...)
	for _, topic := range hostileTopics() {
		e.RequireNames([]string{topic}, e.List(outmill.ListQuery{Topic: topic}))
	}
	for _, name := range []string{"' OR '1'='1", "%", "_______", "readers'; --", "*"} {
		require.Empty(e.T, e.List(groupQuery(name)), "group %q", name)
	}
}

func getWhole(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithKey("k"), func(r *outmill.Record) { r.Metadata = map[string]string{"a": "b"} }))
	claimed := e.ClaimOne(outmill.NewOwnerToken(), "m1")
	got := e.Get(claimed)
	require.WithinDuration(e.T, claimed.LeaseUntil, got.LeaseUntil, 2*time.Millisecond)
	require.WithinDuration(e.T, claimed.DueAt, got.DueAt, 2*time.Millisecond)
	require.WithinDuration(e.T, claimed.CreatedAt, got.CreatedAt, 2*time.Millisecond)
	got.LeaseUntil, got.DueAt, got.CreatedAt = claimed.LeaseUntil, claimed.DueAt, claimed.CreatedAt
	require.Equal(e.T, claimed, got)
}

func getUnknown(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	for _, id := range []outmill.WorkItemID{{}, outmill.NewWorkItemID()} {
		_, err := e.Store.Get(e.Ctx, id)
		require.ErrorIs(e.T, err, outmill.ErrNotFound)
	}
}

func requeueRevives(e *env) {
	e.Filled(suite.Rec(orders, "m1", suite.WithTTL(2*time.Hour)), suite.Rec(orders, "expired", suite.WithTTL(time.Minute)))
	owner := outmill.NewOwnerToken()
	found := e.ClaimNamed(owner)
	e.Release(found["expired"])
	e.Abandon(time.Hour, found["m1"])
	e.Elapse(61 * time.Minute)
	r := e.ClaimOne(owner, "m1")
	require.Equal(e.T, 1, r.Attempts)
	e.Fail(r)
	e.Did(e.Store.ExpireDue, 10)
	e.RequireStatus(outmill.StatusDead, r, found["expired"])
	require.Equal(e.T, 2, e.Requeue(r, found["expired"]))
	e.RequireAbout(e.Now(), e.Get(r).NextAttemptAt, "next attempt at")
	e.Elapse(2 * time.Hour)
	back := e.ClaimNamed(owner)
	require.Len(e.T, back, 2)
	for _, r := range back {
		require.Zero(e.T, r.Attempts)
		require.Zero(e.T, r.Expiries)
		require.True(e.T, r.ExpiresAt.IsZero(), "expires at %s", r.ExpiresAt)
	}
	require.Equal(e.T, "poison", back["m1"].LastError, "the last error is kept")
}

func requeuePassesOver(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "acked", "leased", "retried", "dead")...)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Ack(found["acked"])
	e.Abandon(time.Hour, found["retried"])
	e.Fail(found["dead"])
	e.Unchanged(found["leased"], func() {
		e.Unchanged(found["retried"], func() {
			unknown := &outmill.Record{ID: outmill.NewWorkItemID()}
			require.Equal(e.T, 1, e.Requeue(unknown, found["acked"], found["leased"], found["retried"], found["dead"], found["dead"]))
		})
	})
	e.RequireProcessed(found["acked"])
	e.RequireStatus(outmill.StatusPending, found["dead"])
}

func deleteRemoves(e *env) {
	e.Filled(suite.Recs(orders, suite.Plain, "acked", "leased", "retried", "dead", "stays")...)
	found := e.ClaimNamed(outmill.NewOwnerToken())
	e.Ack(found["acked"])
	e.Abandon(time.Hour, found["retried"])
	e.Fail(found["dead"])
	want := 3
	if e.Options.Retain > 0 {
		want = 4
	}
	unknown := &outmill.Record{ID: outmill.NewWorkItemID()}
	require.Equal(e.T, want, e.Delete(unknown, found["acked"], found["leased"], found["retried"], found["dead"], found["dead"]))
	e.RequireNames([]string{"stays"}, e.List(outmill.ListQuery{}))
	e.Ack(found["leased"])
	require.Zero(e.T, e.Delete(found["dead"]))
}

func inspectThousands(e *env) {
	n := suite.Large(2500)
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(n)...)...)
	found := e.ClaimN(outmill.NewOwnerToken(), n)
	e.Fail(found...)
	require.Equal(e.T, n, e.Requeue(found...))
	require.Equal(e.T, n, e.Delete(found...))
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func inspectNothing(e *env) {
	e.Filled(suite.Rec(orders, "m1"))
	e.Fail(e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	require.Zero(e.T, e.Requeue())
	require.Zero(e.T, e.Delete())
	require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusDead}), 1)
}

func refuseInspectLimits(e *env) {
	_, err := e.Store.Stats(e.Ctx, -1)
	e.RequireRefusal(err, "Stats")
	_, err = e.Store.List(e.Ctx, outmill.ListQuery{Limit: -1})
	e.RequireRefusal(err, "List")
}

func refuseListStatus(e *env) {
	_, err := e.Store.List(e.Ctx, outmill.ListQuery{Status: "done"})
	e.RequireRefusal(err)
}
