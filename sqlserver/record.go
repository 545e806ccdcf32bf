package sqlserver

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// recordColumns are the columns that scanRecord reads, in order. The procedures that return
// records list them too.
const recordColumns = `o.Seq, o.IdBytes, o.GroupName, o.Topic, o.[Key], o.Stage, o.AvailableAt, o.DueTimeUtc, o.NextAttemptAt, o.CreatedAt,
	o.ExpiresAt, o.RetryCount, o.Claims, o.Expiries,
	CONVERT(NVARCHAR(36), o.OwnerToken), o.ProcessedAt, o.ProcessedBy, o.MessageId, o.CorrelationId, o.CausationId, o.TenantId,
	o.TraceParent, o.TraceState, o.DedupKey, o.LastError, o.Joins, o.WaitsFor, o.Metadata, o.Payload`

// blockedColumn says for a held record whether its key was still blocked when a claim last
// checked it.
const blockedColumn = `CAST(CASE WHEN o.Stage = 1 AND EXISTS (SELECT 1 FROM [dbo].[OutboxLane] AS l WITH (READCOMMITTEDLOCK, READPAST)
	WHERE l.GroupName = o.GroupName AND l.Topic = o.Topic AND l.[Key] = o.[Key] AND l.BlockedBy <> N'') THEN 1 ELSE 0 END AS BIT)`

// placed is a record and its position in the order.
type placed struct {
	seq   int64
	stage int
	// due is the time from which the record is due, or due again.
	due    time.Time
	record *outmill.Record
}

// recordRow has the columns of one row.
type recordRow struct {
	seq                           int64
	stage                         int
	id, waitsFor                  []byte
	joins                         string
	group, owner, metadata        sql.NullString
	available, expires, processed sql.NullTime
	next                          time.Time
	blocked                       bool
	record                        outmill.Record
}

func scanRecord(scan func(...any) error) (placed, error) {
	var r recordRow
	rec := &r.record
	err := scan(&r.seq, &r.id, &r.group, &rec.Topic, &rec.Key, &r.stage, &r.available, &rec.DueAt, &r.next, &rec.CreatedAt, &r.expires,
		&rec.Attempts, &rec.Claims, &rec.Expiries, &r.owner, &r.processed, sqlkit.Text(&rec.ProcessedBy), &rec.MessageID,
		sqlkit.Text(&rec.CorrelationID), sqlkit.Text(&rec.CausationID), sqlkit.Text(&rec.TenantID),
		sqlkit.Text(&rec.TraceParent), sqlkit.Text(&rec.TraceState), sqlkit.Text(&rec.DedupKey), sqlkit.Text(&rec.LastError),
		sqlkit.Text(&r.joins), &r.waitsFor, &r.metadata, sqlkit.Bytes(&rec.Payload), &r.blocked)
	if err != nil {
		return placed{}, err
	}
	return r.placed()
}

func (r *recordRow) placed() (placed, error) {
	rec := &r.record
	if err := uuidFrom(r.id, (*[16]byte)(&rec.ID)); err != nil {
		return placed{}, err
	}
	if r.waitsFor != nil {
		if err := uuidFrom(r.waitsFor, (*[16]byte)(&rec.WaitsFor)); err != nil {
			return placed{}, err
		}
	}
	var err error
	if rec.Joins, err = storekit.ParseJoins(r.joins); err != nil {
		return placed{}, fmt.Errorf("record %s: %w", rec.ID, err)
	}
	rec.Group = r.group.String
	rec.Status = storekit.StatusOf(r.stage)
	rec.DueAt, rec.CreatedAt, rec.ExpiresAt, rec.ProcessedAt = rec.DueAt.UTC(), rec.CreatedAt.UTC(), utc(r.expires), utc(r.processed)
	if r.owner.Valid {
		if err := rec.Owner.Scan(r.owner.String); err != nil {
			return placed{}, err
		}
	}
	switch {
	case r.stage == storekit.StageLeased:
		rec.LeaseUntil = utc(r.available)
	case rec.Status == outmill.StatusPending && !r.blocked:
		rec.NextAttemptAt = r.next.UTC()
	}
	if r.metadata.Valid {
		if rec.Metadata, err = storekit.ParseMetadata([]byte(r.metadata.String)); err != nil {
			return placed{}, fmt.Errorf("record %s: metadata: %w", rec.ID, err)
		}
	}
	due := r.next.UTC()
	if rec.CreatedAt.After(due) {
		due = rec.CreatedAt
	}
	return placed{r.seq, r.stage, due, rec}, nil
}

func uuidFrom(bytes []byte, into *[16]byte) error {
	if copy(into[:], bytes) != len(into) {
		return fmt.Errorf("an id has %d bytes: want 16", len(bytes))
	}
	return nil
}

func utc(t sql.NullTime) time.Time {
	if !t.Valid {
		return time.Time{}
	}
	return t.Time.UTC()
}

// collect reads records.
func collect(into *[]placed) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		p, err := scanRecord(scan)
		*into = append(*into, p)
		return err
	}
}

func recordsOf(found []placed) []*outmill.Record {
	records := make([]*outmill.Record, len(found))
	for i, f := range found {
		records[i] = f.record
	}
	return records
}

// textOfTime is the layout of times in UTC that CONVERT reads with style 126.
const textOfTime = "2006-01-02T15:04:05.000000"
