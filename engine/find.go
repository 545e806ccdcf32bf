package engine

import (
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// changeAtOnce is how many records a change by a filter changes at once.
const changeAtOnce = 1000

// List returns records in the order of their ids. See outmill.Inspector.
func (e *Engine) List(ctx context.Context, query outmill.ListQuery) ([]*outmill.Record, error) {
	const operation = "list"
	query, err := storekit.CheckList(query)
	if err != nil {
		return nil, e.explain(ctx, operation, err)
	}
	var all []*outmill.Record
	for limit := query.Limit; ; {
		query.Limit = limit - len(all)
		page, err := e.find(ctx, operation, query)
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
func (e *Engine) Find(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	const operation = "find"
	query, err := storekit.CheckList(query)
	if err != nil {
		return roles.Page{}, e.explain(ctx, operation, err)
	}
	return e.find(ctx, operation, query)
}

func (e *Engine) find(ctx context.Context, operation string, query outmill.ListQuery) (roles.Page, error) {
	found, err := e.search(ctx, operation, query)
	if err != nil {
		return roles.Page{Next: query.After}, err
	}
	page := found.page()
	if len(found.ids) == 0 {
		return page, nil
	}
	records, err := e.records(ctx, operation, wantOf(query), found.ids)
	if err != nil {
		return roles.Page{Next: query.After}, err
	}
	// What has changed since the search may no longer match.
	for _, r := range records {
		if storekit.Matches(query, r) {
			page.Records = append(page.Records, r)
		}
	}
	return page, nil
}

// RequeueWhere requeues dead records that match. See roles.Repairs.
func (e *Engine) RequeueWhere(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	const operation = "requeue by filter"
	query, err := storekit.CheckRequeueWhere(query)
	if err != nil {
		return roles.Page{}, e.explain(ctx, operation, err)
	}
	return e.changeWhere(ctx, operation, query, func(ctx context.Context, ids []outmill.WorkItemID) (int, error) {
		return e.Requeue(ctx, ids...)
	})
}

// DeleteWhere deletes records that match. See roles.Repairs.
func (e *Engine) DeleteWhere(ctx context.Context, query outmill.ListQuery) (roles.Page, error) {
	const operation = "delete by filter"
	query, err := storekit.CheckDeleteWhere(query)
	if err != nil {
		return roles.Page{}, e.explain(ctx, operation, err)
	}
	return e.changeWhere(ctx, operation, query, func(ctx context.Context, ids []outmill.WorkItemID) (int, error) {
		return e.deleteWith(ctx, query.Status, ids)
	})
}

func (e *Engine) changeWhere(
	ctx context.Context, operation string, query outmill.ListQuery,
	change func(ctx context.Context, ids []outmill.WorkItemID) (int, error),
) (roles.Page, error) {
	found, err := e.search(ctx, operation, query)
	if err != nil {
		return roles.Page{Next: query.After}, err
	}
	page := found.page()
	audited := storekit.WithFilter(storekit.OneCommand(ctx), query)
	for ids := range slices.Chunk(found.ids, changeAtOnce) {
		n, err := change(audited, ids)
		if page.Changed += n; err != nil {
			return roles.Page{Changed: page.Changed, Next: query.After}, err
		}
	}
	return page, nil
}

// records returns the records with these ids, by id.
func (e *Engine) records(ctx context.Context, operation string, want driver.Want, ids []outmill.WorkItemID) ([]*outmill.Record, error) {
	records, err := valueOf(ctx, e.view, operation, func(ctx context.Context, t *tx) ([]*outmill.Record, error) {
		return t.get(ctx, want, ids...)
	})
	slices.SortFunc(records, func(a, b *outmill.Record) int { return byWorkItem(a.ID, b.ID) })
	return records, err
}
