package storekit

import (
	"regexp"

	"github.com/outmill/outmill"
)

// maxErrorText is the most bytes of an error in a report.
const maxErrorText = 300

var (
	urlInText    = regexp.MustCompile("[A-Za-z][A-Za-z0-9+.-]*://[^\\s\"'`<>]+")
	secretInText = regexp.MustCompile(`(?i)\b((?:[a-z_]*(?:password|passwd|pwd|secret|token))["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;&]+)`)
)

// ErrorText returns the text of an error for reports that other people read: passwords in URLs and
// in settings such as password=… are replaced, and the text is cut to 300 characters and has nothing
// that a store cannot keep. A driver's own errors hide passwords already; those of a user's own
// hooks may not.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	text := urlInText.ReplaceAllStringFunc(err.Error(), outmill.RedactURL)
	text = secretInText.ReplaceAllString(text, "${1}xxxxx")
	return cutText(text, maxErrorText)
}
