package storekit

import (
	"github.com/outmill/outmill"
)

// SagaQuery says which sagas ListSagas returns.
type SagaQuery struct {
	// Type limits the list to one type; "" is all of them. MongoDB, where each type has a
	// collection of its own, needs a type.
	Type string
	// After continues behind the saga with this id; zero begins with the newest.
	After outmill.WorkItemID
	// Limit is the largest number of sagas; 0 is 100.
	Limit int
}

// SagaPage is what one call of ListSagas returns.
type SagaPage struct {
	// Sagas come in the order of their ids, the largest first. That is the order in which they
	// were started, the newest first, where InsertSaga has made the ids. Version is 0 for a saga on
	// MongoDB that has it in another field than SagaOptions.VersionField.
	Sagas []*Saga
	// Examined is how many sagas the call looked at, of all types; Next is what to set
	// SagaQuery.After to for the next call; Done says that nothing is left.
	Examined int
	Next     outmill.WorkItemID
	Done     bool
}

// mostSagas is how many sagas a page reads at once.
const mostSagas = 1000

// PageOfSagas makes the page of a query: before returns up to limit sagas with smaller ids, the
// largest id first. It looks at MaxExamined of them at most, because only their ids are in order.
// Stores call it.
func PageOfSagas(query SagaQuery, before func(id outmill.WorkItemID, limit int) ([]*Saga, error)) (SagaPage, error) {
	if query.Limit == 0 {
		query.Limit = defaultListLimit
	}
	page := SagaPage{Next: query.After}
	if page.Next.IsZero() {
		for i := range page.Next {
			page.Next[i] = 0xff
		}
	}
	for n := min(query.Limit, mostSagas); page.Examined < MaxExamined; n = min(4*n, mostSagas) {
		n = min(n, MaxExamined-page.Examined)
		found, err := before(page.Next, n)
		if err != nil {
			return SagaPage{Next: query.After}, err
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
func CheckListSagas(query SagaQuery) error {
	if query.Limit < 0 {
		return InvalidConfig("SagaQuery.Limit is %d: want 0 (%d) or more", query.Limit, defaultListLimit)
	}
	if query.Type == "" {
		return nil
	}
	return CheckSagaType(query.Type)
}
