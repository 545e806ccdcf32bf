package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/routing"
	"github.com/outmill/outmill/internal/steps"
	"github.com/outmill/outmill/storekit"
)

const (
	// noteSteps notes what happens to records of steps, from rows of how and step,
	// for count_steps, which every transaction that may note something runs last:
	// then it holds all the rows that it is going to change, and joins are locked
	// after them. See the schema.
	noteSteps = `SELECT set_config('outmill.steps', coalesce(current_setting('outmill.steps', true), '') || string_agg(how || step || ',', ''), true)
`

	noteAcked = noteSteps + `FROM (SELECT 'a' AS how, step FROM gone) AS n WHERE step IS NOT NULL HAVING count(*) > 0`

	noteDead = noteSteps + `FROM (SELECT 'd' AS how, step FROM gone) AS n WHERE step IS NOT NULL HAVING count(*) > 0`

	sqlCountSteps = `SELECT id::text FROM {p:count_steps}() AS id`

	// sqlHurry makes due what waits for joins. Records whose handling goes on come
	// by sqlSnooze.
	sqlHurry = `UPDATE {p:records} SET available_at = statement_timestamp(), next_at = statement_timestamp()
WHERE waits_for = ANY ($1::text[]::uuid[]) AND stage + 0 IN (2, 3) AND available_at > statement_timestamp()`

	sqlJoinsOf = `SELECT ` + joinColumns + `, 0 FROM {p:joins} AS j WHERE j.id = ANY ($1::text[]::uuid[]) ORDER BY j.id`

	// sqlJoinsToFill also counts the members of joins that may be full.
	sqlJoinsToFill = `SELECT ` + joinColumns + `, CASE WHEN j.expected_steps IS NULL THEN 0 ELSE (SELECT count(*) FROM {p:join_members} WHERE join_id = j.id) END
FROM {p:joins} AS j WHERE j.id = ANY ($1::text[]::uuid[]) ORDER BY j.id`
)

// sqlAttachSteps makes members of steps whose records were inserted.
var sqlAttachSteps = attachSteps(1) + ` ON CONFLICT (join_id, step) DO NOTHING`

func attachSteps(from int) string {
	return fmt.Sprintf(`INSERT INTO {p:join_members} (join_id, step, open)
SELECT m.join_id::uuid, m.step::uuid, m.open FROM unnest($%d::text[], $%d::text[], $%d::bigint[]) AS m (join_id, step, open)`, from, from+1, from+2)
}

// hurryWithin bounds what comes after a commit.
const hurryWithin = 5 * time.Second

// countSteps is the last step of a transaction that may have noted steps; into
// gets the joins that were counted.
func countSteps(into *[]string) step { return step{template: sqlCountSteps, row: texts(into)} }

// writeSteps is writeAll for what may settle steps of joins.
func (s *Store) writeSteps(ctx context.Context, operation string, steps ...step) error {
	return s.settleIn(ctx, operation, s.write, steps)
}

// settleIn settles by s.write or s.durably.
func (s *Store) settleIn(ctx context.Context, operation string, write writing, steps []step) error {
	var counted []string
	steps = append(steps, countSteps(&counted))
	err := write(ctx, operation, func(ctx context.Context, t *txn) error { return t.finish(ctx, steps...) })
	if err == nil {
		s.hurry(ctx, counted)
	}
	return err
}

// hurry makes due what waits for those of the joins that are decided, or have
// ended.
//
// It comes after the commit of whatever may have decided them, in a transaction
// of its own that locks no join, so that it is in nobody's way. It cannot miss a
// record that is being snoozed: a snooze looks at the join after its own commit,
// so one of the two sees the other. If the process dies in between, the record's
// snooze ends soon by itself.
func (s *Store) hurry(ctx context.Context, ids []string) {
	if len(ids) == 0 {
		return
	}
	// What decided the joins is done, whatever becomes of the caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hurryWithin)
	defer cancel()
	if err := s.hurryDecided(ctx, ids); err != nil {
		s.logger.Error("What waits for a decided join was not made due; it is when its snooze ends", err, watermill.LogFields{"joins": len(ids)})
	}
}

func (s *Store) hurryDecided(ctx context.Context, ids []string) error {
	var found []countedJoin
	var decided []string
	err := s.write(ctx, "hurry", func(ctx context.Context, t *txn) error {
		decided = nil
		if err := t.run(ctx, joinsStep(sqlJoinsOf, &found, ids)); err != nil {
			return err
		}
		for _, j := range found {
			if status, _ := j.Decide(false, j.late); j.Status != storekit.JoinPending || status != storekit.JoinPending {
				decided = append(decided, j.ID.String())
			}
		}
		if len(decided) == 0 {
			return t.finish(ctx)
		}
		return t.finish(ctx, step{template: sqlHurry, args: []any{decided}})
	})
	if err == nil && len(decided) > 0 {
		s.wake()
	}
	return err
}

// checkSteps refuses steps that a join does not take, before anything is
// written, so that a caller's transaction stays usable.
func (a *appending) checkSteps(ctx context.Context, r runner) error {
	wanted := map[outmill.JoinID]int{}
	var ids []string
	for _, record := range a.Records {
		for _, id := range record.Joins {
			if wanted[id]++; wanted[id] == 1 {
				ids = append(ids, id.String())
			}
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	var found []countedJoin
	if err := r.run(ctx, joinsStep(sqlJoinsToFill, &found, ids)); err != nil {
		return err
	}
	known := map[outmill.JoinID]*countedJoin{}
	for i := range found {
		known[found[i].ID] = &found[i]
	}
	for id, n := range wanted {
		if err := known[id].takes(id, n); err != nil {
			return err
		}
	}
	return nil
}

// takes refuses n more steps: see steps.Takes. j is nil where there is no such
// join.
func (j *countedJoin) takes(id outmill.JoinID, n int) error {
	if j == nil {
		return steps.Takes(id, nil, 0, n)
	}
	return steps.Takes(id, &j.Join, j.members, n)
}

// joinSteps are the steps of an append, with their joins and how many records each
// has.
type joinSteps struct {
	joins, steps []string
	open         []int64
}

func (j joinSteps) args() []any { return []any{j.joins, j.steps, j.open} }

func (a *appending) stepsOfJoins(table *routing.Table) joinSteps {
	var found joinSteps
	for i, r := range a.Records {
		for _, id := range r.Joins {
			found.joins, found.steps = append(found.joins, id.String()), append(found.steps, a.IDs[i].String())
			found.open = append(found.open, int64(max(1, len(table.Of(r.Topic)))))
		}
	}
	return found
}

// attach comes after records of steps that were all inserted.
func (a *appending) attach(table *routing.Table) []step {
	joining := a.stepsOfJoins(table)
	if len(joining.joins) == 0 {
		return nil
	}
	return []step{{template: sqlAttachSteps, args: joining.args()}}
}
