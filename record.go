package outmill

import (
	"fmt"
	"time"
)

// Status is where a record is in its life. Every store, table, flag and
// metric uses these four words.
type Status string

const (
	// StatusPending is a record that waits to be claimed, now or when it is due.
	StatusPending Status = "pending"
	// StatusLeased is a record that an owner holds until its lease ends.
	StatusLeased Status = "leased"
	// StatusProcessed is a record that was acked, and is kept because the store retains records.
	StatusProcessed Status = "processed"
	// StatusDead is a record that will not be delivered again until it is requeued.
	StatusDead Status = "dead"
)

// ParseStatus parses one of the four words.
func ParseStatus(s string) (Status, error) {
	switch status := Status(s); status {
	case StatusPending, StatusLeased, StatusProcessed, StatusDead:
		return status, nil
	}
	return "", fmt.Errorf("outmill: status %q: want pending, leased, processed or dead", s)
}

// Record is one message in a store, for one group, with its delivery state.
//
// A writer fills the first block of fields, and a store the second one. Records are plain
// values without locks. The caller owns a record: a store keeps no reference to it, nor to
// its Payload and Metadata, after a call returns.
type Record struct {
	// ID is the id in the work queue. Append makes one where it is zero.
	ID WorkItemID
	// MessageID is the Watermill message UUID, constant across retries and
	// groups: what a consumer deduplicates by. At most 255 characters.
	MessageID string
	// Topic is 1 to 255 characters, compared case-sensitively.
	Topic string
	// Key: records of one topic and key are delivered one after the other, in
	// the order in which they were appended, to readers that claim in order.
	// "" is no key. At most 255 characters.
	Key string
	// Payload is opaque. nil and empty are stored alike.
	Payload []byte
	// Metadata is the Watermill metadata without what has a field here.
	Metadata map[string]string
	// CorrelationID groups the messages of one conversation; "" is none.
	CorrelationID string
	// CausationID is the MessageID of what caused this message; "" is none.
	CausationID string
	// TenantID names the tenant; "" is none.
	TenantID string
	// TraceParent and TraceState are the W3C trace context; "" is none.
	TraceParent, TraceState string
	// Delay postpones the first delivery, counted by the database's clock
	// from the moment of the append. It wins over DueAt.
	Delay time.Duration
	// DueAt is when the record may first be delivered; zero or past is at once.
	// A store fills it on delivery; retries do not move it, see NextAttemptAt.
	DueAt time.Time
	// ExpiresAt is when the record is no longer worth delivering: from then on
	// it is never claimed, but goes dead. Zero is never.
	ExpiresAt time.Time
	// TimeToLive sets ExpiresAt, counted by the database's clock from the
	// moment of the append. It wins over ExpiresAt. Zero is unused.
	TimeToLive time.Duration
	// DedupKey makes the append a no-op if the same topic and key were seen
	// within the store's dedup window, whatever became of that record; "" is
	// none. At most 255 characters.
	DedupKey string
	// Joins are the joins of which the message is a step, each once.
	// A store returns them in the order of the append, and behind them those of
	// AttachStep. An id stays when its join is deleted.
	Joins []JoinID
	// WaitsFor makes the record due as soon as that join is decided, where it
	// waits for its time; zero is none. It is for the message that finishes a join,
	// which can be no step of one itself.
	WaitsFor JoinID

	// Duplicate is set by Append on a record that it left out because of its
	// DedupKey.
	Duplicate bool
	// Store names the store that the record is in, where a store is made of several
	// (package tenants); "" elsewhere.
	Store string
	// Group is the group whose record this is. "" is a record that waits for the first
	// group that registers for its topic. It is not for the writer to set.
	Group string
	// Status is where the record is in its life.
	Status Status
	// CreatedAt is the database's time of the append.
	CreatedAt time.Time
	// NextAttemptAt is when a pending record may be claimed: when it is due, or
	// due again. Zero for other records, and for one that waits for an earlier
	// record of its key.
	NextAttemptAt time.Time
	// Attempts counts handlings that were abandoned, and expired leases of a
	// suspect record.
	Attempts int
	// Claims counts leases. Together with the owner it identifies one lease.
	Claims int
	// Expiries counts the leases that ran out since the record was last abandoned,
	// snoozed or requeued.
	Expiries int
	// Owner holds the lease; zero where there is none.
	Owner OwnerToken
	// LeaseUntil is when the lease ends, by the database's clock; zero where
	// there is none.
	LeaseUntil time.Time
	// LastError is what the last abandoned or failed handling said.
	LastError string
	// ProcessedAt and ProcessedBy are kept for processed records: when the record
	// was acked, and the name of the worker that did so; "" is none.
	ProcessedAt time.Time
	ProcessedBy string
}

// Size is the number of bytes that the record weighs against limits: payload,
// metadata and the text columns.
func (r *Record) Size() int {
	n := len(r.Payload) + len(r.MessageID) + len(r.Topic) + len(r.Key) +
		len(r.CorrelationID) + len(r.CausationID) + len(r.TenantID) +
		len(r.TraceParent) + len(r.TraceState) + len(r.DedupKey)
	for k, v := range r.Metadata {
		n += len(k) + len(v)
	}
	return n
}

// DefaultGroup is the group of readers that name none.
const DefaultGroup = "default"

// Lease is the lease under which the record was claimed.
func (r *Record) Lease() Lease {
	return Lease{ID: r.ID, Owner: r.Owner, Claim: r.Claims, Store: r.Store}
}

// SuspectExpiries is the number of expiries after which a record is suspected
// of killing its worker and is claimed alone. See [Queue].
const SuspectExpiries = 2

// Suspect reports whether the record's lease ran out so often that a claim
// hands it out alone.
func (r *Record) Suspect() bool { return r.Expiries >= SuspectExpiries }

// Lease identifies one claim of one record: a later claim of the same record,
// by the same owner too, is another lease.
type Lease struct {
	ID    WorkItemID
	Owner OwnerToken
	// Claim is the record's claim number.
	Claim int
	// Store is that of the record: it says which of several stores settles the lease.
	Store string
}
