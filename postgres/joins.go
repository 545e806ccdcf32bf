package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ roles.Joins = (*Store)(nil)

const (
	sqlStartJoin = `INSERT INTO {p:joins} (id, grouping_key, policy, quorum, expected_steps, deadline, complete_at_deadline, created_at,
		updated_at, metadata)
SELECT $1::text::uuid, nullif($2::text, ''), $3::text, $4::bigint, nullif($5::bigint, -1),
	CASE WHEN $6::text LIKE '+%' THEN now.at + $6::text::interval
	ELSE nullif($6::text, '')::timestamptz END, $7::boolean, now.at, now.at, nullif($8::text, '')::jsonb
FROM (SELECT statement_timestamp() AS at) AS now ON CONFLICT (id) DO NOTHING`

	joinColumns = `j.id::text, coalesce(j.grouping_key, ''), j.status, j.policy, j.quorum, coalesce(j.expected_steps, -1), j.completed_steps,
		j.failed_steps,
	j.deadline, j.complete_at_deadline, coalesce(j.deadline <= statement_timestamp(), false), coalesce((extract(epoch
	FROM j.deadline - statement_timestamp()) * 1000000)::bigint, 0),
	coalesce(j.reason, ''), j.created_at, j.updated_at, j.finished_at, coalesce(j.metadata::text, '')`

	sqlLockJoins = `SELECT 1 FROM {p:joins} WHERE id = ANY (ARRAY(SELECT $1::text::uuid UNION
	SELECT join_id FROM {p:join_members} WHERE step = nullif($2::text, '')::uuid)) ORDER BY id FOR NO KEY UPDATE`

	// sqlListJoins and sqlListGroup read an index for each status, and repeat its order, so
	// that the planner has no choice.
	sqlListJoins = `SELECT ` + joinColumns + `, 0 FROM unnest($3::text[]) AS s (status) CROSS JOIN LATERAL (SELECT * FROM {p:joins}
	WHERE (status, id) > (s.status, $1::text::uuid) AND status <= s.status ORDER BY status, id LIMIT $2::bigint) AS j
ORDER BY j.id LIMIT $2::bigint`

	sqlListGroup = `SELECT ` + joinColumns + `, 0 FROM unnest($3::text[]) AS s (status) CROSS JOIN LATERAL (SELECT * FROM {p:joins}
	WHERE (coalesce(grouping_key, ''), status, id) > ($4::text, s.status, $1::text::uuid)
	AND (coalesce(grouping_key, ''), status) <= ($4::text, s.status)
	ORDER BY coalesce(grouping_key, ''), status, id LIMIT $2::bigint) AS j
ORDER BY j.id LIMIT $2::bigint`

	sqlListSteps = `SELECT m.step::text, m.status FROM {p:join_members} AS m
WHERE m.join_id = $1::text::uuid AND m.step > $2::text::uuid ORDER BY m.step LIMIT $3::bigint`

	sqlCountMembers = `SELECT count(*) FROM {p:join_members} WHERE join_id = $1::text::uuid`

	// sqlRecordToAttach locks all records of the message: the requested one and those of its
	// step. So a session that settles one of them has either finished, or comes later and finds
	// the new member.
	sqlRecordToAttach = `SELECT coalesce(r.step, r.id)::text, r.waits_for IS NOT NULL, r.id = $1::text::uuid FROM {p:records} AS r
		WHERE r.id = ANY (ARRAY(
	SELECT $1::text::uuid UNION
	SELECT s.id FROM {p:records} AS o CROSS JOIN LATERAL (SELECT id FROM {p:records} WHERE step = o.step OFFSET 0) AS s
	WHERE o.id = $1::text::uuid AND o.step IS NOT NULL)) ORDER BY r.id FOR UPDATE`

	sqlLinesOf = `SELECT DISTINCT r.grp, r.topic FROM {p:records} AS r WHERE r.grp IS NOT NULL AND r.id = ANY (ARRAY(
	SELECT $1::text::uuid UNION
	SELECT s.id FROM {p:records} AS o CROSS JOIN LATERAL (SELECT id FROM {p:records} WHERE step = o.step OFFSET 0) AS s
	WHERE o.id = $1::text::uuid AND o.step IS NOT NULL))`

	sqlSetStep = `UPDATE {p:records} SET step = id WHERE id = $1::text::uuid AND step IS NULL`

	// sqlNoteJoin adds a join to the records of a step.
	sqlNoteJoin = `UPDATE {p:records} SET joins = array_append(joins, $2::text::uuid) WHERE step = $1::text::uuid`

	// sqlRecordsOfStep counts the records of a step by their outcome.
	sqlRecordsOfStep = `SELECT count(*) FILTER (WHERE stage < 6), count(*) FILTER (WHERE stage = 6), count(*) FILTER (WHERE stage = 7)
FROM {p:records} WHERE step = $1::text::uuid`

	sqlAddMember = `INSERT INTO {p:join_members} (join_id, step, status, open, acked, dead)
VALUES ($1::text::uuid, $2::text::uuid, $3::text, $4::bigint, $5::bigint, $6::bigint)`

	// sqlStepOfRecord finds the step of any of a message's records. If the record is gone, its
	// own id is the step's name.
	sqlStepOfRecord    = `SELECT coalesce((SELECT step FROM {p:records} WHERE id = $1::text::uuid), $1::text::uuid)::text`
	sqlStepOfLogRecord = `SELECT coalesce((SELECT step FROM {p:records} WHERE id = $1::text::uuid), (SELECT step FROM {p:log}
		WHERE id = $1::text::uuid LIMIT 1), $1::text::uuid)::text`

	sqlReport = `UPDATE {p:join_members} SET status = $3::text, reported = true WHERE join_id = $1::text::uuid AND step = $2::text::uuid
		AND status = 'pending'`

	sqlHasMember = `SELECT 1 FROM {p:join_members} WHERE join_id = $1::text::uuid AND step = $2::text::uuid`

	sqlCount = `UPDATE {p:joins} SET completed_steps = completed_steps + $2::bigint, failed_steps = failed_steps + $3::bigint,
		updated_at = statement_timestamp()
WHERE id = $1::text::uuid`

	sqlSeal = `UPDATE {p:joins} SET expected_steps = $2::bigint, updated_at = statement_timestamp() WHERE id = $1::text::uuid`

	sqlEndJoin = `UPDATE {p:joins} SET status = $2::text, reason = nullif($3::text, ''), updated_at = statement_timestamp(),
		finished_at = statement_timestamp()
WHERE id = $1::text::uuid RETURNING finished_at`

	sqlShortWait = `SELECT set_config('lock_timeout', '50ms', true)`

	sqlOldJoins = `SELECT id::text FROM {p:joins} WHERE finished_at <= statement_timestamp() - $2::bigint * interval '1 microsecond'
	ORDER BY finished_at LIMIT $1::bigint`

	// sqlDeleteMembers selects by ctid, because nobody changes the members of a join that has
	// ended.
	sqlDeleteMembers = `DELETE FROM {p:join_members} WHERE ctid = ANY (ARRAY(SELECT m.ctid FROM unnest($1::text[]::uuid[]) AS j (id)
	CROSS JOIN LATERAL (SELECT ctid FROM {p:join_members} WHERE join_id = j.id LIMIT $2::bigint) AS m LIMIT $2::bigint))`

	sqlDeleteJoins = `DELETE FROM {p:joins} WHERE id = ANY ($1::text[]::uuid[])`
)

func scanJoin(scan func(...any) error) (*storekit.JoinState, error) {
	j := &storekit.JoinState{}
	var id, metadata string
	var expected, micros int64
	var deadline, created, updated, finished pgtype.Timestamptz
	err := scan(&id, &j.GroupingKey, &j.Status, &j.Policy, &j.Quorum, &expected, &j.CompletedSteps, &j.FailedSteps,
		&deadline, &j.CompleteAtDeadline, &j.Late, &micros, &j.Reason, &created, &updated, &finished, &metadata, &j.Members)
	if err != nil {
		return nil, err
	}
	j.ExpectedSteps, j.Unsealed = int(max(expected, 0)), expected < 0
	j.Deadline, j.CreatedAt, j.UpdatedAt, j.FinishedAt = utc(deadline), utc(created), utc(updated), utc(finished)
	j.DeadlineIn = sqlkit.Micros(micros)
	if metadata != "" {
		err = json.Unmarshal([]byte(metadata), &j.Metadata)
	}
	return j, errors.Join(err, j.ID.Scan(id))
}

// joinsStep reads joins.
func joinsStep(template string, into *[]*storekit.JoinState, args ...any) step {
	*into = nil
	return step{template: template, args: args, row: func(scan func(...any) error) error {
		j, err := scanJoin(scan)
		*into = append(*into, j)
		return err
	}}
}

// StartJoin writes a join.
func (j joining) StartJoin(ctx context.Context, operation string, join *roles.Join) error {
	tx, err := j.s.TxOf(ctx)
	if err != nil {
		return j.s.explain(ctx, operation, err)
	}
	start, err := startStep(join)
	if err != nil {
		return j.s.explain(ctx, operation, err)
	}
	var started int
	start.count = &started
	check := func(err error) error {
		if err == nil && started == 0 {
			err = fmt.Errorf("%w: %s", roles.ErrJoinExists, join.ID)
		}
		return err
	}
	if tx != nil {
		return j.s.within(ctx, operation, tx, func(ctx context.Context, r runner) error { return check(r.run(ctx, start)) })
	}
	return j.s.durably(ctx, operation, func(ctx context.Context, t *txn) error { return check(t.finish(ctx, start)) })
}

func startStep(join *roles.Join) (step, error) {
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
		join.ID.String(), join.GroupingKey, string(join.Policy), int64(join.Quorum), expected,
		timeText(join.Timeout, join.Deadline), join.CompleteAtDeadline, metadata,
	}}, nil
}

// joinEngine provides the calls of roles.Joins that all stores share.
type joinEngine = storekit.JoinEngine

// joining is the store as seen by the engine of joins.
type joining struct{ s *Store }

// hurry makes the records due that wait for those of the joins that are decided.
func (s *Store) hurry(ctx context.Context, ids []outmill.JoinID) {
	storekit.HurryJoins(ctx, joining{s}, ids, s.logger)
}

// Explain names the operation of an error.
func (j joining) Explain(ctx context.Context, operation string, err error) error {
	return j.s.explain(ctx, operation, err)
}

// ReadJoins reads joins.
func (j joining) ReadJoins(ctx context.Context, operation string, ids []outmill.JoinID) ([]*storekit.JoinState, error) {
	var found []*storekit.JoinState
	err := j.s.writeAll(ctx, operation, joinsStep(sqlJoinsOf, &found, textsOf(ids)))
	return found, err
}

// OnJoin runs work in a transaction that holds the row of the join.
func (j joining) OnJoin(ctx context.Context, operation string, id outmill.JoinID,
	work func(ctx context.Context, tx storekit.JoinTx, join *storekit.JoinState) error) error {
	err := j.s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		join, err := t.lockJoin(ctx, sqlJoinsOf, id, "")
		if err != nil {
			return err
		}
		tx := &joinTx{t: t}
		if err := work(ctx, tx, join); err != nil {
			return err
		}
		return t.finish(ctx, tx.last...)
	})
	if err == nil {
		j.s.hurry(ctx, []outmill.JoinID{id})
	}
	return err
}

// MakeDue makes due the records that wait for the joins.
func (j joining) MakeDue(ctx context.Context, ids []outmill.JoinID) error {
	err := j.s.writeAll(ctx, "hurry", step{template: sqlHurry, args: []any{textsOf(ids)}})
	if err == nil {
		j.s.wake()
	}
	return err
}

// Appended logs the record that follows a join, and wakes readers.
func (j joining) Appended(records []*outmill.Record) {
	j.s.logger.Appended(false, records...)
	j.s.wake()
}

// joinTx is a transaction that holds a join. It sends the statements last together with the
// commit.
type joinTx struct {
	t    *txn
	last []step
}

// JoinsToFill reads joins, with the number of steps of those that are sealed.
func (x *joinTx) JoinsToFill(ctx context.Context, ids []outmill.JoinID) ([]*storekit.JoinState, error) {
	return joinsToFill(ctx, x.t, ids)
}

func joinsToFill(ctx context.Context, r runner, ids []outmill.JoinID) ([]*storekit.JoinState, error) {
	var found []*storekit.JoinState
	err := r.run(ctx, joinsStep(sqlJoinsToFill, &found, textsOf(ids)))
	return found, err
}

// CountMembers counts the steps of a join.
func (x *joinTx) CountMembers(ctx context.Context, id outmill.JoinID) (n int, err error) {
	err = x.t.run(ctx, step{template: sqlCountMembers, args: []any{id.String()}, row: func(scan func(...any) error) error { return scan(&n) }})
	return n, err
}

// Seal writes how many steps the join has.
func (x *joinTx) Seal(_ context.Context, join *storekit.JoinState) error {
	x.last = append(x.last, step{template: sqlSeal, args: []any{join.ID.String(), int64(join.ExpectedSteps)}})
	return nil
}

// End writes how the join ended.
func (x *joinTx) End(ctx context.Context, join *storekit.JoinState) error {
	var at pgtype.Timestamptz
	err := x.t.run(ctx, append(x.last, step{
		template: sqlEndJoin, args: []any{join.ID.String(), string(join.Status), join.Reason},
		row: func(scan func(...any) error) error { return scan(&at) },
	})...)
	x.last, join.FinishedAt, join.UpdatedAt = nil, utc(at), utc(at)
	return err
}

// Append appends the record that follows a join.
func (x *joinTx) Append(ctx context.Context, record *outmill.Record) (*storekit.Appending, error) {
	a, err := newAppending(x.t.s, []*outmill.Record{record})
	if err != nil {
		return nil, err
	}
	if record.DedupKey != "" {
		// Another transaction may hold the dedup key for a long time, and acks wait for this
		// join.
		if err := x.t.run(ctx, step{template: sqlShortWait}); err != nil {
			return nil, err
		}
	}
	return a.Appending, a.writeUnchecked(ctx, x.t)
}

// Report settles the step that the message names.
func (x *joinTx) Report(ctx context.Context, join *storekit.JoinState, message outmill.WorkItemID, as roles.StepStatus) (known bool,
	err error) {
	var names []string
	template := sqlStepOfRecord
	if x.t.s.readsLog() {
		template = sqlStepOfLogRecord
	}
	if err := x.t.run(ctx, step{template: template, args: []any{message.String()}, row: texts(&names)}); err != nil {
		return false, err
	}
	var members, reported int
	steps := []step{{template: sqlHasMember, args: []any{join.ID.String(), names[0]}, count: &members}}
	if join.Status == roles.JoinPending {
		steps = append(steps, step{template: sqlReport, args: []any{join.ID.String(), names[0], string(as)}, count: &reported})
	}
	if err := x.t.run(ctx, steps...); err != nil || reported == 0 {
		return members > 0, err
	}
	x.last = append(x.last, countStep(join.ID, storekit.StepCounts{}.Moved(roles.StepPending, as))...)
	return true, nil
}

func (t *txn) lockJoin(ctx context.Context, template string, id outmill.JoinID, step string) (*storekit.JoinState, error) {
	var found []*storekit.JoinState
	err := t.run(ctx, lockStep(id, step), joinsStep(template, &found, []string{id.String()}))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %s", roles.ErrUnknownJoin, id)
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

func lockStep(id outmill.JoinID, name string) step {
	return step{template: sqlLockJoins, args: []any{id.String(), name}}
}

// AttachStep makes a record a step. See roles.Joins.
func (s *Store) AttachStep(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) error {
	const operation = "attach step"
	if _, err := s.seesLog(ctx, operation); err != nil {
		return err
	}
	err := s.attachStep(ctx, operation, id, message)
	if err == nil {
		// Wake the readers, because a claim that met the locked record has skipped it.
		s.wake()
		s.hurry(ctx, []outmill.JoinID{id})
	}
	return err
}

func (s *Store) attachStep(ctx context.Context, operation string, id outmill.JoinID, message outmill.WorkItemID) error {
	return s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		a := &lateStep{}
		if err := t.moveByID(ctx, []string{message.String()}, true); err != nil {
			return err
		}
		locks, err := t.linesOf(ctx, message)
		if err != nil {
			return err
		}
		// Lock the lines before the record, as claims do: a claim would skip the record while
		// it is locked here, and hand out a later one of its key. Lock the record before the
		// join, because a session that settles the record also locks them in this order.
		if err := t.run(ctx, append(locks, a.recordStep(message))...); err != nil {
			return err
		}
		join, err := t.lockJoin(ctx, sqlJoinsToFill, id, a.step)
		if err != nil {
			return err
		}
		if a.Found {
			if err := t.run(ctx, a.look(id, message)...); err != nil {
				return err
			}
		}
		a.Member = a.known > 0
		attach, err := a.Check(message, join, s.config.Retain)
		if err != nil {
			return err
		}
		if !attach {
			return t.finish(ctx)
		}
		return t.finish(ctx, a.attach(id)...)
	})
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

// lateStep is a record that becomes a step after its append.
type lateStep struct {
	storekit.LateStep
	step  string
	known int
}

func (a *lateStep) recordStep(message outmill.WorkItemID) step {
	return step{template: sqlRecordToAttach, args: []any{message.String()}, row: func(scan func(...any) error) error {
		var name string
		var waits, asked bool
		err := scan(&name, &waits, &asked)
		if asked {
			a.Found, a.step, a.Waits = true, name, waits
		}
		return err
	}}
}

// look names the record's step. It also reads whether the join has the step already, and the
// outcomes of all the message's records.
func (a *lateStep) look(id outmill.JoinID, message outmill.WorkItemID) []step {
	return []step{
		{template: sqlSetStep, args: []any{message.String()}},
		{template: sqlHasMember, args: []any{id.String(), a.step}, count: &a.known},
		{template: sqlRecordsOfStep, args: []any{a.step}, row: func(scan func(...any) error) error {
			return scan(&a.Open, &a.Acked, &a.Dead)
		}},
	}
}

func (a *lateStep) attach(id outmill.JoinID) []step {
	status := storekit.StepOutcome(a.Open, a.Acked, a.Dead)
	return append([]step{{template: sqlNoteJoin, args: []any{a.step, id.String()}}, {
		template: sqlAddMember, args: []any{id.String(), a.step, string(status), int64(a.Open), int64(a.Acked), int64(a.Dead)},
	}}, countStep(id, storekit.StepCounts{}.Moved(roles.StepPending, status))...)
}

// countStep counts settled steps, if there are any.
func countStep(id outmill.JoinID, counts storekit.StepCounts) []step {
	if counts == (storekit.StepCounts{}) {
		return nil
	}
	return []step{{template: sqlCount, args: []any{id.String(), int64(counts.Completed), int64(counts.Failed)}}}
}

// ReportCompleted settles a step. See roles.Joins.
func (s *Store) ReportCompleted(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	if _, err := s.seesLog(ctx, "report completed"); err != nil {
		return err
	}
	return s.joinEngine.ReportCompleted(ctx, join, step)
}

// ReportFailed settles a step. See roles.Joins.
func (s *Store) ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	if _, err := s.seesLog(ctx, "report failed"); err != nil {
		return err
	}
	return s.joinEngine.ReportFailed(ctx, join, step)
}

// ListJoins reads joins of each status.
func (j joining) ListJoins(ctx context.Context, operation string, query roles.JoinQuery) ([]*storekit.JoinState, error) {
	var statuses []string
	for _, status := range query.Statuses() {
		statuses = append(statuses, string(status))
	}
	template, args := sqlListJoins, []any{query.After.String(), query.Limit, statuses}
	if query.GroupingKey != "" {
		template, args = sqlListGroup, append(args, query.GroupingKey)
	}
	var found []*storekit.JoinState
	err := j.s.writeAll(ctx, operation, joinsStep(template, &found, args...))
	return found, err
}

// ListSteps reads steps of a join.
func (j joining) ListSteps(ctx context.Context, operation string, id outmill.JoinID, after outmill.WorkItemID,
	limit int) ([]roles.JoinStep, error) {
	var found []*storekit.JoinState
	var steps []roles.JoinStep
	err := j.s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		steps = nil
		return t.finish(ctx, joinsStep(sqlJoinsOf, &found, []string{id.String()}), step{
			template: sqlListSteps, args: []any{id.String(), after.String(), limit},
			row: func(scan func(...any) error) error {
				var name string
				var found roles.JoinStep
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
		return nil, j.s.explain(ctx, operation, fmt.Errorf("%w: %s", roles.ErrUnknownJoin, id))
	}
	return steps, nil
}

// DeleteJoins deletes joins that ended long ago. See roles.Joins.
func (s *Store) DeleteJoins(ctx context.Context, limit int) (int, error) {
	const operation = "delete joins"
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, s.explain(ctx, operation, err)
	}
	var old []string
	err := s.writeAll(ctx, operation, step{template: sqlOldJoins, args: []any{limit, s.config.RetainJoins.Microseconds()}, row: texts(&old)})
	if err != nil {
		return 0, err
	}
	// Delete the members first, in parts, because there may be many. The statement runs even if
	// there is nothing to delete, so that a missing right is noticed.
	for gone := membersAtOnce; gone == membersAtOnce; {
		if err := s.writeAll(ctx, operation, step{template: sqlDeleteMembers, args: []any{old, membersAtOnce}, count: &gone}); err != nil {
			return 0, err
		}
	}
	deleted := 0
	err = s.writeAll(ctx, operation, step{template: sqlDeleteJoins, args: []any{old}, count: &deleted})
	return deleted, err
}

// membersAtOnce is the most members that one statement of DeleteJoins deletes.
const membersAtOnce = 5000
