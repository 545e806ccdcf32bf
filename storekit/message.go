package storekit

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// RecordOf makes a record of a message: it moves instructions, and metadata with a column, to
// their fields, and copies the rest. It does not change the message. For a nil message, or an
// instruction that was set for another message, it returns an InvalidRecordError with Index -1.
// The payload is shared, not copied. Append makes the id of the record. See outmill.Instruction.
func RecordOf(topic string, msg *message.Message) (*outmill.Record, error) {
	return recordOf(topic, msg, watermillDelay{})
}

func recordOf(topic string, msg *message.Message, delayed watermillDelay) (*outmill.Record, error) {
	if msg == nil {
		return nil, &outmill.InvalidRecordError{Index: -1, Field: "message", Reason: "is nil"}
	}
	told, unfit := outmill.InstructionsOf(msg)
	rec := plainRecord(topic, msg, told, delayed.written)
	return rec, errors.Join(unfit, instructRecord(rec, told, delayed))
}

// RecordInstructed makes a record of a message whose instructions were kept apart from it, such as
// in the payload of another message: told is what outmill.InstructionsOf returned then. It leaves
// out instructions that the message itself has.
func RecordInstructed(topic string, msg *message.Message, told map[outmill.Instruction]string) (*outmill.Record, error) {
	own, _ := outmill.InstructionsOf(msg)
	rec := plainRecord(topic, msg, own, false)
	return rec, instructRecord(rec, told, watermillDelay{})
}

// DataOf returns the metadata without the instructions of this process's setters: the message's
// own map if it has none, else a copy. Destinations other than a store get it, because an
// instruction means nothing to them, and its signature need not leave the process.
func DataOf(msg *message.Message) message.Metadata {
	// The map has all of them, also those that were set for another message.
	told, _ := outmill.InstructionsOf(msg)
	if len(told) == 0 {
		return msg.Metadata
	}
	data := maps.Clone(msg.Metadata)
	for name := range told {
		delete(data, string(name))
	}
	return data
}

// plainRecord makes a record without instructions. It leaves out the metadata that has these, and
// Watermill's delay if that is one of them.
func plainRecord(topic string, msg *message.Message, told map[outmill.Instruction]string, delayed bool) *outmill.Record {
	rec := &outmill.Record{
		MessageID: msg.UUID,
		Topic:     topic,
		Payload:   msg.Payload,
	}
	if len(msg.Metadata) == 0 {
		return rec
	}
	rec.Metadata = make(map[string]string, len(msg.Metadata))
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
		case delay.DelayedForKey, delay.DelayedUntilKey:
			if !delayed {
				rec.Metadata[name] = value
			}
		default:
			if _, instructs := told[outmill.Instruction(name)]; !instructs {
				rec.Metadata[name] = value
			}
		}
	}
	return rec
}

// instructRecord sets the fields that instruct the append. Outmill's own delay overrides its due
// time, and both override Watermill's delay.
func instructRecord(rec *outmill.Record, told map[outmill.Instruction]string, delayed watermillDelay) error {
	p := parser{}
	rec.Delay = max(p.duration(delay.DelayedForKey, delayed.delayedFor), 0)
	if delayed.delayedFor == "" {
		rec.DueAt = p.time(delay.DelayedUntilKey, delayed.delayedUntil)
	}
	if dueAt := told[outmill.InstructionDueAt]; dueAt != "" {
		rec.DueAt, rec.Delay = p.time(string(outmill.InstructionDueAt), dueAt), 0
	}
	if d := told[outmill.InstructionDelay]; d != "" {
		rec.DueAt, rec.Delay = time.Time{}, max(p.duration(string(outmill.InstructionDelay), d), 0)
	}
	rec.ExpiresAt = p.time(string(outmill.InstructionExpiresAt), told[outmill.InstructionExpiresAt])
	rec.TimeToLive = p.duration(string(outmill.InstructionTimeToLive), told[outmill.InstructionTimeToLive])
	rec.DedupKey = told[outmill.InstructionDedupKey]
	if ids := told[outmill.InstructionJoins]; ids != "" {
		for id := range strings.SplitSeq(ids, ",") {
			rec.Joins = append(rec.Joins, p.join(string(outmill.InstructionJoins), id))
		}
	}
	rec.WaitsFor = p.join(string(outmill.InstructionWaitsFor), told[outmill.InstructionWaitsFor])
	return p.err
}

// MessageOf makes the message to deliver from a record. It copies the fields that identify
// the message to the metadata. The payload is shared, not copied; the metadata is the
// record's own map.
func MessageOf(rec *outmill.Record) *message.Message {
	msg := message.NewMessage(rec.MessageID, rec.Payload)
	if rec.Metadata != nil {
		msg.Metadata = rec.Metadata
	}
	eachField(rec, func(name, value string) { msg.Metadata[name] = value })
	return msg
}

// RawMessage is MessageOf for a copy of a raw record.
func RawMessage(r roles.RawRecord) *message.Message {
	whole := *r.Record
	whole.Metadata = r.MapOf()
	return MessageOf(&whole)
}

// EachHeader calls header with each entry of the metadata that the message of a raw record has, as a publisher for a broker sends it:
// see ForBroker. It calls nothing and returns false for the few records whose metadata has names with a meaning: of these make the message.
func EachHeader(r roles.RawRecord, reserved func(name string) bool, header func(name, value string)) bool {
	for i := range r.Entries {
		if name := r.Entries[i].Name; hasMeaning(name) || reserved(name) {
			return false
		}
	}
	for name := range r.Metadata {
		if hasMeaning(name) || reserved(name) {
			return false
		}
	}
	for _, e := range r.Entries {
		header(e.Name, e.Value)
	}
	for name, value := range r.Metadata {
		header(name, value)
	}
	eachField(r.Record, header)
	return true
}

// hasMeaning reports whether metadata of this name may be more than data to a message or to ForBroker.
func hasMeaning(name string) bool {
	switch name {
	case outmill.MetadataContract, outmill.MetadataContractVersion, outmill.MetadataOccurredAt:
		return false
	case outmill.MetadataCorrelationID, outmill.MetadataCausationID, outmill.MetadataTenantID, outmill.MetadataTraceParent,
		outmill.MetadataTraceState:
		return true
	}
	// These are the key, the instructions, and what is escaped.
	return strings.HasPrefix(name, "outmill")
}

// eachField calls restore with each field of the record that is in the metadata of its message.
func eachField(rec *outmill.Record, restore func(name, value string)) {
	one := func(name, value string) {
		if value != "" {
			restore(name, value)
		}
	}
	one(outmill.MetadataKey, rec.Key)
	one(outmill.MetadataCorrelationID, rec.CorrelationID)
	one(outmill.MetadataCausationID, rec.CausationID)
	one(outmill.MetadataTenantID, rec.TenantID)
	one(outmill.MetadataTraceParent, rec.TraceParent)
	one(outmill.MetadataTraceState, rec.TraceState)
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
