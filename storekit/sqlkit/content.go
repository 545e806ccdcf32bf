package sqlkit

import (
	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// WantMetadata is what the column of the metadata should have.
const WantMetadata = "a JSON object of texts"

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
	if r.Metadata, err = storekit.ParseMetadataText(metadata); err != nil {
		refuse("metadata", WantMetadata)
	}
	if len(r.Metadata) == 0 {
		r.Metadata = nil
	}
}

// Content is the content of a row, with the id by which Contents finds it.
type Content struct {
	ID outmill.WorkItemID
	driver.Content
}

// ReadContent reads, for drivers of database/sql, the id, the time due, the message id, the ids of correlation and causation, the trace's
// parent and state, the dedup key, the joins, the last error, the metadata, the payload, and the history. NULL stands for none.
func ReadContent(scan Scan, c *Content) error {
	r := &outmill.Record{}
	c.Record = r
	var due int64
	var joins, metadata string
	var history []byte
	err := scan((*ID)(&c.ID), &due, &r.MessageID, Text(&r.CorrelationID), Text(&r.CausationID), Text(&r.TraceParent), Text(&r.TraceState),
		Text(&r.DedupKey), Text(&joins), Text(&r.LastError), Text(&metadata), Bytes(&r.Payload), Bytes(&history))
	if err != nil {
		return err
	}
	c.History = string(history)
	SetContent(r, driver.Time(due), joins, metadata, c.Refuse)
	return nil
}

// Contents returns the found content of each row, in the order of the rows.
func Contents(rows []driver.Row, found []Content) []driver.Content {
	byID := make(map[outmill.WorkItemID]driver.Content, len(found))
	for i := range found {
		byID[found[i].ID] = found[i].Content
	}
	contents := make([]driver.Content, len(rows))
	for i := range rows {
		contents[i] = byID[rows[i].ID]
	}
	return contents
}
