package postgres

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/outmill/outmill"
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
	r.tenant_id, r.traceparent, r.tracestate, r.dedup_key, r.last_error, r.metadata, r.payload`

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

func (p *placed) scan(scan func(...any) error) error {
	var (
		r                                            outmill.Record
		group                                        *string
		owner, processedBy                           *[16]byte
		metadata                                     []byte
		available, due, next, created, expires, done *time.Time
	)
	err := scan(&p.seq, (*[16]byte)(&r.ID), &group, &r.Topic, &r.Key, &p.stage, &available, &due, &next, &created, &expires,
		&r.Attempts, &r.Claims, &r.Expiries, &owner, &done, &processedBy, &r.MessageID, &r.CorrelationID, &r.CausationID,
		&r.TenantID, &r.TraceParent, &r.TraceState, &r.DedupKey, &r.LastError, &metadata, &r.Payload, &p.blocked)
	if err != nil {
		return err
	}
	if group != nil {
		r.Group, r.Routed = *group, true
	}
	r.CreatedAt, r.DueAt, r.ExpiresAt, r.ProcessedAt = utc(created), utc(due), utc(expires), utc(done)
	r.Status = statusOf(p.stage)
	if p.due = utc(next); r.CreatedAt.After(p.due) {
		p.due = r.CreatedAt
	}
	switch {
	case p.stage == stageLeased:
		r.LeaseUntil = utc(available)
	case r.Status == outmill.StatusPending && !p.blocked:
		r.NextAttemptAt = utc(next)
	}
	r.Owner, r.ProcessedBy = token(owner), token(processedBy)
	if len(metadata) > 0 {
		if err := json.Unmarshal(metadata, &r.Metadata); err != nil {
			return fmt.Errorf("record %s: metadata: %w", r.ID, err)
		}
	}
	p.record = &r
	return nil
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

func token(id *[16]byte) outmill.OwnerToken {
	if id == nil {
		return outmill.OwnerToken{}
	}
	return *id
}

func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// collect reads records.
func collect(into *[]placed) func(scan func(...any) error) error {
	*into = nil
	return func(scan func(...any) error) error {
		var p placed
		if err := p.scan(scan); err != nil {
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
