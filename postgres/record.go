package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// recordColumns are the columns that placed.scan reads, in its order.
const recordColumns = `r.seq, r.id, r.grp, r.topic, r.key, r.stage, r.available_at, r.due_at, r.next_at, r.created_at, r.expires_at,
	r.attempts, r.claims, r.expiries, r.owner, r.processed_at, r.processed_by, r.message_id, r.correlation_id, r.causation_id,
	r.tenant_id, r.traceparent, r.tracestate, r.dedup_key, r.last_error, r.joins::text, r.waits_for, r.metadata, r.payload`

// blockedColumn reports, for a held record, whether an earlier one of its key still blocked it
// at the last claim.
const blockedColumn = `(r.stage = 1 AND (SELECT 1 FROM {p:lanes} AS l
	WHERE l.grp = r.grp AND l.topic = r.topic AND l.key = r.key AND l.blocked_by <> '' LIMIT 1) IS NOT NULL)`

// placed is a record and its place in the order.
type placed struct {
	seq   int64
	stage int16
	// due is when the record became due, or due again.
	due time.Time
	// blocked: an earlier record of its key blocks it.
	blocked bool
	record  *outmill.Record
}

// recordReader reads the rows of a statement into one buffer, because a claim reads many rows
// and each column would cost an allocation.
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
		ID: r.id.Bytes, Group: r.group.text, Topic: r.topic.text, Key: r.key.text, Status: storekit.StatusOf(int(p.stage)),
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
	case p.stage == storekit.StageLeased:
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

// sharedText is a column of text that often equals that of the row before.
type sharedText struct {
	text string
	null bool
}

// ScanBytes implements pgtype.BytesScanner.
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

// add appends records to the list.
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
