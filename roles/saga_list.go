package roles

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
