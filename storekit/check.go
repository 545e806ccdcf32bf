package storekit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outmill/outmill"
)

// CheckRecords validates the records of one Append: the limits of every store, and the
// store's own limit of a payload's size in bytes (0 is none). It returns all violations,
// joined, and never changes a record. Stores call it before they write.
func CheckRecords(records []*outmill.Record, maxPayload int) error {
	var errs []error
	for i, r := range records {
		if r == nil {
			errs = append(errs, &outmill.InvalidRecordError{Index: i, Field: "record", Reason: "is nil"})
			continue
		}
		for _, v := range violations(r, maxPayload) {
			v.Index = i
			errs = append(errs, v)
		}
	}
	return errors.Join(errs...)
}

// GroupOf returns the name of the group, or outmill.DefaultGroup if it is empty. Stores
// call it for the groups that callers pass.
func GroupOf(name string) string { return cmp.Or(name, outmill.DefaultGroup) }

// CheckGroup validates a group's name; "" is outmill.DefaultGroup.
func CheckGroup(group string) error {
	if reason := checkName(group); reason != "" {
		return &outmill.InvalidRecordError{Index: -1, Field: "group", Reason: reason}
	}
	return nil
}

// CheckTopic validates a topic's name.
func CheckTopic(topic string) error {
	if reason := topicReason(topic); reason != "" {
		return &outmill.InvalidRecordError{Index: -1, Field: "topic", Reason: reason}
	}
	return nil
}

func violations(r *outmill.Record, maxPayload int) []*outmill.InvalidRecordError {
	var found []*outmill.InvalidRecordError
	add := func(field, reason string) {
		if reason != "" {
			found = append(found, &outmill.InvalidRecordError{Field: field, Reason: reason})
		}
	}
	add("topic", topicReason(r.Topic))
	add("key", checkName(r.Key))
	add("message id", checkText(r.MessageID, outmill.MaxTextLength))
	add("correlation id", checkText(r.CorrelationID, outmill.MaxTextLength))
	add("causation id", checkText(r.CausationID, outmill.MaxTextLength))
	add("tenant id", checkText(r.TenantID, outmill.MaxTextLength))
	add("traceparent", checkText(r.TraceParent, outmill.MaxTextLength))
	// W3C trace context lets a tracestate grow to 512 characters and more.
	add("tracestate", checkText(r.TraceState, 4*outmill.MaxTextLength))
	add("dedup key", checkName(r.DedupKey))
	add("due at", checkTime(r.DueAt))
	add("expires at", checkTime(r.ExpiresAt))
	if r.Delay < 0 {
		add("delay", fmt.Sprintf("is %s: want 0 or more", r.Delay))
	}
	if r.TimeToLive < 0 {
		add("time to live", fmt.Sprintf("is %s: want 0 or more", r.TimeToLive))
	}
	add("joins", joinsReason(r))
	found = append(found, contentViolations(r.Payload, r.Metadata, maxPayload)...)
	slices.SortFunc(found, func(a, b *outmill.InvalidRecordError) int { return cmp.Compare(a.Field, b.Field) })
	return found
}

// contentViolations are those of the payload and the metadata.
func contentViolations(payload []byte, metadata map[string]string, maxPayload int) []*outmill.InvalidRecordError {
	var found []*outmill.InvalidRecordError
	add := func(field, reason string) {
		found = append(found, &outmill.InvalidRecordError{Field: field, Reason: reason})
	}
	if maxPayload > 0 && len(payload) > maxPayload {
		add("payload", fmt.Sprintf("has %d bytes: the store takes at most %d; store the data elsewhere and publish a reference", len(payload),
			maxPayload))
	}
	size := 0
	for k, v := range metadata {
		size += len(k) + len(v)
		// The name is formatted only for an entry that is refused.
		if reason := checkText(k, 0); reason != "" {
			add(fmt.Sprintf("metadata name %q", clip(k)), reason)
		}
		if reason := checkText(v, 0); reason != "" {
			add(fmt.Sprintf("metadata %q", clip(k)), reason)
		}
	}
	if size > outmill.MaxMetadataBytes {
		add("metadata", fmt.Sprintf("has %d bytes: want at most %d; put large data in the payload", size, outmill.MaxMetadataBytes))
	}
	return found
}

// maxJoins is the largest number of joins of which a message may be a step.
const maxJoins = 100

const waitIsNoStep = "are set on a message that waits for a join: it cannot be a step too; set them on a message that its handler publishes"

// ErrWaitIsNoStep says that a record that waits for a join cannot be a step.
var ErrWaitIsNoStep error = &outmill.InvalidRecordError{Index: -1, Field: "joins", Reason: waitIsNoStep}

func joinsReason(r *outmill.Record) string {
	if len(r.Joins) > maxJoins {
		return fmt.Sprintf("are %d: want at most %d", len(r.Joins), maxJoins)
	}
	for i, id := range r.Joins {
		if id.IsZero() || slices.Contains(r.Joins[:i], id) {
			return "have a zero id or the same id twice: want each join once"
		}
	}
	if len(r.Joins) > 0 && r.DedupKey != "" {
		return "are set on a message with a dedup key: a skipped duplicate would be missing from its join; choose the id of the join " +
			"instead, so that a repeated start returns an error"
	}
	if len(r.Joins) > 0 && !r.WaitsFor.IsZero() {
		return waitIsNoStep
	}
	return ""
}

func topicReason(topic string) string {
	if topic == "" {
		return fmt.Sprintf("is empty: want 1 to %d characters", outmill.MaxTopicLength)
	}
	return checkName(topic)
}

// checkName is for topics, keys, dedup keys and groups, which every engine must compare in
// the same way. SQL Server's = ignores trailing blanks, so it refuses these.
func checkName(s string) string {
	if reason := checkText(s, outmill.MaxTopicLength); reason != "" {
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

// checkTime accepts only years that every engine can store.
func checkTime(t time.Time) string {
	if year := t.UTC().Year(); year < 1 || year > 9999 {
		return fmt.Sprintf("is in the year %d: want 1 to 9999", year)
	}
	return ""
}

// clip shortens text from outside this program for use in the text of an error.
func clip(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return clipTo(s, limit) + "…"
}

// clipTo returns the whole characters of the first bytes of the text.
func clipTo(s string, end int) string {
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
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

// CheckClaim returns an ErrInvalidConfig or ErrInvalidRecord for every invalid value of the
// request, joined. Stores call it before they claim.
func CheckClaim(r outmill.ClaimRequest) error {
	errs := []error{CheckGroup(r.Group), CheckTopics(r.Topics), CheckWorker(r.Worker)}
	invalid := func(bad bool, field string, value any, want string) {
		if bad {
			errs = append(errs, fmt.Errorf("%w: ClaimRequest.%s is %v: want %s", outmill.ErrInvalidConfig, field, value, want))
		}
	}
	invalid(r.Owner.IsZero(), "Owner", "zero", "a token from NewOwnerToken")
	invalid(r.Limit < 1, "Limit", r.Limit, "1 or more")
	invalid(r.MaxBytes < 0, "MaxBytes", r.MaxBytes, "0 (no bound) or more")
	invalid(r.MaxRecord < 0, "MaxRecord", r.MaxRecord, "0 (no bound) or more")
	invalid(r.MaxAttempts < 0, "MaxAttempts", r.MaxAttempts, "0 (no bound) or more")
	invalid(r.Lease <= 0, "Lease", r.Lease, "a duration above 0")
	invalid(r.Order < outmill.OrderNone || r.Order > outmill.OrderTopic, "Order", int(r.Order), "OrderNone, OrderKey or OrderTopic")
	invalid(r.KeyPolicy < outmill.KeyBlock || r.KeyPolicy > outmill.KeyPark, "KeyPolicy", int(r.KeyPolicy), "KeyBlock, KeySkip or KeyPark")
	invalid(r.Order == outmill.OrderTopic && r.KeyPolicy == outmill.KeyPark, "KeyPolicy", r.KeyPolicy, "KeyBlock or KeySkip with OrderTopic")
	return errors.Join(errs...)
}

func checkRegistration(r outmill.Registration) error {
	errs := []error{CheckGroup(r.Group), CheckTopics(r.Topics), CheckWorker(r.Worker)}
	if r.TTL < 0 {
		errs = append(errs, fmt.Errorf("%w: Registration.TTL is %s: want a duration above 0, or 0 for a registration that never ends",
			outmill.ErrInvalidConfig, r.TTL))
	}
	return errors.Join(append(errs, checkProblems(r.Problems), checkFailing(r.Failing), checkHandling(r), checkReads(r.Reads))...)
}

// WithGroups returns the registrations with outmill.DefaultGroup in place of an empty
// group.
func WithGroups(regs []outmill.Registration) []outmill.Registration {
	regs = slices.Clone(regs)
	for i := range regs {
		regs[i].Group = GroupOf(regs[i].Group)
	}
	return regs
}

// CheckRegistrations returns an ErrInvalidConfig or ErrInvalidRecord for every invalid
// value in the registrations of one call, joined. Stores call it.
func CheckRegistrations(regs []outmill.Registration) error {
	errs := make([]error, len(regs))
	for i, reg := range regs {
		errs[i] = checkRegistration(reg)
	}
	return errors.Join(errs...)
}

// CheckWorker validates a worker's name, for registrations and acks; "" is none. Stores
// call it.
func CheckWorker(name string) error {
	if reason := checkName(name); reason != "" {
		return &outmill.InvalidRecordError{Index: -1, Field: "worker", Reason: reason}
	}
	return nil
}

// CheckTopics returns an error for every entry of the selection that is not a valid
// pattern.
func CheckTopics(t outmill.Topics) error {
	var errs []error
	for _, entries := range [][]string{t.Include, t.Exclude} {
		for _, pattern := range entries {
			if field := checkText(pattern, 2*outmill.MaxTopicLength); pattern == "" || field != "" {
				errs = append(errs, &outmill.InvalidRecordError{Index: -1, Field: "topic pattern", Reason: cmp.Or(field, "is empty")})
			}
		}
	}
	return errors.Join(errs...)
}
