package storekit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// FingerprintOf identifies the payload and the metadata of a record: two parts of hexadecimal
// digits of SHA-256, with a "-" between them; zeros stand for a nil payload. A short payload can
// be guessed from it, so treat it like the length of the payload, and not like a secret.
func FingerprintOf(r *outmill.Record) string {
	return fingerprintOfPayload(r.Payload) + fingerprintMark + fingerprintOfMetadata(r.Metadata)
}

const fingerprintMark = "-"

func fingerprintOfPayload(payload []byte) string {
	if payload == nil {
		return digits([sha256.Size]byte{})
	}
	return digits(sha256.Sum256(payload))
}

func fingerprintOfMetadata(metadata map[string]string) string {
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		// The lengths tell where each text ends.
		fmt.Fprintf(hash, "%d %d %s%s", len(name), len(metadata[name]), name, metadata[name])
	}
	return digits([sha256.Size]byte(hash.Sum(nil)))
}

func digits(sum [sha256.Size]byte) string { return hex.EncodeToString(sum[:16]) }

// CheckEdit refuses an edit that no record can take. maxPayload is the store's limit in bytes; 0
// is none.
func CheckEdit(e roles.Edit, maxPayload int) error {
	if e.Payload == nil && e.Metadata == nil {
		return InvalidConfig("Edit changes nothing: set Edit.Payload or Edit.Metadata")
	}
	if payload, metadata, ok := strings.Cut(e.Seen, fingerprintMark); !ok || len(payload) != sha256.Size || len(metadata) != sha256.Size {
		return InvalidConfig("Edit.Seen is %q: want the FingerprintOf the record that you saw", clip(e.Seen))
	}
	var errs []error
	for _, v := range contentViolations(e.Payload, e.Metadata, maxPayload) {
		v.Index = -1
		errs = append(errs, v)
	}
	return errors.Join(errs...)
}

// ApplyEdit returns the record as it is after the edit. same says that it is so already.
func ApplyEdit(e roles.Edit, before *outmill.Record) (after *outmill.Record, same bool, err error) {
	if before.Status != outmill.StatusDead {
		return nil, false, fmt.Errorf("%w; it is %s", roles.ErrNotDead, before.Status)
	}
	edited := *before
	if e.Payload != nil {
		edited.Payload = e.Payload
	}
	if e.Metadata != nil {
		edited.Metadata = e.Metadata
	}
	if len(edited.Metadata) == 0 {
		edited.Metadata = nil
	}
	if samePayload(edited.Payload, before.Payload) && maps.Equal(edited.Metadata, before.Metadata) && mayHaveMade(e, before) {
		return before, true, nil
	}
	if e.Seen != FingerprintOf(before) {
		return nil, false, roles.ErrRecordChanged
	}
	for _, name := range changedNames(before.Metadata, edited.Metadata) {
		if reason := keptByEdit(name); reason != "" {
			return nil, false, &outmill.InvalidRecordError{Index: -1, Field: fmt.Sprintf("metadata %q", name), Reason: reason}
		}
	}
	return &edited, false, nil
}

// samePayload tells a nil payload from an empty one.
func samePayload(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// mayHaveMade reports whether the record may be the result of this edit: what the edit leaves
// is as the caller saw it. So an edit whose answer was lost can be repeated.
func mayHaveMade(e roles.Edit, r *outmill.Record) bool {
	payload, metadata, _ := strings.Cut(e.Seen, fingerprintMark)
	return (e.Payload != nil || fingerprintOfPayload(r.Payload) == payload) &&
		(e.Metadata != nil || fingerprintOfMetadata(r.Metadata) == metadata)
}

// keptByEdit is why an edit cannot change the metadata of that name; "" means that it can.
func keptByEdit(name string) string {
	switch name {
	case outmill.MetadataKey, outmill.MetadataCorrelationID, outmill.MetadataCausationID, outmill.MetadataTenantID,
		outmill.MetadataTraceParent, outmill.MetadataTraceState:
		return "is a field of the record, which an edit does not change: publish a new message, and skip this one"
	}
	return ""
}

// changedNames are the names that only one of the maps has, or that have two values, sorted.
func changedNames(before, after map[string]string) []string {
	var names []string
	for name, value := range before {
		if now, kept := after[name]; !kept || now != value {
			names = append(names, name)
		}
	}
	for name := range after {
		if _, had := before[name]; !had {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
