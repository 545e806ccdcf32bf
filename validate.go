package outmill

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of the text fields, in UTF-16 units (as SQL Server counts), the same
// in every store.
const (
	MaxTopicLength = 255
	MaxTextLength  = 255
)

// MaxMetadataBytes bounds the names and values of one record's metadata together, the
// same in every store: engines index, parse and compare it, so data goes to the payload.
const MaxMetadataBytes = 4 << 20

// ErrInvalidRecord is what every [InvalidRecordError] is.
var ErrInvalidRecord = errors.New("outmill: invalid record")

// InvalidRecordError says which field of which record of a call is refused,
// and why. Nothing of that call was written.
type InvalidRecordError struct {
	// Index is the record's place in the call, -1 where there is none.
	Index int
	// Field names the field as the vocabulary does: topic, payload, key, ….
	Field string
	// Reason says what is wrong and what would be right.
	Reason string
}

func (e *InvalidRecordError) Error() string {
	if e.Index < 0 {
		return fmt.Sprintf("%s: %s %s", ErrInvalidRecord, e.Field, e.Reason)
	}
	return fmt.Sprintf("%s %d: %s %s", ErrInvalidRecord, e.Index, e.Field, e.Reason)
}

// Is makes errors.Is(err, ErrInvalidRecord) true.
func (e *InvalidRecordError) Is(target error) bool { return target == ErrInvalidRecord }

// CheckRecords validates the records of one Append: the limits that hold in
// every store, and the store's own limit of a payload's size in bytes (0 is
// none). It returns every violation, joined, and never mutates a record.
// Stores call it before they write.
func CheckRecords(records []*Record, maxPayload int) error {
	var errs []error
	for i, r := range records {
		if r == nil {
			errs = append(errs, &InvalidRecordError{Index: i, Field: "record", Reason: "is nil"})
			continue
		}
		for _, v := range r.violations(maxPayload) {
			v.Index = i
			errs = append(errs, v)
		}
	}
	return errors.Join(errs...)
}

// CheckGroup validates a group's name; "" is the default group.
func CheckGroup(group string) error {
	if reason := checkName(group); reason != "" {
		return &InvalidRecordError{Index: -1, Field: "group", Reason: reason}
	}
	return nil
}

// CheckTopic validates a topic's name.
func CheckTopic(topic string) error {
	if reason := topicReason(topic); reason != "" {
		return &InvalidRecordError{Index: -1, Field: "topic", Reason: reason}
	}
	return nil
}

func (r *Record) violations(maxPayload int) []*InvalidRecordError {
	var found []*InvalidRecordError
	add := func(field, reason string) {
		if reason != "" {
			found = append(found, &InvalidRecordError{Field: field, Reason: reason})
		}
	}
	add("topic", topicReason(r.Topic))
	add("key", checkName(r.Key))
	add("message id", checkText(r.MessageID, MaxTextLength))
	add("correlation id", checkText(r.CorrelationID, MaxTextLength))
	add("causation id", checkText(r.CausationID, MaxTextLength))
	add("tenant id", checkText(r.TenantID, MaxTextLength))
	add("traceparent", checkText(r.TraceParent, MaxTextLength))
	// W3C trace context lets a tracestate grow to 512 characters and more.
	add("tracestate", checkText(r.TraceState, 4*MaxTextLength))
	add("dedup key", checkName(r.DedupKey))
	add("due at", checkTime(r.DueAt))
	add("expires at", checkTime(r.ExpiresAt))
	if r.Delay < 0 {
		add("delay", fmt.Sprintf("is %s: want 0 or more", r.Delay))
	}
	if r.TimeToLive < 0 {
		add("time to live", fmt.Sprintf("is %s: want 0 or more", r.TimeToLive))
	}
	if maxPayload > 0 && len(r.Payload) > maxPayload {
		add("payload", fmt.Sprintf("has %d bytes: the store takes at most %d; store the data elsewhere and publish a reference", len(r.Payload), maxPayload))
	}
	add("joins", r.joinsReason())
	metadata := 0
	for k, v := range r.Metadata {
		metadata += len(k) + len(v)
		// Names are formatted for those that are refused only.
		if reason := checkText(k, 0); reason != "" {
			add(fmt.Sprintf("metadata name %q", clip(k)), reason)
		}
		if reason := checkText(v, 0); reason != "" {
			add(fmt.Sprintf("metadata %q", clip(k)), reason)
		}
	}
	if metadata > MaxMetadataBytes {
		add("metadata", fmt.Sprintf("has %d bytes: want at most %d; put large data in the payload", metadata, MaxMetadataBytes))
	}
	slices.SortFunc(found, func(a, b *InvalidRecordError) int { return cmp.Compare(a.Field, b.Field) })
	return found
}

// maxJoins is how many joins a message may be a step of.
const maxJoins = 100

const waitIsNoStep = "are set on a message that waits for a join: such a message is no step; make what it publishes one"

// WaitIsNoStep is for stores that are to make a step of a record that waits
// for a join: an ErrInvalidRecord.
func WaitIsNoStep() error {
	return &InvalidRecordError{Index: -1, Field: "joins", Reason: waitIsNoStep}
}

func (r *Record) joinsReason() string {
	if len(r.Joins) > maxJoins {
		return fmt.Sprintf("are %d: want at most %d", len(r.Joins), maxJoins)
	}
	for i, id := range r.Joins {
		if id.IsZero() || slices.Contains(r.Joins[:i], id) {
			return "has an id that is zero, or twice the same: want each join once"
		}
	}
	if len(r.Joins) > 0 && r.DedupKey != "" {
		return "are set on a message with a dedup key: a duplicate would be missing from its join; choose the join's own id, so that a repeated start is told"
	}
	if len(r.Joins) > 0 && !r.WaitsFor.IsZero() {
		return waitIsNoStep
	}
	return ""
}

func topicReason(topic string) string {
	if topic == "" {
		return fmt.Sprintf("is empty: want 1 to %d characters", MaxTopicLength)
	}
	return checkName(topic)
}

// checkName is for topics, keys, dedup keys and groups, which every engine must
// compare alike: SQL Server ignores blanks at the end in =.
func checkName(s string) string {
	if reason := checkText(s, MaxTopicLength); reason != "" {
		return reason
	}
	if strings.TrimSpace(s) != s {
		return "begins or ends with a blank: trim it"
	}
	return ""
}

// checkText is for every text column; limit 0 is none.
func checkText(s string, limit int) string {
	switch {
	case !utf8.ValidString(s):
		return "is not valid UTF-8"
	case strings.IndexByte(s, 0) >= 0:
		return "has a NUL byte: not every engine can store it"
	case limit > 0 && len(s) > limit && utf16Length(s) > limit:
		return fmt.Sprintf("has %d characters: want at most %d", utf16Length(s), limit)
	}
	return ""
}

// checkTime keeps to the years that every engine can store.
func checkTime(t time.Time) string {
	if year := t.UTC().Year(); year < 1 || year > 9999 {
		return fmt.Sprintf("is in the year %d: want 1 to 9999", year)
	}
	return ""
}

// clip shortens text that somebody else wrote for use in an error's text.
func clip(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	end := limit
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

func utf16Length(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}
