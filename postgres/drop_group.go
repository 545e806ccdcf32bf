package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlForgetGroup removes the registrations of the group $1, and notes that it is being
	// dropped. The janitor does not look at the note.
	sqlForgetGroup = `WITH gone AS (DELETE FROM {p:groups} WHERE grp = $1::text RETURNING 1),
workers AS (DELETE FROM {p:workers} WHERE grp = $1::text),
noted AS (INSERT INTO {p:endings} (grp, ended_at, look_at, others) VALUES ($1::text, statement_timestamp(), 'infinity', $2::text)
	ON CONFLICT (grp) DO UPDATE SET ended_at = excluded.ended_at, look_at = excluded.look_at, empty = false, others = excluded.others)
UPDATE {p:meta} SET generation = ` + nextGeneration + ` WHERE only_row AND EXISTS (SELECT 1 FROM gone)`

	sqlNotedDrop  = `SELECT others FROM {p:endings} WHERE grp = $1::text AND others IS NOT NULL`
	sqlForgetDrop = `DELETE FROM {p:endings} WHERE grp = $1::text AND others IS NOT NULL`
	sqlNow        = `SELECT statement_timestamp()`

	// dueAtFirst is when the record was due as it was appended. What waits for a join is due when
	// the join is decided.
	dueAtFirst = `CASE WHEN waits_for IS NULL THEN due_at ELSE next_at END`
)

var (
	// sqlGiveBack makes the records as if they were appended without a group. It selects them by id, so
	// that it also finds those that change during the statement, and returns how many it found
	// and how many it changed.
	sqlGiveBack = `WITH found AS MATERIALIZED (` + ofDrop(undelivered...) + `),
done AS (UPDATE {p:records} SET grp = NULL, owner = NULL, attempts = 0, expiries = 0, paused_by = NULL, next_at = ` + dueAtFirst + `,
	stage = CASE WHEN ` + dueAtFirst + ` > created_at THEN 3 ELSE 0 END,
	available_at = CASE WHEN ` + dueAtFirst + ` > created_at THEN ` + dueAtFirst + ` END
	WHERE id = ANY (ARRAY(SELECT id FROM found)) AND grp IS NOT DISTINCT FROM $1::text AND stage + 0 < 6 RETURNING 1)
SELECT (SELECT count(*) FROM found), (SELECT count(*) FROM done)`

	sqlDropRecords = dropOf(undelivered...)

	// sqlDropSettled takes $2 and ignores it.
	sqlDropSettled = strings.ReplaceAll(dropOf("stage >= 6"), "topic = $2::text", "$2::text IS NOT NULL")

	sqlDropLanes = `DELETE FROM {p:lanes} AS l WHERE grp = $1::text AND topic = $2::text
AND ` + noneOf(`{p:records} WHERE `+ofKey(`l.key`)+` AND stage - 1 = 0`)
)

// ofDrop selects up to $3 records of the group $1 and the topic $2 that were appended by $4, by
// an index for each kind.
func ofDrop(kinds ...string) string {
	each := make([]string, len(kinds))
	for i, kind := range kinds {
		each[i] = `(SELECT id FROM {p:records} WHERE grp = $1::text AND topic = $2::text AND ` + kind +
			` AND created_at <= $4::timestamptz LIMIT $3::bigint)`
	}
	return `SELECT id FROM (
	` + strings.Join(each, `
	UNION ALL `) + `) AS r LIMIT $3::bigint`
}

func dropOf(kinds ...string) string {
	return `WITH found AS MATERIALIZED (` + ofDrop(kinds...) + `),
gone AS (DELETE FROM {p:records} WHERE id = ANY (ARRAY(SELECT id FROM found)) RETURNING step, stage),
noted AS MATERIALIZED (` + noteSteps + `FROM (SELECT 'g' AS how, step FROM gone WHERE stage < 6) AS n
	WHERE step IS NOT NULL HAVING count(*) > 0)
SELECT (SELECT count(*) FROM found), (SELECT count(*) FROM gone) FROM (SELECT count(*) FROM noted) AS n`
}

// DropGroup removes the group's registrations, and gives back or deletes its records, 5,000 in a
// transaction. See outmill.Inspector.
func (s *Store) DropGroup(ctx context.Context, group string) (outmill.Dropped, error) {
	const operation = "drop group"
	group = storekit.GroupOf(group)
	if err := storekit.CheckGroup(group); err != nil {
		return outmill.Dropped{}, s.explain(ctx, operation, err)
	}
	d := &drop{s: s, operation: operation, group: group}
	dropped, err := storekit.GroupDrop{Begin: d.begin, Topics: d.topics, GiveBack: d.giveBack, Delete: d.delete,
		DeleteSettled: d.deleteSettled, End: d.end}.Run(ctx)
	if dropped.GivenBack > 0 {
		s.wake()
	}
	return dropped, err
}

// drop has the steps of a drop.
type drop struct {
	s                *Store
	operation, group string
	// before is when the drop began. The group may be registered again during the call, and its new records
	// must stay.
	before time.Time
}

func (d *drop) begin(ctx context.Context) (others storekit.Selections, err error) {
	err = d.s.durably(ctx, d.operation, func(ctx context.Context, t *txn) error {
		var table storekit.RoutingTable
		var noted []string
		err := t.run(ctx, d.s.lockRoutes(), step{template: sqlLockGroups}, groupsStep(&table),
			step{template: sqlNotedDrop, args: []any{d.group}, row: texts(&noted)},
			step{template: sqlNow, row: func(scan func(...any) error) error { return scan(&d.before) }})
		if err != nil {
			return err
		}
		if len(noted) > 0 && !table.Has(d.group) {
			others, err = storekit.ParseSelections(noted[0])
			if err != nil {
				return err
			}
			return t.finish(ctx)
		}
		others = table.Others(d.group)
		return t.finish(ctx, step{template: sqlForgetGroup, args: []any{d.group, others.String()}})
	})
	if err != nil {
		return nil, err
	}
	return others, d.s.moveGroup(ctx, d.operation, d.group)
}

func (d *drop) topics(ctx context.Context) (topics []string, err error) {
	err = d.s.writeAll(ctx, d.operation, step{template: sqlUndeliveredTopics, args: []any{d.group}, row: texts(&topics)})
	return topics, err
}

func (d *drop) giveBack(ctx context.Context, topic string) (done int, more bool, err error) {
	return d.step(ctx, sqlGiveBack, topic)
}

func (d *drop) delete(ctx context.Context, topic string) (done int, more bool, err error) {
	return d.step(ctx, sqlDropRecords, topic)
}

func (d *drop) deleteSettled(ctx context.Context) (done int, more bool, err error) {
	return d.step(ctx, sqlDropSettled, "")
}

func (d *drop) step(ctx context.Context, template, topic string) (done int, more bool, err error) {
	var found int
	err = d.s.writeSteps(ctx, d.operation, step{
		template: template, args: []any{d.group, topic, adoptAtOnce, d.before},
		row: func(scan func(...any) error) error { return scan(&found, &done) },
	})
	if err != nil {
		return 0, false, err
	}
	return done, found == adoptAtOnce, nil
}

// end drops the lanes last, and only empty ones: lanes without records do no harm, but held records
// without a lane would wait for ever.
func (d *drop) end(ctx context.Context) error {
	var topics []string
	err := d.s.writeAll(ctx, d.operation, step{template: sqlForgetDrop, args: []any{d.group}},
		step{template: sqlTopicsOfLanes, args: []any{d.group}, row: texts(&topics)})
	if err != nil {
		return err
	}
	return d.s.dropLanes(ctx, d.operation, d.group, topics)
}

// dropLanes drops the lanes of the topics that hold no record, while no claim of their topic is
// running.
func (s *Store) dropLanes(ctx context.Context, operation, group string, topics []string) error {
	for _, topic := range topics {
		err := s.writeAll(ctx, operation,
			step{template: sqlLock, args: []any{s.lockOfTopic(group, topic)}},
			step{template: sqlDropLanes, args: []any{group, topic}})
		if err != nil {
			return err
		}
	}
	return nil
}
