package storekit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/outmill/outmill"
)

// MaxSagaType limits the length of a type's name, in characters, because on MongoDB it is
// the name of a collection.
const MaxSagaType = 120

// CheckSaga returns an ErrInvalidRecord for an invalid type or correlation value. Stores
// call it.
func CheckSaga(kind, correlation string) error {
	return errors.Join(CheckSagaType(kind), refuseSaga("correlation", correlationReason(correlation)))
}

// CheckSagaType returns an ErrInvalidRecord for an invalid name of a type. Stores call it.
func CheckSagaType(kind string) error { return refuseSaga("type", sagaTypeReason(kind)) }

func correlationReason(correlation string) string {
	if correlation == "" {
		return fmt.Sprintf("is empty: want 1 to %d characters", outmill.MaxTextLength)
	}
	return checkName(correlation)
}

func sagaTypeReason(kind string) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
	if kind == "" || len(kind) > MaxSagaType || strings.ContainsFunc(kind, func(r rune) bool { return !strings.ContainsRune(letters, r) }) ||
		strings.HasPrefix(kind, ".") || strings.HasPrefix(kind, "system.") {
		return fmt.Sprintf("is %q: want 1 to %d letters, digits, _, - and ., with a letter, digit, _ or - first, and not \"system.\"", clip(kind),
			MaxSagaType)
	}
	return ""
}

func refuseSaga(field, reason string) error {
	if reason == "" {
		return nil
	}
	return &outmill.InvalidRecordError{Index: -1, Field: "saga " + field, Reason: reason}
}
