package outmill

import (
	"fmt"
	"time"
)

// Status is a record's state. Every store, table, flag and metric uses these four words.
type Status string

const (
	// StatusPending says that the record waits to be claimed, now or when it is due.
	StatusPending Status = "pending"
	// StatusLeased says that an owner holds the record until its lease ends.
	StatusLeased Status = "leased"
	// StatusProcessed says that the record was acked, and the store retains it.
	StatusProcessed Status = "processed"
	// StatusDead says that the record is not delivered again until an operator requeues it.
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
	// ID is the id in the work queue. Append makes one if it is zero.
	ID WorkItemID
	// MessageID is the Watermill message UUID. It stays the same across retries and groups, so
	// consumers deduplicate by it. At most 255 characters.
	MessageID string
	// Topic is 1 to 255 characters, compared case-sensitively.
	Topic string
	// Key orders records: readers that claim in order get the records of one topic and key one
	// after the other, in the order of their appends. "" is no key. At most 255 characters.
	Key string
	// Payload is opaque. nil stays nil, and empty stays empty: see the forwarder, whose record in
	// Kafka is a tombstone if the payload is nil.
	Payload []byte
	// Metadata is the Watermill metadata, except the entries that have a field here.
	Metadata map[string]string
	// CorrelationID groups the messages of one conversation; "" is none.
	CorrelationID string
	// CausationID is the MessageID of the message that caused this one; "" is none.
	CausationID string
	// TenantID names the tenant; "" is none.
	TenantID string
	// TraceParent and TraceState are the W3C trace context; "" is none.
	TraceParent, TraceState string
	// Delay postpones the first delivery, counted by the database's clock from the moment of
	// the append. It overrides DueAt.
	Delay time.Duration
	// DueAt is the earliest time of the first delivery; zero or a past time is at once. A
	// store fills it on delivery, for a record that was due at once with the time of its append;
	// retries do not move it, see NextAttemptAt.
	DueAt time.Time
	// ExpiresAt is the time from which the record is never claimed, but goes dead. Zero is
	// never.
	ExpiresAt time.Time
	// TimeToLive sets ExpiresAt, counted by the database's clock from the moment of the
	// append. It overrides ExpiresAt. Zero leaves ExpiresAt as it is.
	TimeToLive time.Duration
	// DedupKey makes the append a no-op if a record with the same topic and key was appended
	// within the store's dedup window, even if that record is gone. "" is none. At most 255
	// characters.
	DedupKey string
	// Joins are the joins of which the message is a step, each once. A store returns them in
	// the order of the append, followed by those of AttachStep. Deleting a join does not
	// remove its id here.
	Joins []JoinID
	// WaitsFor makes the record due as soon as that join is decided, even if its due time is
	// later; zero is none. It is for the message that finishes a join; such a message cannot
	// be a step of a join itself.
	WaitsFor JoinID

	// Duplicate is set by Append on a record that it skipped because of its DedupKey.
	Duplicate bool
	// Store is the name of the record's store, if the reader's store is made of several
	// (package tenants); "" otherwise.
	Store string
	// Group is the group that the record belongs to. "" means that the record waits for the
	// first group that registers for its topic. Writers do not set it.
	Group string
	// CopiedTo is set by Append on a record whose topic several groups read: the further
	// groups, by name. The id of such a group's record is CopyID(ID, group). It is nil if there are
	// none. The records of a call may share the list: do not change it.
	CopiedTo []string
	// Status is the record's state.
	Status Status
	// CreatedAt is the database's time of the append.
	CreatedAt time.Time
	// NextAttemptAt is when a pending record becomes due, or due again after a retry or
	// snooze. It is zero for other records, and for a record that an ordered claim has found
	// to wait for an earlier record of its key, until a record of that key is settled.
	NextAttemptAt time.Time
	// Attempts counts handlings that were abandoned or have failed, and expired leases of a
	// suspect record. So a dead record has the number of its handlings: 1 if the first one has
	// failed.
	Attempts int
	// Claims counts the record's leases. Together with the owner it identifies one lease.
	Claims int
	// Expiries counts the leases that ran out since the record was last abandoned,
	// snoozed or requeued.
	Expiries int
	// Owner holds the lease; zero where there is none.
	Owner OwnerToken
	// Worker is the name of the worker that holds the lease (ClaimRequest.Worker); "" where
	// there is none.
	Worker string
	// LeaseUntil is when the lease ends, by the database's clock; zero where
	// there is none.
	LeaseUntil time.Time
	// LastError is the error text of the last handling that was abandoned or failed.
	LastError string
	// Unreadable says which parts of the record the store cannot decode, and why; "" is none. These
	// fields are zero. Somebody has changed the record by hand, or a disk has. The next claim
	// makes it dead. Inspector and Janitor work on it as on any other.
	Unreadable string
	// History has the last attempts that Attempts has counted, up to ten, the newest first; fewer
	// if their texts are long. Requeue keeps them. Only Inspector.Get fills it.
	History []Attempt
	// ProcessedAt and ProcessedBy are kept for processed records: when the record
	// was acked, and the name of the worker that did so; "" is none.
	ProcessedAt time.Time
	ProcessedBy string
}

// Attempt is one handling of a record that did not succeed.
type Attempt struct {
	// At is when the outcome was stored, or when the lease ended of which none was stored.
	At time.Time
	// Worker is the name of the worker (ClaimRequest.Worker).
	Worker string
	// Error has the first 256 characters of the error.
	Error string
}

// Size is the number of bytes that count against limits: payload, metadata and the text
// columns.
func (r *Record) Size() int {
	n := len(r.Payload) + len(r.MessageID) + len(r.Topic) + len(r.Key) +
		len(r.CorrelationID) + len(r.CausationID) + len(r.TenantID) +
		len(r.TraceParent) + len(r.TraceState) + len(r.DedupKey)
	for k, v := range r.Metadata {
		n += len(k) + len(v)
	}
	return n
}

// DefaultGroup is the group of readers that name no group.
const DefaultGroup = "default"

// Lease returns the lease under which the record was claimed.
func (r *Record) Lease() Lease {
	return Lease{ID: r.ID, Owner: r.Owner, Claim: r.Claims, Store: r.Store}
}

// SuspectExpiries is the number of expired leases after which a record is a suspect: it may
// kill its worker, so a claim returns it alone. See [Queue].
const SuspectExpiries = 2

// Suspect reports whether a claim returns the record alone, because its lease expired
// [SuspectExpiries] times.
func (r *Record) Suspect() bool { return r.Expiries >= SuspectExpiries }

// Lease identifies one claim of one record. A later claim of the same record is another
// lease, even if the owner is the same.
type Lease struct {
	ID    WorkItemID
	Owner OwnerToken
	// Claim is the record's claim number.
	Claim int
	// Store is that of the record: it says which of several stores settles the lease.
	Store string
}
