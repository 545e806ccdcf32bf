package postgres

import (
	"context"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	sqlSeeWorker = `INSERT INTO {p:workers} (grp, name, seen_at, problems)
VALUES ($1::text, $2::text, statement_timestamp(), nullif($3::text, ''))
ON CONFLICT (grp, name) DO UPDATE SET seen_at = excluded.seen_at, problems = excluded.problems`

	sqlStopWorker = `UPDATE {p:workers} SET seen_at = statement_timestamp(), problems = $3::text WHERE grp = $1::text AND name = $2::text`

	// sqlOldWorkers skips workers whose row another transaction has locked.
	sqlOldWorkers = `DELETE FROM {p:workers} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {p:workers} WHERE grp = $1::text
	AND (seen_at < statement_timestamp() - $2::bigint * interval '1 microsecond'
		OR name = ANY (ARRAY(SELECT name FROM {p:workers} WHERE grp = $1::text ORDER BY seen_at DESC, name OFFSET $3::bigint)))
	FOR UPDATE SKIP LOCKED))`
	sqlWorkers = `SELECT grp, name, seen_at, coalesce(problems, '') FROM {p:workers}`

	// sqlHasEnded saves the janitor the lock of the groups while no registration has ended.
	sqlHasEnded = `SELECT 1 FROM {p:groups} WHERE expires_at <= statement_timestamp() LIMIT 1`

	sqlEndRegistrations = `WITH gone AS (DELETE FROM {p:groups} WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM {p:groups} WHERE expires_at <= statement_timestamp() ORDER BY expires_at LIMIT $1::bigint))
	RETURNING grp),
noted AS (INSERT INTO {p:endings} (grp, ended_at, look_at) SELECT DISTINCT grp, statement_timestamp(), statement_timestamp() FROM gone
	ON CONFLICT (grp) DO UPDATE SET ended_at = excluded.ended_at, look_at = excluded.look_at, empty = false, others = NULL),
counted AS (UPDATE {p:meta} SET generation = ` + nextGeneration + ` WHERE only_row AND EXISTS (SELECT 1 FROM gone))
SELECT count(*) FROM gone`

	sqlNoted = `SELECT grp FROM {p:endings} WHERE look_at <= statement_timestamp() ORDER BY look_at LIMIT $1::bigint`
	sqlEnded = `SELECT grp, ended_at FROM {p:endings} WHERE NOT empty`

	// sqlForgetEnding keeps a group without a registration as long as it has records.
	sqlForgetEnding = `DELETE FROM {p:endings} WHERE grp = $1::text AND look_at > statement_timestamp()
	AND ended_at <= statement_timestamp() - $2::bigint * interval '1 microsecond'
	AND (empty OR EXISTS (SELECT 1 FROM {p:groups} WHERE grp = $1::text))`

	sqlForgetWorkers = `DELETE FROM {p:workers} WHERE grp = $1::text AND NOT EXISTS (SELECT 1 FROM {p:groups} WHERE grp = $1::text)`
)

// undelivered are the stages, by their indexes, of records that are neither dead nor
// processed.
var undelivered = []string{"stage = -1", "stage = 0", "stage = 1", "stage IN (2, 3)", "stage = 4", "stage = 5"}

var (
	sqlUndeliveredTopics = leaps("grp = $1::text", undelivered...)

	// sqlDropUndelivered deletes up to $3 records of the topics $2. It skips records that
	// another transaction has locked, and those whose lease has not ended.
	sqlDropUndelivered = `WITH gone AS (DELETE FROM {p:records} WHERE id = ANY (ARRAY(SELECT id FROM {p:records}
	WHERE id = ANY (ARRAY(` +
		ofTopics("id", "$3::bigint", "stage = -1", "stage = 0", "stage = 1", "stage IN (2, 3)",
			"stage = 4 AND available_at <= statement_timestamp()", "stage = 5") + `))
		AND stage + 0 < 6 AND (stage + 0 <> 4 OR available_at <= statement_timestamp()) FOR UPDATE SKIP LOCKED))
	RETURNING grp, topic, key, step),
opened AS (` + openLanesOf + `),
noted AS MATERIALIZED (` + noteSteps + `FROM (SELECT 'g' AS how, step FROM gone) AS n WHERE step IS NOT NULL HAVING count(*) > 0)
SELECT count(*) FROM gone, (SELECT count(*) FROM noted) AS n`

	// sqlLookAgain sets the group's next check: in the next round if records of the topics $2
	// are left, or records of the log ($4), and after $3 microseconds otherwise.
	sqlLookAgain = `UPDATE {p:endings} SET empty = NOT (` + hasRecords("$1::text") + `),
	look_at = statement_timestamp() + CASE WHEN NOT $4::boolean AND (` + ofTopics("1", "1", undelivered...) +
		`) IS NULL THEN $3::bigint * interval '1 microsecond' ELSE interval '0' END
WHERE grp = $1::text`
)

// ofTopics selects up to limit records of the group $1 and the topics $2, by an
// index for each kind.
func ofTopics(columns, limit string, kinds ...string) string {
	each := make([]string, len(kinds))
	for i, kind := range kinds {
		each[i] = `(SELECT ` + columns + ` AS found FROM {p:records} WHERE grp = $1::text AND topic = t.topic AND ` + kind + ` LIMIT ` + limit +
			`)`
	}
	return `SELECT r.found FROM unnest($2::text[]) AS t (topic) CROSS JOIN LATERAL (
	` + strings.Join(each, `
	UNION ALL `) + `) AS r LIMIT ` + limit
}

func hasRecords(group string) string {
	var each []string
	for _, kind := range append([]string{"stage >= 6"}, undelivered...) {
		each = append(each, anyOf(`{p:records} WHERE grp = `+group+` AND `+kind))
	}
	return strings.Join(each, `
	OR `)
}

// seeWorker notes the worker, if it has a name, and deletes workers that were not seen for
// long.
func seeWorker(reg outmill.Registration) []step {
	var steps []step
	if reg.Worker != "" {
		steps = append(steps, step{template: sqlSeeWorker, args: []any{reg.Group, reg.Worker, storekit.EncodeProblems(reg)}})
	}
	return append(steps, step{template: sqlOldWorkers, args: []any{reg.Group, storekit.KeepWorkersFor.Microseconds(), storekit.MaxWorkers}})
}

// stopWorkers notes that workers have stopped.
func (s *Store) stopWorkers(ctx context.Context, operation string, regs []outmill.Registration) error {
	if len(regs) == 0 {
		return nil
	}
	steps := make([]step, len(regs))
	for i, reg := range regs {
		steps[i] = step{template: sqlStopWorker, args: []any{reg.Group, reg.Worker, storekit.EncodeProblems(reg)}}
	}
	return s.writeAll(ctx, operation, steps...)
}

// ExpireRegistrations removes registrations whose end has passed, and the
// undelivered records of their groups. See outmill.Janitor.
func (s *Store) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	const operation = "expire registrations"
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, 0, s.explain(ctx, operation, err)
	}
	return storekit.RegistrationExpiry{
		End: func(ctx context.Context, limit int) (int, error) { return s.endRegistrations(ctx, operation, limit) },
		Noted: func(ctx context.Context, limit int) (groups []string, err error) {
			err = s.write(ctx, operation, func(ctx context.Context, t *txn) error {
				return t.finish(ctx, step{template: sqlNoted, args: []any{limit}, row: texts(&groups)})
			})
			return groups, err
		},
		Sweep: func(ctx context.Context, group string, limit int) (int, error) {
			return s.sweep(ctx, operation, group, limit)
		},
	}.Expire(ctx, limit)
}

func (s *Store) endRegistrations(ctx context.Context, operation string, limit int) (ended int, err error) {
	var found int
	if err := s.writeAll(ctx, operation, step{template: sqlHasEnded, count: &found}); err != nil || found == 0 {
		return 0, err
	}
	// A process that renews one of these registrations waits for the lock, and the janitor
	// waits for such a process.
	err = s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		return t.finish(ctx, s.lockRoutes(), step{template: sqlLockGroups},
			step{template: sqlEndRegistrations, args: []any{limit}, row: func(scan func(...any) error) error { return scan(&ended) }})
	})
	return ended, err
}

// sweep deletes undelivered records of topics that the group no longer reads. No group can
// register during the deletion, so the deleted records were appended for a registration that
// has ended.
func (s *Store) sweep(ctx context.Context, operation, group string, limit int) (deleted int, err error) {
	all, err := s.moveUnread(ctx, operation, group, limit)
	if err != nil {
		return 0, err
	}
	var counted []outmill.JoinID
	var idle []string
	err = s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		var table storekit.RoutingTable
		var topics, lanes []string
		err := t.run(ctx, step{template: sqlLockGroups}, groupsStep(&table),
			step{template: sqlUndeliveredTopics, args: []any{group}, row: texts(&topics)},
			step{template: sqlTopicsOfLanes, args: []any{group}, row: texts(&lanes)})
		if err != nil {
			return err
		}
		unread := storekit.OrEmpty(table.Unread(group, topics))
		idle = table.Unread(group, lanes)
		return t.finish(ctx,
			step{template: sqlDropUndelivered, args: []any{group, unread, limit}, row: func(scan func(...any) error) error {
				return scan(&deleted)
			}},
			step{template: sqlLookAgain, args: []any{group, unread, storekit.SweepEvery.Microseconds(), !all}},
			step{template: sqlForgetEnding, args: []any{group, storekit.SweepFor.Microseconds()}},
			step{template: sqlForgetWorkers, args: []any{group}},
			countSteps(&counted))
	})
	if err != nil {
		return 0, err
	}
	s.hurry(ctx, counted)
	return deleted, s.dropLanes(ctx, operation, group, idle)
}

// moveUnread moves up to limit records of topics that the group no longer reads from the log to
// the records, and reports whether that was all.
func (s *Store) moveUnread(ctx context.Context, operation, group string, limit int) (all bool, err error) {
	if logged, err := s.seesLog(ctx, operation); err != nil || !logged {
		return true, err
	}
	var unread []string
	err = s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		var table storekit.RoutingTable
		var topics []string
		err := t.finish(ctx, step{template: sqlTopicsOfLog, args: []any{group}, row: texts(&topics)}, groupsStep(&table))
		unread = table.Unread(group, topics)
		return err
	})
	for _, topic := range unread {
		if err != nil || limit == 0 {
			break
		}
		var moved int
		moved, err = s.moveSome(ctx, operation, group, topic, limit)
		limit -= moved
	}
	return limit > 0, err
}
