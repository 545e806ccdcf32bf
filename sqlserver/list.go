package sqlserver

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// notLocked reads what is committed, and waits for nobody: what another
// transaction has locked is passed over. Where the database keeps versions
// (READ_COMMITTED_SNAPSHOT), calls that look leave it out, and see that as it was.
const notLocked = ` WITH (READCOMMITTEDLOCK, READPAST)`

const (
	// sqlList goes through the records by id, and so looks at all those that the
	// filter leaves out. That is fine for what most records are.
	sqlList = `SELECT TOP (@limit) ` + recordColumns + `, ` + blockedColumn + ` FROM [dbo].[Outbox] AS o` + notLocked + `
WHERE o.IdBytes > CONVERT(BINARY(16), @after, 1) AND (@all = 1 OR o.GroupName = ` + groupName + `) AND (@topic = N'' OR o.Topic = ` +
		topicName + `)
	AND (@pending = 0 OR o.Stage IN (0, 1, 2, 3, 5)) ORDER BY o.IdBytes`

	// What few records are is found by an index that has only them.
	sqlListLeased = `SELECT TOP (@limit) ` + recordColumns + `, ` + blockedColumn + ` FROM [dbo].[Outbox] AS o` + notLocked + `
WHERE o.Stage = 4` + listPage

	// The stage is a literal, so that it is known to be one that the index has.
	sqlListProcessed = listSettled + `o.Stage = 6` + listPage
	sqlListDead      = listSettled + `o.Stage = 7` + listPage

	listSettled = `SELECT TOP (@limit) ` + recordColumns + `, ` + blockedColumn + ` FROM [dbo].[Outbox] AS o` + notLocked + `
WHERE o.Stage >= 6 AND `
	listPage = ` AND o.IdBytes > CONVERT(BINARY(16), @after, 1) AND (@all = 1 OR o.GroupName = ` + groupName +
		`) AND (@topic = N'' OR o.Topic = ` + topicName + `) ORDER BY o.IdBytes`
)

// List returns records in the order of their ids. See outmill.Inspector.
func (s *Store) List(ctx context.Context, query outmill.ListQuery) ([]*outmill.Record, error) {
	const operation = "list"
	query, err := storekit.CheckList(query)
	if err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	args := []any{
		named("limit", query.Limit), named("after", hex(query.After)), named("all", query.Group == ""),
		named("group", query.Group), named("topic", query.Topic),
	}
	template := sqlList
	switch query.Status {
	case outmill.StatusLeased:
		template = sqlListLeased
	case outmill.StatusProcessed:
		template = sqlListProcessed
	case outmill.StatusDead:
		template = sqlListDead
	default:
		args = append(args, named("pending", query.Status == outmill.StatusPending))
	}
	var found []placed
	err = s.run(ctx, operation, call{
		template: template, args: args, looks: true, reset: func() { found = nil }, sets: []reader{collect(&found)},
	})
	if err != nil {
		return nil, err
	}
	return recordsOf(found), nil
}
