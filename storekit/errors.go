package storekit

import "strings"

// MaxErrorLength bounds what is kept of an error as LastError, in bytes.
const MaxErrorLength = 4096

// ParkedError is the LastError of a record that went dead with an earlier one of its key.
const ParkedError = "parked: an earlier record of its key went dead"

// CleanError makes an error's text storable by every engine: valid UTF-8, no
// NUL, at most MaxErrorLength bytes. Stores call it, so that one handler's text
// cannot fail the statement that settles its neighbours.
func CleanError(s string) string {
	s = s[:min(len(s), MaxErrorLength)]
	s = strings.ReplaceAll(s, "\x00", "\uFFFD") // three bytes for one
	s = s[:min(len(s), MaxErrorLength)]
	return strings.ToValidUTF8(s, "")
}
