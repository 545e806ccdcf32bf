package sqlite

import (
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlList goes through the records by id, and so looks at all those that the
	// filter leaves out. That is fine for what most records are.
	sqlList = `SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM {p:records} AS r
WHERE id > ?1 AND (?2 OR grp = ?3) AND (?4 = '' OR topic = ?4) AND (?5 = '' OR status = ?5) ORDER BY id LIMIT ?6`

	// What few records are is found topic by topic.
	sqlSettledIDs = `SELECT id FROM {p:records} INDEXED BY {p:settled}
WHERE grp IS ?1 AND topic = ?2 AND stage = 6 AND status = ?3 AND id > ?4 ORDER BY id LIMIT ?5`
	// sqlLeasedIDs sorts the leased records of a topic: what is in work.
	sqlLeasedIDs = `SELECT id FROM {p:records} INDEXED BY {p:later}
WHERE grp IS ?1 AND topic = ?2 AND stage = 4 AND available_at IS NOT NULL AND ?3 = 'leased' AND id > ?4 ORDER BY id LIMIT ?5`

	sqlRecordsOf = `SELECT ` + recordColumns + `, ` + blockedColumn + ` FROM (SELECT value AS wanted FROM json_each(?1)) AS j
CROSS JOIN {p:records} AS r ON r.id = j.wanted`
)

// List returns records in the order of their ids. See outmill.Inspector.
func (s *Store) List(ctx context.Context, query outmill.ListQuery) ([]*outmill.Record, error) {
	const operation = "list"
	query, err := storekit.CheckList(query)
	if err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	var found []*outmill.Record
	err = s.read(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		switch query.Status {
		case outmill.StatusLeased:
			found, err = t.listByTopic(ctx, query, []string{sqlNextLater}, sqlLeasedIDs)
		case outmill.StatusDead, outmill.StatusProcessed:
			found, err = t.listByTopic(ctx, query, []string{sqlNextSettled}, sqlSettledIDs)
		default:
			found, err = t.listByID(ctx, query)
		}
		return err
	})
	return found, err
}

func (t *txn) listByID(ctx context.Context, query outmill.ListQuery) ([]*outmill.Record, error) {
	return t.records(ctx, sqlList, after(query), query.Group == "", query.Group, query.Topic, string(query.Status), query.Limit)
}

// listByTopic collects as many ids as are wanted from each topic, and reads
// the first of all of them.
func (t *txn) listByTopic(ctx context.Context, query outmill.ListQuery, next []string, idsOf string) ([]*outmill.Record, error) {
	topics, err := t.topicsWithRecords(ctx, next)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, of := range topics {
		if query.Topic != "" && query.Topic != of.topic ||
			query.Group != "" && of.group.String != query.Group {
			continue
		}
		some, err := t.texts(ctx, idsOf, of.group, of.topic, string(query.Status), after(query), query.Limit)
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
	}
	slices.Sort(ids)
	return t.records(ctx, sqlRecordsOf, textList(ids[:min(len(ids), query.Limit)]))
}

func after(query outmill.ListQuery) string {
	if query.After.IsZero() {
		return ""
	}
	return query.After.String()
}
