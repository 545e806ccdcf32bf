package storekit

import (
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// instructs reports whether metadata with this name instructs the append, rather than
// identifies the message.
func instructs(name string) bool {
	switch name {
	case outmill.MetadataDueAt, outmill.MetadataDelay, outmill.MetadataExpiresAt, outmill.MetadataTimeToLive, outmill.MetadataDedupKey,
		outmill.MetadataJoins, outmill.MetadataWaitsFor,
		delay.DelayedForKey, delay.DelayedUntilKey:
		return true
	}
	return false
}

// RecordOf makes a record of a message: it moves metadata with a column to the field, and
// copies the rest. It does not change the message. For a nil message, or metadata that
// cannot be parsed, it returns an InvalidRecordError with Index -1. The payload is shared,
// not copied.
func RecordOf(topic string, msg *message.Message) (*outmill.Record, error) {
	if msg == nil {
		return nil, &outmill.InvalidRecordError{Index: -1, Field: "message", Reason: "is nil"}
	}
	rec := &outmill.Record{
		ID:        outmill.NewWorkItemID(),
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
		case outmill.MetadataKey:
			rec.Key = value
		case outmill.MetadataCorrelationID:
			rec.CorrelationID = value
		case outmill.MetadataCausationID:
			rec.CausationID = value
		case outmill.MetadataTenantID:
			rec.TenantID = value
		case outmill.MetadataTraceParent:
			rec.TraceParent = value
		case outmill.MetadataTraceState:
			rec.TraceState = value
		case outmill.MetadataDedupKey:
			rec.DedupKey = value
		case outmill.MetadataDueAt:
			dueAt = value
		case outmill.MetadataDelay:
			delayed = value
		case outmill.MetadataExpiresAt:
			expires = value
		case outmill.MetadataTimeToLive:
			ttl = value
		case outmill.MetadataJoins:
			joins = value
		case outmill.MetadataWaitsFor:
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
		rec.DueAt, rec.Delay = p.time(outmill.MetadataDueAt, dueAt), 0
	}
	if delayed != "" {
		rec.DueAt, rec.Delay = time.Time{}, max(p.duration(outmill.MetadataDelay, delayed), 0)
	}
	rec.ExpiresAt = p.time(outmill.MetadataExpiresAt, expires)
	rec.TimeToLive = p.duration(outmill.MetadataTimeToLive, ttl)
	if joins != "" {
		for name := range strings.SplitSeq(joins, ",") {
			rec.Joins = append(rec.Joins, p.join(outmill.MetadataJoins, name))
		}
	}
	rec.WaitsFor = p.join(outmill.MetadataWaitsFor, waitsFor)
	return rec, p.err
}

// MessageOf makes the message to deliver from a record. It copies the fields that identify
// the message to the metadata. The payload is shared, not copied; the metadata is the
// record's own map.
func MessageOf(rec *outmill.Record) *message.Message {
	msg := message.NewMessage(rec.MessageID, rec.Payload)
	if rec.Metadata != nil {
		msg.Metadata = rec.Metadata
	}
	restore := func(name, value string) {
		if value != "" {
			msg.Metadata[name] = value
		}
	}
	restore(outmill.MetadataKey, rec.Key)
	restore(outmill.MetadataCorrelationID, rec.CorrelationID)
	restore(outmill.MetadataCausationID, rec.CausationID)
	restore(outmill.MetadataTenantID, rec.TenantID)
	restore(outmill.MetadataTraceParent, rec.TraceParent)
	restore(outmill.MetadataTraceState, rec.TraceState)
	return msg
}

// parser keeps the first error of several values.
type parser struct{ err error }

func (p *parser) fail(name, value, want string) {
	if p.err == nil {
		p.err = &outmill.InvalidRecordError{Index: -1, Field: fmt.Sprintf("metadata %q", name),
			Reason: fmt.Sprintf("is %q: want %s", clip(value), want)}
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

func (p *parser) join(name, value string) outmill.JoinID {
	if value == "" {
		return outmill.JoinID{}
	}
	id, err := outmill.ParseJoinID(value)
	if err != nil {
		p.fail(name, value, "ids of joins")
	}
	return id
}
