package mongo

import (
	"bytes"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill/mongo/internal/jsondoc"
)

// payload is the value of a record's payload field: bytes, null for a nil payload, or a document
// that stands for the same bytes as JSON.
type payload struct {
	bytes    []byte
	embedded bson.Raw
}

// MarshalBSONValue implements bson.ValueMarshaler.
func (p payload) MarshalBSONValue() (byte, []byte, error) {
	var value any = bson.Null{}
	switch {
	case p.embedded != nil:
		value = p.embedded
	case p.bytes != nil:
		value = bson.Binary{Data: p.bytes}
	}
	kind, data, err := bson.MarshalValue(value)
	return byte(kind), data, err
}

// UnmarshalBSONValue implements bson.ValueUnmarshaler.
func (p *payload) UnmarshalBSONValue(kind byte, data []byte) error {
	*p = payload{}
	if bson.Type(kind) == bson.TypeEmbeddedDocument {
		p.embedded = bytes.Clone(data)
		return nil
	}
	return bson.UnmarshalValue(bson.Type(kind), data, &p.bytes)
}

// setPayload sets the payload as the configuration says.
func (d *document) setPayload(text []byte, config Config) {
	d.Payload, d.Escaped = payload{bytes: text}, false
	if config.EmbedJSON {
		d.embed(text, config.MaxPayload)
	}
}

// embed sets the payload. It becomes a document if it is a JSON object that can be written back
// byte for byte, because others may have signed it, or may compare it. That holds for the output
// of encoding/json and of JavaScript's JSON.stringify. All other payloads stay binary.
func (d *document) embed(text []byte, limit int) {
	d.Payload = payload{bytes: text}
	if raw, escaped, ok := jsondoc.Of(text, limit); ok {
		d.Payload, d.Escaped = payload{embedded: raw}, escaped
	}
}

// text returns the payload as it was appended. If the document has a value that JSON does not
// have, such as NaN, because a user has written it, text returns MongoDB's extended JSON.
func (d *document) text() []byte {
	if d.Payload.embedded == nil {
		return d.Payload.bytes
	}
	return jsondoc.Text(d.Payload.embedded, d.Escaped)
}
