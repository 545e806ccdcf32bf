package importmongo

import (
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
)

// layout describes the documents of an outbox.
type layout struct {
	// database and collection are the defaults of the old program.
	database, collection string
	// topic and key are the defaults for topic and key of the messages.
	topic, key string
	// status is the field with the state of a document. done is its value for delivered documents, which are
	// left alone; nil is any value but null.
	status string
	done   any
	// order is the field with the time of the event; "" is none.
	order string
	// fields are the fields that read uses.
	fields []string
	// read returns the state of a document.
	read func(doc bson.Raw, o Options, now time.Time) (standing, error)
	// parts are the messages of a document; nil is the document itself.
	parts func(doc bson.Raw) ([]bson.Raw, error)
	// record makes the message; its topic and key are filled in already. Without a topic here and in the
	// options, it also sets the topic.
	record func(doc bson.Raw, r *outmill.Record) error
}

// projection selects the fields that read needs.
func (l layout) projection() bson.D {
	fields := bson.D{{Key: "_id", Value: 1}, {Key: l.status, Value: 1}}
	if l.order != "" {
		fields = append(fields, bson.E{Key: l.order, Value: 1})
	}
	for _, field := range l.fields {
		fields = append(fields, bson.E{Key: field, Value: 1})
	}
	return fields
}

// standing is the state of a document in the old outbox.
type standing struct {
	at     time.Time // when it happened
	leased bool      // an old worker has it, or died with it a moment ago
	dead   bool      // the old workers have given it up
}

var layouts = map[string]layout{
	EventBus: {
		collection: "outbox_events",
		topic:      "{type}",
		status:     "status", done: "completed", order: "occurredAt",
		fields: []string{"retryCount", "keepAlive", "expireInSeconds"},
		read:   readEvent, record: eventRecord,
	},
	Koan: {
		database: "Koan", collection: "Outbox",
		topic: "{EntityType}", key: "{EntityId}",
		status: "Status", done: "Done", order: "OccurredAt",
		fields: []string{"LeaseUntil"},
		read:   readEntry, record: entryRecord,
	},
	NServiceBus: {
		collection: "outboxrecord",
		status:     "Dispatched",
		read:       readOutbox, parts: operations, record: operationRecord,
	},
}

// readEvent: an active event is leased until its keepAlive is older than its
// expireInSeconds.
func readEvent(doc bson.Raw, o Options, now time.Time) (s standing, err error) {
	var event struct {
		Status          string    `bson:"status"`
		OccurredAt      time.Time `bson:"occurredAt"`
		RetryCount      int       `bson:"retryCount"`
		KeepAlive       time.Time `bson:"keepAlive"`
		ExpireInSeconds float64   `bson:"expireInSeconds"`
	}
	if err := bson.Unmarshal(doc, &event); err != nil {
		return s, err
	}
	s.at = event.OccurredAt
	switch event.Status {
	case "created":
	case "active":
		s.leased = now.Before(event.KeepAlive.Add(time.Duration(event.ExpireInSeconds * float64(time.Second))))
	case "failed":
		s.dead = event.RetryCount >= o.MaxRetries
	default:
		return s, fmt.Errorf("status is %q: want created, active, failed or completed", event.Status)
	}
	return s, nil
}

func eventRecord(doc bson.Raw, r *outmill.Record) error {
	id, _, err := plain(doc, "eventId")
	if err != nil {
		return err
	}
	if r.MessageID = id; id == "" {
		return errors.New("it has no eventId")
	}
	r.Metadata = map[string]string{}
	if kind, _, err := plain(doc, "type"); err == nil && kind != "" {
		r.Metadata["type"] = kind
	}
	if at, ok := doc.Lookup("occurredAt").TimeOK(); ok {
		r.Metadata["occurred_at"] = rfc3339(at)
	}
	payload := doc.Lookup("payload")
	if payload.IsZero() {
		return nil
	}
	if r.Payload, err = appendJSON(nil, payload); err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	return nil
}

// readEntry: a pending entry is leased until its LeaseUntil.
func readEntry(doc bson.Raw, _ Options, now time.Time) (s standing, err error) {
	status, _, err := plain(doc, "Status")
	if err != nil {
		return s, err
	}
	if s.at, _, err = offsetTime(doc, "OccurredAt"); err != nil {
		return s, err
	}
	switch status {
	case "Pending":
		until, leased, err := offsetTime(doc, "LeaseUntil")
		s.leased = leased && now.Before(until)
		return s, err
	case "Dead":
		s.dead = true
		return s, nil
	}
	return s, fmt.Errorf("status is %q: want Pending, Done or Dead", status)
}

func entryRecord(doc bson.Raw, r *outmill.Record) (err error) {
	var entry struct {
		EntityType  string            `bson:"EntityType"`
		Operation   string            `bson:"Operation"`
		EntityID    string            `bson:"EntityId"`
		PayloadJSON string            `bson:"PayloadJson"`
		Headers     map[string]string `bson:"Headers"`
		DedupKey    string            `bson:"DedupKey"`
	}
	if err := bson.Unmarshal(doc, &entry); err != nil {
		return err
	}
	if r.MessageID, _, err = plain(doc, "_id"); err != nil {
		return err
	}
	r.Payload, r.DedupKey, r.Metadata = []byte(entry.PayloadJSON), entry.DedupKey, map[string]string{}
	for name, value := range entry.Headers {
		r.Metadata[name] = value
	}
	for name, value := range map[string]string{"entity_type": entry.EntityType, "operation": entry.Operation, "entity_id": entry.EntityID} {
		if value != "" {
			r.Metadata[name] = value
		}
	}
	if at, ok, err := offsetTime(doc, "OccurredAt"); err == nil && ok {
		r.Metadata["occurred_at"] = rfc3339(at)
	}
	// One that has been visible for a while is due at once.
	r.DueAt, _, err = offsetTime(doc, "VisibleAt")
	return err
}

// ticksAtEpoch are the ticks of .NET, of 100 ns, at the beginning of 1970.
const ticksAtEpoch = 621_355_968_000_000_000

// offsetTime is a DateTimeOffset in any of the ways in which the driver of .NET
// writes one: [ticks, minutes], {DateTime, Ticks, Offset}, a text; or a date.
func offsetTime(doc bson.Raw, field string) (t time.Time, found bool, err error) {
	value := doc.Lookup(field)
	switch value.Type {
	case 0, bson.TypeNull:
		return t, false, nil
	case bson.TypeDateTime:
		return value.Time().UTC(), true, nil
	case bson.TypeString:
		t, err = time.Parse(time.RFC3339Nano, value.StringValue())
		return t.UTC(), err == nil, err
	case bson.TypeArray, bson.TypeEmbeddedDocument:
		ticks, minutes := ticksOf(value)
		whole, known := ticks.AsInt64OK()
		offset, alsoKnown := minutes.AsInt64OK()
		if known && alsoKnown {
			// The ticks are in local time.
			since := whole - ticksAtEpoch
			wall := time.Unix(since/1e7, since%1e7*100)
			return wall.Add(-time.Duration(offset) * time.Minute).UTC(), true, nil
		}
	default:
	}
	return t, false, fmt.Errorf("field %s is a %s that is no DateTimeOffset", field, value.Type)
}

func ticksOf(value bson.RawValue) (ticks, minutes bson.RawValue) {
	if value.Type == bson.TypeEmbeddedDocument {
		return value.Document().Lookup("Ticks"), value.Document().Lookup("Offset")
	}
	values, err := value.Array().Values()
	if err != nil || len(values) != 2 {
		return ticks, minutes
	}
	return values[0], values[1]
}
