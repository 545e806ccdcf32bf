package cloudevents

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	prefix = "ce_"
	// longestName is the longest name that the specification recommends.
	longestName = 20
)

// own are the attributes that the marshaler sets, and a name that formats reserve.
var own = []string{"id", "source", "specversion", "type", "time", "datacontenttype", "data", strings.TrimPrefix(MetadataVersion, prefix)}

func attributeReason(name, value string) string {
	allowed := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' }
	switch {
	case name == "" || len(name) > longestName || strings.ContainsFunc(name, func(r rune) bool { return !allowed(r) }):
		return "has a name that CloudEvents does not allow: want 1 to 20 lower-case letters and digits"
	case slices.Contains(own, name):
		return "is set by the marshaler: leave it out"
	}
	return textReason(value)
}

func textReason(value string) string {
	switch {
	case !utf8.ValidString(value):
		return "is not valid UTF-8"
	case strings.ContainsFunc(value, unicode.IsControl):
		return "has a control character: leave it out"
	}
	return ""
}
