package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/outmill/outmill"
)

// The stages of a live record; see the schema. Statements spell them out as
// literals, because only so does SQLite use an index on a part of the table.
const (
	stageLine    = 0
	stageHeld    = 1
	stageWaiting = 2
	stageDelayed = 3
	stageLeased  = 4
)

// recordColumns are what scanRecord reads, in its order.
const recordColumns = `seq, id, grp, topic, key, status, stage, available_at, due_at, created_at, expires_at,
	attempts, claims, expiries, owner, processed_at, processed_by, message_id, correlation_id, causation_id,
	tenant_id, traceparent, tracestate, dedup_key, last_error, metadata, payload`

// scanRecord returns the record in the current row, and its place in the order.
func scanRecord(rows *sql.Rows) (*outmill.Record, int64, error) {
	var (
		r                                    outmill.Record
		seq, due, created                    int64
		group                                sql.NullString
		stage, available, expires, processed sql.NullInt64
		owner, processedBy, metadata         string
	)
	err := rows.Scan(&seq, &r.ID, &group, &r.Topic, &r.Key, &r.Status, &stage, &available, &due, &created, &expires,
		&r.Attempts, &r.Claims, &r.Expiries, &owner, &processed, &processedBy, &r.MessageID, &r.CorrelationID, &r.CausationID,
		&r.TenantID, &r.TraceParent, &r.TraceState, &r.DedupKey, &r.LastError, &metadata, &r.Payload)
	if err != nil {
		return nil, 0, err
	}
	r.Group = group.String
	r.CreatedAt = timeOf(created)
	r.DueAt = timeOf(due)
	r.ExpiresAt = nullTime(expires)
	r.ProcessedAt = nullTime(processed)
	switch stage.Int64 {
	case stageLeased:
		r.LeaseUntil = nullTime(available)
	case stageWaiting:
		r.DueAt = nullTime(available)
	}
	if err := parseToken(&r.Owner, owner); err != nil {
		return nil, 0, fmt.Errorf("record %s: owner: %w", r.ID, err)
	}
	if err := parseToken(&r.ProcessedBy, processedBy); err != nil {
		return nil, 0, fmt.Errorf("record %s: processed_by: %w", r.ID, err)
	}
	if metadata != "" {
		if err := json.Unmarshal([]byte(metadata), &r.Metadata); err != nil {
			return nil, 0, fmt.Errorf("record %s: metadata: %w", r.ID, err)
		}
	}
	return &r, seq, nil
}

func parseToken(token *outmill.OwnerToken, text string) error {
	if text == "" {
		return nil
	}
	return token.Scan(text)
}

// scanRecords reads all rows and closes them.
func scanRecords(rows *sql.Rows) ([]*outmill.Record, []int64, error) {
	defer rows.Close()
	var records []*outmill.Record
	var seqs []int64
	for rows.Next() {
		record, seq, err := scanRecord(rows)
		if err != nil {
			return nil, nil, err
		}
		records = append(records, record)
		seqs = append(seqs, seq)
	}
	return records, seqs, rows.Err()
}

func timeOf(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

func nullTime(micros sql.NullInt64) time.Time {
	if !micros.Valid {
		return time.Time{}
	}
	return timeOf(micros.Int64)
}

func micros(t time.Time) int64 { return t.UnixMicro() }
