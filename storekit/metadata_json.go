package storekit

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// ParseMetadata parses the metadata that [Appending.Metadata] wrote, a JSON object of
// texts, into a new map; null is a nil map. Nearly all objects have no escapes. It parses
// these without reflection, which takes a third of the time.
func ParseMetadata(data []byte) (map[string]string, error) {
	if parsed, ok := plainMetadata(data); ok {
		return parsed, nil
	}
	var parsed map[string]string
	err := json.Unmarshal(data, &parsed)
	return parsed, err
}

// plainMetadata parses objects whose texts have no escapes. It returns false for all
// others, valid or not, which the library then parses.
func plainMetadata(data []byte) (map[string]string, bool) {
	if bytes.IndexByte(data, '\\') >= 0 || !utf8.Valid(data) {
		return nil, false
	}
	rest, ok := afterByte(data, '{')
	if !ok {
		return nil, false
	}
	parsed := make(map[string]string, bytes.Count(data, []byte{':'}))
	if end, empty := afterByte(rest, '}'); empty {
		return parsed, onlySpace(end)
	}
	for {
		var name, value string
		if name, rest, ok = metadataText(rest); !ok {
			return nil, false
		}
		if rest, ok = afterByte(rest, ':'); !ok {
			return nil, false
		}
		if value, rest, ok = metadataText(rest); !ok {
			return nil, false
		}
		parsed[name] = value
		if end, is := afterByte(rest, '}'); is {
			return parsed, onlySpace(end)
		}
		if rest, ok = afterByte(rest, ','); !ok {
			return nil, false
		}
	}
}

// metadataText parses a text up to its closing quote.
func metadataText(data []byte) (read string, rest []byte, ok bool) {
	if data, ok = afterByte(data, '"'); !ok {
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

const jsonSpace = " \t\r\n"

// onlySpace reports whether only white space is left.
func onlySpace(data []byte) bool { return len(bytes.TrimLeft(data, jsonSpace)) == 0 }

// afterByte skips white space and the character c.
func afterByte(data []byte, c byte) (rest []byte, ok bool) {
	data = bytes.TrimLeft(data, jsonSpace)
	if len(data) == 0 || data[0] != c {
		return nil, false
	}
	return data[1:], true
}
