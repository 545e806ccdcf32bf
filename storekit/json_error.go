package storekit

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// JSONError returns what an error of encoding/json says without the values that it quotes,
// because errors go to logs and into records: which field does not fit, and at which byte.
// doing is such as "decode from JSON".
//
// An error of another package, such as that of an UnmarshalJSON method, often quotes the
// data, so its type must do.
func JSONError(doing string, err error) error {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	var unsupported *json.UnsupportedTypeError
	var marshaler *json.MarshalerError
	switch {
	case errors.As(err, &marshaler):
		return fmt.Errorf("%s: the method of %s that encodes it fails", doing, marshaler.Type)
	case errors.As(err, &mismatch):
		// Value is a word such as number, and the number itself may follow.
		kind, _, _ := strings.Cut(mismatch.Value, " ")
		return fmt.Errorf("%s: at byte %d, field %q: a JSON %s does not fit %s",
			doing, mismatch.Offset, clip(mismatch.Field), kind, mismatch.Type)
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: not valid JSON at byte %d", doing, syntax.Offset)
	case errors.As(err, &unsupported):
		return fmt.Errorf("%s: type %s is not supported", doing, unsupported.Type)
	}
	return fmt.Errorf("%s: a field or a type refuses its value, with an error of type %T", doing, err)
}
