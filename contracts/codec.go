package contracts

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Codec encodes values of contracts as payloads. It must be safe for concurrent use. Its
// errors go to logs and to the last error of records, so it keeps the payload out of them.
//
// [JSON] is the default; package contracts/protobuf has another.
type Codec interface {
	// Marshal gets a pointer to the value.
	Marshal(v any) ([]byte, error)
	// Unmarshal fills what the pointer v points to. It must not keep data.
	Unmarshal(data []byte, v any) error
	// ContentType is the media type of what Marshal returns, such as application/json.
	ContentType() string
}

// Setter is what a [Codec] implements if its values must not be copied by assignment. Set
// makes what dst points to equal to what src points to, after an upcaster has returned src.
type Setter interface {
	Set(dst, src any) error
}

// JSON is the codec that contracts have by default: encoding/json, as in Watermill's
// cqrs.JSONMarshaler. Its errors say where a payload does not fit, by field and byte, and
// never what stands there.
type JSON struct{}

// Marshal implements Codec.
func (JSON) Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, withoutValues("encode as JSON", err)
	}
	return data, nil
}

// Unmarshal implements Codec.
func (JSON) Unmarshal(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return withoutValues("decode from JSON", err)
	}
	return nil
}

// ContentType implements Codec.
func (JSON) ContentType() string { return "application/json" }

// withoutValues keeps of an error of encoding/json what is no part of the data. Errors of
// other packages, such as those of UnmarshalJSON methods, often quote the data, so their
// type must do.
func withoutValues(doing string, err error) error {
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
		return fmt.Errorf("%s: at byte %d, field %s: a JSON %s does not fit %s",
			doing, mismatch.Offset, quote(mismatch.Field), kind, mismatch.Type)
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: not valid JSON at byte %d", doing, syntax.Offset)
	case errors.As(err, &unsupported):
		return fmt.Errorf("%s: type %s is not supported", doing, unsupported.Type)
	}
	return fmt.Errorf("%s: a field or a type refuses its value, with an error of type %T", doing, err)
}
