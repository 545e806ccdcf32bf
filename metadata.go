package outmill

import (
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

// Metadata names that identify the message. They become columns of the record, no matter
// who has set them, and return in the metadata on delivery. What instructs the append is an [Instruction]
// instead, and does not return: otherwise a poison queue that publishes the message again would
// find it deduplicated, delayed or expired. [Delivery] returns these values.
const (
	MetadataKey           = "outmill_key"
	MetadataCorrelationID = middleware.CorrelationIDMetadataKey
	MetadataCausationID   = "causation_id"
	MetadataTenantID      = "tenant_id"
	MetadataTraceParent   = "traceparent"
	MetadataTraceState    = "tracestate"
)

// MetadataOccurredAt names metadata that gets no column: the time at which the event that
// the message reports happened. See [SetOccurredAt].
const MetadataOccurredAt = "outmill_occurred_at"

// Metadata names that get no column: the contract of the message and its version, a number,
// which package contracts writes. See [ListQuery].
const (
	MetadataContract        = "outmill_contract"
	MetadataContractVersion = "outmill_contract_version"
)

// SetKey gives the message a key. Ordered readers handle the messages of one topic and key
// one after the other, and Kafka stores them in one partition.
func SetKey(msg *message.Message, key string) { set(msg, MetadataKey, key) }

// SetDueAt postpones the first delivery until a point in time.
func SetDueAt(msg *message.Message, due time.Time) {
	instruct(msg, InstructionDueAt, due.UTC().Format(time.RFC3339Nano))
}

// SetDelay postpones the first delivery by a time that the database counts from the append.
// It overrides SetDueAt and Watermill's own delay.
func SetDelay(msg *message.Message, d time.Duration) { instruct(msg, InstructionDelay, d.String()) }

// SetExpiresAt sets the time from which the message is no longer delivered; it goes dead
// instead.
func SetExpiresAt(msg *message.Message, expires time.Time) {
	instruct(msg, InstructionExpiresAt, expires.UTC().Format(time.RFC3339Nano))
}

// SetTimeToLive sets the same time as SetExpiresAt, counted by the database from the
// append. It overrides SetExpiresAt.
func SetTimeToLive(msg *message.Message, ttl time.Duration) {
	instruct(msg, InstructionTimeToLive, ttl.String())
}

// SetDedupKey makes the publish a no-op for this message if the same topic and
// key were published within the store's dedup window (24 h by default).
func SetDedupKey(msg *message.Message, key string) { instruct(msg, InstructionDedupKey, key) }

// SetWaitsFor makes the message due as soon as the join is decided. See
// [Record].
func SetWaitsFor(msg *message.Message, id JoinID) { instruct(msg, InstructionWaitsFor, id.String()) }

// SetJoins makes the message a step of these joins, and of no other; without ids it is a step of
// none. joins.AddStep adds to them.
func SetJoins(msg *message.Message, ids ...JoinID) {
	if len(ids) == 0 {
		delete(msg.Metadata, string(InstructionJoins))
		return
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.String()
	}
	instruct(msg, InstructionJoins, strings.Join(names, ","))
}

// SetCorrelationID sets Watermill's correlation_id.
func SetCorrelationID(msg *message.Message, id string) { set(msg, MetadataCorrelationID, id) }

// SetCausationID names the message that caused this one.
func SetCausationID(msg *message.Message, id string) { set(msg, MetadataCausationID, id) }

// SetTenantID names the tenant that the message belongs to.
func SetTenantID(msg *message.Message, id string) { set(msg, MetadataTenantID, id) }

// SetTrace sets the W3C trace context; an empty tracestate is left out.
func SetTrace(msg *message.Message, traceparent, tracestate string) {
	set(msg, MetadataTraceParent, traceparent)
	if tracestate != "" {
		set(msg, MetadataTraceState, tracestate)
	}
}

// SetOccurredAt sets the time at which the event that the message reports happened,
// possibly long before the publish. It informs readers only: it changes neither the order
// nor the time of the delivery. It travels in the metadata [MetadataOccurredAt], and to
// Kafka in a header of that name. [OccurredAt] reads it.
func SetOccurredAt(msg *message.Message, occurred time.Time) {
	set(msg, MetadataOccurredAt, occurred.UTC().Format(time.RFC3339Nano))
}

// OccurredAt returns the time of [SetOccurredAt], in UTC. It reports false if the message
// has no such time, or one that is not in the form of RFC 3339.
func OccurredAt(msg *message.Message) (time.Time, bool) {
	occurred, err := time.Parse(time.RFC3339Nano, msg.Metadata.Get(MetadataOccurredAt))
	return occurred.UTC(), err == nil
}

func set(msg *message.Message, name, value string) {
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	msg.Metadata.Set(name, value)
}
