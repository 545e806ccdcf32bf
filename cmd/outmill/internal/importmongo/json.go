package importmongo

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// appendJSON writes a value in the same way as JSON.stringify with the driver of Node.js:
// dates in ISO 8601, ObjectIds in hex, binary data in base64. Whole numbers keep all their
// digits.
func appendJSON(out []byte, v bson.RawValue) ([]byte, error) {
	switch v.Type {
	case bson.TypeEmbeddedDocument:
		return appendObject(out, v.Document())
	case bson.TypeArray:
		return appendArray(out, v.Array())
	case bson.TypeString:
		return appendText(out, v.StringValue())
	case bson.TypeSymbol:
		return appendText(out, v.Symbol())
	case bson.TypeObjectID:
		return appendText(out, v.ObjectID().Hex())
	case bson.TypeDateTime:
		return appendText(out, v.Time().UTC().Format("2006-01-02T15:04:05.000Z"))
	case bson.TypeBinary:
		subtype, data := v.Binary()
		return appendText(out, binary(subtype, data))
	case bson.TypeDecimal128:
		return fmt.Appendf(out, `{"$numberDecimal":%q}`, v.Decimal128().String()), nil
	case bson.TypeBoolean:
		return strconv.AppendBool(out, v.Boolean()), nil
	case bson.TypeInt32, bson.TypeInt64:
		return strconv.AppendInt(out, v.AsInt64(), 10), nil
	case bson.TypeDouble:
		return appendDouble(out, v.Double())
	case bson.TypeNull, bson.TypeUndefined:
		return append(out, "null"...), nil
	default:
		return nil, fmt.Errorf("a %s has no JSON", v.Type)
	}
}

func appendObject(out []byte, doc bson.Raw) ([]byte, error) {
	elements, err := doc.Elements()
	if err != nil {
		return nil, err
	}
	out = append(out, '{')
	first := true
	for _, e := range elements {
		if e.Value().Type == bson.TypeUndefined {
			continue
		}
		if !first {
			out = append(out, ',')
		}
		first = false
		if out, err = appendText(out, e.Key()); err != nil {
			return nil, err
		}
		if out, err = appendJSON(append(out, ':'), e.Value()); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Key(), err)
		}
	}
	return append(out, '}'), nil
}

func appendArray(out []byte, array bson.RawArray) ([]byte, error) {
	values, err := array.Values()
	if err != nil {
		return nil, err
	}
	out = append(out, '[')
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		if out, err = appendJSON(out, v); err != nil {
			return nil, fmt.Errorf("%d: %w", i, err)
		}
	}
	return append(out, ']'), nil
}

func appendText(out []byte, text string) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(text)
	return append(out, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...), err
}

func appendDouble(out []byte, x float64) ([]byte, error) {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return append(out, "null"...), nil
	}
	text, err := json.Marshal(x)
	return append(out, text...), err
}

func binary(subtype byte, data []byte) string {
	if subtype != bson.TypeBinaryUUID || len(data) != 16 {
		return base64.StdEncoding.EncodeToString(data)
	}
	text := hex.EncodeToString(data)
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}

// rfc3339 is the format of times in metadata.
func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
