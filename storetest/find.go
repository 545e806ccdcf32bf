package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func findSentences() []sentence {
	return []sentence{
		{"List and Find return the records that match every field of the query", findByFields},
		{"List and Find filter by when the records were created", findByAge},
		{"Find takes texts as they are", findHostile},
		{"Find by an error text finds it anywhere in the last error", findByErrorText},
		{"a page of Find looks at 10,000 records at most, and the next one goes on behind it", findIsBounded},
		{"pages of Find have each record once, and count those that were looked at", findPages},
		{"a page of Find goes on although the records of the page before are gone", findWhileChanging},
		{"a page of Find after the last one has what was appended since", findAfterDone},
		{"Find returns no more than the query's limit", findLimit},
		{"RequeueWhere requeues the dead records that match and counts them", requeueWhere},
		{"RequeueWhere brings along what was parked with a key", requeueWhereParked},
		{"RequeueWhere requeues no more than its limit and goes on behind it", requeueWhereLimit},
		{"RequeueWhere of a status that is not dead is refused", requeueWhereStatus},
		{"DeleteWhere deletes the records that match and counts them", deleteWhere},
		{"DeleteWhere deletes no more than its limit and goes on behind it", deleteWhereLimit},
		{"DeleteWhere of every record is refused and deletes nothing", deleteWhereAll},
		{"queries that no record can match are refused", refuseFind},
		{"calls by a query on a closed store, or in a context that has ended, do nothing", findEnded},
	}
}

// maxPages limits loops over the pages of a broken store.
const maxPages = 100

// pages calls until the work is done, and returns the pages. Each call continues behind the
// page before.
func (e *env) pages(call func(context.Context, outmill.ListQuery) (roles.Page, error), query outmill.ListQuery) (pages []roles.Page) {
	e.T.Helper()
	for range maxPages {
		page, err := call(e.Ctx, query)
		require.NoError(e.T, err)
		pages = append(pages, page)
		if page.Done {
			return pages
		}
		require.Positive(e.T, slices.Compare(page.Next[:], query.After[:]), "the page does not go on")
		query.After = page.Next
	}
	require.Fail(e.T, "the pages do not end")
	return nil
}

func recordsOf(pages []roles.Page) (all []*outmill.Record) {
	for _, p := range pages {
		all = append(all, p.Records...)
	}
	return all
}

func changedBy(pages []roles.Page) (n int) {
	for _, p := range pages {
		n += p.Changed
	}
	return n
}

// mixed has records of two topics, three of which fail with an error each; dead-a and
// dead-b of them go dead.
func (e *env) mixed() {
	e.Register("one")
	e.Register("two", "b")
	with := func(key, correlation, tenant string) func(*outmill.Record) {
		return func(r *outmill.Record) { r.Key, r.CorrelationID, r.TenantID = key, correlation, tenant }
	}
	e.Append(
		suite.Rec("a", "dead-a", with("k1", "c1", "t1")), suite.Rec("a", "leased", with("k2", "c1", "t2")),
		suite.Rec("a", "pending", with("k3", "c2", "")),
		suite.Rec("b", "dead-b", with("k1", "c2", "t1")), suite.Rec("b", "retried", with("", "c1", "t1")),
	)
	found := e.ClaimNamed(outmill.NewOwnerToken(), suite.OfGroup("one"))
	e.Release(found["pending"])
	require.NoError(e.T, e.Store.Fail(e.Ctx, []outmill.Settlement{
		{Lease: found["dead-a"].Lease(), Err: "no route to host"}, {Lease: found["dead-b"].Lease(), Err: "bad payload"},
	}))
	require.NoError(e.T, e.Store.Abandon(e.Ctx, []outmill.Settlement{{Lease: found["retried"].Lease(), Err: "no answer", Delay: time.Hour}}))
}

func findByFields(e *env) {
	operator := e.repairs()
	e.mixed()
	for _, c := range []struct {
		want  []string
		query outmill.ListQuery
	}{
		{[]string{"dead-a", "dead-b", "leased", "pending", "retried"}, outmill.ListQuery{Group: "one"}},
		{[]string{"dead-a", "dead-b", "dead-b", "leased", "pending", "retried", "retried"}, outmill.ListQuery{}},
		{[]string{"dead-a", "dead-b", "dead-b"}, outmill.ListQuery{Key: "k1"}},
		{[]string{"dead-a"}, outmill.ListQuery{Key: "k1", Topic: "a"}},
		{[]string{"dead-b", "dead-b"}, outmill.ListQuery{MessageID: "dead-b"}},
		{[]string{"dead-b"}, outmill.ListQuery{MessageID: "dead-b", Group: "two"}},
		{[]string{"dead-a", "leased", "retried", "retried"}, outmill.ListQuery{CorrelationID: "c1"}},
		{[]string{"leased"}, outmill.ListQuery{TenantID: "t2"}},
		{[]string{"dead-a", "retried"}, outmill.ListQuery{ErrorText: "no "}},
		{[]string{"dead-a"}, outmill.ListQuery{ErrorText: "no ", Status: outmill.StatusDead}},
		{[]string{"retried"}, outmill.ListQuery{ErrorText: "no ", Status: outmill.StatusPending}},
		{[]string{"dead-a", "dead-b"}, outmill.ListQuery{Status: outmill.StatusDead}},
		{[]string{"dead-b"}, outmill.ListQuery{Status: outmill.StatusDead, CorrelationID: "c2"}},
		{[]string{"leased"}, outmill.ListQuery{Status: outmill.StatusLeased, CorrelationID: "c1"}},
		{[]string{}, outmill.ListQuery{Status: outmill.StatusLeased, CorrelationID: "c2"}},
		{[]string{"dead-b", "retried"}, outmill.ListQuery{Status: outmill.StatusPending, Group: "two", TenantID: "t1"}},
		{[]string{}, outmill.ListQuery{Status: outmill.StatusProcessed, TenantID: "t1"}},
		{[]string{}, outmill.ListQuery{MessageID: "dead"}},
		{[]string{}, outmill.ListQuery{Key: "K1"}},
		{[]string{}, outmill.ListQuery{Key: "k1 "}},
		{[]string{}, outmill.ListQuery{MessageID: "dead-b "}},
		{[]string{}, outmill.ListQuery{CorrelationID: "c1 "}},
	} {
		listed := suite.Names(e.List(c.query))
		found := suite.Names(recordsOf(e.pages(operator.Find, c.query)))
		require.Equal(e.T, listed, found, "%+v", c.query)
		slices.Sort(found)
		require.Equal(e.T, c.want, found, "%+v", c.query)
	}
}

func findByAge(e *env) {
	e.repairs()
	e.Filled(suite.Rec(orders, "old"))
	e.Elapse(time.Hour)
	young := suite.Rec(orders, "young")
	e.Append(young)
	at := e.Get(young).CreatedAt
	for _, c := range []struct {
		want  []string
		query outmill.ListQuery
	}{
		{[]string{"young"}, outmill.ListQuery{CreatedAfter: at}},
		{[]string{}, outmill.ListQuery{CreatedAfter: at.Add(time.Nanosecond)}},
		{[]string{"old"}, outmill.ListQuery{CreatedBefore: at}},
		{[]string{"old", "young"}, outmill.ListQuery{CreatedBefore: at.Add(time.Nanosecond)}},
		{[]string{"old", "young"}, outmill.ListQuery{CreatedAfter: at.Add(-2 * time.Hour), CreatedBefore: at.Add(time.Hour)}},
		{[]string{}, outmill.ListQuery{CreatedAfter: at, CreatedBefore: at}},
		{[]string{"young"}, outmill.ListQuery{CreatedAfter: at, Status: outmill.StatusPending}},
	} {
		require.Equal(e.T, c.want, suite.Names(e.List(c.query)), "%+v", c.query)
	}
}

// texts has texts with which a broken store finds too much: a store that reads them as a
// pattern, an expression or a part of a statement, or that ignores case or accents.
func texts() []string {
	return append(hostileTopics(), "CaSe", "case", "$key", "$$NOW", "{}", "a.*", ".*", "%a%", "line\nbreak")
}

func findHostile(e *env) {
	operator := e.repairs()
	e.Register(group)
	var records []*outmill.Record
	for i, text := range texts() {
		if slices.Contains(texts()[:i], text) {
			continue
		}
		records = append(records, suite.Rec(orders, text, func(r *outmill.Record) { r.Key, r.CorrelationID, r.TenantID = text, text, text }))
	}
	e.Append(records...)
	for _, r := range records {
		for _, query := range []outmill.ListQuery{
			{MessageID: r.MessageID}, {Key: r.Key}, {CorrelationID: r.CorrelationID}, {TenantID: r.TenantID},
		} {
			require.Equal(e.T, []string{r.MessageID}, suite.Names(recordsOf(e.pages(operator.Find, query))), "%+v", query)
		}
	}
}

func findByErrorText(e *env) {
	operator := e.repairs()
	errors := []string{
		"dial tcp: timeout (after 5s)", "Timeout", "100% full", "1000 full", "it's a \"quote\"", "a_b", "axb",
		`back\slash`, "日本 😀 end", ".*", "$where",
	}
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(len(errors))...)...)
	for i, r := range e.ClaimN(outmill.NewOwnerToken(), len(errors)) {
		require.NoError(e.T, e.Store.Fail(e.Ctx, []outmill.Settlement{{Lease: r.Lease(), Err: errors[i]}}))
	}
	for want, text := range map[int]string{
		0: "timeout", 1: "Timeout", 2: "0% f", 4: `'s a "q`, 5: "_", 6: "xb", 7: `\`, 8: "本 😀", 9: ".*", 10: "$where",
	} {
		for _, status := range []outmill.Status{"", outmill.StatusDead} {
			found := recordsOf(e.pages(operator.Find, outmill.ListQuery{ErrorText: text, Status: status}))
			require.Len(e.T, found, 1, text)
			require.Equal(e.T, errors[want], found[0].LastError)
		}
	}
	require.Empty(e.T, recordsOf(e.pages(operator.Find, outmill.ListQuery{ErrorText: "nowhere"})))
}

// findIsBounded appends the only matching record behind more than one page of other records.
func findIsBounded(e *env) {
	e.Long("pages among 10,000 records")
	operator := e.repairs()
	const most = roles.MaxExamined
	e.Register(group)
	for some := range slices.Chunk(suite.Numbered(most+1), 1000) {
		e.Append(suite.Recs(orders, suite.Plain, some...)...)
	}
	last := suite.Rec("last", "last", func(r *outmill.Record) { r.CorrelationID = "c" })
	last.ID = outmill.WorkItemID{0xff, 15: 1}
	e.Append(last)
	for _, query := range []outmill.ListQuery{
		{MessageID: "last"}, {CorrelationID: "c"}, {Topic: "last"}, {MessageID: "last", Status: outmill.StatusPending},
	} {
		first, err := operator.Find(e.Ctx, query)
		require.NoError(e.T, err)
		require.Empty(e.T, first.Records, "%+v", query)
		require.False(e.T, first.Done, "%+v", query)
		require.LessOrEqual(e.T, first.Examined, most, "%+v", query)
		require.Greater(e.T, first.Examined, most/2, "%+v", query)
		pages := e.pages(operator.Find, query)
		require.Equal(e.T, []string{"last"}, suite.Names(recordsOf(pages)), "%+v", query)
		require.LessOrEqual(e.T, len(pages), 3, "%+v", query)
		e.RequireNames([]string{"last"}, e.List(query))
	}
}

func findPages(e *env) {
	operator := e.repairs()
	e.Register(group)
	const topics, each = 3, 8
	const all = topics * each
	for i := range topics {
		e.Append(suite.Recs(fmt.Sprint(orders, i), suite.Plain, suite.Numbered(each)...)...)
	}
	check := func(status outmill.Status, n int) {
		e.T.Helper()
		query := outmill.ListQuery{Status: status, Limit: 3}
		pages := e.pages(operator.Find, query)
		examined, seen := 0, map[outmill.WorkItemID]bool{}
		for _, p := range pages {
			examined += p.Examined
			for _, r := range p.Records {
				require.False(e.T, seen[r.ID], "twice")
				seen[r.ID] = true
			}
		}
		require.Len(e.T, seen, n, status)
		require.GreaterOrEqual(e.T, examined, n, "examined of %q", status)
		require.LessOrEqual(e.T, examined, all, "examined of %q", status)
		found := recordsOf(pages)
		inOrder := slices.IsSortedFunc(found, func(a, b *outmill.Record) int { return slices.Compare(a.ID[:], b.ID[:]) })
		require.True(e.T, inOrder, "in the order of their ids")
	}
	check("", all)
	check(outmill.StatusPending, all)
	claimed := e.ClaimN(outmill.NewOwnerToken(), all)
	check(outmill.StatusLeased, all)
	e.Fail(claimed...)
	check(outmill.StatusDead, all)
	check(outmill.StatusLeased, 0)
}

func findWhileChanging(e *env) {
	operator := e.repairs()
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(6)...)...)
	page, err := operator.Find(e.Ctx, outmill.ListQuery{Limit: 3})
	require.NoError(e.T, err)
	e.RequireNames([]string{"m0000", "m0001", "m0002"}, page.Records)
	e.Delete(page.Records...)
	e.RequireNames([]string{"m0003", "m0004", "m0005"}, recordsOf(e.pages(operator.Find, outmill.ListQuery{After: page.Next})))
}

func findAfterDone(e *env) {
	operator := e.repairs()
	e.Filled(suite.Rec(orders, "m1"))
	pages := e.pages(operator.Find, outmill.ListQuery{})
	e.Append(suite.Rec(orders, "m2"))
	page, err := operator.Find(e.Ctx, outmill.ListQuery{After: pages[len(pages)-1].Next})
	require.NoError(e.T, err)
	e.RequireNames([]string{"m2"}, page.Records)
}

func findLimit(e *env) {
	operator := e.repairs()
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(120)...)...)
	for limit, want := range map[int]int{0: 100, 7: 7, 1000: 120} {
		page, err := operator.Find(e.Ctx, outmill.ListQuery{Limit: limit})
		require.NoError(e.T, err)
		require.Equal(e.T, suite.Numbered(120)[:want], suite.Names(page.Records))
	}
}

func requeueWhere(e *env) {
	operator := e.repairs()
	e.mixed()
	require.Equal(e.T, 1, changedBy(e.pages(operator.RequeueWhere, outmill.ListQuery{ErrorText: "no "})))
	e.RequireNames([]string{"dead-b"}, e.List(outmill.ListQuery{Status: outmill.StatusDead}))
	e.RequireNames([]string{"dead-a"}, e.List(outmill.ListQuery{Status: outmill.StatusPending, Key: "k1", Topic: "a"}))
	require.Zero(e.T, changedBy(e.pages(operator.RequeueWhere, outmill.ListQuery{ErrorText: "no "})), "again")
	require.Equal(e.T, 1, changedBy(e.pages(operator.RequeueWhere, outmill.ListQuery{})), "all that are left")
	require.Empty(e.T, e.List(outmill.ListQuery{Status: outmill.StatusDead}))
	require.Len(e.T, e.List(outmill.ListQuery{}), 7)
}

func requeueWhereParked(e *env) {
	operator := e.repairs()
	e.Filled(suite.Recs(orders, suite.WithKey("k"), "m1", "m2", "m3")...)
	e.ParkAndMeet(e.ClaimOne(outmill.NewOwnerToken(), "m1", suite.ParkOrder))
	require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusDead}), 3)
	require.Equal(e.T, 3, changedBy(e.pages(operator.RequeueWhere, outmill.ListQuery{MessageID: "m1"})))
	e.RequireNames([]string{"m1", "m2", "m3"}, e.List(outmill.ListQuery{Status: outmill.StatusPending}))
}

func requeueWhereLimit(e *env) {
	operator := e.repairs()
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(7)...)...)
	e.Fail(e.ClaimN(outmill.NewOwnerToken(), 7)...)
	page, err := operator.RequeueWhere(e.Ctx, outmill.ListQuery{Topic: orders, Limit: 3})
	require.NoError(e.T, err)
	require.Equal(e.T, 3, page.Changed)
	require.False(e.T, page.Done)
	require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusDead}), 4)
	require.Equal(e.T, 4, changedBy(e.pages(operator.RequeueWhere, outmill.ListQuery{Topic: orders, Limit: 3, After: page.Next})))
	require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusPending}), 7)
}

func requeueWhereStatus(e *env) {
	operator := e.repairs()
	e.Filled(suite.Rec(orders, "m1"))
	for _, status := range []outmill.Status{outmill.StatusPending, outmill.StatusLeased, outmill.StatusProcessed, "done"} {
		_, err := operator.RequeueWhere(e.Ctx, outmill.ListQuery{Status: status})
		e.RequireRefusal(err, status)
	}
}

func deleteWhere(e *env) {
	operator := e.repairs()
	e.mixed()
	require.Equal(e.T, 1, changedBy(e.pages(operator.DeleteWhere, outmill.ListQuery{Status: outmill.StatusDead, CorrelationID: "c2"})))
	require.Equal(e.T, 6, len(e.List(outmill.ListQuery{})))
	e.RequireNames([]string{"dead-a"}, e.List(outmill.ListQuery{Status: outmill.StatusDead}))
	require.Equal(e.T, 1, changedBy(e.pages(operator.DeleteWhere, outmill.ListQuery{Status: outmill.StatusLeased})), "what a worker handles")
	require.Equal(e.T, 2, changedBy(e.pages(operator.DeleteWhere, outmill.ListQuery{MessageID: "retried"})), "in both groups")
	require.Equal(e.T, []string{"dead-a", "dead-b", "pending"}, slices.Sorted(slices.Values(suite.Names(e.List(outmill.ListQuery{})))))
}

func deleteWhereLimit(e *env) {
	operator := e.repairs()
	e.Filled(suite.Recs(orders, suite.Plain, suite.Numbered(7)...)...)
	page, err := operator.DeleteWhere(e.Ctx, outmill.ListQuery{Topic: orders, Limit: 3})
	require.NoError(e.T, err)
	require.Equal(e.T, 3, page.Changed)
	require.False(e.T, page.Done)
	require.Equal(e.T, suite.Numbered(7)[3:], suite.Names(e.List(outmill.ListQuery{})))
	require.Equal(e.T, 4, changedBy(e.pages(operator.DeleteWhere, outmill.ListQuery{Topic: orders, Limit: 3, After: page.Next})))
	require.Empty(e.T, e.List(outmill.ListQuery{}))
}

func deleteWhereAll(e *env) {
	operator := e.repairs()
	e.Filled(suite.Rec(orders, "m1"))
	for _, query := range []outmill.ListQuery{{}, {Limit: 10}, {After: outmill.WorkItemID{1}}} {
		_, err := operator.DeleteWhere(e.Ctx, query)
		e.RequireRefusal(err)
	}
	e.RequireNames([]string{"m1"}, e.List(outmill.ListQuery{}))
}

func refuseFind(e *env) {
	operator := e.repairs()
	for _, query := range []outmill.ListQuery{
		{Limit: -1, Topic: orders}, {Status: "done"}, {Key: "a\x00b"}, {MessageID: "\xff"}, {ErrorText: "a\x00"},
		{CorrelationID: "\xff"}, {TenantID: "\x00"},
	} {
		for name, call := range map[string]func(context.Context, outmill.ListQuery) (roles.Page, error){
			"Find": operator.Find, "RequeueWhere": operator.RequeueWhere, "DeleteWhere": operator.DeleteWhere,
		} {
			_, err := call(e.Ctx, query)
			e.RequireRefusal(err, name, query)
		}
		_, err := e.Store.List(e.Ctx, query)
		e.RequireRefusal(err, "List", query)
	}
}

func findEnded(e *env) {
	operator := e.repairs()
	e.Filled(suite.Rec(orders, "m1"))
	e.Fail(e.ClaimOne(outmill.NewOwnerToken(), "m1"))
	cancelled, cancel := context.WithCancel(e.Ctx)
	cancel()
	other := e.Reopen()
	closed, ok := outmill.As[roles.Repairs](other)
	require.True(e.T, ok)
	require.NoError(e.T, other.Close())
	query := outmill.ListQuery{Topic: orders}
	for name, call := range map[string]func(roles.Repairs, context.Context) error{
		"Find":         func(o roles.Repairs, ctx context.Context) error { _, err := o.Find(ctx, query); return err },
		"RequeueWhere": func(o roles.Repairs, ctx context.Context) error { _, err := o.RequeueWhere(ctx, query); return err },
		"DeleteWhere":  func(o roles.Repairs, ctx context.Context) error { _, err := o.DeleteWhere(ctx, query); return err },
	} {
		require.ErrorIs(e.T, call(operator, cancelled), context.Canceled, name)
		require.ErrorIs(e.T, call(closed, e.Ctx), outmill.ErrClosed, name)
	}
	e.RequireNames([]string{"m1"}, e.List(outmill.ListQuery{Status: outmill.StatusDead}))
}
