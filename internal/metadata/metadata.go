// Package metadata reads the metadata of records as stores keep it: a JSON object
// of texts.
package metadata

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Parse reads a JSON object of texts into a map of its own; null is no map. Nearly
// all objects have nothing that is escaped, and are read without reflection, which
// takes a third of the time.
func Parse(data []byte) (map[string]string, error) {
	if parsed, ok := plain(data); ok {
		return parsed, nil
	}
	var parsed map[string]string
	err := json.Unmarshal(data, &parsed)
	return parsed, err
}

// plain reads objects whose texts have no escapes, and leaves all others, valid or
// not, to the library.
func plain(data []byte) (map[string]string, bool) {
	if bytes.IndexByte(data, '\\') >= 0 || !utf8.Valid(data) {
		return nil, false
	}
	rest, ok := after(data, '{')
	if !ok {
		return nil, false
	}
	parsed := make(map[string]string, bytes.Count(data, []byte{':'}))
	if end, empty := after(rest, '}'); empty {
		return parsed, nothing(end)
	}
	for {
		var name, value string
		if name, rest, ok = text(rest); !ok {
			return nil, false
		}
		if rest, ok = after(rest, ':'); !ok {
			return nil, false
		}
		if value, rest, ok = text(rest); !ok {
			return nil, false
		}
		parsed[name] = value
		if end, is := after(rest, '}'); is {
			return parsed, nothing(end)
		}
		if rest, ok = after(rest, ','); !ok {
			return nil, false
		}
	}
}

// text reads a text up to its closing quote.
func text(data []byte) (read string, rest []byte, ok bool) {
	if data, ok = after(data, '"'); !ok {
		return "", nil, false
	}
	for i, c := range data {
		switch {
		case c == '"':
			return string(data[:i]), data[i+1:], true
		case c < ' ':
			return "", nil, false
		}
	}
	return "", nil, false
}

const space = " \t\r\n"

// nothing tells whether only white space is left.
func nothing(data []byte) bool { return len(bytes.TrimLeft(data, space)) == 0 }

// after skips white space and the character c.
func after(data []byte, c byte) (rest []byte, ok bool) {
	data = bytes.TrimLeft(data, space)
	if len(data) == 0 || data[0] != c {
		return nil, false
	}
	return data[1:], true
}
