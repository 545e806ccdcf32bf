package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Stages that this code decides about; the schema has them all. Statements
// spell them out as literals, because only so does PostgreSQL use an index on a
// part of the table.
const (
	stageLine      = 0
	stageDelayed   = 3
	stageLeased    = 4
	stageExpired   = 5
	stageProcessed = 6
	stageDead      = 7
)

// recordColumns are what placed.scan reads, in its order.
const recordColumns = `r.seq, r.id, r.grp, r.topic, r.key, r.stage, r.available_at, r.due_at, r.next_at, r.created_at, r.expires_at,
	r.attempts, r.claims, r.expiries, r.owner, r.processed_at, r.processed_by, r.message_id, r.correlation_id, r.causation_id,
	r.tenant_id, r.traceparent, r.tracestate, r.dedup_key, r.last_error, r.joins::text, r.waits_for, r.metadata, r.payload`

// blockedColumn tells of a held record whether an earlier one of its key was
// still in the way when a claim looked last.
const blockedColumn = `(r.stage = 1 AND (SELECT 1 FROM {p:lanes} AS l
	WHERE l.grp = r.grp AND l.topic = r.topic AND l.key = r.key AND l.blocked_by <> '' LIMIT 1) IS NOT NULL)`

// placed is a record and its place in the order.
type placed struct {
	seq   int64
	stage int16
	// due is when the record became due, or due again.
	due time.Time
	// blocked: an earlier record of its key is in the way.
	blocked bool
	record  *outmill.Record
}

// recordReader reads the rows of a statement into one place, since a claim
// reads many and each column would cost an allocation.
type recordReader struct {
	place                                             placed
	id, owner, waitsFor                               pgtype.UUID
	available, due, next, created, expires, processed pgtype.Timestamptz
	attempts, claims, expiries                        int
	group, topic, key, messageID, correlation         sharedText
	causation, tenant, traceParent, traceState, dedup sharedText
	lastError, processedBy, joins                     sharedText
	metadata                                          pgtype.DriverBytes
	payload                                           []byte
	columns                                           []any
}

func newRecordReader() *recordReader {
	r := &recordReader{}
	r.columns = []any{
		&r.place.seq, &r.id, &r.group, &r.topic, &r.key, &r.place.stage, &r.available, &r.due, &r.next, &r.created, &r.expires,
		&r.attempts, &r.claims, &r.expiries, &r.owner, &r.processed, &r.processedBy, &r.messageID, &r.correlation, &r.causation,
		&r.tenant, &r.traceParent, &r.traceState, &r.dedup, &r.lastError, &r.joins, &r.waitsFor, &r.metadata, &r.payload, &r.place.blocked,
	}
	return r
}

func (r *recordReader) read(scan func(...any) error) (placed, error) {
	if err := scan(r.columns...); err != nil {
		return placed{}, err
	}
	p := r.place
	rec := &outmill.Record{
		ID: r.id.Bytes, Group: r.group.text, Topic: r.topic.text, Key: r.key.text, Status: statusOf(p.stage),
		Attempts: r.attempts, Claims: r.claims, Expiries: r.expiries, Owner: r.owner.Bytes, ProcessedBy: r.processedBy.text,
		CreatedAt: utc(r.created), DueAt: utc(r.due), ExpiresAt: utc(r.expires), ProcessedAt: utc(r.processed),
		MessageID: r.messageID.text, CorrelationID: r.correlation.text, CausationID: r.causation.text, TenantID: r.tenant.text,
		TraceParent: r.traceParent.text, TraceState: r.traceState.text, DedupKey: r.dedup.text, LastError: r.lastError.text,
		WaitsFor: r.waitsFor.Bytes, Payload: r.payload,
	}
	if p.due = utc(r.next); rec.CreatedAt.After(p.due) {
		p.due = rec.CreatedAt
	}
	switch {
	case p.stage == stageLeased:
		rec.LeaseUntil = utc(r.available)
	case rec.Status == outmill.StatusPending && !p.blocked:
		rec.NextAttemptAt = utc(r.next)
	}
	var err error
	if rec.Joins, err = r.joins.joins(); err != nil {
		return placed{}, fmt.Errorf("record %s: %w", rec.ID, err)
	}
	if len(r.metadata) > 0 {
		if rec.Metadata, err = storekit.ParseMetadata(r.metadata); err != nil {
			return placed{}, fmt.Errorf("record %s: metadata: %w", rec.ID, err)
		}
	}
	p.record = rec
	return p, nil
}

// sharedText is a column of text that often has what the row before has.
type sharedText struct {
	text string
	null bool
}

// ScanBytes is for pgx.
func (s *sharedText) ScanBytes(text []byte) error {
	if s.null = text == nil; string(text) != s.text {
		s.text = string(text)
	}
	return nil
}

// joins reads a list of ids.
func (s *sharedText) joins() ([]outmill.JoinID, error) {
	return storekit.ParseJoins(strings.Trim(s.text, "{}"))
}

func statusOf(stage int16) outmill.Status {
	switch stage {
	case stageLeased:
		return outmill.StatusLeased
	case stageProcessed:
		return outmill.StatusProcessed
	case stageDead:
		return outmill.StatusDead
	}
	return outmill.StatusPending
}

func utc(t pgtype.Timestamptz) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// collect reads records.
func collect(into *[]placed) func(scan func(...any) error) error {
	*into = nil
	return add(into)
}

// add reads records, and keeps those that are there.
func add(into *[]placed) func(scan func(...any) error) error {
	reader := newRecordReader()
	return func(scan func(...any) error) error {
		p, err := reader.read(scan)
		if err != nil {
			return err
		}
		*into = append(*into, p)
		return nil
	}
}

func recordsOf(found []placed) []*outmill.Record {
	records := make([]*outmill.Record, len(found))
	for i, f := range found {
		records[i] = f.record
	}
	return records
}
