// Package limits refuses records that are larger than a row of an engine may be.
// The limits that hold in every store are checked by storekit.CheckRecords.
package limits

import (
	"fmt"

	"github.com/outmill/outmill"
)

// Rows are the limits of an engine's rows, in bytes.
type Rows struct {
	// Row is the most that a row may have, Metadata the most that its metadata may
	// have as JSON.
	Row, Metadata int64
	// PayloadTimes is by how much a payload grows on its way to the row.
	PayloadTimes int64
}

// Weight is what the record, whose metadata are JSON already, has as a row.
func (l Rows) Weight(r *outmill.Record, metadata string) int64 {
	return l.PayloadTimes*int64(len(r.Payload)) + int64(r.Size()-len(r.Payload)) + int64(len(metadata))
}

// Check returns an outmill.ErrInvalidRecord for a record that is too large. index is its
// place in the call, metadata its metadata as JSON.
func (l Rows) Check(index int, r *outmill.Record, metadata string) error {
	if size := int64(len(metadata)); size > l.Metadata {
		return &outmill.InvalidRecordError{Index: index, Field: "metadata", Reason: fmt.Sprintf("has %d bytes as JSON: the engine takes at most %d; move some of it to the payload", size, l.Metadata)}
	}
	if weight := l.Weight(r, metadata); weight > l.Row {
		return &outmill.InvalidRecordError{Index: index, Field: "payload", Reason: fmt.Sprintf("makes a row of %d bytes with the other fields: the engine takes at most %d; store the data elsewhere and publish a reference", weight, l.Row)}
	}
	return nil
}
