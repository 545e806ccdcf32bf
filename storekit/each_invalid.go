package storekit

import (
	"errors"

	"github.com/outmill/outmill"
)

// EachInvalid calls change for each InvalidRecordError among the errors that err joins, so that
// the caller can say which record and which part of it they are about.
func EachInvalid(err error, change func(*outmill.InvalidRecordError)) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range several.Unwrap() {
			EachInvalid(err, change)
		}
		return
	}
	var invalid *outmill.InvalidRecordError
	if errors.As(err, &invalid) {
		change(invalid)
	}
}
