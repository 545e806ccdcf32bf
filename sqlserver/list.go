package sqlserver

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// notLocked makes a read skip rows that another transaction has locked, so that it sees only
// committed rows and never waits. If the database keeps versions (READ_COMMITTED_SNAPSHOT), calls
// that only read omit the hint, and see the last committed version of such rows.
const notLocked = ` WITH (READCOMMITTEDLOCK, READPAST)`

var (
	// sqlSearch reads the records by id, which suits common statuses.
	sqlSearch = searchIn(``)

	// Rare statuses are found topic by topic. sqlSearchLeased sorts the leased records of a
	// topic, which are the ones in work. The stage is a literal, so that the optimizer can match
	// it with the filter of the index.
	sqlSearchLeased    = searchIn(ofTopic + ` AND o.Stage = 4`)
	sqlSearchProcessed = searchIn(ofTopic + ` AND o.Stage >= 6 AND o.Stage = 6`)
	sqlSearchDead      = searchIn(ofTopic + ` AND o.Stage >= 6 AND o.Stage = 7`)

	// The same statements for records that wait for a group.
	sqlSearchWaitingLeased    = searchIn(ofNoGroup + ` AND o.Stage = 4`)
	sqlSearchWaitingProcessed = searchIn(ofNoGroup + ` AND o.Stage >= 6 AND o.Stage = 6`)
	sqlSearchWaitingDead      = searchIn(ofNoGroup + ` AND o.Stage >= 6 AND o.Stage = 7`)

	sqlTopicsLeased  = leapLines("Stage = 4") + listLines
	sqlTopicsSettled = leapLines("Stage >= 6") + listLines
)

const (
	listLines = `
SELECT GroupName, Topic FROM @line`

	ofTopic   = ` AND o.GroupName = CAST(@inGroup AS NVARCHAR(255)) AND o.Topic = CAST(@inTopic AS NVARCHAR(255))`
	ofNoGroup = ` AND o.GroupName IS NULL AND o.Topic = CAST(@inTopic AS NVARCHAR(255))`

	sqlRecordsOf = `SELECT ` + recordColumns + `, ` + blockedColumn + `
FROM (SELECT CONVERT(BINARY(16), [value], 1) AS IdBytes FROM OPENJSON(@ids)) AS i
JOIN [dbo].[Outbox] AS o` + notLocked + ` ON o.IdBytes = i.IdBytes ORDER BY o.IdBytes`
)

// searchIn reads the first records behind an id, and reports for each whether the query matches
// it.
func searchIn(where string) string {
	return `SELECT TOP (@each) o.IdBytes, CASE WHEN ` + matching + ` THEN 1 ELSE 0 END AS Matches FROM [dbo].[Outbox] AS o` + notLocked + `
WHERE o.IdBytes > CONVERT(BINARY(16), @after, 1)` + where + ` ORDER BY o.IdBytes`
}

// matching also compares lengths, because SQL Server ignores trailing blanks of a text.
var matching = func() string {
	conditions := []string{`(@pending = 0 OR o.Stage IN (-1, 0, 1, 2, 3, 5))`}
	for _, of := range [][2]string{
		{"o.GroupName", "@group"}, {"o.Topic", "@topic"}, {"o.[Key]", "@key"}, {"o.MessageId", "@message"},
		{"o.CorrelationId", "@correlation"}, {"o.TenantId", "@tenant"},
	} {
		conditions = append(conditions, strings.NewReplacer("column", of[0], "value", of[1]).Replace(
			`(value = N'' OR column COLLATE Latin1_General_100_BIN2 = CAST(value AS NVARCHAR(255)) AND DATALENGTH(column) = DATALENGTH(value))`))
	}
	for _, of := range []struct {
		value string
		names []string
	}{{"@contract", storekit.ContractNames}, {"@contractVersion", storekit.ContractVersionNames}} {
		// A point after both texts keeps their trailing blanks. JSON_VALUE fails on a text that is no JSON.
		names := strings.Join(of.names, `'), JSON_VALUE(o.Metadata, '$.`)
		conditions = append(conditions, strings.NewReplacer("names", names, "value", of.value).Replace(
			`(value = N'' OR CASE WHEN ISJSON(o.Metadata) = 1 THEN COALESCE(JSON_VALUE(o.Metadata, '$.names')) END
        COLLATE Latin1_General_100_BIN2 + N'.' = CAST(value AS NVARCHAR(3999)) + N'.')`))
	}
	return strings.Join(append(conditions,
		// LastError has less than 4,000 characters, and CHARINDEX accepts no longer pattern.
		`(@error = N'' OR DATALENGTH(@error) <= 8000
        AND CHARINDEX(CAST(@error AS NVARCHAR(4000)), o.LastError COLLATE Latin1_General_100_BIN2) > 0)`,
		`(@since = N'' OR o.CreatedAt >= CONVERT(DATETIME2(6), CAST(@since AS NVARCHAR(30)), 126))`,
		`(@until = N'' OR o.CreatedAt < CONVERT(DATETIME2(6), CAST(@until AS NVARCHAR(30)), 126))`), "\n    AND ")
}()

// finder gives the store List and the methods of roles.Repairs by a filter.
type finder = storekit.Finder

// finding implements what the finder needs of the store.
type finding struct{ *Store }

// groupTopic is a topic of a group. Without a group, it stands for records that wait for one.
type groupTopic struct {
	group sql.NullString
	topic string
}

// Search reads records. If the query asks for leased, processed or dead records, it makes a call
// for each topic that has such records.
func (f finding) Search(ctx context.Context, operation string, query outmill.ListQuery) (storekit.Searched, error) {
	if !storekit.ByStatus(query.Status) {
		return storekit.Search(query, 1, func(ranges []storekit.SearchRange, each int) ([]storekit.Looked, error) {
			return f.look(ctx, operation, query, sqlSearch, ranges[0], each)
		})
	}
	lines, err := f.lines(ctx, operation, query)
	if err != nil {
		return storekit.Searched{}, err
	}
	template, waiting := sqlSearchDead, sqlSearchWaitingDead
	switch query.Status {
	case outmill.StatusLeased:
		template, waiting = sqlSearchLeased, sqlSearchWaitingLeased
	case outmill.StatusProcessed:
		template, waiting = sqlSearchProcessed, sqlSearchWaitingProcessed
	case outmill.StatusDead, outmill.StatusPending:
	}
	return storekit.Search(query, len(lines), func(ranges []storekit.SearchRange, each int) (all []storekit.Looked, err error) {
		for _, r := range ranges {
			of := lines[r.Nth]
			var some []storekit.Looked
			if of.group.Valid {
				some, err = f.look(ctx, operation, query, template, r, each, named("inGroup", of.group.String), named("inTopic", of.topic))
			} else {
				some, err = f.look(ctx, operation, query, waiting, r, each, named("inTopic", of.topic))
			}
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		return all, nil
	})
}

// lines returns the groups and topics that have records of the status.
func (f finding) lines(ctx context.Context, operation string, query outmill.ListQuery) (lines []groupTopic, err error) {
	template := sqlTopicsSettled
	if query.Status == outmill.StatusLeased {
		template = sqlTopicsLeased
	}
	err = f.run(ctx, operation, call{
		template: template, looks: true, reset: func() { lines = nil },
		sets: []reader{func(scan func(...any) error) error {
			var l groupTopic
			err := scan(&l.group, &l.topic)
			if storekit.InRange(query, l.group.String, l.topic) {
				lines = append(lines, l)
			}
			return err
		}},
	})
	return lines, err
}

func (f finding) look(
	ctx context.Context, operation string, query outmill.ListQuery, template string, in storekit.SearchRange, each int, more ...any,
) (found []storekit.Looked, err error) {
	timeOr := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(textOfTime)
	}
	args := append([]any{
		named("each", each), named("after", hex(in.After)), named("pending", query.Status == outmill.StatusPending),
		named("group", query.Group), named("topic", query.Topic), named("key", query.Key), named("message", query.MessageID),
		named("correlation", query.CorrelationID), named("tenant", query.TenantID), named("error", query.ErrorText),
		named("contract", query.Contract), named("contractVersion", storekit.VersionText(query.ContractVersion)),
		named("since", timeOr(query.CreatedAfter)), named("until", timeOr(query.CreatedBefore)),
	}, more...)
	err = f.run(ctx, operation, call{
		template: template, args: args, looks: true, reset: func() { found = nil },
		sets: []reader{func(scan func(...any) error) error {
			var id []byte
			l := storekit.Looked{Nth: in.Nth}
			err := scan(&id, &l.Matches)
			copy(l.ID[:], id)
			found = append(found, l)
			return err
		}},
	})
	return found, err
}

// Records returns the records with these ids.
func (f finding) Records(ctx context.Context, operation string, ids []outmill.WorkItemID) ([]*outmill.Record, error) {
	var all []placed
	for some := range slices.Chunk(ids, maxAtOnce) {
		texts := make([]string, len(some))
		for i, id := range some {
			texts[i] = hex(id)
		}
		list, err := json.Marshal(texts)
		if err != nil {
			return nil, err
		}
		var found []placed
		err = f.run(ctx, operation, call{
			template: sqlRecordsOf, args: []any{named("ids", string(list))}, looks: true,
			reset: func() { found = nil }, sets: []reader{collect(&found)},
		})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return recordsOf(all), nil
}

// Delete deletes the records that have the status.
func (f finding) Delete(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (int, error) {
	return f.delete(ctx, status, ids)
}

// Explain adds the name of the operation to an error.
func (f finding) Explain(ctx context.Context, operation string, err error) error {
	return f.explain(ctx, operation, err)
}
