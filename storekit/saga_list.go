package storekit

import (
	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// mostSagas is how many sagas a page reads at once.
const mostSagas = 1000

// PageOfSagas makes the page of a query: before returns up to limit sagas with smaller ids, the
// largest id first. It looks at MaxExamined of them at most, because only their ids are in order.
// Stores call it.
func PageOfSagas(query roles.SagaQuery, before func(id outmill.WorkItemID, limit int) ([]*roles.Saga, error)) (roles.SagaPage, error) {
	if query.Limit == 0 {
		query.Limit = defaultListLimit
	}
	page := roles.SagaPage{Next: query.After}
	if page.Next.IsZero() {
		for i := range page.Next {
			page.Next[i] = 0xff
		}
	}
	for n := min(query.Limit, mostSagas); page.Examined < roles.MaxExamined; n = min(4*n, mostSagas) {
		n = min(n, roles.MaxExamined-page.Examined)
		found, err := before(page.Next, n)
		if err != nil {
			return roles.SagaPage{Next: query.After}, err
		}
		for _, saga := range found {
			page.Examined, page.Next = page.Examined+1, saga.ID
			if query.Type != "" && query.Type != saga.Type {
				continue
			}
			if page.Sagas = append(page.Sagas, saga); len(page.Sagas) == query.Limit {
				return page, nil
			}
		}
		if page.Done = len(found) < n; page.Done {
			break
		}
	}
	return page, nil
}

// CheckListSagas returns an ErrInvalidRecord or ErrInvalidConfig for a query that makes no sense.
// Stores call it.
func CheckListSagas(query roles.SagaQuery) error {
	if query.Limit < 0 {
		return InvalidConfig("SagaQuery.Limit is %d: want 0 (%d) or more", query.Limit, defaultListLimit)
	}
	if query.Type == "" {
		return nil
	}
	return CheckSagaType(query.Type)
}
