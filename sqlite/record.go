package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// recordColumns are the columns that scanRecord reads, in its order.
const recordColumns = `seq, id, grp, topic, key, status, available_at, due_at, next_at, created_at, expires_at,
	attempts, claims, expiries, owner, processed_at, processed_by, message_id, correlation_id, causation_id,
	tenant_id, traceparent, tracestate, dedup_key, last_error, joins, waits_for, metadata, payload`

// blockedColumn reports, for a held record, whether an earlier one of its key still blocked it
// at the last claim.
const blockedColumn = `(stage = 1 AND EXISTS (SELECT 1 FROM {p:lanes} AS l
	WHERE l.grp = r.grp AND l.topic = r.topic AND l.key = r.key AND l.blocked_by <> ''))`

// placed is a record and its place in the order.
type placed struct {
	seq    int64
	record *outmill.Record
}

func (t *txn) records(ctx context.Context, template string, args ...any) ([]*outmill.Record, error) {
	found, err := list(ctx, t, scanRecord, template, args...)
	records := make([]*outmill.Record, len(found))
	for i, f := range found {
		records[i] = f.record
	}
	return records, err
}

func scanRecord(rows *sql.Rows, into *placed) error {
	var (
		blocked                       bool
		r                             outmill.Record
		seq, due, next, created       int64
		group                         sql.NullString
		available, expires, processed sql.NullInt64
		owner, joins, text            string
	)
	err := rows.Scan(&seq, &r.ID, &group, &r.Topic, &r.Key, &r.Status, &available, &due, &next, &created, &expires,
		&r.Attempts, &r.Claims, &r.Expiries, &owner, &processed, sqlkit.Text(&r.ProcessedBy), &r.MessageID, sqlkit.Text(&r.CorrelationID),
		sqlkit.Text(&r.CausationID),
		sqlkit.Text(&r.TenantID), sqlkit.Text(&r.TraceParent), sqlkit.Text(&r.TraceState), sqlkit.Text(&r.DedupKey), sqlkit.Text(&r.LastError),
		sqlkit.Text(&joins), &r.WaitsFor, sqlkit.Text(&text), sqlkit.Bytes(&r.Payload), &blocked)
	if err != nil {
		return err
	}
	r.Group = group.String
	r.CreatedAt = timeOf(created)
	r.DueAt = timeOf(due)
	r.ExpiresAt = nullTime(expires)
	r.ProcessedAt = nullTime(processed)
	switch {
	case r.Status == outmill.StatusLeased:
		r.LeaseUntil = nullTime(available)
	case r.Status == outmill.StatusPending && !blocked:
		r.NextAttemptAt = timeOf(next)
	}
	if err := parseToken(&r.Owner, owner); err != nil {
		return fmt.Errorf("record %s: owner: %w", r.ID, err)
	}
	if r.Joins, err = storekit.ParseJoins(joins); err != nil {
		return fmt.Errorf("record %s: %w", r.ID, err)
	}
	if text != "" {
		if r.Metadata, err = storekit.ParseMetadata([]byte(text)); err != nil {
			return fmt.Errorf("record %s: metadata: %w", r.ID, err)
		}
	}
	into.seq, into.record = seq, &r
	return nil
}

func parseToken(token *outmill.OwnerToken, text string) error {
	if text == "" {
		return nil
	}
	return token.Scan(text)
}

func timeOf(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

func nullTime(micros sql.NullInt64) time.Time {
	if !micros.Valid {
		return time.Time{}
	}
	return timeOf(micros.Int64)
}

func micros(t time.Time) int64 { return t.UnixMicro() }
