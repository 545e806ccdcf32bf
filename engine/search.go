package engine

import (
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// foundPage is what a search came to.
type foundPage struct {
	// ids are those of records that match, in their order.
	ids []outmill.WorkItemID
	// examined, next and done are those of the roles.Page.
	examined int
	next     outmill.WorkItemID
	done     bool
}

func (s foundPage) page() roles.Page {
	return roles.Page{Examined: s.examined, Next: s.next, Done: s.done}
}

// looked is a record that was looked at.
type looked struct {
	id outmill.WorkItemID
	// matches tells whether the query matches it.
	matches bool
}

// search looks at what is behind query.After, in the order of ids, until it has query.Limit records that match, has looked at
// MaxExamined, or all is done. look returns the first n records behind an id: fewer where no more are left. It gets small
// numbers first, and then about as many as the share of the records that matched so far calls for, so that it reads few
// records in vain.
func search(query outmill.ListQuery, look func(after outmill.WorkItemID, n int) ([]looked, error)) (foundPage, error) {
	s := foundPage{next: query.After}
	n := query.Limit
	for least := query.Limit; ; least *= 2 {
		n = min(n, roles.MaxExamined-s.examined)
		list, err := look(s.next, n)
		if err != nil {
			return foundPage{}, err
		}
		more := len(list) == n
		for i, l := range list {
			s.examined++
			if s.next = l.id; !l.matches {
				continue
			}
			if s.ids = append(s.ids, l.id); len(s.ids) == query.Limit {
				s.done = !more && i == len(list)-1
				return s, nil
			}
		}
		if s.done = !more; s.done || s.examined == roles.MaxExamined {
			return s, nil
		}
		n = max(2*least, min(8*n, s.lacking(query.Limit)))
	}
}

// lacking estimates how many more records a search has to look at until limit of them match. The
// estimate is a quarter too high, because one that is too low costs a further query.
func (s foundPage) lacking(limit int) int {
	if len(s.ids) == 0 {
		return roles.MaxExamined
	}
	return (limit - len(s.ids)) * s.examined / len(s.ids) * 5 / 4
}

// search looks at a bounded number of records behind an id.
func (e *Engine) search(ctx context.Context, operation string, query outmill.ListQuery) (foundPage, error) {
	return valueOf(ctx, e.view, operation, func(ctx context.Context, t *tx) (foundPage, error) {
		return search(query, func(after outmill.WorkItemID, n int) ([]looked, error) { return t.look(ctx, query, after, n) })
	})
}

// look looks at records behind an id. It loads only the content of those that match as far as their rows tell.
func (t *tx) look(ctx context.Context, query outmill.ListQuery, after outmill.WorkItemID, limit int) ([]looked, error) {
	ids, rows, err := t.After(ctx, after, limit, likeOf(query))
	if err != nil {
		return nil, err
	}
	ofRow := query
	ofRow.MessageID, ofRow.CorrelationID, ofRow.ErrorText, ofRow.Contract, ofRow.ContractVersion = "", "", "", "", 0
	var records []*outmill.Record
	rows = slices.DeleteFunc(rows, func(r driver.Row) bool {
		record := &outmill.Record{}
		fill(record, &r)
		records = append(records, record)
		return !storekit.Matches(ofRow, record)
	})
	if ofRow != query {
		var want driver.Want
		if query.Contract != "" || query.ContractVersion != 0 {
			want = driver.Metadata
		}
		if _, records, err = t.load(ctx, rows, want); err != nil {
			return nil, err
		}
	}
	matches := make(map[outmill.WorkItemID]bool, len(rows))
	for _, r := range records {
		matches[r.ID] = storekit.Matches(query, r)
	}
	return mapped(ids, func(id outmill.WorkItemID) looked { return looked{id, matches[id]} }), nil
}

// likeOf are the conditions of a query that a database may look at.
func likeOf(query outmill.ListQuery) driver.Like {
	like := driver.Like{
		Group: query.Group, Topic: query.Topic, Key: query.Key, Tenant: query.TenantID, MessageID: query.MessageID,
		CorrelationID: query.CorrelationID, First: driver.Dead, Last: driver.Ready,
	}
	for stage := driver.Ready; stage <= driver.Dead; stage++ {
		if query.Status == "" || query.Status == statusOf(stage) {
			like.First, like.Last = min(like.First, stage), max(like.Last, stage)
		}
	}
	return like
}

// wantOf is what a list reads of the contents.
func wantOf(query outmill.ListQuery) (want driver.Want) {
	if query.Content {
		want = driver.Payload | driver.Metadata
	}
	if query.Contract != "" || query.ContractVersion != 0 {
		want |= driver.Metadata
	}
	return want
}
