package storekit

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/outmill/outmill/roles"
)

// ParseMetadata parses the metadata that [Appending.Metadata] wrote, a JSON object of
// texts, into a new map; null is a nil map. Nearly all objects have no escapes. It parses
// these without reflection, which takes a third of the time.
func ParseMetadata(data []byte) (map[string]string, error) {
	return ParseMetadataText(string(data))
}

// ParseMetadataText is ParseMetadata for a text, of which the names and values may be parts.
func ParseMetadataText(text string) (map[string]string, error) {
	parsed := make(map[string]string, strings.Count(text, ":"))
	if plainMetadata(text, func(name, value string) { parsed[name] = value }) {
		return parsed, nil
	}
	parsed = nil
	err := json.Unmarshal([]byte(text), &parsed)
	return parsed, err
}

// AppendMetadata is ParseMetadata to a list, which it appends to. The entries share the memory of the text.
func AppendMetadata(list []roles.MetadataEntry, text string) ([]roles.MetadataEntry, error) {
	begin := len(list)
	if plainMetadata(text, func(name, value string) { list = append(list, roles.MetadataEntry{Name: name, Value: value}) }) &&
		eachNameOnce(list[begin:]) {
		return list, nil
	}
	list = list[:begin]
	parsed, err := ParseMetadataText(text)
	for name, value := range parsed {
		list = append(list, roles.MetadataEntry{Name: name, Value: value})
	}
	return list, err
}

// eachNameOnce is false for an object that somebody has written by hand, and for one that would take long to look through.
func eachNameOnce(list []roles.MetadataEntry) bool {
	for i := range list {
		if i > 50 || slices.ContainsFunc(list[:i], func(e roles.MetadataEntry) bool { return e.Name == list[i].Name }) {
			return false
		}
	}
	return true
}

// plainMetadata calls entry with each entry of an object whose texts have no escapes. It returns false for all
// others, valid or not, which the library then parses.
func plainMetadata(text string, entry func(name, value string)) bool {
	if strings.IndexByte(text, '\\') >= 0 || !utf8.ValidString(text) {
		return false
	}
	rest, ok := afterByte(text, '{')
	if !ok {
		return false
	}
	if end, empty := afterByte(rest, '}'); empty {
		return onlySpace(end)
	}
	for {
		var name, value string
		if name, rest, ok = metadataText(rest); !ok {
			return false
		}
		if rest, ok = afterByte(rest, ':'); !ok {
			return false
		}
		if value, rest, ok = metadataText(rest); !ok {
			return false
		}
		entry(name, value)
		if end, is := afterByte(rest, '}'); is {
			return onlySpace(end)
		}
		if rest, ok = afterByte(rest, ','); !ok {
			return false
		}
	}
}

// metadataText parses a text up to its closing quote.
func metadataText(text string) (read, rest string, ok bool) {
	if text, ok = afterByte(text, '"'); !ok {
		return "", "", false
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"':
			return text[:i], text[i+1:], true
		case c < ' ':
			return "", "", false
		}
	}
	return "", "", false
}

const jsonSpace = " \t\r\n"

// onlySpace reports whether only white space is left.
func onlySpace(text string) bool { return strings.TrimLeft(text, jsonSpace) == "" }

// afterByte skips white space and the character c.
func afterByte(text string, c byte) (rest string, ok bool) {
	if text == "" || text[0] != c {
		text = strings.TrimLeft(text, jsonSpace)
	}
	if text == "" || text[0] != c {
		return "", false
	}
	return text[1:], true
}

// writePlain writes an object, with its names in order, if no text in it needs an escape. It writes what the library does, which takes
// four times as long.
func writePlain(metadata map[string]string) (text string, plain bool) {
	const few = 16
	size := len("{}")
	names := make([]string, 0, few)
	for name, value := range metadata {
		if len(names) == few || !isPlain(name) || !isPlain(value) {
			return "", false
		}
		names, size = append(names, name), size+len(name)+len(value)+len(`"":"",`)
	}
	slices.Sort(names)
	var into strings.Builder
	into.Grow(size)
	for i, name := range names {
		into.WriteString(begins[min(i, 1)])
		into.WriteString(name)
		into.WriteString(`":"`)
		into.WriteString(metadata[name])
	}
	into.WriteString(`"}`)
	return into.String(), true
}

// begins are what stands before the first name of an object, and before the others.
var begins = [...]string{`{"`, `","`}

// isPlain reports whether the library writes the text as it is.
func isPlain(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c >= utf8.RuneSelf, c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}
