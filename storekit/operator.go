package storekit

import (
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// Finder has the calls of roles.Repairs by a filter, and the List of an outmill.Inspector, over the queries of a store.
// A store embeds it.
type Finder struct{ store FindStore }

// NewFinder makes the Finder of a store.
func NewFinder(store FindStore) Finder { return Finder{store} }

// FindStore has the queries of a store for a Finder. Their errors are as the store's methods
// return them, for that operation.
type FindStore interface {
	// Search looks at records, as [Search] says.
	Search(ctx context.Context, operation string, query outmill.ListQuery) (Searched, error)
	// Records returns the records that have one of the ids, in the order of these. See ContentOf.
	Records(ctx context.Context, operation string, ids []outmill.WorkItemID) ([]*outmill.Record, error)
	// Requeue is that of the store.
	Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error)
	// Delete deletes those of the records that have the status; "" is any.
	Delete(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (int, error)
	// Explain returns the error of an operation as the store's methods return it.
	Explain(ctx context.Context, operation string, err error) error
}

const (
	defaultChangeLimit = 1000
	// changeAtOnce is how many records are changed with one call of the store.
	changeAtOnce = 1000
)

// List returns records in the order of their ids. See outmill.Inspector.
func (f Finder) List(ctx context.Context, query outmill.ListQuery) ([]*outmill.Record, error) {
	const operation = "list"
	query, err := CheckList(query)
	if err != nil {
		return nil, f.store.Explain(ctx, operation, err)
	}
	var all []*outmill.Record
	for limit := query.Limit; ; {
		query.Limit = limit - len(all)
		page, err := f.find(ctx, operation, query)
		if err != nil {
			return nil, err
		}
		if all = append(all, page.Records...); page.Done || len(all) >= limit {
			return all, nil
		}
		query.After = page.Next
	}
}

// Find returns a page of records. See roles.Repairs.
func (f Finder) Find(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	const operation = "find"
	query, err := CheckList(query)
	if err != nil {
		return roles.Page{}, f.store.Explain(ctx, operation, err)
	}
	return f.find(ctx, operation, query)
}

func (f Finder) find(ctx context.Context, operation string, query outmill.ListQuery) (roles.Page, error) {
	found, err := f.store.Search(ctx, operation, query)
	if err != nil {
		return roles.Page{Next: query.After}, err
	}
	page := found.page()
	if len(found.IDs) == 0 {
		return page, nil
	}
	records, err := f.store.Records(withContent(ctx, query), operation, found.IDs)
	if err != nil {
		return roles.Page{Next: query.After}, err
	}
	// What has changed since the search may no longer match.
	for _, r := range records {
		if Matches(query, r) {
			page.Records = append(page.Records, r)
		}
	}
	return page, nil
}

// RequeueWhere requeues dead records that match. See roles.Repairs.
func (f Finder) RequeueWhere(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	const operation = "requeue by filter"
	query, err := CheckRequeueWhere(query)
	if err != nil {
		return roles.Page{}, f.store.Explain(ctx, operation, err)
	}
	return f.change(ctx, operation, query, func(ctx context.Context, ids []outmill.WorkItemID) (int, error) {
		return f.store.Requeue(ctx, ids...)
	})
}

// DeleteWhere deletes records that match. See roles.Repairs.
func (f Finder) DeleteWhere(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	const operation = "delete by filter"
	query, err := CheckDeleteWhere(query)
	if err != nil {
		return roles.Page{}, f.store.Explain(ctx, operation, err)
	}
	return f.change(ctx, operation, query, func(ctx context.Context, ids []outmill.WorkItemID) (int, error) {
		return f.store.Delete(ctx, query.Status, ids)
	})
}

// CheckRequeueWhere returns the query of a RequeueWhere with its defaults, and
// refuses one that makes no sense as an outmill.ErrInvalidConfig.
func CheckRequeueWhere(query outmill.ListQuery) (outmill.ListQuery, error) {
	query, err := checkChange(query)
	if err == nil && query.Status != "" && query.Status != outmill.StatusDead {
		err = InvalidConfig("RequeueWhere: ListQuery.Status is %q: only dead records are requeued", query.Status)
	}
	query.Status = outmill.StatusDead
	return query, err
}

// CheckDeleteWhere returns the query of a DeleteWhere with its defaults, and
// refuses one that makes no sense, or has no filter, as an outmill.ErrInvalidConfig.
func CheckDeleteWhere(query outmill.ListQuery) (outmill.ListQuery, error) {
	query, err := checkChange(query)
	if err == nil && (outmill.ListQuery{After: query.After, Limit: query.Limit}) == query {
		err = InvalidConfig("DeleteWhere: the query has no filter and would delete every record: set a field of it, such as Status or Topic")
	}
	return query, err
}

func checkChange(query outmill.ListQuery) (outmill.ListQuery, error) {
	if query.Limit == 0 {
		query.Limit = defaultChangeLimit
	}
	return CheckList(query)
}

func (f Finder) change(
	ctx context.Context, operation string, query outmill.ListQuery,
	change func(ctx context.Context, ids []outmill.WorkItemID) (int, error),
) (roles.Page, error) {
	found, err := f.store.Search(ctx, operation, query)
	if err != nil {
		return roles.Page{Next: query.After}, err
	}
	page := found.page()
	audited := withFilter(OneCommand(ctx), query)
	for ids := range slices.Chunk(found.IDs, changeAtOnce) {
		n, err := change(audited, ids)
		if page.Changed += n; err != nil {
			return roles.Page{Changed: page.Changed, Next: query.After}, err
		}
	}
	return page, nil
}
