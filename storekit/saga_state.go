package storekit

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// CheckSagaState returns an ErrInvalidRecord for a state that is not a pointer to a struct.
// Stores call it.
func CheckSagaState(state any) error {
	v := reflect.ValueOf(state)
	if v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct {
		return nil
	}
	return refuseSaga("state", fmt.Sprintf("is a %T, or nil: want a pointer to a struct", state))
}

// CheckSagaSize returns an ErrInvalidRecord for a state whose encoding has more bytes than
// limit; 0 is no limit. Stores call it.
func CheckSagaSize(size, limit int) error {
	if limit <= 0 || size <= limit {
		return nil
	}
	return refuseSaga("state",
		fmt.Sprintf("has %d bytes: the store takes at most %d; store the data elsewhere and keep a reference", size, limit))
}

// SagaStateError is ErrInvalidRecord for a state that cannot be encoded.
func SagaStateError(err error) error {
	return errors.Join(refuseSaga("state", "cannot be encoded"), err)
}

// DecodeSagaState decodes the text that EncodeSagaState returned into state. Errors:
// ErrSagaState, without the values of the state.
func DecodeSagaState(text string, state any) error {
	if err := json.Unmarshal([]byte(text), state); err != nil {
		return fmt.Errorf("%w: %w", roles.ErrSagaState, JSONError("decode from JSON", err))
	}
	return nil
}

// EncodeSagaState returns the state as JSON of at most limit bytes; 0 is no limit. Errors:
// ErrInvalidRecord.
func EncodeSagaState(state any, limit int) (string, error) {
	if err := CheckSagaState(state); err != nil {
		return "", err
	}
	text, err := json.Marshal(state)
	if err != nil {
		return "", SagaStateError(JSONError("encode as JSON", err))
	}
	if text[0] != '{' {
		return "", refuseSaga("state", fmt.Sprintf("is a %T that is not a JSON object: want a struct whose MarshalJSON, "+
			"if any, writes an object", state))
	}
	return string(text), CheckSagaSize(len(text), limit)
}

// MergeSagaState returns the encoded state, together with the stored fields that the type
// of state does not have, including nested ones. limit is as in EncodeSagaState.
func MergeSagaState(stored, encoded string, state any, limit int) (string, error) {
	before := reflect.New(reflect.TypeOf(state).Elem()).Interface()
	if err := DecodeSagaState(stored, before); err != nil {
		return "", err
	}
	known, err := json.Marshal(before)
	if err != nil {
		return "", err
	}
	merged, err := mergeJSON([]byte(stored), known, []byte(encoded))
	if err != nil {
		return "", err
	}
	return string(merged), CheckSagaSize(len(merged), limit)
}

// mergeJSON adds to the object next the fields that stored has and known has not. known is
// stored after decoding into the state's type, so it lacks the fields that the type does
// not have. Like encoding/json, it compares names without regard to the case of letters.
func mergeJSON(stored, known, next json.RawMessage) (json.RawMessage, error) {
	was, isObject := objectOf(stored)
	seen, seenIs := objectOf(known)
	merged, nextIs := objectOf(next)
	if !isObject || !seenIs || !nextIs {
		return next, nil
	}
	for name, value := range was {
		of, knows := seen[name]
		now, has := merged[name]
		switch {
		case !knows && !has && !hasFolded(seen, name) && !hasFolded(merged, name):
			merged[name] = value
		case knows && has:
			both, err := mergeJSON(value, of, now)
			if err != nil {
				return nil, err
			}
			merged[name] = both
		}
	}
	return json.Marshal(merged)
}

func hasFolded(object map[string]json.RawMessage, name string) bool {
	for has := range object {
		if strings.EqualFold(has, name) {
			return true
		}
	}
	return false
}

func objectOf(text json.RawMessage) (object map[string]json.RawMessage, is bool) {
	if len(text) == 0 || text[0] != '{' {
		return nil, false
	}
	return object, json.Unmarshal(text, &object) == nil
}

// CheckDeleteFinishedSagas returns an ErrInvalidRecord or ErrInvalidConfig for invalid
// arguments of DeleteFinishedSagas. Stores call it.
func CheckDeleteFinishedSagas(kind string, retention time.Duration, limit int) error {
	err := CheckSagaType(kind)
	if retention < 0 {
		err = errors.Join(err, fmt.Errorf("%w: retention is %s: want 0 or more", outmill.ErrInvalidConfig, retention))
	}
	if limit < 1 {
		err = errors.Join(err, fmt.Errorf("%w: limit is %d: want 1 or more", outmill.ErrInvalidConfig, limit))
	}
	return err
}
