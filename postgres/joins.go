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
)

var _ outmill.Joins = (*Store)(nil)

const (
	sqlStartJoin = `INSERT INTO {p:joins} (id, grouping_key, policy, quorum, expected_steps, deadline, complete_at_deadline, created_at, updated_at, metadata)
SELECT $1::text::uuid, $2::text, $3::text, $4::bigint, nullif($5::bigint, -1),
	CASE WHEN $6::text LIKE '+%' THEN now.at + $6::text::interval ELSE nullif($6::text, '')::timestamptz END, $7::boolean, now.at, now.at, nullif($8::text, '')::jsonb
FROM (SELECT statement_timestamp() AS at) AS now ON CONFLICT (id) DO NOTHING`

	joinColumns = `j.id::text, j.grouping_key, j.status, j.policy, j.quorum, coalesce(j.expected_steps, -1), j.completed_steps, j.failed_steps,
	j.deadline, j.complete_at_deadline, coalesce(j.deadline <= statement_timestamp(), false), coalesce((extract(epoch FROM j.deadline - statement_timestamp()) * 1000000)::bigint, 0),
	j.reason, j.created_at, j.updated_at, j.finished_at, coalesce(j.metadata::text, '')`

	sqlLockJoins = `SELECT 1 FROM {p:joins} WHERE id = $1::text::uuid OR $2::text <> '' AND id IN (
	SELECT join_id FROM {p:join_members} WHERE step = nullif($2::text, '')::uuid) ORDER BY id FOR NO KEY UPDATE`

	sqlListJoins = `SELECT ` + joinColumns + `, 0 FROM {p:joins} AS j
WHERE id > $1::text::uuid AND ($2::boolean OR grouping_key = $3::text) AND ($4::text = '' OR status = $4::text) ORDER BY id LIMIT $5::bigint`

	sqlListSteps = `SELECT step::text, status FROM {p:join_members} WHERE join_id = $1::text::uuid AND step > $2::text::uuid ORDER BY step LIMIT $3::bigint`

	// sqlRecordToAttach locks all records of the message, that asked for and those
	// of its step: whoever settles one of them has done so, or comes later and
	// finds the new member.
	sqlRecordToAttach = `SELECT coalesce(r.step, r.id)::text, r.waits_for IS NOT NULL, r.id = $1::text::uuid FROM {p:records} AS r WHERE r.id = ANY (ARRAY(
	SELECT $1::text::uuid UNION
	SELECT s.id FROM {p:records} AS o CROSS JOIN LATERAL (SELECT id FROM {p:records} WHERE step = o.step OFFSET 0) AS s
	WHERE o.id = $1::text::uuid AND o.step IS NOT NULL)) ORDER BY r.id FOR UPDATE`

	sqlSetStep = `UPDATE {p:records} SET step = id WHERE id = $1::text::uuid AND step IS NULL`

	// sqlRecordsOfStep counts what has become of them.
	sqlRecordsOfStep = `SELECT count(*) FILTER (WHERE stage < 6), count(*) FILTER (WHERE stage = 6), count(*) FILTER (WHERE stage = 7)
FROM {p:records} WHERE step = $1::text::uuid`

	sqlAddMember = `INSERT INTO {p:join_members} (join_id, step, status, open, acked, dead)
VALUES ($1::text::uuid, $2::text::uuid, $3::text, $4::bigint, $5::bigint, $6::bigint)`

	// sqlStepOfRecord finds the step of any of a message's records; one that is gone
	// is named by its own id.
	sqlStepOfRecord = `SELECT coalesce((SELECT step FROM {p:records} WHERE id = $1::text::uuid), $1::text::uuid)::text`

	sqlReport = `UPDATE {p:join_members} SET status = $3::text, reported = true WHERE join_id = $1::text::uuid AND step = $2::text::uuid AND status = 'pending'`

	sqlHasMember = `SELECT 1 FROM {p:join_members} WHERE join_id = $1::text::uuid AND step = $2::text::uuid`

	sqlCount = `UPDATE {p:joins} SET completed_steps = completed_steps + $2::bigint, failed_steps = failed_steps + $3::bigint, updated_at = statement_timestamp()
WHERE id = $1::text::uuid`

	sqlSeal = `UPDATE {p:joins} SET expected_steps = $2::bigint, updated_at = statement_timestamp() WHERE id = $1::text::uuid`

	sqlEndJoin = `UPDATE {p:joins} SET status = $2::text, reason = $3::text, updated_at = statement_timestamp(), finished_at = statement_timestamp()
WHERE id = $1::text::uuid RETURNING finished_at`

	sqlDeleteJoins = `WITH old AS MATERIALIZED (SELECT id FROM {p:joins} WHERE finished_at <= statement_timestamp() - $2::bigint * interval '1 microsecond'
	ORDER BY finished_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED),
members AS (DELETE FROM {p:join_members} WHERE join_id IN (SELECT id FROM old)),
gone AS (DELETE FROM {p:joins} WHERE id IN (SELECT id FROM old) RETURNING 1)
SELECT count(*) FROM gone`
)

const defaultListLimitOfJoins = 100

// countedJoin is a join, and what the store knows of it besides.
type countedJoin struct {
	outmill.Join
	// late: the deadline has passed; deadlineIn is how long it is until then.
	late       bool
	deadlineIn time.Duration
	members    int
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
	j.deadlineIn = time.Duration(micros) * time.Microsecond
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

// StartJoin begins a join. See outmill.Joins.
func (s *Store) StartJoin(ctx context.Context, join *outmill.Join) error {
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
			err = fmt.Errorf("%w: %s", outmill.ErrJoinExists, id)
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

func startStep(id outmill.JoinID, join *outmill.Join) (step, error) {
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
		id.String(), join.GroupingKey, string(cmp.Or(join.Policy, outmill.JoinAll)), int64(join.Quorum), expected,
		timeText(join.Timeout, join.Deadline), join.CompleteAtDeadline, metadata,
	}}, nil
}

// onJoin runs fn on a join that exists and whose row it holds, and those of the
// other joins of step, where one is given. fn ends the transaction.
func (s *Store) onJoin(ctx context.Context, operation string, id outmill.JoinID, fn func(ctx context.Context, t *txn, join *countedJoin) error) error {
	err := s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		join, err := t.lockJoin(ctx, id, "")
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

func (t *txn) lockJoin(ctx context.Context, id outmill.JoinID, step string) (*countedJoin, error) {
	var found []countedJoin
	err := t.run(ctx, lockStep(id, step), joinsStep(sqlJoinsOf, &found, []string{id.String()}))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %s", outmill.ErrUnknownJoin, id)
	}
	if err != nil {
		return nil, err
	}
	return &found[0], nil
}

func lockStep(id outmill.JoinID, name string) step {
	return step{template: sqlLockJoins, args: []any{id.String(), name}}
}

// AttachStep makes a record a step. See outmill.Joins.
func (s *Store) AttachStep(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) error {
	const operation = "attach step"
	err := s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		a := &lateStep{}
		// The record first: whoever settles it holds it before the joins.
		if err := t.run(ctx, a.recordStep(message)); err != nil {
			return err
		}
		join, err := t.lockJoin(ctx, id, a.step)
		if err != nil {
			return err
		}
		if a.step == "" || s.config.Retain <= 0 {
			return fmt.Errorf("%w: %s", outmill.ErrUnknownMessage, message)
		}
		if a.waits {
			return outmill.WaitIsNoStep()
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
		s.hurry(ctx, []string{id.String()})
	}
	return err
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
	status, completed, failed := outmill.StepPending, 0, 0
	switch {
	case a.dead > 0 || a.open <= 0 && a.acked == 0:
		status, failed = outmill.StepFailed, 1
	case a.open <= 0:
		status, completed = outmill.StepCompleted, 1
	}
	return []step{
		{template: sqlAddMember, args: []any{id.String(), a.step, string(status), int64(a.open), int64(a.acked), int64(a.dead)}},
		{template: sqlCount, args: []any{id.String(), int64(completed), int64(failed)}},
	}
}

// ReportCompleted settles a step. See outmill.Joins.
func (s *Store) ReportCompleted(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return s.report(ctx, "report completed", join, step, outmill.StepCompleted)
}

// ReportFailed settles a step. See outmill.Joins.
func (s *Store) ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return s.report(ctx, "report failed", join, step, outmill.StepFailed)
}

func (s *Store) report(ctx context.Context, operation string, id outmill.JoinID, of outmill.WorkItemID, as outmill.StepStatus) error {
	return s.onJoin(ctx, operation, id, func(ctx context.Context, t *txn, join *countedJoin) error {
		var names []string
		if err := t.run(ctx, step{template: sqlStepOfRecord, args: []any{of.String()}, row: texts(&names)}); err != nil {
			return err
		}
		var members, reported int
		steps := []step{{template: sqlHasMember, args: []any{id.String(), names[0]}, count: &members}}
		if join.Status == outmill.JoinPending {
			steps = append(steps, step{template: sqlReport, args: []any{id.String(), names[0], string(as)}, count: &reported})
		}
		if err := t.run(ctx, steps...); err != nil {
			return err
		}
		if members == 0 {
			return fmt.Errorf("%w: %s of %s", outmill.ErrUnknownStep, of, id)
		}
		completed, failed := int64(reported), int64(0)
		if as == outmill.StepFailed {
			completed, failed = 0, completed
		}
		return t.finish(ctx, step{template: sqlCount, args: []any{id.String(), completed, failed}})
	})
}

// SealJoin says how many steps the join has. See outmill.Joins.
func (s *Store) SealJoin(ctx context.Context, id outmill.JoinID, expected int) error {
	return s.onJoin(ctx, "seal join", id, func(ctx context.Context, t *txn, join *countedJoin) error {
		steps, err := join.seal(expected)
		if err != nil {
			return err
		}
		return t.finish(ctx, steps...)
	})
}

func (j *countedJoin) seal(expected int) ([]step, error) {
	if err := j.CheckSeal(expected); err != nil || !j.Unsealed {
		return nil, err
	}
	if j.members > expected {
		return nil, fmt.Errorf("%w: %s has %d steps already, and was to be sealed with %d", outmill.ErrTooManySteps, j.ID, j.members, expected)
	}
	j.ExpectedSteps, j.Unsealed = expected, false
	return []step{{template: sqlSeal, args: []any{j.ID.String(), int64(expected)}}}, nil
}

// FinishJoin ends the join if it is decided. See outmill.Joins.
func (s *Store) FinishJoin(ctx context.Context, id outmill.JoinID, request outmill.FinishRequest) (outmill.FinishResult, error) {
	const operation = "finish join"
	var result outmill.FinishResult
	var follow *appending
	err := s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		result, follow = outmill.FinishResult{}, nil
		join, err := t.lockJoin(ctx, id, "")
		if err != nil {
			return err
		}
		var steps []step
		if join.Status == outmill.JoinPending && request.Seal && join.Unsealed {
			if steps, err = join.seal(request.ExpectedSteps); err != nil {
				return err
			}
		}
		status, reason := outmill.JoinPending, ""
		if join.Status == outmill.JoinPending {
			status, reason = join.Decide(request.FailIfAnyStepFailed, join.late)
		}
		if status == outmill.JoinPending {
			result.Join = join.Join
			if join.Status == outmill.JoinPending {
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
		return outmill.FinishResult{}, err
	}
	if follow != nil {
		follow.report()
		s.wake()
	}
	return result, nil
}

// end marks the join, and appends what is to follow.
func (t *txn) end(ctx context.Context, join *countedJoin, steps []step, status outmill.JoinStatus, reason string, then func(outmill.Join) (*outmill.Record, error)) (outmill.FinishResult, *appending, error) {
	join.Status, join.Reason = status, reason
	var at pgtype.Timestamptz
	err := t.run(ctx, append(steps, step{
		template: sqlEndJoin, args: []any{join.ID.String(), string(status), reason},
		row: func(scan func(...any) error) error { return scan(&at) },
	})...)
	if err != nil {
		return outmill.FinishResult{}, nil, err
	}
	join.FinishedAt, join.UpdatedAt = utc(at), utc(at)
	follow, err := t.follow(ctx, join.Join, then)
	return outmill.FinishResult{Join: join.Join, Finished: true}, follow, err
}

// follow appends what is to be published when the join ends, nil where nothing
// is.
func (t *txn) follow(ctx context.Context, join outmill.Join, then func(outmill.Join) (*outmill.Record, error)) (*appending, error) {
	if then == nil {
		return nil, nil
	}
	record, err := then(join)
	if err != nil || record == nil {
		return nil, err
	}
	if err := outmill.CheckRecords([]*outmill.Record{record}, t.s.config.MaxPayload); err != nil {
		return nil, err
	}
	one := *record
	if one.Joins, err = t.thatTake(ctx, one.Joins); err != nil {
		return nil, err
	}
	a, err := newAppending(t.s, []*outmill.Record{&one})
	if err != nil {
		return nil, err
	}
	return a, a.write(ctx, t)
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
	if err := t.run(ctx, joinsStep(sqlJoinsOf, &found, names)); err != nil {
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

// CancelJoin ends a pending join. See outmill.Joins.
func (s *Store) CancelJoin(ctx context.Context, id outmill.JoinID, reason string) error {
	return s.onJoin(ctx, "cancel join", id, func(ctx context.Context, t *txn, join *countedJoin) error {
		switch join.Status {
		case outmill.JoinCancelled:
			return t.finish(ctx)
		case outmill.JoinPending:
			return t.finish(ctx, step{template: sqlEndJoin, args: []any{id.String(), string(outmill.JoinCancelled), outmill.CleanError(reason)}})
		case outmill.JoinCompleted, outmill.JoinFailed:
		}
		return fmt.Errorf("%w: %s is %s", outmill.ErrJoinFinished, id, join.Status)
	})
}

// GetJoin returns a join. See outmill.Joins.
func (s *Store) GetJoin(ctx context.Context, id outmill.JoinID) (*outmill.Join, error) {
	const operation = "get join"
	var found []countedJoin
	if err := s.writeAll(ctx, operation, joinsStep(sqlJoinsOf, &found, []string{id.String()})); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, s.explain(ctx, operation, fmt.Errorf("%w: %s", outmill.ErrUnknownJoin, id))
	}
	return &found[0].Join, nil
}

// ListJoins returns joins in the order of their ids. See outmill.Joins.
func (s *Store) ListJoins(ctx context.Context, query outmill.JoinQuery) ([]*outmill.Join, error) {
	const operation = "list joins"
	if err := query.Validate(); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	grouping := ""
	if query.GroupingKey != nil {
		grouping = *query.GroupingKey
	}
	var found []countedJoin
	err := s.writeAll(ctx, operation, joinsStep(sqlListJoins, &found,
		query.After.String(), query.GroupingKey == nil, grouping, string(query.Status), cmp.Or(query.Limit, defaultListLimitOfJoins)))
	if err != nil {
		return nil, err
	}
	joins := make([]*outmill.Join, len(found))
	for i := range found {
		joins[i] = &found[i].Join
	}
	return joins, nil
}

// ListSteps returns steps of a join. See outmill.Joins.
func (s *Store) ListSteps(ctx context.Context, id outmill.JoinID, after outmill.WorkItemID, limit int) ([]outmill.JoinStep, error) {
	const operation = "list steps"
	if limit < 0 {
		return nil, s.explain(ctx, operation, invalid("ListSteps: limit is %d: want 0 (100) or more", limit))
	}
	var found []countedJoin
	var steps []outmill.JoinStep
	err := s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		steps = nil
		return t.finish(ctx, joinsStep(sqlJoinsOf, &found, []string{id.String()}), step{
			template: sqlListSteps, args: []any{id.String(), after.String(), cmp.Or(limit, defaultListLimitOfJoins)},
			row: func(scan func(...any) error) error {
				var name string
				var found outmill.JoinStep
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
		return nil, s.explain(ctx, operation, fmt.Errorf("%w: %s", outmill.ErrUnknownJoin, id))
	}
	return steps, nil
}

// DeleteJoins deletes joins that ended long ago. See outmill.Joins.
func (s *Store) DeleteJoins(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete joins", sqlDeleteJoins, limit, s.config.RetainJoins.Microseconds())
}
