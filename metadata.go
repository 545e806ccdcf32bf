package outmill

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

// Metadata names that become columns of the record. The first group identifies
// the message and is back in its metadata on delivery. The second instructs
// the append and is not: a poison queue that publishes the same message again
// must not find it deduplicated away, delayed or expired. [Delivery] tells
// what it was.
const (
	MetadataKey           = "outmill_key"
	MetadataCorrelationID = middleware.CorrelationIDMetadataKey
	MetadataCausationID   = "causation_id"
	MetadataTenantID      = "tenant_id"
	MetadataTraceParent   = "traceparent"
	MetadataTraceState    = "tracestate"

	MetadataDueAt      = "outmill_due_at"
	MetadataDelay      = "outmill_delay"
	MetadataExpiresAt  = "outmill_expires_at"
	MetadataTimeToLive = "outmill_time_to_live"
	MetadataDedupKey   = "outmill_dedup_key"
	MetadataJoins      = "outmill_joins"
	MetadataWaitsFor   = "outmill_waits_for"
)

// SetKey gives the message a key: messages of one topic and key are handled
// one after the other by ordered readers, and land in one Kafka partition.
func SetKey(msg *message.Message, key string) { set(msg, MetadataKey, key) }

// SetDueAt postpones the first delivery until a point in time.
func SetDueAt(msg *message.Message, due time.Time) {
	set(msg, MetadataDueAt, due.UTC().Format(time.RFC3339Nano))
}

// SetDelay postpones the first delivery by a time that the database counts
// from the append. It wins over SetDueAt and Watermill's own delay.
func SetDelay(msg *message.Message, d time.Duration) { set(msg, MetadataDelay, d.String()) }

// SetExpiresAt says when the message is no longer worth delivering: it then
// goes dead instead.
func SetExpiresAt(msg *message.Message, expires time.Time) {
	set(msg, MetadataExpiresAt, expires.UTC().Format(time.RFC3339Nano))
}

// SetTimeToLive is SetExpiresAt, counted by the database from the append. It
// wins over SetExpiresAt.
func SetTimeToLive(msg *message.Message, ttl time.Duration) {
	set(msg, MetadataTimeToLive, ttl.String())
}

// SetDedupKey makes the publish a no-op for this message if the same topic and
// key were published within the store's dedup window (24 h by default).
func SetDedupKey(msg *message.Message, key string) { set(msg, MetadataDedupKey, key) }

// AddJoins makes the message a step of the joins, besides those that it has. See
// [Joins].
func AddJoins(msg *message.Message, ids ...JoinID) {
	var names []string
	if has := msg.Metadata.Get(MetadataJoins); has != "" {
		names = strings.Split(has, ",")
	}
	for _, id := range ids {
		if name := id.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		set(msg, MetadataJoins, strings.Join(names, ","))
	}
}

// SetWaitsFor makes the message due as soon as the join is decided. See
// [Record].
func SetWaitsFor(msg *message.Message, id JoinID) { set(msg, MetadataWaitsFor, id.String()) }

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

// instructs tells whether metadata of that name says how a message is appended,
// and not what it is.
func instructs(name string) bool {
	switch name {
	case MetadataDueAt, MetadataDelay, MetadataExpiresAt, MetadataTimeToLive, MetadataDedupKey, MetadataJoins, MetadataWaitsFor,
		delay.DelayedForKey, delay.DelayedUntilKey:
		return true
	}
	return false
}

func set(msg *message.Message, name, value string) {
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	msg.Metadata.Set(name, value)
}

// RecordOf makes a record of a message: metadata that has a column moves
// there, the rest is copied. It does not change the message. A nil message and
// metadata that cannot be parsed are an InvalidRecordError with Index -1. The
// payload is shared, not copied.
func RecordOf(topic string, msg *message.Message) (*Record, error) {
	if msg == nil {
		return nil, &InvalidRecordError{Index: -1, Field: "message", Reason: "is nil"}
	}
	rec := &Record{
		ID:        NewWorkItemID(),
		MessageID: msg.UUID,
		Topic:     topic,
		Payload:   msg.Payload,
	}
	if rec.MessageID == "" {
		rec.MessageID = rec.ID.String()
	}
	if len(msg.Metadata) == 0 {
		return rec, nil
	}
	rec.Metadata = make(map[string]string, len(msg.Metadata))
	var watermillFor, watermillUntil, dueAt, delayed, expires, ttl, joins, waitsFor string
	for name, value := range msg.Metadata {
		switch name {
		case MetadataKey:
			rec.Key = value
		case MetadataCorrelationID:
			rec.CorrelationID = value
		case MetadataCausationID:
			rec.CausationID = value
		case MetadataTenantID:
			rec.TenantID = value
		case MetadataTraceParent:
			rec.TraceParent = value
		case MetadataTraceState:
			rec.TraceState = value
		case MetadataDedupKey:
			rec.DedupKey = value
		case MetadataDueAt:
			dueAt = value
		case MetadataDelay:
			delayed = value
		case MetadataExpiresAt:
			expires = value
		case MetadataTimeToLive:
			ttl = value
		case MetadataJoins:
			joins = value
		case MetadataWaitsFor:
			waitsFor = value
		case delay.DelayedForKey:
			watermillFor = value
		case delay.DelayedUntilKey:
			watermillUntil = value
		default:
			rec.Metadata[name] = value
		}
	}
	p := parser{}
	rec.Delay = max(p.duration(delay.DelayedForKey, watermillFor), 0)
	if watermillFor == "" {
		rec.DueAt = p.time(delay.DelayedUntilKey, watermillUntil)
	}
	if dueAt != "" {
		rec.DueAt, rec.Delay = p.time(MetadataDueAt, dueAt), 0
	}
	if delayed != "" {
		rec.DueAt, rec.Delay = time.Time{}, max(p.duration(MetadataDelay, delayed), 0)
	}
	rec.ExpiresAt = p.time(MetadataExpiresAt, expires)
	rec.TimeToLive = p.duration(MetadataTimeToLive, ttl)
	if joins != "" {
		for name := range strings.SplitSeq(joins, ",") {
			rec.Joins = append(rec.Joins, p.join(MetadataJoins, name))
		}
	}
	rec.WaitsFor = p.join(MetadataWaitsFor, waitsFor)
	return rec, p.err
}

// MessageOf makes the message to deliver from a record, with the columns that
// identify it back in the metadata. The payload is shared, not copied; the
// metadata is the record's own map.
func MessageOf(rec *Record) *message.Message {
	msg := message.NewMessage(rec.MessageID, rec.Payload)
	if rec.Metadata != nil {
		msg.Metadata = rec.Metadata
	}
	restore := func(name, value string) {
		if value != "" {
			msg.Metadata[name] = value
		}
	}
	restore(MetadataKey, rec.Key)
	restore(MetadataCorrelationID, rec.CorrelationID)
	restore(MetadataCausationID, rec.CausationID)
	restore(MetadataTenantID, rec.TenantID)
	restore(MetadataTraceParent, rec.TraceParent)
	restore(MetadataTraceState, rec.TraceState)
	return msg
}

// parser keeps the first error of several values.
type parser struct{ err error }

func (p *parser) fail(name, value, want string) {
	if p.err == nil {
		p.err = &InvalidRecordError{Index: -1, Field: fmt.Sprintf("metadata %q", name), Reason: fmt.Sprintf("is %q: want %s", clip(value), want)}
	}
}

func (p *parser) duration(name, value string) time.Duration {
	if value == "" {
		return 0
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		p.fail(name, value, "a duration such as 1m30s")
	}
	return d
}

func (p *parser) time(name, value string) time.Time {
	if value == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		p.fail(name, value, "a time such as 2006-01-02T15:04:05Z")
	}
	return t
}

func (p *parser) join(name, value string) JoinID {
	if value == "" {
		return JoinID{}
	}
	id, err := ParseJoinID(value)
	if err != nil {
		p.fail(name, value, "ids of joins")
	}
	return id
}
