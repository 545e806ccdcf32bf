package storekit

import (
	"fmt"

	"github.com/outmill/outmill"
)

// RowLimits are the limits of an engine's rows, in bytes. With them a store refuses records
// that [CheckRecords] accepts but the engine does not.
type RowLimits struct {
	// Row is the largest size of a row, Metadata the largest size of its metadata as JSON.
	Row, Metadata int64
	// PayloadTimes is the factor by which a payload grows in the row.
	PayloadTimes int64
}

// Weight returns the size of the record as a row; metadata is its metadata as JSON.
func (l RowLimits) Weight(r *outmill.Record, metadata string) int64 {
	return l.PayloadTimes*int64(len(r.Payload)) + int64(r.Size()-len(r.Payload)) + int64(len(metadata))
}

// Check returns an outmill.ErrInvalidRecord for a record that is too large. index is the
// record's index in the call; metadata is its metadata as JSON.
func (l RowLimits) Check(index int, r *outmill.Record, metadata string) error {
	if size := int64(len(metadata)); size > l.Metadata {
		return &outmill.InvalidRecordError{Index: index, Field: "metadata",
			Reason: fmt.Sprintf("has %d bytes as JSON: the engine takes at most %d; move some of it to the payload", size, l.Metadata)}
	}
	if weight := l.Weight(r, metadata); weight > l.Row {
		return &outmill.InvalidRecordError{Index: index, Field: "payload",
			Reason: fmt.Sprintf("makes a row of %d bytes with the other fields: the engine takes at most %d; store the data elsewhere and "+
				"publish a reference", weight, l.Row)}
	}
	return nil
}
