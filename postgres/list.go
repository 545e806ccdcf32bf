package postgres

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// sqlList goes through the records by id, and so looks at all those that the
// filter leaves out. That is fine for what most records are.
const sqlList = `SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM {p:records} AS r
WHERE r.id > $1::text::uuid AND ($2::boolean OR r.grp = $3::text) AND ($4::text = '' OR r.topic = $4::text)
	AND ($5::text = '' OR r.stage IN (0, 1, 2, 3, 5)) ORDER BY r.id LIMIT $6::bigint`

// What few records are is found topic by topic.
var (
	// sqlListLeased sorts the leased records of a topic: what is in work.
	sqlListLeased  = listByTopic(`stage = 4`, `stage = 4`)
	sqlListSettled = listByTopic(`stage >= 6`, `stage = CASE $5::text WHEN 'processed' THEN 6 ELSE 7 END AND stage >= 6`)
)

// listByTopic collects as many ids as are wanted from each topic that has
// records of a kind, and reads the first of all of them.
func listByTopic(kind, stage string) string {
	ids := func(group string) string {
		return `CROSS JOIN LATERAL (SELECT id FROM {p:records} WHERE ` + group + ` AND topic = t.topic AND ` + stage + `
	AND id > $1::text::uuid ORDER BY id LIMIT $6::bigint) AS i`
	}
	return `WITH RECURSIVE ` + groupTopics("routed", kind) + `,
found AS MATERIALIZED (SELECT id FROM (
	SELECT i.id FROM routed AS t ` + ids(`grp = t.grp`) + ` WHERE ($2::boolean OR t.grp = $3::text) AND ($4::text = '' OR t.topic = $4::text)
	UNION ALL
	SELECT i.id FROM (` + leaps("grp IS NULL", kind) + `) AS t ` + ids(`grp IS NULL`) + ` WHERE $2::boolean AND ($4::text = '' OR t.topic =
		$4::text)
) AS all_of ORDER BY id LIMIT $6::bigint)
SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM {p:records} AS r WHERE r.id = ANY (ARRAY(SELECT id FROM found))
	AND $5::text <> '' ORDER BY r.id`
}

// groupTopics is a recursive query of the groups and topics that have records
// of a kind, each found by an index. Its cost is that of the topics and not of
// their records. Records without a group are not in it.
func groupTopics(name, kind string) string {
	return name + ` AS (
	(SELECT grp, topic FROM {p:records} WHERE grp IS NOT NULL AND ` + kind + ` ORDER BY grp, topic LIMIT 1)
	UNION ALL SELECT n.grp, n.topic FROM ` + name + ` AS t CROSS JOIN LATERAL (SELECT grp, topic FROM {p:records}
		WHERE ` + kind + ` AND (grp, topic) > (t.grp, t.topic) ORDER BY grp, topic LIMIT 1) AS n)`
}

// List returns records in the order of their ids. See outmill.Inspector.
func (s *Store) List(ctx context.Context, query outmill.ListQuery) ([]*outmill.Record, error) {
	const operation = "list"
	query, err := storekit.CheckList(query)
	if err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	template, logTemplate := sqlList, sqlLogList
	switch query.Status {
	case outmill.StatusLeased:
		template, logTemplate = sqlListLeased, sqlLogListLeased
	case outmill.StatusDead, outmill.StatusProcessed:
		template, logTemplate = sqlListSettled, ""
	case outmill.StatusPending:
	}
	limit := query.Limit
	args := []any{query.After.String(), query.Group == "", query.Group, query.Topic, string(query.Status), limit}
	found, err := s.bothLanes(ctx, operation, step{template: logTemplate, args: args}, step{template: template, args: args})
	if err != nil {
		return nil, err
	}
	return recordsOf(found[:min(limit, len(found))]), nil
}
