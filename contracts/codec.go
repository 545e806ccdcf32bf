package contracts

import (
	"encoding/json"

	"github.com/outmill/outmill/storekit"
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
