// Package jsondoc stores JSON objects as documents of MongoDB that can be written back byte for byte.
package jsondoc

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// mostDepth is far below the 100 levels to which a document may nest.
const mostDepth = 50

// Of returns the document of a JSON object, if it has at most limit bytes and Text returns the same bytes, because others may have signed
// them, or may compare them. That holds for what encoding/json and JavaScript's JSON.stringify write. escaped says that HTML is escaped.
func Of(text []byte, limit int) (document bson.Raw, escaped, ok bool) {
	fields, err := documentOfJSON(text)
	if err != nil {
		return nil, false, false
	}
	raw, err := bson.Marshal(fields)
	if err != nil || len(raw) > limit {
		return nil, false, false
	}
	for _, escaped := range []bool{true, false} {
		if again, err := jsonOf(raw, escaped, len(text)); err == nil && bytes.Equal(again, text) {
			return raw, escaped, true
		}
	}
	return nil, false, false
}

// Text returns the JSON of a document. If it has a value that JSON does not have, such as NaN, because somebody has written it, Text
// returns MongoDB's extended JSON.
func Text(document bson.Raw, escaped bool) []byte {
	text, err := jsonOf(document, escaped, len(document))
	if err != nil {
		return []byte(document.String())
	}
	return text
}

var errStaysBinary = errors.New("no document stands for the same bytes as the payload")

// documentOfJSON reads one JSON object, with its fields in their order.
func documentOfJSON(text []byte) (bson.D, error) {
	if len(text) == 0 || text[0] != '{' {
		return nil, errStaysBinary
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if _, err := decoder.Token(); err != nil {
		return nil, err
	}
	fields, err := readObject(decoder, 1)
	if err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errStaysBinary
	}
	return fields, nil
}

func readObject(decoder *json.Decoder, depth int) (bson.D, error) {
	fields := bson.D{}
	names := map[string]bool{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string)
		// A query could not name such a field, and would find only one of two fields with one
		// name.
		if name == "" || names[name] || strings.HasPrefix(name, "$") || strings.ContainsAny(name, ".\x00") {
			return nil, errStaysBinary
		}
		names[name] = true
		value, err := readValue(decoder, depth)
		if err != nil {
			return nil, err
		}
		fields = append(fields, bson.E{Key: name, Value: value})
	}
	_, err := decoder.Token()
	return fields, err
}

func readArray(decoder *json.Decoder, depth int) (bson.A, error) {
	values := bson.A{}
	for decoder.More() {
		value, err := readValue(decoder, depth)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	_, err := decoder.Token()
	return values, err
}

func readValue(decoder *json.Decoder, depth int) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	if depth == mostDepth {
		return nil, errStaysBinary
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return readObject(decoder, depth+1)
		}
		return readArray(decoder, depth+1)
	case json.Number:
		return numberOf(token.String())
	}
	return token, nil
}

// numberOf returns the simplest type of number whose JSON is the same text.
func numberOf(text string) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && strconv.FormatInt(n, 10) == text {
		if n >= math.MinInt32 && n <= math.MaxInt32 {
			return int32(n), nil
		}
		return n, nil
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		if again, err := json.Marshal(f); err == nil && string(again) == text {
			return f, nil
		}
	}
	if exact, err := bson.ParseDecimal128(text); err == nil && exact.String() == text {
		return exact, nil
	}
	return nil, errStaysBinary
}

// jsonOf writes a document as compact JSON. If escaped is true, it escapes HTML, as encoding/json
// does by default.
func jsonOf(raw bson.Raw, escaped bool, size int) ([]byte, error) {
	w := &jsonWriter{}
	w.out.Grow(size)
	w.strings = json.NewEncoder(&w.out)
	w.strings.SetEscapeHTML(escaped)
	if err := w.object(raw); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

type jsonWriter struct {
	out     bytes.Buffer
	strings *json.Encoder
}

func (w *jsonWriter) object(raw bson.Raw) error {
	elements, err := raw.Elements()
	if err != nil {
		return err
	}
	w.out.WriteByte('{')
	for i, element := range elements {
		if i > 0 {
			w.out.WriteByte(',')
		}
		if err := w.text(element.Key()); err != nil {
			return err
		}
		w.out.WriteByte(':')
		if err := w.value(element.Value()); err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	return nil
}

func (w *jsonWriter) array(raw bson.RawArray) error {
	values, err := raw.Values()
	if err != nil {
		return err
	}
	w.out.WriteByte('[')
	for i, value := range values {
		if i > 0 {
			w.out.WriteByte(',')
		}
		if err := w.value(value); err != nil {
			return err
		}
	}
	w.out.WriteByte(']')
	return nil
}

func (w *jsonWriter) value(value bson.RawValue) error {
	switch value.Type {
	case bson.TypeEmbeddedDocument:
		return w.object(value.Document())
	case bson.TypeArray:
		return w.array(value.Array())
	case bson.TypeString:
		return w.text(value.StringValue())
	case bson.TypeDecimal128:
		w.out.WriteString(value.Decimal128().String())
		return nil
	default:
		return w.plain(value)
	}
}

// plain writes values that encoding/json writes in one way only: numbers, true, false, null.
func (w *jsonWriter) plain(value bson.RawValue) error {
	var plain any
	if err := value.Unmarshal(&plain); err != nil {
		return err
	}
	text, err := json.Marshal(plain)
	w.out.Write(text)
	return err
}

// text writes a string, without the newline that the encoder adds.
func (w *jsonWriter) text(s string) error {
	if err := w.strings.Encode(s); err != nil {
		return err
	}
	w.out.Truncate(w.out.Len() - 1)
	return nil
}
