package postgres

import (
	"context"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// noteSteps notes changes of records that are steps, from rows of how and step. count_steps
	// reads the notes. Every transaction that may note changes calls it last: then the
	// transaction holds all the rows that it will change, and locks joins after them. See the
	// schema.
	noteSteps = `SELECT set_config('outmill.steps', coalesce(current_setting('outmill.steps', true), '') || string_agg(how || step || ',',
		''), true)
`

	noteAcked = noteSteps + `FROM (SELECT 'a' AS how, step FROM gone) AS n WHERE step IS NOT NULL HAVING count(*) > 0`

	noteDead = noteSteps + `FROM (SELECT 'd' AS how, step FROM gone) AS n WHERE step IS NOT NULL HAVING count(*) > 0`

	sqlCountSteps = `SELECT id::text FROM {p:count_steps}() AS id`

	// sqlHurry makes the records due that wait for joins. Records that are still being handled
	// become due in sqlSnooze.
	sqlHurry = `UPDATE {p:records} SET available_at = statement_timestamp(), next_at = statement_timestamp()
WHERE waits_for = ANY ($1::text[]::uuid[]) AND stage + 0 IN (2, 3) AND available_at > statement_timestamp()`

	sqlJoinsOf = `SELECT ` + joinColumns + `, 0 FROM {p:joins} AS j WHERE j.id = ANY ($1::text[]::uuid[]) ORDER BY j.id`

	// sqlJoinsToFill also counts the members of joins that may be complete.
	sqlJoinsToFill = `SELECT ` + joinColumns + `, CASE WHEN j.expected_steps IS NULL THEN 0 ELSE (SELECT count(*) FROM {p:join_members}
		WHERE join_id = j.id) END
FROM {p:joins} AS j WHERE j.id = ANY ($1::text[]::uuid[]) ORDER BY j.id`
)

// sqlAttachSteps adds members for steps whose records were inserted.
var sqlAttachSteps = attachSteps(1) + ` ON CONFLICT (join_id, step) DO NOTHING`

func attachSteps(from int) string {
	return fmt.Sprintf(`INSERT INTO {p:join_members} (join_id, step, open)
SELECT m.join_id::uuid, m.step::uuid, m.open FROM unnest($%d::text[], $%d::text[], $%d::bigint[]) AS m (join_id, step, open)`, from, from+1,
		from+2)
}

// countSteps is the last step of a transaction that may have noted steps. It appends the
// counted joins to into.
func countSteps(into *[]outmill.JoinID) step {
	*into = nil
	return step{template: sqlCountSteps, row: addJoinIDs(into)}
}

// addJoinIDs adds the ids of joins in a column to those collected so far.
func addJoinIDs(into *[]outmill.JoinID) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		var id outmill.JoinID
		err := id.Scan(text)
		*into = append(*into, id)
		return err
	}
}

func textsOf(ids []outmill.JoinID) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return texts
}

// writeSteps is writeAll for statements that may settle steps of joins.
func (s *Store) writeSteps(ctx context.Context, operation string, steps ...step) error {
	return s.settleIn(ctx, operation, s.write, steps)
}

// settleIn settles in a transaction of write, which is s.write or s.durably.
func (s *Store) settleIn(ctx context.Context, operation string, write writing, steps []step) error {
	var counted []outmill.JoinID
	steps = append(steps, countSteps(&counted))
	err := write(ctx, operation, func(ctx context.Context, t *txn) error { return t.finish(ctx, steps...) })
	if err == nil {
		s.hurry(ctx, counted)
	}
	return err
}

// checkSteps refuses steps that a join does not take, before anything is written, so that a
// caller's transaction stays usable.
func (a *appending) checkSteps(ctx context.Context, r runner) error {
	return storekit.CheckSteps(a.Records, func(ids []outmill.JoinID) ([]*storekit.JoinState, error) { return joinsToFill(ctx, r, ids) })
}

// joinSteps are the steps of an append, with their joins and how many records each
// has.
type joinSteps struct {
	joins, steps []string
	open         []int64
}

func (j joinSteps) args() []any { return []any{j.joins, j.steps, j.open} }

func (a *appending) stepsOfJoins(table *storekit.RoutingTable) joinSteps {
	var found joinSteps
	for i, r := range a.Records {
		for _, id := range r.Joins {
			found.joins, found.steps = append(found.joins, id.String()), append(found.steps, a.IDs[i].String())
			found.open = append(found.open, int64(max(1, len(table.Of(r.Topic)))))
		}
	}
	return found
}

// attach comes after the steps that have inserted all the records.
func (a *appending) attach(table *storekit.RoutingTable) []step {
	joining := a.stepsOfJoins(table)
	if len(joining.joins) == 0 {
		return nil
	}
	return []step{{template: sqlAttachSteps, args: joining.args()}}
}
