package postgres

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	// matching reports whether a query matches the row r. The row's status is checked
	// separately.
	matching = `coalesce(($3::text = '' OR r.grp = $3::text) AND ($4::text = '' OR r.topic = $4::text) 
	AND ($5::text = '' OR $5::text = %status) AND ($6::text = '' OR r.key = $6::text)
	AND ($7::text = '' OR r.message_id = $7::text) AND ($8::text = '' OR r.correlation_id = $8::text)
	AND ($9::text = '' OR r.tenant_id = $9::text)
	AND ($10::text = '' OR position($10::text IN %error) > 0)
	AND coalesce(r.created_at >= nullif($11::text, '')::timestamptz, true)
	AND coalesce(r.created_at < nullif($12::text, '')::timestamptz, true)
	AND ($13::text = '' OR %contract = $13::text) AND ($14::text = '' OR %version = $14::text), false)`

	// statusOf is the status of a row of the records.
	statusOf = `CASE stage WHEN 4 THEN 'leased' WHEN 6 THEN 'processed' WHEN 7 THEN 'dead' ELSE 'pending' END`
)

var matchingRecord = matchingOf(statusOf, `r.last_error`)

// matchingOf is matching for rows that have their status and last error in these columns.
func matchingOf(status, lastError string) string {
	return strings.NewReplacer(`%status`, status, `%error`, lastError,
		`%contract`, metadataOf(storekit.ContractNames), `%version`, metadataOf(storekit.ContractVersionNames)).Replace(matching)
}

// metadataOf is the first of the metadata with these names that a row has.
func metadataOf(names []string) string {
	return `coalesce(r.metadata ->> '` + strings.Join(names, `', r.metadata ->> '`) + `')`
}

var (
	// sqlSearch scans the records by id. That suits statuses that most records have.
	sqlSearch = `SELECT 0::bigint, r.id, ` + matchingRecord + ` FROM {p:records} AS r
WHERE r.id > $1::text::uuid ORDER BY r.id LIMIT $2::bigint`

	// Statuses that few records have are searched topic by topic. sqlSearchLeased sorts the
	// leased records of a topic, because there are few of them.
	sqlSearchLeased  = searchTopics(`r.stage = 4`)
	sqlSearchSettled = searchTopics(`r.stage = CASE $5::text WHEN 'processed' THEN 6 ELSE 7 END AND r.stage >= 6`)

	sqlTopicsLeased  = topicsWith(`stage = 4`)
	sqlTopicsSettled = topicsWith(`stage >= 6`)

	sqlRecordsOf = `SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM {p:records} AS r
WHERE r.id = ANY ($1::text[]::uuid[]) ORDER BY r.id`
)

// searchTopics reads the first records of each group and topic of the lists, each behind an id.
func searchTopics(stage string) string {
	of := func(group, some string) string {
		return `SELECT t.nth, i.id, i.m FROM t CROSS JOIN LATERAL (SELECT r.id, ` + matchingRecord + ` AS m FROM {p:records} AS r
	WHERE ` + group + ` AND r.topic = t.topic AND ` + stage + ` AND r.id > t.after::uuid ORDER BY r.id LIMIT $2::bigint) AS i WHERE ` + some
	}
	return `WITH t AS MATERIALIZED (SELECT * FROM unnest($1::text[], $15::text[], $16::text[], $17::bigint[]) AS t (after, grp, topic, nth))
` + of(`r.grp = t.grp`, `t.grp <> ''`) + `
UNION ALL ` + of(`r.grp IS NULL`, `t.grp = ''`)
}

// topicsWith selects the groups and topics that have records of a kind.
func topicsWith(kind string) string {
	return `WITH RECURSIVE ` + groupTopics("routed", kind) + `
SELECT grp, topic FROM routed UNION ALL SELECT '', topic FROM (` + leaps("grp IS NULL", kind) + `) AS t`
}

// groupTopics is a recursive query of the groups and topics that have records of a kind, each
// found by an index. Its cost grows with the topics and not with their records. It leaves out
// records without a group.
func groupTopics(name, kind string) string {
	return name + ` AS (
	(SELECT grp, topic FROM {p:records} WHERE grp IS NOT NULL AND ` + kind + ` ORDER BY grp, topic LIMIT 1)
	UNION ALL SELECT n.grp, n.topic FROM ` + name + ` AS t CROSS JOIN LATERAL (SELECT grp, topic FROM {p:records}
		WHERE ` + kind + ` AND (grp, topic) > (t.grp, t.topic) ORDER BY grp, topic LIMIT 1) AS n)`
}

// finder provides List and the calls of roles.Repairs by a filter.
type finder = storekit.Finder

// finding is the store as seen by the finder.
type finding struct{ *Store }

// search is one Search.
type search struct {
	*Store
	operation string
	query     outmill.ListQuery
	// log reports whether the search includes the log.
	log bool
	// topics are the topics of the ranges. The log is a range of its own, after them.
	topics []groupTopic
}

type groupTopic struct{ group, topic string }

// Search examines some records, and returns those that match.
func (f finding) Search(ctx context.Context, operation string, query outmill.ListQuery) (storekit.Searched, error) {
	s := &search{Store: f.Store, operation: operation, query: query}
	var err error
	if s.log, err = s.seesLog(ctx, operation); err != nil {
		return storekit.Searched{}, err
	}
	if !storekit.ByStatus(query.Status) {
		return storekit.Search(query, 1, func(ranges []storekit.SearchRange, each int) ([]storekit.Looked, error) {
			return s.lookByID(ctx, ranges[0], each)
		})
	}
	if err := s.readTopics(ctx); err != nil {
		return storekit.Searched{}, err
	}
	ranges := len(s.topics)
	// The log has no settled records.
	if s.log = s.log && query.Status == outmill.StatusLeased; s.log {
		ranges++
	}
	return storekit.Search(query, ranges, func(ranges []storekit.SearchRange, each int) ([]storekit.Looked, error) {
		return s.lookByTopic(ctx, ranges, each)
	})
}

// args returns the arguments that all statements share, and more.
func (s *search) args(after any, each int, more ...any) []any {
	timeOr := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(textOfTime)
	}
	q := s.query
	return append([]any{
		after, each, q.Group, q.Topic, string(q.Status), q.Key, q.MessageID, q.CorrelationID, q.TenantID, q.ErrorText,
		timeOr(q.CreatedAfter), timeOr(q.CreatedBefore), q.Contract, storekit.VersionText(q.ContractVersion),
	}, more...)
}

// look runs the steps in one round trip and returns the records that they examined.
func (s *search) look(ctx context.Context, steps ...step) (found []storekit.Looked, err error) {
	err = s.write(ctx, s.operation, func(ctx context.Context, t *txn) error {
		found = nil
		for i := range steps {
			steps[i].row = func(scan func(...any) error) error {
				var l storekit.Looked
				var id pgtype.UUID
				err := scan(&l.Nth, &id, &l.Matches)
				l.ID = id.Bytes
				found = append(found, l)
				return err
			}
		}
		return t.finish(ctx, steps...)
	})
	return found, err
}

// lookByID reads the log and then the records, behind one id, so that a record that moves
// between the two reads is found at least once. The two reads advance together. Otherwise a
// record could move from behind the log's position to before the records' position, and be
// missed.
func (s *search) lookByID(ctx context.Context, in storekit.SearchRange, each int) ([]storekit.Looked, error) {
	args := s.args(in.After.String(), each)
	steps := []step{{template: sqlSearch, args: args}}
	if s.log {
		steps = []step{{template: sqlLogSearch, args: args}, steps[0]}
	}
	found, err := s.look(ctx, steps...)
	slices.SortStableFunc(found, func(a, b storekit.Looked) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	found = slices.CompactFunc(found, func(a, b storekit.Looked) bool { return a == b })
	if len(found) <= each {
		return found, err
	}
	// A record that was found in both must be in the page twice, or not at all.
	last := found[each-1].ID
	for each < len(found) && found[each].ID == last {
		each++
	}
	return found[:each], err
}

func (s *search) lookByTopic(ctx context.Context, ranges []storekit.SearchRange, each int) ([]storekit.Looked, error) {
	var after, groups, topics []string
	var nth []int64
	var steps []step
	for _, r := range ranges {
		if r.Nth == len(s.topics) {
			// Read all ranges at once, or a record could move to a range of records that was
			// read before.
			steps = append(steps, step{template: sqlLogSearchLeased, args: s.args(r.After.String(), roles.MaxExamined, r.Nth)})
			continue
		}
		after, nth = append(after, r.After.String()), append(nth, int64(r.Nth))
		groups, topics = append(groups, s.topics[r.Nth].group), append(topics, s.topics[r.Nth].topic)
	}
	if len(nth) > 0 {
		template := sqlSearchSettled
		if s.query.Status == outmill.StatusLeased {
			template = sqlSearchLeased
		}
		steps = append(steps, step{template: template, args: s.args(after, each, groups, topics, nth)})
	}
	return s.look(ctx, steps...)
}

// readTopics reads the groups and topics that have records of the status.
func (s *search) readTopics(ctx context.Context) error {
	template := sqlTopicsSettled
	if s.query.Status == outmill.StatusLeased {
		template = sqlTopicsLeased
	}
	return s.write(ctx, s.operation, func(ctx context.Context, t *txn) error {
		s.topics = nil
		return t.finish(ctx, step{template: template, row: func(scan func(...any) error) error {
			var of groupTopic
			err := scan(&of.group, &of.topic)
			if storekit.InRange(s.query, of.group, of.topic) {
				s.topics = append(s.topics, of)
			}
			return err
		}})
	})
}

// Records returns the records that have one of the ids.
func (f finding) Records(ctx context.Context, operation string, ids []outmill.WorkItemID) ([]*outmill.Record, error) {
	args := []any{idTexts(ids)}
	found, err := f.bothLanes(ctx, operation, step{template: sqlLogRecordsOf, args: args}, step{template: sqlRecordsOf, args: args})
	return recordsOf(found), err
}

// Delete deletes those of the records that have the status.
func (f finding) Delete(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (int, error) {
	return f.delete(ctx, status, ids)
}

// Explain names the operation.
func (f finding) Explain(ctx context.Context, operation string, err error) error {
	return f.explain(ctx, operation, err)
}
