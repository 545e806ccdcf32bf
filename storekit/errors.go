package storekit

import (
	"fmt"
	"strings"
)

// MaxErrorLength is the largest length of LastError, in bytes; longer texts are cut.
const MaxErrorLength = 4096

// UnreadableError is how the LastError of a record begins that a claim could not decode.
const UnreadableError = "outmill: the record cannot be read"

// TooLargeError is how the LastError of a record begins that is larger than the publisher of its reader can take.
const TooLargeError = "outmill: the record is larger than the publisher can take"

// Undeliverable reports whether a LastError is that of a record that a claim has made dead, because no reader can
// handle it.
func Undeliverable(lastError string) bool {
	return strings.HasPrefix(lastError, UnreadableError) || strings.HasPrefix(lastError, TooLargeError)
}

const suspectError = "outmill: the lease expired"

// SuspectError is the LastError of a suspect that went dead, because its attempts are used up.
func SuspectError(expiries int) string {
	return fmt.Sprintf("%s %d times: the record may be killing its workers, or hanging them", suspectError, expiries)
}

// EndedByClaim reports whether a LastError is that of a record that a claim may have made dead by itself.
func EndedByClaim(lastError string) bool {
	return Undeliverable(lastError) || strings.HasPrefix(lastError, suspectError)
}

// ParkedError is the LastError of a record that went dead with an earlier one of its key.
const ParkedError = "parked: an earlier record of its key went dead"

// CleanError makes an error's text storable by every engine: valid UTF-8, no NUL, at most
// MaxErrorLength bytes. Stores call it, so that the text of one handler cannot fail the
// statement that settles other records too.
func CleanError(s string) string {
	s = s[:min(len(s), MaxErrorLength)]
	s = strings.ReplaceAll(s, "\x00", "\uFFFD") // three bytes for one
	s = s[:min(len(s), MaxErrorLength)]
	return strings.ToValidUTF8(s, "")
}
