package tenants

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Find returns a page of the records of all members, or of the one that [WithTenant] names, in
// the order of their ids; Record.Store names the member. Ids are unique across members, so
// Page.Next, which is an id, is a place in all of them, and a query goes on from it as in one
// store. See roles.Repairs.
//
// One call asks each member once, Config.Parallel at a time, and each looks at
// roles.MaxExamined records at most. Page.Next is the least id up to which all members have
// looked. The next call looks again at what a member has behind that.
//
// Where members fail, the error is a *storekit.PartialError with a *[MemberError] or a
// *[RoleError] for each. The page is then that of the other members: a call that repeats the
// query asks all, and one that goes on from Page.Next leaves out what the failed ones have before
// it.
func (s *Set) Find(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	const call = "find"
	query, err := storekit.CheckList(query)
	if err != nil {
		return roles.Page{}, failed(call, err)
	}
	members, err := s.operated(ctx, call)
	if err != nil {
		return roles.Page{Next: query.After}, err
	}
	found := merged{query: query}
	errs := gather(ctx, s, call, members, repairsOf, func(ctx context.Context, _ *member, repairs roles.Repairs) (roles.Page, error) {
		return repairs.Find(ctx, query)
	}, func(m *member, page roles.Page, err error) {
		if err == nil {
			m.own(page.Records...)
			found.add(page)
		}
	})
	return found.page(), partly(ctx, call, len(members), errs)
}

// RequeueWhere requeues dead records of all members, or of the one that [WithTenant] names, which
// share the limit. See roles.Repairs, and [Set.Find] for errors.
//
// Page.Next is the least id up to which all members are done. Where the limit ended the call before
// it had asked all, Page.Next is query.After: call again.
func (s *Set) RequeueWhere(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	query, err := storekit.CheckRequeueWhere(query)
	if err != nil {
		return roles.Page{}, failed("requeue by filter", err)
	}
	return s.change(ctx, "requeue by filter", query, roles.Repairs.RequeueWhere)
}

// DeleteWhere deletes records of all members, or of the one that [WithTenant] names, which share
// the limit. See roles.Repairs, [Set.RequeueWhere] for the page and [Set.Find] for errors.
func (s *Set) DeleteWhere(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	query, err := storekit.CheckDeleteWhere(query)
	if err != nil {
		return roles.Page{}, failed("delete by filter", err)
	}
	return s.change(ctx, "delete by filter", query, roles.Repairs.DeleteWhere)
}

// operated are the members that a call of an operator is for.
func (s *Set) operated(ctx context.Context, call string) ([]*member, error) {
	if err := s.life.Usable(ctx); err != nil {
		return nil, failed(call, err)
	}
	return s.meant(ctx)
}

// partly is the error of a call that some members have failed.
func partly(ctx context.Context, call string, asked int, errs map[string]error) error {
	if err := ctx.Err(); err != nil && len(errs) > 0 {
		return failed(call, err)
	}
	return partial(asked, errs)
}

// partial is partly for a call that also has a result once its context has ended.
func partial(asked int, errs map[string]error) error {
	return (&storekit.PartialError{Failed: errs, Asked: asked}).OrNil()
}

// merged is the page of Find, made of those of members.
type merged struct {
	query   outmill.ListQuery
	records []*outmill.Record
	pages   []roles.Page
}

// add takes a page in. It keeps no more than the limit, so that no more than two pages with
// records are in memory.
func (f *merged) add(page roles.Page) {
	f.records = append(f.records, page.Records...)
	slices.SortFunc(f.records, func(a, b *outmill.Record) int { return compare(a.ID, b.ID) })
	f.records = slices.Clip(f.records[:min(len(f.records), f.query.Limit)])
	for i := range page.Records {
		page.Records[i] = &outmill.Record{ID: page.Records[i].ID}
	}
	f.pages = append(f.pages, page)
}

// page is the result, up to the least id up to which all members have looked.
func (f *merged) page() roles.Page {
	next, done := commonEnd(f.query.After, f.pages)
	if len(f.records) == f.query.Limit {
		last := f.records[len(f.records)-1].ID
		if done || compare(last, next) < 0 {
			next = last
		}
	}
	result := roles.Page{Next: next, Done: done}
	for _, r := range f.records {
		if compare(r.ID, next) <= 0 {
			result.Records = append(result.Records, r)
		}
	}
	for _, p := range f.pages {
		if compare(p.Next, next) <= 0 {
			result.Examined += p.Examined
			continue
		}
		result.Done = false
		for _, r := range p.Records {
			if compare(r.ID, next) <= 0 {
				result.Examined++
			}
		}
	}
	return result
}

// commonEnd is the least id up to which all pages go: where all are done, the greatest.
func commonEnd(after outmill.WorkItemID, pages []roles.Page) (next outmill.WorkItemID, done bool) {
	next, done = after, true
	for _, p := range pages {
		switch {
		case p.Done && done && compare(p.Next, next) > 0:
			next = p.Next
		case !p.Done && (done || compare(p.Next, next) < 0):
			next, done = p.Next, false
		}
	}
	return next, done
}

func compare(a, b outmill.WorkItemID) int { return bytes.Compare(a[:], b[:]) }

// change changes up to query.Limit records. A member that changed all of its share and is not
// done is asked again.
func (s *Set) change(ctx context.Context, call string, query outmill.ListQuery,
	do func(roles.Repairs, context.Context, outmill.ListQuery) (roles.Page, error),
) (roles.Page, error) {
	members, err := s.operated(ctx, call)
	if err != nil {
		return roles.Page{Next: query.After}, err
	}
	ctx = storekit.OneCommand(ctx)
	// last has the last page of each member, at first that it has not begun.
	last := make(map[*member]*roles.Page, len(members))
	for _, m := range members {
		last[m] = &roles.Page{Next: query.After}
	}
	var total roles.Page
	var examined atomic.Int64
	work := func(ctx context.Context, m *member, repairs roles.Repairs, limit int) (int, bool, error) {
		query := query
		query.After, query.Limit = last[m].Next, limit
		page, err := do(repairs, ctx, query)
		examined.Add(int64(page.Examined))
		if page.Changed > 0 {
			s.woken(m, "")
		}
		if err == nil {
			*last[m] = page
		}
		return page.Changed, !page.Done && page.Changed >= limit, err
	}
	changed, errs := share(ctx, s, call, query.Limit, members, repairsOf, work)
	total.Changed, total.Examined = changed, int(examined.Load())
	pages := make([]roles.Page, 0, len(last))
	for m, p := range last {
		if errs[m.name()] == nil {
			pages = append(pages, *p)
		}
	}
	total.Next, total.Done = commonEnd(query.After, pages)
	if err := ctx.Err(); err != nil && len(errs) == 0 {
		return total, failed(call, err)
	}
	return total, partly(ctx, call, len(members), errs)
}
