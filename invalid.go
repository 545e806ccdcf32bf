package outmill

import (
	"errors"
	"fmt"
)

// Limits of the text fields, in UTF-16 units (as SQL Server counts), the same
// in every store.
const (
	MaxTopicLength = 255
	MaxTextLength  = 255
)

// MaxMetadataBytes limits the total size of the names and values of one record's metadata,
// the same in every store. Engines index, parse and compare metadata, so large data belongs
// in the payload.
const MaxMetadataBytes = 4 << 20

// ErrInvalidRecord matches every [InvalidRecordError] (errors.Is).
var ErrInvalidRecord = errors.New("outmill: invalid record")

// InvalidRecordError names the record and the field that a call refuses, and the reason.
// The call wrote nothing.
type InvalidRecordError struct {
	// Index is the record's index in the call, or -1 where the error belongs to no record of a
	// list.
	Index int
	// Field names the field in lower case: topic, payload, key, ….
	Field string
	// Reason says what is wrong and what a valid value is.
	Reason string
}

func (e *InvalidRecordError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("%s: %s %s", ErrInvalidRecord, e.Field, e.Reason)
	}
	return fmt.Sprintf("%s %d: %s %s", ErrInvalidRecord, e.Index, e.Field, e.Reason)
}

// Is makes errors.Is(err, ErrInvalidRecord) true.
func (e *InvalidRecordError) Is(target error) bool { return target == ErrInvalidRecord }
