package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func inspectSentences() []sentence {
	return []sentence{
		{"Stats counts the records of each group and topic by status", statsCount},
		{"Stats counts the records that wait for a group apart", statsUnrouted},
		{"Stats counts no further than its limit", statsLimit},
		{"OldestDue is when the record that has been due longest became due", statsOldestDue},
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

// stats returns the rows that count anything, by group and topic.
func (e *env) stats(limit int) map[string]outmill.TopicStats {
	e.t.Helper()
	rows, err := e.store.Stats(e.ctx, limit)
	require.NoError(e.t, err, "Stats")
	all := map[string]outmill.TopicStats{}
	for _, row := range rows {
		name := "waiting: " + row.Topic
		if row.Group != "" {
			name = row.Group + ": " + row.Topic
		}
		require.NotContains(e.t, all, name, "two rows")
		if row.Pending+row.Leased+row.Processed+row.Dead > 0 {
			all[name] = row
		}
	}
	return all
}

func statsCount(e *env) {
	e.filled(recs(orders, plain, "acked", "dead", "leased", "pending")...)
	e.append(rec(orders, "delayed", withDelay(time.Hour)), rec("others", "other"))
	found := e.claimNamed(outmill.NewOwnerToken())
	e.ack(found["acked"])
	e.fail(found["dead"])
	e.release(found["pending"], found["other"])
	got := e.stats(0)
	require.Len(e.t, got, 2)
	row := got[group+": "+orders]
	processed := 0
	if e.options.Retain > 0 {
		processed = 1
	}
	require.Equal(e.t, []int{2, 1, processed, 1}, []int{row.Pending, row.Leased, row.Processed, row.Dead}, "pending, leased, processed, dead")
	require.Equal(e.t, group, row.Group)
	require.Equal(e.t, 1, got[group+": others"].Pending)
}

func statsUnrouted(e *env) {
	e.register("", "others")
	e.append(rec(orders, "m1"), rec(orders, "m2"), rec("others", "m3"))
	got := e.stats(0)
	require.Len(e.t, got, 2)
	require.Equal(e.t, 2, got["waiting: "+orders].Pending)
	require.Empty(e.t, got["waiting: "+orders].Group)
	require.Equal(e.t, 1, got[outmill.DefaultGroup+": others"].Pending)
}

func statsLimit(e *env) {
	e.filled(recs(orders, plain, numbered(30)...)...)
	e.append(recs("others", plain, "a", "b")...)
	e.fail(e.claimN(outmill.NewOwnerToken(), 12, from(orders))...)
	require.Equal(e.t, 10, e.stats(10)[group+": "+orders].Pending)
	require.Equal(e.t, 10, e.stats(10)[group+": "+orders].Dead)
	require.Equal(e.t, 2, e.stats(10)[group+": others"].Pending)
	require.Equal(e.t, 1, e.stats(1)[group+": others"].Pending)
	require.Equal(e.t, 18, e.stats(0)[group+": "+orders].Pending)
}

func statsOldestDue(e *env) {
	e.filled(rec(orders, "young", withDelay(40*time.Minute)), rec(orders, "old", withDelay(20*time.Minute)))
	require.True(e.t, e.stats(0)[group+": "+orders].OldestDue.IsZero(), "nothing is due")
	e.elapse(time.Hour)
	for _, limit := range []int{0, 1} {
		e.requireAbout(e.now().Add(-40*time.Minute), e.stats(limit)[group+": "+orders].OldestDue, "oldest due")
	}
	e.claimN(outmill.NewOwnerToken(), 2)
	require.True(e.t, e.stats(0)[group+": "+orders].OldestDue.IsZero(), "nothing is due, all is leased")
}

func groupsAreListed(e *env) {
	require.Empty(e.t, e.groups())
	selections := []outmill.Topics{
		{Include: []string{"a", `b\*`}, Exclude: []string{"c*", "日本", "it's"}},
		{},
	}
	for _, topics := range selections {
		require.NoError(e.t, e.store.RegisterGroup(e.ctx, outmill.Registration{Group: group, Topics: topics}))
	}
	e.register("", orders)
	all := map[string]outmill.GroupInfo{}
	for _, info := range e.groups() {
		all[info.Group] = info
		e.requireAbout(e.now(), info.SeenAt, "seen at")
	}
	require.Len(e.t, all, 2)
	require.Len(e.t, all[group].Registrations, 2)
	for _, want := range selections {
		require.True(e.t, containsTopics(all[group].Registrations, want), "%+v in %+v", want, all[group].Registrations)
	}
}

// containsTopics takes nil and empty lists for alike, and lists of the same
// entries in any order.
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
	e.register(group)
	for _, first := range []byte{0x80, 0x10, 0xff, 0x20, 0x7f} {
		e.append(rec(orders, fmt.Sprintf("%02x", first), func(r *outmill.Record) { r.ID = outmill.WorkItemID{first, 15: 1} }))
	}
	e.abandon(time.Hour, e.claimN(outmill.NewOwnerToken(), 2)...)
	e.requireNames([]string{"10", "20", "7f", "80", "ff"}, e.list(outmill.ListQuery{}))
	page, err := e.store.List(e.ctx, outmill.ListQuery{After: outmill.WorkItemID{0x21}, Limit: 2})
	require.NoError(e.t, err)
	e.requireNames([]string{"7f", "80"}, page)
}

func listAboutAppends(e *env) {
	want := numbered(30)
	e.register(group)
	for i := 0; i < len(want); i += 3 {
		e.append(recs(orders, plain, want[i:i+3]...)...)
	}
	e.requireNames(want, e.list(outmill.ListQuery{}))
}

func listPages(e *env) {
	want := numbered(25)
	e.filled(recs(orders, plain, want...)...)
	var got []string
	query := outmill.ListQuery{Limit: 10}
	for _, n := range []int{10, 10, 5, 0} {
		page, err := e.store.List(e.ctx, query)
		require.NoError(e.t, err)
		require.Len(e.t, page, n)
		got = append(got, names(page)...)
		if n > 0 {
			query.After = page[n-1].ID
		}
	}
	require.Equal(e.t, want, got)
}

func listPagesWhileChanging(e *env) {
	e.filled(recs(orders, plain, numbered(6)...)...)
	page, err := e.store.List(e.ctx, outmill.ListQuery{Limit: 3})
	require.NoError(e.t, err)
	e.requireNames([]string{"m0000", "m0001", "m0002"}, page)
	e.delete(page...)
	e.append(rec(orders, "new"))
	page, err = e.store.List(e.ctx, outmill.ListQuery{Limit: 10, After: page[2].ID})
	require.NoError(e.t, err)
	e.requireNames([]string{"m0003", "m0004", "m0005", "new"}, page)
}

func listFilters(e *env) {
	e.register("one")
	e.register("two", "a")
	e.append(rec("a", "m1"), rec("b", "m2"), rec("a", "m3"))
	found := e.claimNamed(outmill.NewOwnerToken(), ofGroup("one"))
	e.fail(found["m3"])
	e.release(found["m2"])
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
		require.Equal(e.t, c.want, names(e.list(c.query)), "%+v", c.query)
	}
	require.ElementsMatch(e.t, []string{"m1", "m2", "m3"}, names(e.list(outmill.ListQuery{Status: outmill.StatusPending})))
}

func listRouted(e *env) {
	e.register(group, orders)
	e.append(rec(orders, "m1"), rec("others", "waits"))
	e.requireNames([]string{"m1"}, e.list(groupQuery(group)))
	e.requireNames([]string{"m1", "waits"}, e.list(outmill.ListQuery{}))
}

func listDefaultLimit(e *env) {
	e.filled(recs(orders, plain, numbered(120)...)...)
	page, err := e.store.List(e.ctx, outmill.ListQuery{})
	require.NoError(e.t, err)
	require.Equal(e.t, numbered(120)[:100], names(page))
}

func listHostile(e *env) {
	e.filled(hostileRecords()...)
	for _, topic := range hostileTopics() {
		e.requireNames([]string{topic}, e.list(outmill.ListQuery{Topic: topic}))
	}
	for _, name := range []string{"' OR '1'='1", "%", "_______", "readers'; --", "*"} {
		require.Empty(e.t, e.list(groupQuery(name)), "group %q", name)
	}
}

func getWhole(e *env) {
	e.filled(rec(orders, "m1", withKey("k"), func(r *outmill.Record) { r.Metadata = map[string]string{"a": "b"} }))
	claimed := e.claimOne(outmill.NewOwnerToken(), "m1")
	got := e.get(claimed)
	require.WithinDuration(e.t, claimed.LeaseUntil, got.LeaseUntil, 2*time.Millisecond)
	require.WithinDuration(e.t, claimed.DueAt, got.DueAt, 2*time.Millisecond)
	require.WithinDuration(e.t, claimed.CreatedAt, got.CreatedAt, 2*time.Millisecond)
	got.LeaseUntil, got.DueAt, got.CreatedAt = claimed.LeaseUntil, claimed.DueAt, claimed.CreatedAt
	require.Equal(e.t, claimed, got)
}

func getUnknown(e *env) {
	e.filled(rec(orders, "m1"))
	for _, id := range []outmill.WorkItemID{{}, outmill.NewWorkItemID()} {
		_, err := e.store.Get(e.ctx, id)
		require.ErrorIs(e.t, err, outmill.ErrNotFound)
	}
}

func requeueRevives(e *env) {
	e.filled(rec(orders, "m1", withTTL(2*time.Hour)), rec(orders, "expired", withTTL(time.Minute)))
	owner := outmill.NewOwnerToken()
	found := e.claimNamed(owner)
	e.release(found["expired"])
	e.abandon(time.Hour, found["m1"])
	e.elapse(61 * time.Minute)
	r := e.claimOne(owner, "m1")
	require.Equal(e.t, 1, r.Attempts)
	e.fail(r)
	e.did(e.store.ExpireDue, 10)
	e.requireStatus(outmill.StatusDead, r, found["expired"])
	require.Equal(e.t, 2, e.requeue(r, found["expired"]))
	e.requireAbout(e.now(), e.get(r).NextAttemptAt, "next attempt at")
	e.elapse(2 * time.Hour)
	back := e.claimNamed(owner)
	require.Len(e.t, back, 2)
	for _, r := range back {
		require.Zero(e.t, r.Attempts)
		require.Zero(e.t, r.Expiries)
		require.True(e.t, r.ExpiresAt.IsZero(), "expires at %s", r.ExpiresAt)
	}
	require.Equal(e.t, "poison", back["m1"].LastError, "the last error is kept")
}

func requeuePassesOver(e *env) {
	e.filled(recs(orders, plain, "acked", "leased", "retried", "dead")...)
	found := e.claimNamed(outmill.NewOwnerToken())
	e.ack(found["acked"])
	e.abandon(time.Hour, found["retried"])
	e.fail(found["dead"])
	e.unchanged(found["leased"], func() {
		e.unchanged(found["retried"], func() {
			unknown := &outmill.Record{ID: outmill.NewWorkItemID()}
			require.Equal(e.t, 1, e.requeue(unknown, found["acked"], found["leased"], found["retried"], found["dead"], found["dead"]))
		})
	})
	e.requireProcessed(found["acked"])
	e.requireStatus(outmill.StatusPending, found["dead"])
}

func deleteRemoves(e *env) {
	e.filled(recs(orders, plain, "acked", "leased", "retried", "dead", "stays")...)
	found := e.claimNamed(outmill.NewOwnerToken())
	e.ack(found["acked"])
	e.abandon(time.Hour, found["retried"])
	e.fail(found["dead"])
	want := 3
	if e.options.Retain > 0 {
		want = 4
	}
	unknown := &outmill.Record{ID: outmill.NewWorkItemID()}
	require.Equal(e.t, want, e.delete(unknown, found["acked"], found["leased"], found["retried"], found["dead"], found["dead"]))
	e.requireNames([]string{"stays"}, e.list(outmill.ListQuery{}))
	e.ack(found["leased"])
	require.Zero(e.t, e.delete(found["dead"]))
}

func inspectThousands(e *env) {
	n := large(2500)
	e.filled(recs(orders, plain, numbered(n)...)...)
	found := e.claimN(outmill.NewOwnerToken(), n)
	e.fail(found...)
	require.Equal(e.t, n, e.requeue(found...))
	require.Equal(e.t, n, e.delete(found...))
	require.Empty(e.t, e.list(outmill.ListQuery{}))
}

func inspectNothing(e *env) {
	e.filled(rec(orders, "m1"))
	e.fail(e.claimOne(outmill.NewOwnerToken(), "m1"))
	require.Zero(e.t, e.requeue())
	require.Zero(e.t, e.delete())
	require.Len(e.t, e.list(outmill.ListQuery{Status: outmill.StatusDead}), 1)
}

func refuseInspectLimits(e *env) {
	_, err := e.store.Stats(e.ctx, -1)
	e.requireRefusal(err, "Stats")
	_, err = e.store.List(e.ctx, outmill.ListQuery{Limit: -1})
	e.requireRefusal(err, "List")
}

func refuseListStatus(e *env) {
	_, err := e.store.List(e.ctx, outmill.ListQuery{Status: "done"})
	e.requireRefusal(err)
}
