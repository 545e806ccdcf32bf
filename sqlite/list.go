package sqlite

import (
	"context"
	"database/sql"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlSearch scans the records by id. That suits statuses that most records have.
	sqlSearch = `SELECT id, {matching} FROM {p:records} WHERE id > ?1 ORDER BY id LIMIT ?2`

	// Statuses that few records have are searched topic by topic.
	sqlSearchSettled = `SELECT id, {matching} FROM {p:records} INDEXED BY {p:settled}
WHERE grp IS ?15 AND topic = ?16 AND stage = 6 AND status = ?5 AND id > ?1 ORDER BY id LIMIT ?2`
	// sqlSearchLeased sorts the leased records of a topic, because there are few of them.
	sqlSearchLeased = `SELECT id, {matching} FROM {p:records} INDEXED BY {p:later}
WHERE grp IS ?15 AND topic = ?16 AND stage = 4 AND available_at IS NOT NULL AND id > ?1 ORDER BY id LIMIT ?2`

	sqlRecordsOf = `SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM (SELECT value AS wanted FROM json_each(?1)) AS j
CROSS JOIN {p:records} AS r ON r.id = j.wanted`
)

// matching returns the template of a search with the conditions of the query. SQLite evaluates
// each condition for each record that it examines, so those that the query does not have are
// left out.
func matching(template string, query outmill.ListQuery) string {
	var conditions []string
	for _, c := range []struct {
		isSet     bool
		condition string
	}{
		{query.Group != "", "grp = ?3"},
		{query.Topic != "", "topic = ?4"},
		{query.Status != "", "status = ?5"},
		{query.Key != "", "key = ?6"},
		{query.MessageID != "", "message_id = ?7"},
		{query.CorrelationID != "", "correlation_id = ?8"},
		{query.TenantID != "", "tenant_id = ?9"},
		{query.ErrorText != "", "instr(last_error, ?10) > 0"},
		{!query.CreatedAfter.IsZero(), "created_at >= ?11"},
		{!query.CreatedBefore.IsZero(), "created_at < ?12"},
		{query.Contract != "", metadataOf(storekit.ContractNames) + " = ?13"},
		{query.ContractVersion != 0, metadataOf(storekit.ContractVersionNames) + " = ?14"},
	} {
		if c.isSet {
			conditions = append(conditions, c.condition)
		}
	}
	matches := "1"
	if len(conditions) > 0 {
		matches = "coalesce(" + strings.Join(conditions, " AND ") + ", 0)"
	}
	return strings.Replace(template, "{matching}", matches, 1)
}

// metadataOf is the first of the metadata with these names that a record has. SQLite fails on a
// text that is no JSON.
func metadataOf(names []string) string {
	return `CASE WHEN json_valid(metadata) THEN coalesce(metadata ->> '$.` + strings.Join(names, `', metadata ->> '$.`) + `') END`
}

// finder provides List and the calls of roles.Repairs by a filter.
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
	template = matching(template, query)
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
	after := ""
	if !in.After.IsZero() {
		after = in.After.String()
	}
	args := append([]any{
		after, each, query.Group, query.Topic, string(query.Status), query.Key, query.MessageID, query.CorrelationID, query.TenantID,
		query.ErrorText, micros(query.CreatedAfter), micros(query.CreatedBefore), query.Contract, storekit.VersionText(query.ContractVersion),
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
