package contracts

import (
	"encoding/json"

	"github.com/outmill/outmill/storekit"
)

// Codec encodes values of contracts as payloads, and decodes them. It must be safe for
// concurrent use. Logs and the last error of records contain its errors, so they must not
// contain the payload.
//
// [JSON] is the default; package contracts/protobuf has another.
type Codec interface {
	// Marshal encodes the value that v points to.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes data into the value that v points to. It must not keep data.
	Unmarshal(data []byte, v any) error
	// ContentType returns the media type of the payloads, such as application/json.
	ContentType() string
}

// Setter is an optional method of a [Codec] whose values must not be copied by assignment.
// Set copies the value that src points to, the result of an upcaster, to the value that dst
// points to.
type Setter interface {
	Set(dst, src any) error
}

// JSON is the default codec: encoding/json, as in Watermill's cqrs.JSONMarshaler. Its errors
// name the field and the byte at which a payload does not fit, but never contain the value.
type JSON struct{}

// Marshal implements Codec.
func (JSON) Marshal(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, storekit.JSONError("encode as JSON", err)
	}
	return data, nil
}

// Unmarshal implements Codec.
func (JSON) Unmarshal(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return storekit.JSONError("decode from JSON", err)
	}
	return nil
}

// ContentType implements Codec.
func (JSON) ContentType() string { return "application/json" }
