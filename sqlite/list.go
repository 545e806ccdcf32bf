package sqlite

import (
	"context"
	"database/sql"
	"math"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// matching reports whether a query matches a row.
	matching = `coalesce((?3 = '' OR grp = ?3) AND (?4 = '' OR topic = ?4) AND (?5 = '' OR status = ?5) AND (?6 = '' OR key = ?6)
	AND (?7 = '' OR message_id = ?7) AND (?8 = '' OR correlation_id = ?8) AND (?9 = '' OR tenant_id = ?9)
	AND (?10 = '' OR instr(last_error, ?10) > 0) AND created_at >= ?11 AND created_at < ?12, 0)`

	// sqlSearch scans the records by id. That suits statuses that most records have.
	sqlSearch = `SELECT id, ` + matching + ` FROM {p:records} WHERE id > ?1 ORDER BY id LIMIT ?2`

	// Statuses that few records have are searched topic by topic.
	sqlSearchSettled = `SELECT id, ` + matching + ` FROM {p:records} INDEXED BY {p:settled}
WHERE grp IS ?13 AND topic = ?14 AND stage = 6 AND status = ?5 AND id > ?1 ORDER BY id LIMIT ?2`
	// sqlSearchLeased sorts the leased records of a topic, because there are few of them.
	sqlSearchLeased = `SELECT id, ` + matching + ` FROM {p:records} INDEXED BY {p:later}
WHERE grp IS ?13 AND topic = ?14 AND stage = 4 AND available_at IS NOT NULL AND id > ?1 ORDER BY id LIMIT ?2`

	sqlRecordsOf = `SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM (SELECT value AS wanted FROM json_each(?1)) AS j
CROSS JOIN {p:records} AS r ON r.id = j.wanted`
)

// finder provides List and the calls of storekit.Operator.
type finder = storekit.Finder

// finding is the store as seen by the finder.
type finding struct{ *Store }

// Search examines some records, and returns those that match.
func (f finding) Search(ctx context.Context, operation string, query outmill.ListQuery) (found storekit.Searched, err error) {
	err = f.read(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		found, err = t.search(ctx, query)
		return err
	})
	return found, err
}

func (t *txn) search(ctx context.Context, query outmill.ListQuery) (storekit.Searched, error) {
	template, next := sqlSearch, ""
	switch query.Status {
	case outmill.StatusLeased:
		template, next = sqlSearchLeased, sqlNextLater
	case outmill.StatusDead, outmill.StatusProcessed:
		template, next = sqlSearchSettled, sqlNextSettled
	case outmill.StatusPending:
	}
	if next == "" {
		return storekit.Search(query, 1, func(ranges []storekit.SearchRange, each int) ([]storekit.Looked, error) {
			return t.look(ctx, template, query, ranges[0], each)
		})
	}
	topics, err := t.topicsWithRecords(ctx, []string{next})
	if err != nil {
		return storekit.Searched{}, err
	}
	var in []groupTopic
	for _, of := range topics {
		if storekit.InRange(query, of.group.String, of.topic) {
			in = append(in, of)
		}
	}
	return storekit.Search(query, len(in), func(ranges []storekit.SearchRange, each int) (all []storekit.Looked, err error) {
		for _, r := range ranges {
			of := in[r.Nth]
			some, err := t.look(ctx, template, query, r, each, of.group, of.topic)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		return all, nil
	})
}

// look examines the first records of a range behind its last id.
func (t *txn) look(
	ctx context.Context, template string, query outmill.ListQuery, in storekit.SearchRange, each int, more ...any,
) ([]storekit.Looked, error) {
	after, since, until := "", int64(math.MinInt64), int64(math.MaxInt64)
	if !in.After.IsZero() {
		after = in.After.String()
	}
	if !query.CreatedAfter.IsZero() {
		since = micros(query.CreatedAfter)
	}
	if !query.CreatedBefore.IsZero() {
		until = micros(query.CreatedBefore)
	}
	args := append([]any{
		after, each, query.Group, query.Topic, string(query.Status), query.Key, query.MessageID, query.CorrelationID, query.TenantID,
		query.ErrorText, since, until,
	}, more...)
	return list(ctx, t, func(rows *sql.Rows, l *storekit.Looked) error {
		l.Nth = in.Nth
		return rows.Scan(&l.ID, &l.Matches)
	}, template, args...)
}

// Records returns the records that have one of the ids.
func (f finding) Records(ctx context.Context, operation string, ids []outmill.WorkItemID) (found []*outmill.Record, err error) {
	err = f.read(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		found, err = t.records(ctx, sqlRecordsOf, idList(ids))
		return err
	})
	return found, err
}

// Delete deletes those of the records that have the status.
func (f finding) Delete(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (int, error) {
	return f.delete(ctx, status, ids)
}

// Explain names the operation.
func (f finding) Explain(ctx context.Context, operation string, err error) error {
	return f.explain(ctx, operation, err)
}
