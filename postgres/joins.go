package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/sqltx"
	"github.com/outmill/outmill/internal/steps"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.Joins = (*Store)(nil)

const (
	sqlStartJoin = `INSERT INTO {p:joins} (id, grouping_key, policy, quorum, expected_steps, deadline, complete_at_deadline, created_at, updated_at, metadata)
SELECT $1::text::uuid, nullif($2::text, ''), $3::text, $4::bigint, nullif($5::bigint, -1),
	CASE WHEN $6::text LIKE '+%' THEN now.at + $6::text::interval ELSE nullif($6::text, '')::timestamptz END, $7::boolean, now.at, now.at, nullif($8::text, '')::jsonb
FROM (SELECT statement_timestamp() AS at) AS now ON CONFLICT (id) DO NOTHING`

	joinColumns = `j.id::text, coalesce(j.grouping_key, ''), j.status, j.policy, j.quorum, coalesce(j.expected_steps, -1), j.completed_steps, j.failed_steps,
	j.deadline, j.complete_at_deadline, coalesce(j.deadline <= statement_timestamp(), false), coalesce((extract(epoch FROM j.deadline - statement_timestamp()) * 1000000)::bigint, 0),
	coalesce(j.reason, ''), j.created_at, j.updated_at, j.finished_at, coalesce(j.metadata::text, '')`

	sqlLockJoins = `SELECT 1 FROM {p:joins} WHERE id = ANY (ARRAY(SELECT $1::text::uuid UNION
	SELECT join_id FROM {p:join_members} WHERE step = nullif($2::text, '')::uuid)) ORDER BY id FOR NO KEY UPDATE`

	// sqlListJoins and sqlListGroup go by an index for each status, and spell its
	// order, so that the planner has no choice.
	sqlListJoins = `SELECT ` + joinColumns + `, 0 FROM unnest($3::text[]) AS s (status) CROSS JOIN LATERAL (SELECT * FROM {p:joins}
	WHERE (status, id) > (s.status, $1::text::uuid) AND status <= s.status ORDER BY status, id LIMIT $2::bigint) AS j
ORDER BY j.id LIMIT $2::bigint`

	sqlListGroup = `SELECT ` + joinColumns + `, 0 FROM unnest($3::text[]) AS s (status) CROSS JOIN LATERAL (SELECT * FROM {p:joins}
	WHERE (coalesce(grouping_key, ''), status, id) > ($4::text, s.status, $1::text::uuid) AND (coalesce(grouping_key, ''), status) <= ($4::text, s.status)
	ORDER BY coalesce(grouping_key, ''), status, id LIMIT $2::bigint) AS j
ORDER BY j.id LIMIT $2::bigint`

	sqlListSteps = `SELECT m.step::text, m.status FROM {p:join_members} AS m
WHERE m.join_id = $1::text::uuid AND m.step > $2::text::uuid ORDER BY m.step LIMIT $3::bigint`

	sqlCountMembers = `SELECT count(*) FROM {p:join_members} WHERE join_id = $1::text::uuid`

	// sqlRecordToAttach locks all records of the message, that asked for and those
	// of its step: whoever settles one of them has done so, or comes later and
	// finds the new member.
	sqlRecordToAttach = `SELECT coalesce(r.step, r.id)::text, r.waits_for IS NOT NULL, r.id = $1::text::uuid FROM {p:records} AS r WHERE r.id = ANY (ARRAY(
	SELECT $1::text::uuid UNION
	SELECT s.id FROM {p:records} AS o CROSS JOIN LATERAL (SELECT id FROM {p:records} WHERE step = o.step OFFSET 0) AS s
	WHERE o.id = $1::text::uuid AND o.step IS NOT NULL)) ORDER BY r.id FOR UPDATE`

	sqlLinesOf = `SELECT DISTINCT r.grp, r.topic FROM {p:records} AS r WHERE r.grp IS NOT NULL AND r.id = ANY (ARRAY(
	SELECT $1::text::uuid UNION
	SELECT s.id FROM {p:records} AS o CROSS JOIN LATERAL (SELECT id FROM {p:records} WHERE step = o.step OFFSET 0) AS s
	WHERE o.id = $1::text::uuid AND o.step IS NOT NULL))`

	sqlSetStep = `UPDATE {p:records} SET step = id WHERE id = $1::text::uuid AND step IS NULL`

	// sqlNoteJoin has the records of a step tell of a join too.
	sqlNoteJoin = `UPDATE {p:records} SET joins = array_append(joins, $2::text::uuid) WHERE step = $1::text::uuid`

	// sqlRecordsOfStep counts what has become of them.
	sqlRecordsOfStep = `SELECT count(*) FILTER (WHERE stage < 6), count(*) FILTER (WHERE stage = 6), count(*) FILTER (WHERE stage = 7)
FROM {p:records} WHERE step = $1::text::uuid`

	sqlAddMember = `INSERT INTO {p:join_members} (join_id, step, status, open, acked, dead)
VALUES ($1::text::uuid, $2::text::uuid, $3::text, $4::bigint, $5::bigint, $6::bigint)`

	// sqlStepOfRecord finds the step of any of a message's records; one that is gone
	// is named by its own id.
	sqlStepOfRecord    = `SELECT coalesce((SELECT step FROM {p:records} WHERE id = $1::text::uuid), $1::text::uuid)::text`
	sqlStepOfLogRecord = `SELECT coalesce((SELECT step FROM {p:records} WHERE id = $1::text::uuid), (SELECT step FROM {p:log} WHERE id = $1::text::uuid LIMIT 1), $1::text::uuid)::text`

	sqlReport = `UPDATE {p:join_members} SET status = $3::text, reported = true WHERE join_id = $1::text::uuid AND step = $2::text::uuid AND status = 'pending'`

	sqlHasMember = `SELECT 1 FROM {p:join_members} WHERE join_id = $1::text::uuid AND step = $2::text::uuid`

	sqlCount = `UPDATE {p:joins} SET completed_steps = completed_steps + $2::bigint, failed_steps = failed_steps + $3::bigint, updated_at = statement_timestamp()
WHERE id = $1::text::uuid`

	sqlSeal = `UPDATE {p:joins} SET expected_steps = $2::bigint, updated_at = statement_timestamp() WHERE id = $1::text::uuid`

	sqlEndJoin = `UPDATE {p:joins} SET status = $2::text, reason = nullif($3::text, ''), updated_at = statement_timestamp(), finished_at = statement_timestamp()
WHERE id = $1::text::uuid RETURNING finished_at`

	sqlShortWait = `SELECT set_config('lock_timeout', '50ms', true)`

	sqlOldJoins = `SELECT id::text FROM {p:joins} WHERE finished_at <= statement_timestamp() - $2::bigint * interval '1 microsecond'
	ORDER BY finished_at LIMIT $1::bigint`

	// sqlDeleteMembers goes by ctid: nobody changes the members of a join that has
	// ended.
	sqlDeleteMembers = `DELETE FROM {p:join_members} WHERE ctid = ANY (ARRAY(SELECT m.ctid FROM unnest($1::text[]::uuid[]) AS j (id)
	CROSS JOIN LATERAL (SELECT ctid FROM {p:join_members} WHERE join_id = j.id LIMIT $2::bigint) AS m LIMIT $2::bigint))`

	sqlDeleteJoins = `DELETE FROM {p:joins} WHERE id = ANY ($1::text[]::uuid[])`
)

const defaultListLimitOfJoins = 100

// countedJoin is a join, and what the store knows of it besides.
type countedJoin struct {
	storekit.Join
	// late: the deadline has passed; deadlineIn is how long it is until then.
	late       bool
	deadlineIn time.Duration
	// members is set where they were counted.
	members int
}

func (j *countedJoin) scan(scan func(...any) error) error {
	var id, metadata string
	var expected, micros int64
	var deadline, created, updated, finished pgtype.Timestamptz
	err := scan(&id, &j.GroupingKey, &j.Status, &j.Policy, &j.Quorum, &expected, &j.CompletedSteps, &j.FailedSteps,
		&deadline, &j.CompleteAtDeadline, &j.late, &micros, &j.Reason, &created, &updated, &finished, &metadata, &j.members)
	if err != nil {
		return err
	}
	j.ExpectedSteps, j.Unsealed = int(max(expected, 0)), expected < 0
	j.Deadline, j.CreatedAt, j.UpdatedAt, j.FinishedAt = utc(deadline), utc(created), utc(updated), utc(finished)
	j.deadlineIn = sqltx.Micros(micros)
	if metadata != "" {
		err = json.Unmarshal([]byte(metadata), &j.Metadata)
	}
	return errors.Join(err, j.ID.Scan(id))
}

// joinsStep reads joins.
func joinsStep(template string, into *[]countedJoin, args ...any) step {
	*into = nil
	return step{template: template, args: args, row: func(scan func(...any) error) error {
		var j countedJoin
		err := j.scan(scan)
		*into = append(*into, j)
		return err
	}}
}

// StartJoin begins a join. See storekit.Joins.
func (s *Store) StartJoin(ctx context.Context, join *storekit.Join) error {
	const operation = "start join"
	tx, err := s.TxOf(ctx)
	if err == nil {
		err = join.Validate()
	}
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	id := join.ID
	if id.IsZero() {
		id = outmill.NewJoinID()
	}
	start, err := startStep(id, join)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	var started int
	start.count = &started
	check := func(err error) error {
		if err == nil && started == 0 {
			err = fmt.Errorf("%w: %s", storekit.ErrJoinExists, id)
		}
		return err
	}
	if tx != nil {
		err = s.within(ctx, operation, tx, func(ctx context.Context, r runner) error { return check(r.run(ctx, start)) })
	} else {
		err = s.durably(ctx, operation, func(ctx context.Context, t *txn) error { return check(t.finish(ctx, start)) })
	}
	if err == nil {
		join.ID = id
	}
	return err
}

func startStep(id outmill.JoinID, join *storekit.Join) (step, error) {
	metadata := ""
	if len(join.Metadata) > 0 {
		text, err := json.Marshal(join.Metadata)
		if err != nil {
			return step{}, fmt.Errorf("metadata: %w", err)
		}
		metadata = string(text)
	}
	expected := int64(join.ExpectedSteps)
	if join.Unsealed {
		expected = -1
	}
	return step{template: sqlStartJoin, args: []any{
		id.String(), join.GroupingKey, string(cmp.Or(join.Policy, storekit.JoinAll)), int64(join.Quorum), expected,
		timeText(join.Timeout, join.Deadline), join.CompleteAtDeadline, metadata,
	}}, nil
}

// onJoin runs fn on a join that exists and whose row it holds, and those of the
// other joins of step, where one is given. fn ends the transaction.
func (s *Store) onJoin(ctx context.Context, operation string, id outmill.JoinID, fn func(ctx context.Context, t *txn, join *countedJoin) error) error {
	err := s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		join, err := t.lockJoin(ctx, sqlJoinsOf, id, "")
		if err != nil {
			return err
		}
		return fn(ctx, t, join)
	})
	if err == nil {
		s.hurry(ctx, []string{id.String()})
	}
	return err
}

func (t *txn) lockJoin(ctx context.Context, template string, id outmill.JoinID, step string) (*countedJoin, error) {
	var found []countedJoin
	err := t.run(ctx, lockStep(id, step), joinsStep(template, &found, []string{id.String()}))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %s", storekit.ErrUnknownJoin, id)
	}
	if err != nil {
		return nil, err
	}
	return &found[0], nil
}

func lockStep(id outmill.JoinID, name string) step {
	return step{template: sqlLockJoins, args: []any{id.String(), name}}
}

// AttachStep makes a record a step. See storekit.Joins.
func (s *Store) AttachStep(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) error {
	const operation = "attach step"
	if _, err := s.seesLog(ctx, operation); err != nil {
		return err
	}
	err := s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		a := &lateStep{}
		if err := t.moveByID(ctx, []string{message.String()}, true); err != nil {
			return err
		}
		locks, err := t.linesOf(ctx, message)
		if err != nil {
			return err
		}
		// The lines before the record, as a claim has them: it passes over a record
		// that is held here, and would hand out a later one of its key. The record
		// before the join: whoever settles it holds it first, too.
		if err := t.run(ctx, append(locks, a.recordStep(message))...); err != nil {
			return err
		}
		join, err := t.lockJoin(ctx, sqlJoinsToFill, id, a.step)
		if err != nil {
			return err
		}
		if a.step == "" || s.config.Retain <= 0 {
			return fmt.Errorf("%w: %s", storekit.ErrUnknownMessage, message)
		}
		if a.waits {
			return storekit.ErrWaitIsNoStep
		}
		if err := t.run(ctx, a.look(id, message)...); err != nil {
			return err
		}
		if a.known > 0 {
			return t.finish(ctx)
		}
		if err := join.takes(id, 1); err != nil {
			return err
		}
		return t.finish(ctx, a.attach(id)...)
	})
	if err == nil {
		// A claim that met the record meanwhile has passed over it.
		s.wake()
		s.hurry(ctx, []string{id.String()})
	}
	return err
}

// linesOf locks the lines of all records of the message.
func (t *txn) linesOf(ctx context.Context, message outmill.WorkItemID) ([]step, error) {
	var locks []int64
	err := t.run(ctx, step{template: sqlLinesOf, args: []any{message.String()}, row: func(scan func(...any) error) error {
		var group, topic string
		err := scan(&group, &topic)
		locks = append(locks, t.s.lockOfTopic(group, topic))
		return err
	}})
	return lockTopics(locks), err
}

// lateStep is a record that is made a step after it was appended.
type lateStep struct {
	step              string
	waits             bool
	known             int
	open, acked, dead int
}

func (a *lateStep) recordStep(message outmill.WorkItemID) step {
	return step{template: sqlRecordToAttach, args: []any{message.String()}, row: func(scan func(...any) error) error {
		var name string
		var waits, asked bool
		err := scan(&name, &waits, &asked)
		if asked {
			a.step, a.waits = name, waits
		}
		return err
	}}
}

// look marks the record, and asks whether the join has the step already, and
// what has become of all of the message's records.
func (a *lateStep) look(id outmill.JoinID, message outmill.WorkItemID) []step {
	return []step{
		{template: sqlSetStep, args: []any{message.String()}},
		{template: sqlHasMember, args: []any{id.String(), a.step}, count: &a.known},
		{template: sqlRecordsOfStep, args: []any{a.step}, row: func(scan func(...any) error) error {
			return scan(&a.open, &a.acked, &a.dead)
		}},
	}
}

func (a *lateStep) attach(id outmill.JoinID) []step {
	status := steps.Settled(a.open, a.acked, a.dead)
	counts := steps.Counts{}.Moved(storekit.StepPending, status)
	return append([]step{{template: sqlNoteJoin, args: []any{a.step, id.String()}}, {
		template: sqlAddMember, args: []any{id.String(), a.step, string(status), int64(a.open), int64(a.acked), int64(a.dead)},
	}}, countStep(id, counts.Completed, counts.Failed)...)
}

// countStep counts steps that were settled, if there are any.
func countStep(id outmill.JoinID, completed, failed int) []step {
	if completed+failed == 0 {
		return nil
	}
	return []step{{template: sqlCount, args: []any{id.String(), int64(completed), int64(failed)}}}
}

// ReportCompleted settles a step. See storekit.Joins.
func (s *Store) ReportCompleted(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return s.report(ctx, "report completed", join, step, storekit.StepCompleted)
}

// ReportFailed settles a step. See storekit.Joins.
func (s *Store) ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return s.report(ctx, "report failed", join, step, storekit.StepFailed)
}

func (s *Store) report(ctx context.Context, operation string, id outmill.JoinID, of outmill.WorkItemID, as storekit.StepStatus) error {
	logged, err := s.seesLog(ctx, operation)
	if err != nil {
		return err
	}
	return s.onJoin(ctx, operation, id, func(ctx context.Context, t *txn, join *countedJoin) error {
		var names []string
		template := sqlStepOfRecord
		if logged {
			template = sqlStepOfLogRecord
		}
		if err := t.run(ctx, step{template: template, args: []any{of.String()}, row: texts(&names)}); err != nil {
			return err
		}
		var members, reported int
		steps := []step{{template: sqlHasMember, args: []any{id.String(), names[0]}, count: &members}}
		if join.Status == storekit.JoinPending {
			steps = append(steps, step{template: sqlReport, args: []any{id.String(), names[0], string(as)}, count: &reported})
		}
		if err := t.run(ctx, steps...); err != nil {
			return err
		}
		if members == 0 {
			return fmt.Errorf("%w: %s of %s", storekit.ErrUnknownStep, of, id)
		}
		completed, failed := reported, 0
		if as == storekit.StepFailed {
			completed, failed = 0, completed
		}
		return t.finish(ctx, countStep(id, completed, failed)...)
	})
}

// SealJoin says how many steps the join has. See storekit.Joins.
func (s *Store) SealJoin(ctx context.Context, id outmill.JoinID, expected int) error {
	return s.onJoin(ctx, "seal join", id, func(ctx context.Context, t *txn, join *countedJoin) error {
		steps, err := t.seal(ctx, join, expected)
		if err != nil {
			return err
		}
		return t.finish(ctx, steps...)
	})
}

func (t *txn) seal(ctx context.Context, j *countedJoin, expected int) ([]step, error) {
	if err := j.CheckSeal(expected); err != nil || !j.Unsealed {
		return nil, err
	}
	count := step{template: sqlCountMembers, args: []any{j.ID.String()}, row: func(scan func(...any) error) error { return scan(&j.members) }}
	if err := t.run(ctx, count); err != nil {
		return nil, err
	}
	if err := steps.Seals(j.ID, j.members, expected); err != nil {
		return nil, err
	}
	j.ExpectedSteps, j.Unsealed = expected, false
	return []step{{template: sqlSeal, args: []any{j.ID.String(), int64(expected)}}}, nil
}

// FinishJoin ends the join if it is decided. See storekit.Joins.
func (s *Store) FinishJoin(ctx context.Context, id outmill.JoinID, request storekit.FinishRequest) (storekit.FinishResult, error) {
	const operation = "finish join"
	result, done, err := s.undecided(ctx, id, request)
	if err != nil || done {
		return result, err
	}
	var follow *appending
	err = s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		result, follow = storekit.FinishResult{}, nil
		join, err := t.lockJoin(ctx, sqlJoinsOf, id, "")
		if err != nil {
			return err
		}
		var steps []step
		if join.Status == storekit.JoinPending && request.Seal && join.Unsealed {
			if steps, err = t.seal(ctx, join, request.ExpectedSteps); err != nil {
				return err
			}
		}
		status, reason := storekit.JoinPending, ""
		if join.Status == storekit.JoinPending {
			status, reason = join.Decide(request.FailIfAnyStepFailed, join.late)
		}
		if status == storekit.JoinPending {
			result.Join = join.Join
			if join.Status == storekit.JoinPending {
				result.DeadlineIn = join.deadlineIn
			}
			return t.finish(ctx, steps...)
		}
		result, follow, err = t.end(ctx, join, steps, status, reason, request.Then)
		if err != nil {
			return err
		}
		return t.finish(ctx)
	})
	if err != nil {
		return storekit.FinishResult{}, err
	}
	if follow != nil {
		follow.Report()
		s.logger.Appended(false, follow.Records...)
		s.wake()
	}
	if result.Finished || request.Seal {
		s.hurry(ctx, []string{id.String()})
	}
	return result, nil
}

// undecided answers without a lock while there is nothing to do, which is what
// nearly all calls find.
func (s *Store) undecided(ctx context.Context, id outmill.JoinID, request storekit.FinishRequest) (result storekit.FinishResult, done bool, err error) {
	var found []countedJoin
	err = s.writeAll(ctx, "finish join", joinsStep(sqlJoinsOf, &found, []string{id.String()}))
	if err != nil || len(found) == 0 {
		return result, false, err
	}
	join := found[0]
	result.Join = join.Join
	if join.Status != storekit.JoinPending {
		return result, true, nil
	}
	result.DeadlineIn = join.deadlineIn
	status, _ := join.Decide(request.FailIfAnyStepFailed, join.late)
	return result, status == storekit.JoinPending && (!request.Seal || !join.Unsealed), nil
}

// end marks the join, and appends what is to follow.
func (t *txn) end(ctx context.Context, join *countedJoin, steps []step, status storekit.JoinStatus, reason string, then func(storekit.Join) (*outmill.Record, error)) (storekit.FinishResult, *appending, error) {
	join.Status, join.Reason = status, reason
	var at pgtype.Timestamptz
	err := t.run(ctx, append(steps, step{
		template: sqlEndJoin, args: []any{join.ID.String(), string(status), reason},
		row: func(scan func(...any) error) error { return scan(&at) },
	})...)
	if err != nil {
		return storekit.FinishResult{}, nil, err
	}
	join.FinishedAt, join.UpdatedAt = utc(at), utc(at)
	follow, err := t.follow(ctx, join.Join, then)
	return storekit.FinishResult{Join: join.Join, Finished: true}, follow, err
}

// follow appends what is to be published when the join ends, nil where nothing
// is.
func (t *txn) follow(ctx context.Context, join storekit.Join, then func(storekit.Join) (*outmill.Record, error)) (*appending, error) {
	one, err := storekit.Followup(join, then, t.s.config.MaxPayload, func(ids []outmill.JoinID) ([]outmill.JoinID, error) { return t.thatTake(ctx, ids) })
	if err != nil || one == nil {
		return nil, err
	}
	a, err := newAppending(t.s, []*outmill.Record{one})
	if err != nil {
		return nil, err
	}
	if one.DedupKey == "" {
		return a, a.writeUnchecked(ctx, t)
	}
	// Somebody may hold the dedup key for long, and acks wait for this join.
	if err := t.run(ctx, step{template: sqlShortWait}); err != nil {
		return nil, err
	}
	return a, a.writeUnchecked(ctx, t)
}

// thatTake returns those of the joins that take a step.
func (t *txn) thatTake(ctx context.Context, ids []outmill.JoinID) ([]outmill.JoinID, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = id.String()
	}
	var found []countedJoin
	if err := t.run(ctx, joinsStep(sqlJoinsToFill, &found, names)); err != nil {
		return nil, err
	}
	var take []outmill.JoinID
	for i := range found {
		if found[i].takes(found[i].ID, 1) == nil {
			take = append(take, found[i].ID)
		}
	}
	return take, nil
}

// CancelJoin ends a pending join. See storekit.Joins.
func (s *Store) CancelJoin(ctx context.Context, id outmill.JoinID, reason string) error {
	return s.onJoin(ctx, "cancel join", id, func(ctx context.Context, t *txn, join *countedJoin) error {
		switch join.Status {
		case storekit.JoinCancelled:
			return t.finish(ctx)
		case storekit.JoinPending:
			return t.finish(ctx, step{template: sqlEndJoin, args: []any{id.String(), string(storekit.JoinCancelled), storekit.CleanError(reason)}})
		case storekit.JoinCompleted, storekit.JoinFailed:
		}
		return fmt.Errorf("%w: %s is %s", storekit.ErrJoinFinished, id, join.Status)
	})
}

// GetJoin returns a join. See storekit.Joins.
func (s *Store) GetJoin(ctx context.Context, id outmill.JoinID) (*storekit.Join, error) {
	const operation = "get join"
	var found []countedJoin
	if err := s.writeAll(ctx, operation, joinsStep(sqlJoinsOf, &found, []string{id.String()})); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, s.explain(ctx, operation, fmt.Errorf("%w: %s", storekit.ErrUnknownJoin, id))
	}
	return &found[0].Join, nil
}

// ListJoins returns joins in the order of their ids. See storekit.Joins.
func (s *Store) ListJoins(ctx context.Context, query storekit.JoinQuery) ([]*storekit.Join, error) {
	const operation = "list joins"
	if err := query.Validate(); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	var statuses []string
	for _, status := range steps.StatusesOf(query) {
		statuses = append(statuses, string(status))
	}
	template, args := sqlListJoins, []any{query.After.String(), cmp.Or(query.Limit, defaultListLimitOfJoins), statuses}
	if query.GroupingKey != "" {
		template, args = sqlListGroup, append(args, query.GroupingKey)
	}
	var found []countedJoin
	err := s.writeAll(ctx, operation, joinsStep(template, &found, args...))
	if err != nil {
		return nil, err
	}
	joins := make([]*storekit.Join, len(found))
	for i := range found {
		joins[i] = &found[i].Join
	}
	return joins, nil
}

// ListSteps returns steps of a join. See storekit.Joins.
func (s *Store) ListSteps(ctx context.Context, id outmill.JoinID, after outmill.WorkItemID, limit int) ([]storekit.JoinStep, error) {
	const operation = "list steps"
	if limit < 0 {
		return nil, s.explain(ctx, operation, invalid("ListSteps: limit is %d: want 0 (100) or more", limit))
	}
	var found []countedJoin
	var steps []storekit.JoinStep
	err := s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		steps = nil
		return t.finish(ctx, joinsStep(sqlJoinsOf, &found, []string{id.String()}), step{
			template: sqlListSteps, args: []any{id.String(), after.String(), cmp.Or(limit, defaultListLimitOfJoins)},
			row: func(scan func(...any) error) error {
				var name string
				var found storekit.JoinStep
				err := errors.Join(scan(&name, &found.Status), found.ID.Scan(name))
				steps = append(steps, found)
				return err
			},
		})
	})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, s.explain(ctx, operation, fmt.Errorf("%w: %s", storekit.ErrUnknownJoin, id))
	}
	return steps, nil
}

// DeleteJoins deletes joins that ended long ago. See storekit.Joins.
func (s *Store) DeleteJoins(ctx context.Context, limit int) (int, error) {
	const operation = "delete joins"
	if limit < 1 {
		return 0, s.explain(ctx, operation, invalid("limit is %d: want 1 or more", limit))
	}
	var old []string
	err := s.writeAll(ctx, operation, step{template: sqlOldJoins, args: []any{limit, s.config.RetainJoins.Microseconds()}, row: texts(&old)})
	if err != nil {
		return 0, err
	}
	// The members first, some at a time: there may be many. Where there is nothing
	// to delete, a right that is missing shows all the same.
	for gone := membersAtOnce; gone == membersAtOnce; {
		if err := s.writeAll(ctx, operation, step{template: sqlDeleteMembers, args: []any{old, membersAtOnce}, count: &gone}); err != nil {
			return 0, err
		}
	}
	deleted := 0
	err = s.writeAll(ctx, operation, step{template: sqlDeleteJoins, args: []any{old}, count: &deleted})
	return deleted, err
}

// membersAtOnce bounds one statement of DeleteJoins.
const membersAtOnce = 5000
