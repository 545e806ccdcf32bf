package sqlkit

import (
	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// SetContent sets the fields of a content whose columns have a form of their own. It leaves those empty that cannot be decoded, and
// calls refuse with the name of the column and what it should have.
func SetContent(r *outmill.Record, due driver.Time, joins, metadata string, refuse func(column, want string)) {
	if driver.IsTime(due) {
		r.DueAt = due.Of()
	} else {
		refuse("due_at", "a time")
	}
	var err error
	if r.Joins, err = storekit.ParseJoins(joins); err != nil {
		refuse("joins", "ids")
	}
	if metadata == "" {
		return
	}
	if r.Metadata, err = storekit.ParseMetadata([]byte(metadata)); err != nil {
		refuse("metadata", "a JSON object of texts")
	}
	if len(r.Metadata) == 0 {
		r.Metadata = nil
	}
}
