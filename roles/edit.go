package roles

import (
	"errors"
)

var (
	// ErrNotDead says that Edit and Skip change dead records only. Nothing was changed.
	ErrNotDead = errors.New("outmill: the record is not dead: only dead records can be edited or skipped")
	// ErrRecordChanged says that the payload or the metadata of a record has changed since the
	// caller of Edit saw it. Nothing was changed.
	ErrRecordChanged = errors.New("outmill: the record has changed since it was read: read it again, and repeat the edit if it still fits")
)

// Edit says how to change a dead record. See Repairs.
type Edit struct {
	// Seen is the storekit.FingerprintOf the record as the caller saw it.
	Seen string
	// Payload is the new payload; nil leaves the payload as it is, and an empty slice makes it
	// empty. An edit cannot make a payload nil.
	Payload []byte
	// Metadata is the whole new metadata; nil leaves it as it is, and an empty map removes it.
	Metadata map[string]string
}
