package storetest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func TestRun_BrokenOperators(t *testing.T) {
	const (
		fields  = "List and Find return the records that match every field of the query"
		byError = "Find by an error text finds it anywhere in the last error"

		contracts = "List, Find, RequeueWhere and DeleteWhere filter by the contract and its version"
	)
	asks := func(change func(*outmill.ListQuery)) func(mutants.File) outmill.Store {
		return func(f mutants.File) outmill.Store { return asksOtherwise{f, change} }
	}
	says := func(change func(outmill.ListQuery, *roles.Page)) func(mutants.File) outmill.Store {
		return func(f mutants.File) outmill.Store { return saysOtherwise{f, change} }
	}
	mutants.RequireNoticed(t, sections(), suite.Modes()[0], []mutant{
		{"ignores the key", "find", fields, asks(func(q *outmill.ListQuery) { q.Key = "" })},
		{"ignores the correlation", "find", fields, asks(func(q *outmill.ListQuery) { q.CorrelationID = "" })},
		{"ignores the tenant", "find", fields, asks(func(q *outmill.ListQuery) { q.TenantID = "" })},
		{"ignores the contract", "find", contracts, asks(func(q *outmill.ListQuery) { q.Contract = "" })},
		{"ignores the version of the contract", "find", contracts, asks(func(q *outmill.ListQuery) { q.ContractVersion = 0 })},
		{"changes the case of contracts", "find", "Find by a contract takes names as they are",
			asks(func(q *outmill.ListQuery) { q.Contract = strings.ToLower(q.Contract) })},
		{"takes no notice of blanks", "find", fields, asks(func(q *outmill.ListQuery) { q.MessageID = strings.TrimSpace(q.MessageID) })},
		{"forgets the status where it looks for an error", "find", fields, asks(func(q *outmill.ListQuery) {
			if q.ErrorText != "" {
				q.Status = ""
			}
		})},
		{"lists records of any age", "find", "List and Find filter by when the records were created",
			func(f mutants.File) outmill.Store { return listsAnyAge{f} }},
		{"takes no notice of case", "find", "Find takes texts as they are",
			asks(func(q *outmill.ListQuery) { q.MessageID = strings.ToLower(q.MessageID) })},
		{"looks for an error without regard to case", "find", byError,
			asks(func(q *outmill.ListQuery) { q.ErrorText = strings.ToLower(q.ErrorText) })},
		{"looks at everything at once", "find", "a page of Find looks at 10,000 records at most, and the next one goes on behind it",
			func(f mutants.File) outmill.Store { return looksAtAll{f} }},
		{"goes on behind what it found, not behind what it looked at", "find",
			"a page of Find looks at 10,000 records at most, and the next one goes on behind it",
			says(func(q outmill.ListQuery, p *roles.Page) {
				if p.Next = q.After; len(p.Records) > 0 {
					p.Next = p.Records[len(p.Records)-1].ID
				}
			})},
		{"is done too soon", "find", "pages of Find have each record once, and count those that were looked at",
			says(func(_ outmill.ListQuery, p *roles.Page) { p.Done = true })},
		{"counts what it found as what it looked at", "find",
			"a page of Find looks at 10,000 records at most, and the next one goes on behind it",
			says(func(_ outmill.ListQuery, p *roles.Page) { p.Examined = len(p.Records) })},
		{"skips a record between two pages", "find", "a page of Find goes on although the records of the page before are gone",
			says(func(_ outmill.ListQuery, p *roles.Page) { p.Next[15] |= 0xff; p.Next[14] |= 0xff; p.Next[5] |= 0xff })},
		{"begins again behind the last page", "find", "a page of Find after the last one has what was appended since",
			says(func(q outmill.ListQuery, p *roles.Page) {
				if p.Done {
					p.Next = q.After
				}
			})},
		{"finds more than the limit", "find", "Find returns no more than the query's limit", asks(func(q *outmill.ListQuery) { q.Limit *= 2 })},
		{"requeues whatever is dead", "find", "RequeueWhere requeues the dead records that match and counts them",
			asks(func(q *outmill.ListQuery) { q.ErrorText = "" })},
		{"leaves parked records behind", "find", "RequeueWhere brings along what was parked with a key",
			says(func(_ outmill.ListQuery, p *roles.Page) { p.Changed = min(p.Changed, 1) })},
		{"requeues more than the limit", "find", "RequeueWhere requeues no more than its limit and goes on behind it",
			asks(func(q *outmill.ListQuery) { q.Limit *= 2 })},
		{"takes any status for dead", "find", "RequeueWhere of a status that is not dead is refused",
			asks(func(q *outmill.ListQuery) { q.Status = "" })},
		{"deletes whatever the status", "find", "DeleteWhere deletes the records that match and counts them",
			asks(func(q *outmill.ListQuery) { q.Status = "" })},
		{"deletes more than the limit", "find", "DeleteWhere deletes no more than its limit and goes on behind it",
			asks(func(q *outmill.ListQuery) { q.Limit *= 2 })},
		{"deletes everything when asked for nothing", "find", "DeleteWhere of every record is refused and deletes nothing",
			asks(func(q *outmill.ListQuery) { q.CreatedAfter = time.Unix(0, 0) })},
		{"takes any text", "find", "queries that no record can match are refused",
			asks(func(q *outmill.ListQuery) { q.Key = strings.ReplaceAll(q.Key, "\x00", "") })},
		{"ignores the context", "find", "calls by a query on a closed store, or in a context that has ended, do nothing",
			func(f mutants.File) outmill.Store { return findsLate{f} }},
	})
}

// asksOtherwise changes each query.
type asksOtherwise struct {
	mutants.File
	change func(*outmill.ListQuery)
}

func (m asksOtherwise) Find(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	m.change(&query)
	return m.File.Find(ctx, query)
}

func (m asksOtherwise) RequeueWhere(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	m.change(&query)
	return m.File.RequeueWhere(ctx, query)
}

func (m asksOtherwise) DeleteWhere(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	m.change(&query)
	return m.File.DeleteWhere(ctx, query)
}

// saysOtherwise changes each page before it returns the page.
type saysOtherwise struct {
	mutants.File
	change func(outmill.ListQuery, *roles.Page)
}

func (m saysOtherwise) Find(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	page, err := m.File.Find(ctx, query)
	m.change(query, &page)
	return page, err
}

func (m saysOtherwise) RequeueWhere(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	page, err := m.File.RequeueWhere(ctx, query)
	m.change(query, &page)
	return page, err
}

type listsAnyAge struct{ mutants.File }

func (m listsAnyAge) List(ctx context.Context, query outmill.ListQuery) ([]*outmill.Record, error) {
	query.CreatedAfter, query.CreatedBefore = time.Time{}, time.Time{}
	return m.File.List(ctx, query)
}

// looksAtAll makes one page of all pages.
type looksAtAll struct{ mutants.File }

func (m looksAtAll) Find(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	var all roles.Page
	for {
		page, err := m.File.Find(ctx, query)
		page.Records, page.Examined = append(all.Records, page.Records...), all.Examined+page.Examined
		all = page
		if err != nil || page.Done {
			return all, err
		}
		query.After = page.Next
	}
}

type findsLate struct{ mutants.File }

func (m findsLate) Find(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	return m.File.Find(context.WithoutCancel(ctx), query)
}
