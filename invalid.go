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

// MaxMetadataBytes bounds the names and values of one record's metadata together, the
// same in every store: engines index, parse and compare it, so data goes to the payload.
const MaxMetadataBytes = 4 << 20

// ErrInvalidRecord is what every [InvalidRecordError] is.
var ErrInvalidRecord = errors.New("outmill: invalid record")

// InvalidRecordError says which field of which record of a call is refused,
// and why. Nothing of that call was written.
type InvalidRecordError struct {
	// Index is the record's place in the call, -1 where there is none.
	Index int
	// Field names the field as the vocabulary does: topic, payload, key, ….
	Field string
	// Reason says what is wrong and what would be right.
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
