package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/sqltx"
	"github.com/outmill/outmill/internal/steps"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.Joins = (*Store)(nil)

const (
	sqlStartJoin = `INSERT INTO {p:joins} (id, grouping_key, policy, quorum, expected_steps, deadline, complete_at_deadline, created_at, updated_at, metadata)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9) ON CONFLICT (id) DO NOTHING`

	joinColumns = `id, grouping_key, status, policy, quorum, expected_steps, completed_steps, failed_steps,
	deadline, complete_at_deadline, reason, created_at, updated_at, finished_at, metadata`

	sqlJoin = `SELECT ` + joinColumns + ` FROM {p:joins} WHERE id = ?1`

	// sqlListJoins and sqlListGroup go by an index for one status.
	sqlListJoins = `SELECT ` + joinColumns + ` FROM {p:joins} INDEXED BY {p:joins_status}
WHERE status = ?3 AND id > ?1 ORDER BY id LIMIT ?2`

	sqlListGroup = `SELECT ` + joinColumns + ` FROM {p:joins} INDEXED BY {p:joins_grouping}
WHERE grouping_key IS ?4 AND status = ?3 AND id > ?1 ORDER BY id LIMIT ?2`

	sqlCountMembers = `SELECT count(*) FROM {p:join_members} WHERE join_id = ?1`

	sqlAddMember = `INSERT INTO {p:join_members} (join_id, step, status, open, acked, dead) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (join_id, step) DO NOTHING`

	sqlMemberStatus = `SELECT status FROM {p:join_members} WHERE join_id = ?1 AND step = ?2`

	sqlListSteps = `SELECT step, status FROM {p:join_members} WHERE join_id = ?1 AND step > ?2 ORDER BY step LIMIT ?3`

	// sqlStepOfRecord finds the step of any of a message's records, and of a
	// message that is gone: that has its own id.
	sqlStepOfRecord = `SELECT coalesce((SELECT step FROM {p:records} WHERE id = ?1), ?1)`

	sqlRecordToAttach = `SELECT coalesce(step, ''), waits_for IS NOT NULL FROM {p:records} WHERE id = ?1`

	// sqlNoteJoin has the records of a step tell of a join too.
	sqlNoteJoin = `UPDATE {p:records} INDEXED BY {p:step} SET joins = coalesce(joins || ',', '') || ?2 WHERE step = ?1`

	sqlSetStep = `UPDATE {p:records} SET step = id WHERE id = ?1 AND step IS NULL`

	sqlRecordsOfStep = `SELECT count(*) FILTER (WHERE status IN ('pending', 'leased')), count(*) FILTER (WHERE status = 'processed'), count(*) FILTER (WHERE status = 'dead')
FROM {p:records} INDEXED BY {p:step} WHERE step = ?1`

	sqlSeal = `UPDATE {p:joins} SET expected_steps = ?2, updated_at = ?3 WHERE id = ?1`

	sqlEndJoin = `UPDATE {p:joins} SET status = ?2, reason = nullif(?3, ''), updated_at = ?4, finished_at = ?4 WHERE id = ?1`

	sqlOldJoins = `SELECT id FROM {p:joins} INDEXED BY {p:joins_finished} WHERE finished_at <= ?1 ORDER BY finished_at LIMIT ?2`

	sqlDeleteMembers = `DELETE FROM {p:join_members} WHERE join_id = ?1`
	sqlDeleteJoin    = `DELETE FROM {p:joins} WHERE id = ?1`
)

const defaultListLimitOfJoins = 100

// StartJoin begins a join. See storekit.Joins.
func (s *Store) StartJoin(ctx context.Context, join *storekit.Join) error {
	const operation = "start join"
	tx, err := s.txOf(ctx)
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
	start := func(ctx context.Context, t *txn) error { return t.startJoin(ctx, id, join) }
	if tx != nil {
		err = s.within(ctx, operation, tx, start)
	} else {
		err = s.write(ctx, operation, start)
	}
	if err == nil {
		join.ID = id
	}
	return err
}

func (t *txn) startJoin(ctx context.Context, id outmill.JoinID, join *storekit.Join) error {
	metadata, err := metadataText(join.Metadata)
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	policy, quorum := join.Policy, join.Quorum
	if policy == "" {
		policy = storekit.JoinAll
	}
	var expected, deadline any
	if !join.Unsealed {
		expected = join.ExpectedSteps
	}
	switch {
	case join.Timeout > 0:
		deadline = t.after(join.Timeout)
	case !join.Deadline.IsZero():
		deadline = micros(join.Deadline)
	}
	n, err := t.exec(ctx, sqlStartJoin, id.String(), sqltx.OrNull(join.GroupingKey), policy, quorum, expected, deadline, join.CompleteAtDeadline, t.now, sqltx.OrNull(metadata))
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: %s", storekit.ErrJoinExists, id)
	}
	return err
}

// join reads a join, nil where there is none.
func (t *txn) join(ctx context.Context, id string) (*storekit.Join, error) {
	found, err := list(ctx, t, scanJoin, sqlJoin, id)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func scanJoin(rows *sql.Rows, j *storekit.Join) error {
	var expected, deadline, finished sql.NullInt64
	var created, updated int64
	var metadata string
	err := rows.Scan(&j.ID, sqltx.Text(&j.GroupingKey), &j.Status, &j.Policy, &j.Quorum, &expected, &j.CompletedSteps, &j.FailedSteps,
		&deadline, &j.CompleteAtDeadline, sqltx.Text(&j.Reason), &created, &updated, &finished, sqltx.Text(&metadata))
	if err != nil {
		return err
	}
	j.ExpectedSteps, j.Unsealed = int(expected.Int64), !expected.Valid
	j.Deadline, j.FinishedAt = nullTime(deadline), nullTime(finished)
	j.CreatedAt, j.UpdatedAt = timeOf(created), timeOf(updated)
	if err := joinMetadata(metadata, &j.Metadata); err != nil {
		return fmt.Errorf("join %s: metadata: %w", j.ID, err)
	}
	return nil
}

// takesSteps refuses n more steps of a join that is not pending, or full.
func (t *txn) takesSteps(ctx context.Context, id outmill.JoinID, join *storekit.Join, n int) error {
	var has int
	if join != nil && join.Status == storekit.JoinPending && !join.Unsealed {
		if _, err := t.one(ctx, []any{&has}, sqlCountMembers, id.String()); err != nil {
			return err
		}
	}
	return steps.Takes(id, join, has, n)
}

// onJoin runs fn on a join that exists, in a transaction of the store's own.
// What is decided by it is made due.
func (s *Store) onJoin(ctx context.Context, operation string, id outmill.JoinID, fn func(ctx context.Context, t *txn, join *storekit.Join) error) error {
	return s.writeSteps(ctx, operation, func(ctx context.Context, t *txn) error {
		join, err := t.join(ctx, id.String())
		if err != nil {
			return err
		}
		if join == nil {
			return fmt.Errorf("%w: %s", storekit.ErrUnknownJoin, id)
		}
		return fn(ctx, t, join)
	})
}

// writeSteps is write for what may decide joins: it wakes readers then.
func (s *Store) writeSteps(ctx context.Context, operation string, fn func(ctx context.Context, t *txn) error) error {
	decided := false
	err := s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		err := fn(ctx, t)
		decided = t.decided
		return err
	})
	if err == nil && decided {
		s.waker.bell.Ring()
	}
	return err
}

// AttachStep makes a record a step. See storekit.Joins.
func (s *Store) AttachStep(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) error {
	return s.onJoin(ctx, "attach step", id, func(ctx context.Context, t *txn, join *storekit.Join) error {
		m, err := t.memberOf(ctx, id, message)
		if err != nil || m == nil {
			return err
		}
		if err := t.takesSteps(ctx, id, join, 1); err != nil {
			return err
		}
		m.status = m.settled()
		if _, err := t.exec(ctx, sqlAddMember, m.join, m.step, m.status, m.open, m.acked, m.dead); err != nil {
			return err
		}
		if _, err := t.exec(ctx, sqlNoteJoin, m.step, m.join); err != nil {
			return err
		}
		return t.count(ctx, map[string]steps.Counts{m.join: steps.Counts{}.Moved(storekit.StepPending, m.status)})
	})
}

// memberOf returns what is to be attached of a record, nil where it is a step of
// the join already.
func (t *txn) memberOf(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) (*member, error) {
	m := &member{join: id.String(), status: storekit.StepPending}
	var waits bool
	found, err := t.one(ctx, []any{&m.step, &waits}, sqlRecordToAttach, message.String())
	if err != nil {
		return nil, err
	}
	if !found || t.s.config.Retain <= 0 {
		return nil, fmt.Errorf("%w: %s", storekit.ErrUnknownMessage, message)
	}
	if waits {
		return nil, storekit.ErrWaitIsNoStep
	}
	if m.step == "" {
		m.step = message.String()
	}
	var has storekit.StepStatus
	if found, err = t.one(ctx, []any{&has}, sqlMemberStatus, m.join, m.step); err != nil || found {
		return nil, err
	}
	if _, err := t.exec(ctx, sqlSetStep, message.String()); err != nil {
		return nil, err
	}
	_, err = t.one(ctx, []any{&m.open, &m.acked, &m.dead}, sqlRecordsOfStep, m.step)
	return m, err
}

// ReportCompleted settles a step. See storekit.Joins.
func (s *Store) ReportCompleted(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return s.report(ctx, "report completed", join, step, storekit.StepCompleted)
}

// ReportFailed settles a step. See storekit.Joins.
func (s *Store) ReportFailed(ctx context.Context, join outmill.JoinID, step outmill.WorkItemID) error {
	return s.report(ctx, "report failed", join, step, storekit.StepFailed)
}

func (s *Store) report(ctx context.Context, operation string, id outmill.JoinID, step outmill.WorkItemID, as storekit.StepStatus) error {
	return s.onJoin(ctx, operation, id, func(ctx context.Context, t *txn, join *storekit.Join) error {
		var name string
		if _, err := t.one(ctx, []any{&name}, sqlStepOfRecord, step.String()); err != nil {
			return err
		}
		var status storekit.StepStatus
		found, err := t.one(ctx, []any{&status}, sqlMemberStatus, id.String(), name)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("%w: %s of %s", storekit.ErrUnknownStep, step, id)
		}
		if status != storekit.StepPending {
			return nil
		}
		return t.eachMember(ctx, map[string]int{name: 1}, func(m *member, _ int) {
			if m.join == id.String() {
				m.status, m.reported = as, true
			}
		})
	})
}

// SealJoin says how many steps the join has. See storekit.Joins.
func (s *Store) SealJoin(ctx context.Context, id outmill.JoinID, expected int) error {
	return s.onJoin(ctx, "seal join", id, func(ctx context.Context, t *txn, join *storekit.Join) error {
		if err := t.seal(ctx, join, expected); err != nil {
			return err
		}
		return t.hurry(ctx, id.String())
	})
}

func (t *txn) seal(ctx context.Context, join *storekit.Join, expected int) error {
	var has int
	if err := join.CheckSeal(expected); err != nil || !join.Unsealed {
		return err
	}
	if _, err := t.one(ctx, []any{&has}, sqlCountMembers, join.ID.String()); err != nil {
		return err
	}
	if err := steps.Seals(join.ID, has, expected); err != nil {
		return err
	}
	join.ExpectedSteps, join.Unsealed = expected, false
	_, err := t.exec(ctx, sqlSeal, join.ID.String(), expected, t.now)
	return err
}

// FinishJoin ends the join if it is decided. See storekit.Joins.
func (s *Store) FinishJoin(ctx context.Context, id outmill.JoinID, request storekit.FinishRequest) (storekit.FinishResult, error) {
	var result storekit.FinishResult
	var follow *appending
	err := s.onJoin(ctx, "finish join", id, func(ctx context.Context, t *txn, join *storekit.Join) (err error) {
		result, follow = storekit.FinishResult{}, nil
		if join.Status == storekit.JoinPending && request.Seal && join.Unsealed {
			if err := t.seal(ctx, join, request.ExpectedSteps); err != nil {
				return err
			}
		}
		if result, follow, err = t.finish(ctx, join, request); err != nil {
			return err
		}
		// Others may wait, too.
		return t.hurry(ctx, id.String())
	})
	if err != nil {
		return storekit.FinishResult{}, err
	}
	if follow != nil {
		follow.Report()
		s.logger.Appended(false, follow.Records...)
		s.waker.bell.Ring()
	}
	return result, nil
}

func (t *txn) finish(ctx context.Context, join *storekit.Join, request storekit.FinishRequest) (storekit.FinishResult, *appending, error) {
	status, reason := storekit.JoinPending, ""
	if join.Status == storekit.JoinPending {
		status, reason = join.Decide(request.FailIfAnyStepFailed, t.late(join))
	}
	if status == storekit.JoinPending {
		result := storekit.FinishResult{Join: *join}
		if join.Status == storekit.JoinPending && !join.Deadline.IsZero() {
			result.DeadlineIn = sqltx.Micros(join.Deadline.UnixMicro() - t.now)
		}
		return result, nil, nil
	}
	join.Status, join.Reason, join.FinishedAt, join.UpdatedAt = status, reason, timeOf(t.now), timeOf(t.now)
	if _, err := t.exec(ctx, sqlEndJoin, join.ID.String(), status, reason, t.now); err != nil {
		return storekit.FinishResult{}, nil, err
	}
	follow, err := t.follow(ctx, *join, request.Then)
	return storekit.FinishResult{Join: *join, Finished: true}, follow, err
}

// follow appends what is to be published when the join ends, nil where nothing
// is.
func (t *txn) follow(ctx context.Context, join storekit.Join, then func(storekit.Join) (*outmill.Record, error)) (*appending, error) {
	one, err := storekit.Followup(join, then, t.s.config.MaxPayload, func(ids []outmill.JoinID) ([]outmill.JoinID, error) { return t.thatTake(ctx, ids) })
	if err != nil || one == nil {
		return nil, err
	}
	follow := newAppending([]*outmill.Record{one})
	return follow, follow.run(ctx, t)
}

// thatTake returns those of the joins that take a step.
func (t *txn) thatTake(ctx context.Context, ids []outmill.JoinID) ([]outmill.JoinID, error) {
	var take []outmill.JoinID
	for _, id := range ids {
		err := t.checkSteps(ctx, map[outmill.JoinID]int{id: 1})
		switch {
		case err == nil:
			take = append(take, id)
		case !steps.Refused(err):
			return nil, err
		}
	}
	return take, nil
}

// CancelJoin ends a pending join. See storekit.Joins.
func (s *Store) CancelJoin(ctx context.Context, id outmill.JoinID, reason string) error {
	return s.onJoin(ctx, "cancel join", id, func(ctx context.Context, t *txn, join *storekit.Join) error {
		switch join.Status {
		case storekit.JoinCancelled:
			return nil
		case storekit.JoinPending:
			if _, err := t.exec(ctx, sqlEndJoin, id.String(), storekit.JoinCancelled, storekit.CleanError(reason), t.now); err != nil {
				return err
			}
			return t.hurry(ctx, id.String())
		case storekit.JoinCompleted, storekit.JoinFailed:
		}
		return fmt.Errorf("%w: %s is %s", storekit.ErrJoinFinished, id, join.Status)
	})
}

// GetJoin returns a join. See storekit.Joins.
func (s *Store) GetJoin(ctx context.Context, id outmill.JoinID) (*storekit.Join, error) {
	var found *storekit.Join
	err := s.read(ctx, "get join", func(ctx context.Context, t *txn) (err error) {
		if found, err = t.join(ctx, id.String()); err == nil && found == nil {
			err = fmt.Errorf("%w: %s", storekit.ErrUnknownJoin, id)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// ListJoins returns joins in the order of their ids. See storekit.Joins.
func (s *Store) ListJoins(ctx context.Context, query storekit.JoinQuery) ([]*storekit.Join, error) {
	const operation = "list joins"
	if err := query.Validate(); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	limit := limitOf(query.Limit)
	template, args := sqlListJoins, []any{query.After.String(), limit, query.Status}
	if query.GroupingKey != "" {
		template, args = sqlListGroup, append(args, query.GroupingKey)
	}
	var all []storekit.Join
	err := s.read(ctx, operation, func(ctx context.Context, t *txn) error {
		all = nil
		for _, status := range steps.StatusesOf(query) {
			args[2] = status
			found, err := list(ctx, t, scanJoin, template, args...)
			if err != nil {
				return err
			}
			all = append(all, found...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b storekit.Join) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	joins := make([]*storekit.Join, min(len(all), limit))
	for i := range joins {
		joins[i] = &all[i]
	}
	return joins, nil
}

func limitOf(limit int) int {
	if limit == 0 {
		return defaultListLimitOfJoins
	}
	return limit
}

// ListSteps returns steps of a join. See storekit.Joins.
func (s *Store) ListSteps(ctx context.Context, id outmill.JoinID, after outmill.WorkItemID, limit int) ([]storekit.JoinStep, error) {
	const operation = "list steps"
	if limit < 0 {
		return nil, s.explain(ctx, operation, invalid("ListSteps: limit is %d: want 0 (100) or more", limit))
	}
	var found []storekit.JoinStep
	err := s.read(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		join, err := t.join(ctx, id.String())
		if err != nil {
			return err
		}
		if join == nil {
			return fmt.Errorf("%w: %s", storekit.ErrUnknownJoin, id)
		}
		found, err = list(ctx, t, func(rows *sql.Rows, step *storekit.JoinStep) error {
			return rows.Scan(&step.ID, &step.Status)
		}, sqlListSteps, id.String(), after.String(), limitOf(limit))
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// DeleteJoins deletes joins that ended long ago. See storekit.Joins.
func (s *Store) DeleteJoins(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete joins", limit, func(t *txn, ctx context.Context, limit int) (int, error) {
		ids, err := t.texts(ctx, sqlOldJoins, t.now-s.config.RetainJoins.Microseconds(), limit)
		for _, id := range ids {
			if err == nil {
				_, err = t.execAll(ctx, []string{sqlDeleteMembers, sqlDeleteJoin}, id)
			}
		}
		return len(ids), err
	})
}
