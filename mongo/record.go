package mongo

import (
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// document is a record as stored in the collection. Empty fields are absent.
type document struct {
	ID            uuid           `bson:"_id"`
	Seq           bson.Timestamp `bson:"seq"` // filled by the server: the order of the appends
	Group         reader         `bson:"grp"`
	Topic         string         `bson:"topic"`
	Key           string         `bson:"key,omitempty"`
	Status        outmill.Status `bson:"status"`
	Stage         int            `bson:"stage"`
	Open          bool           `bson:"open,omitempty"`         // neither processed nor dead
	AvailableAt   time.Time      `bson:"available_at,omitempty"` // the end of the wait, the delay or the lease
	DueAt         time.Time      `bson:"due_at"`                 // first due
	NextAt        time.Time      `bson:"next_at"`                // due, or due again
	CreatedAt     time.Time      `bson:"created_at"`
	ExpiresAt     time.Time      `bson:"expires_at,omitempty"`
	Attempts      int            `bson:"attempts"`
	Claims        int            `bson:"claims"`
	Expiries      int            `bson:"expiries"`
	Keyed         bool           `bson:"keyed,omitempty"` // has a key, and is open or parked
	Parked        bool           `bson:"parked,omitempty"`
	Size          int            `bson:"size"`
	Turn          int64          `bson:"turn,omitempty"` // stands for the tenant, if the topic is fair
	Owner         uuid           `bson:"owner,omitempty"`
	ProcessedAt   time.Time      `bson:"processed_at,omitempty"`
	ProcessedBy   string         `bson:"processed_by,omitempty"`
	MessageID     string         `bson:"message_id"`
	CorrelationID string         `bson:"correlation_id,omitempty"`
	CausationID   string         `bson:"causation_id,omitempty"`
	TenantID      string         `bson:"tenant_id,omitempty"`
	TraceParent   string         `bson:"traceparent,omitempty"`
	TraceState    string         `bson:"tracestate,omitempty"`
	DedupKey      string         `bson:"dedup_key,omitempty"`
	LastError     string         `bson:"last_error,omitempty"`
	// Step is the step, of Joins, that the message is: the id of the message's first record.
	// WaitsFor is the join that this record finishes.
	Step  uuid   `bson:"step,omitempty"`
	Joins []uuid `bson:"joins,omitempty"`
	// Joined is true if Step or WaitsFor is set.
	WaitsFor uuid `bson:"waits_for,omitempty"`
	Joined   uuid `bson:"joined,omitempty"`
	// Generation is the generation of the registrations by which the record got its group.
	Generation int64 `bson:"generation"`
	// Token identifies the last claim that leased the record.
	Token uuid `bson:"claim_token,omitempty"`
	// Last marks the last document of an append, which the change stream reports.
	Last bool `bson:"last,omitempty"`
	// Wakes are the topics of the append, if there are several.
	Wakes    []string          `bson:"wakes,omitempty"`
	Metadata map[string]string `bson:"metadata,omitempty"`
	Payload  payload           `bson:"payload"`
	// Escaped means that the JSON of a payload that is a document was escaped for HTML.
	Escaped bool `bson:"payload_escaped,omitempty"`
	// Edits is how often operators have edited the record.
	Edits int `bson:"edits,omitempty"`
}

// reader is a group. It is empty if no group has registered for the topic yet.
type reader string

// uuid is a UUID, stored as MongoDB's own type, binary subtype 4.
type uuid [16]byte

func (u uuid) IsZero() bool { return u == uuid{} }

func (u uuid) binary() bson.Binary {
	return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: u[:]}
}

// MarshalBSONValue implements bson.ValueMarshaler.
func (u uuid) MarshalBSONValue() (byte, []byte, error) {
	kind, data, err := bson.MarshalValue(u.binary())
	return byte(kind), data, err
}

// UnmarshalBSONValue implements bson.ValueUnmarshaler.
func (u *uuid) UnmarshalBSONValue(kind byte, data []byte) error {
	var b bson.Binary
	if err := bson.UnmarshalValue(bson.Type(kind), data, &b); err != nil {
		return err
	}
	if len(b.Data) != len(u) {
		return bson.ErrDecodeToNil
	}
	copy(u[:], b.Data)
	return nil
}

func (d *document) record() *outmill.Record {
	r := &outmill.Record{
		ID: outmill.WorkItemID(d.ID), MessageID: d.MessageID, Topic: d.Topic, Key: d.Key, Payload: d.text(), Metadata: d.Metadata,
		CorrelationID: d.CorrelationID, CausationID: d.CausationID, TenantID: d.TenantID, TraceParent: d.TraceParent, TraceState: d.TraceState,
		DueAt: d.DueAt.UTC(), ExpiresAt: utc(d.ExpiresAt), DedupKey: d.DedupKey,
		Group: string(d.Group), Status: storekit.StatusOf(d.Stage), CreatedAt: d.CreatedAt.UTC(),
		Attempts: d.Attempts, Claims: d.Claims, Expiries: d.Expiries, Owner: outmill.OwnerToken(d.Owner), LastError: d.LastError,
		ProcessedAt: utc(d.ProcessedAt), ProcessedBy: d.ProcessedBy, WaitsFor: outmill.JoinID(d.WaitsFor),
	}
	for _, id := range d.Joins {
		r.Joins = append(r.Joins, outmill.JoinID(id))
	}
	switch r.Status {
	case outmill.StatusLeased:
		r.LeaseUntil = utc(d.AvailableAt)
	case outmill.StatusPending:
		r.NextAttemptAt = d.NextAt.UTC()
	case outmill.StatusProcessed, outmill.StatusDead:
	}
	return r
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// ceil rounds up to whole milliseconds, MongoDB's precision of a time, so that nothing is due or
// expires too early.
func ceil(d time.Duration) time.Duration {
	const longest = math.MaxInt64 / time.Millisecond * time.Millisecond
	if d >= longest {
		return longest
	}
	return max(0, (d + time.Millisecond - 1).Truncate(time.Millisecond))
}

// in is a filter for the group's records in a stage, or, by $in, in one of several stages.
func (r reader) in(stage any, more ...bson.E) bson.D {
	return append(bson.D{{Key: "grp", Value: r}, {Key: "stage", Value: stage}}, more...)
}

// in is a filter for the records of the topic and group in a stage.
func (l line) in(stage any, more ...bson.E) bson.D {
	return append(l.Group.in(stage, bson.E{Key: "topic", Value: l.Topic}), more...)
}

// ready is a filter for the ready records of the topic and group, with a turn and without, which
// an index has in the order of seq.
func (l line) ready(more ...bson.E) bson.D { return l.in(readyStages, more...) }

// due is a filter for the records of a stage that are due, and the order in which they became due,
// as an index has it.
func (l line) due(stage int, now time.Time) (filter, order bson.D) {
	switch {
	case stage == storekit.StageReady:
		return l.ready(), ascending("seq")
	case stage <= storekit.StageHeld:
		return l.in(stage), ascending("seq")
	case stage == storekit.StageLeased:
		// An expired record keeps its lease until the lease is reaped.
		return l.in(stage, until(now), unexpired(now)), ascending("available_at")
	}
	return l.in(stage, until(now)), ascending("available_at")
}

// keyed is a filter for the records of the topic and group that have a key, in an open stage or
// parked.
func (l line) keyed(stage, key any, more ...bson.E) bson.D {
	return l.in(stage, append([]bson.E{{Key: "keyed", Value: true}, {Key: "key", Value: key}}, more...)...)
}

// until is a filter for a wait, a delay or a lease that ends by now.
func until(now time.Time) bson.E {
	return bson.E{Key: "available_at", Value: bson.D{{Key: "$lte", Value: now}}}
}

// place converts a seq, a position in the order of the appends, to a number.
func place(seq bson.Timestamp) uint64 { return uint64(seq.T)<<32 | uint64(seq.I) }
