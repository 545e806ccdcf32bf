package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ roles.Joins = (*Store)(nil)

const (
	sqlStartJoin = `INSERT INTO {p:joins} (id, grouping_key, policy, quorum, expected_steps, deadline, complete_at_deadline, created_at,
		updated_at, metadata)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9) ON CONFLICT (id) DO NOTHING`

	joinColumns = `id, grouping_key, status, policy, quorum, expected_steps, completed_steps, failed_steps,
	deadline, complete_at_deadline, reason, created_at, updated_at, finished_at, metadata`

	sqlJoin = `SELECT ` + joinColumns + ` FROM {p:joins} WHERE id = ?1`

	// sqlListJoins and sqlListGroup read an index for one status.
	sqlListJoins = `SELECT ` + joinColumns + ` FROM {p:joins} INDEXED BY {p:joins_status}
WHERE status = ?3 AND id > ?1 ORDER BY id LIMIT ?2`

	sqlListGroup = `SELECT ` + joinColumns + ` FROM {p:joins} INDEXED BY {p:joins_grouping}
WHERE grouping_key IS ?4 AND status = ?3 AND id > ?1 ORDER BY id LIMIT ?2`

	sqlCountMembers = `SELECT count(*) FROM {p:join_members} WHERE join_id = ?1`

	sqlAddMember = `INSERT INTO {p:join_members} (join_id, step, status, open, acked, dead) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (join_id, step) DO NOTHING`

	sqlMemberStatus = `SELECT status FROM {p:join_members} WHERE join_id = ?1 AND step = ?2`

	sqlListSteps = `SELECT step, status FROM {p:join_members} WHERE join_id = ?1 AND step > ?2 ORDER BY step LIMIT ?3`

	// sqlStepOfRecord finds the step of any of a message's records. If the message is gone, its
	// own id is the step's name.
	sqlStepOfRecord = `SELECT coalesce((SELECT step FROM {p:records} WHERE id = ?1), ?1)`

	sqlRecordToAttach = `SELECT coalesce(step, ''), waits_for IS NOT NULL FROM {p:records} WHERE id = ?1`

	// sqlNoteJoin adds a join to the records of a step.
	sqlNoteJoin = `UPDATE {p:records} INDEXED BY {p:step} SET joins = coalesce(joins || ',', '') || ?2 WHERE step = ?1`

	sqlSetStep = `UPDATE {p:records} SET step = id WHERE id = ?1 AND step IS NULL`

	sqlRecordsOfStep = `SELECT count(*) FILTER (WHERE status IN ('pending', 'leased')), count(*) FILTER (WHERE status = 'processed'),
		count(*) FILTER (WHERE status = 'dead')
FROM {p:records} INDEXED BY {p:step} WHERE step = ?1`

	sqlSeal = `UPDATE {p:joins} SET expected_steps = ?2, updated_at = ?3 WHERE id = ?1`

	sqlEndJoin = `UPDATE {p:joins} SET status = ?2, reason = nullif(?3, ''), updated_at = ?4, finished_at = ?4 WHERE id = ?1`

	sqlOldJoins = `SELECT id FROM {p:joins} INDEXED BY {p:joins_finished} WHERE finished_at <= ?1 ORDER BY finished_at LIMIT ?2`

	sqlDeleteMembers = `DELETE FROM {p:join_members} WHERE (join_id, step) IN (
	SELECT join_id, step FROM {p:join_members} WHERE join_id = ?1 LIMIT ?2)`
	sqlDeleteJoin = `DELETE FROM {p:joins} WHERE id = ?1`
)

// StartJoin writes a join.
func (j joining) StartJoin(ctx context.Context, operation string, join *roles.Join) error {
	tx, err := j.s.txOf(ctx)
	if err != nil {
		return j.s.explain(ctx, operation, err)
	}
	start := func(ctx context.Context, t *txn) error { return t.startJoin(ctx, join) }
	if tx != nil {
		return j.s.within(ctx, operation, tx, start)
	}
	return j.s.write(ctx, operation, start)
}

func (t *txn) startJoin(ctx context.Context, join *roles.Join) error {
	metadata, err := storekit.MetadataText(join.Metadata)
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
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
	n, err := t.exec(ctx, sqlStartJoin, join.ID.String(), sqlkit.OrNull(join.GroupingKey), join.Policy, join.Quorum, expected, deadline,
		join.CompleteAtDeadline, t.now, sqlkit.OrNull(metadata))
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: %s", roles.ErrJoinExists, join.ID)
	}
	return err
}

// join reads a join; nil if there is none.
func (t *txn) join(ctx context.Context, id string) (*roles.Join, error) {
	found, err := list(ctx, t, scanJoin, sqlJoin, id)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

func scanJoin(rows *sql.Rows, j *roles.Join) error {
	var expected, deadline, finished sql.NullInt64
	var created, updated int64
	var metadata string
	err := rows.Scan(&j.ID, sqlkit.Text(&j.GroupingKey), &j.Status, &j.Policy, &j.Quorum, &expected, &j.CompletedSteps, &j.FailedSteps,
		&deadline, &j.CompleteAtDeadline, sqlkit.Text(&j.Reason), &created, &updated, &finished, sqlkit.Text(&metadata))
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

// state converts the join to the form that the engine uses.
func (t *txn) state(join *roles.Join) *storekit.JoinState {
	state := &storekit.JoinState{Join: *join}
	if !join.Deadline.IsZero() {
		state.DeadlineIn = sqlkit.Micros(join.Deadline.UnixMicro() - t.now)
		state.Late = state.DeadlineIn <= 0
	}
	return state
}

// JoinsToFill reads joins, with the number of steps of those that are sealed.
func (t *txn) JoinsToFill(ctx context.Context, ids []outmill.JoinID) ([]*storekit.JoinState, error) {
	var found []*storekit.JoinState
	for _, id := range ids {
		join, err := t.join(ctx, id.String())
		if err != nil {
			return nil, err
		}
		if join == nil {
			continue
		}
		state := t.state(join)
		if err := t.countMembersOf(ctx, state); err != nil {
			return nil, err
		}
		found = append(found, state)
	}
	return found, nil
}

// countMembersOf counts the steps of a join that may be complete.
func (t *txn) countMembersOf(ctx context.Context, join *storekit.JoinState) (err error) {
	if join.Status == roles.JoinPending && !join.Unsealed {
		join.Members, err = t.CountMembers(ctx, join.ID)
	}
	return err
}

// CountMembers counts the steps of a join.
func (t *txn) CountMembers(ctx context.Context, id outmill.JoinID) (n int, err error) {
	_, err = t.one(ctx, []any{&n}, sqlCountMembers, id.String())
	return n, err
}

// joinEngine provides the calls of roles.Joins that all stores share.
type joinEngine = storekit.JoinEngine

// joining is the store as seen by the engine of joins.
type joining struct{ s *Store }

// Explain names the operation of an error.
func (j joining) Explain(ctx context.Context, operation string, err error) error {
	return j.s.explain(ctx, operation, err)
}

// ReadJoins reads joins.
func (j joining) ReadJoins(ctx context.Context, operation string, ids []outmill.JoinID) (found []*storekit.JoinState, err error) {
	err = j.s.read(ctx, operation, func(ctx context.Context, t *txn) error {
		found = nil
		for _, id := range ids {
			join, err := t.join(ctx, id.String())
			if err != nil {
				return err
			}
			if join != nil {
				found = append(found, t.state(join))
			}
		}
		return nil
	})
	return found, err
}

// OnJoin runs work in a transaction, which also makes the records due that wait for the join.
func (j joining) OnJoin(ctx context.Context, operation string, id outmill.JoinID,
	work func(ctx context.Context, tx storekit.JoinTx, join *storekit.JoinState) error) error {
	return j.s.onJoin(ctx, operation, id, func(ctx context.Context, t *txn, join *storekit.JoinState) error {
		if err := work(ctx, t, join); err != nil {
			return err
		}
		return t.hurry(ctx, id.String())
	})
}

// MakeDue makes due the records that wait for the joins.
func (j joining) MakeDue(ctx context.Context, ids []outmill.JoinID) error {
	return j.s.writeSteps(ctx, "hurry", func(ctx context.Context, t *txn) error {
		for _, id := range ids {
			if err := t.hurry(ctx, id.String()); err != nil {
				return err
			}
		}
		return nil
	})
}

// Appended logs the record that follows a join, and wakes readers.
func (j joining) Appended(records []*outmill.Record) {
	j.s.logger.Appended(false, records...)
	j.s.waker.notifier.Notify()
}

// onJoin runs fn on a join that exists, in a transaction of the store's own.
func (s *Store) onJoin(ctx context.Context, operation string, id outmill.JoinID,
	fn func(ctx context.Context, t *txn, join *storekit.JoinState) error) error {
	return s.writeSteps(ctx, operation, func(ctx context.Context, t *txn) error {
		join, err := t.join(ctx, id.String())
		if err != nil {
			return err
		}
		if join == nil {
			return fmt.Errorf("%w: %s", roles.ErrUnknownJoin, id)
		}
		return fn(ctx, t, t.state(join))
	})
}

// writeSteps is write for transactions that may decide joins. If one does, it wakes readers.
func (s *Store) writeSteps(ctx context.Context, operation string, fn func(ctx context.Context, t *txn) error) error {
	decided := false
	err := s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		err := fn(ctx, t)
		decided = t.decided
		return err
	})
	if err == nil && decided {
		s.waker.notifier.Notify()
	}
	return err
}

// AttachStep makes a record a step. See roles.Joins.
func (s *Store) AttachStep(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) error {
	return s.onJoin(ctx, "attach step", id, func(ctx context.Context, t *txn, join *storekit.JoinState) error {
		if err := t.countMembersOf(ctx, join); err != nil {
			return err
		}
		name, late, err := t.lateStep(ctx, id, message)
		if err != nil {
			return err
		}
		if attach, err := late.Check(message, join, s.config.Retain); err != nil || !attach {
			return err
		}
		status := storekit.StepOutcome(late.Open, late.Acked, late.Dead)
		if _, err := t.exec(ctx, sqlAddMember, id.String(), name, status, late.Open, late.Acked, late.Dead); err != nil {
			return err
		}
		if _, err := t.exec(ctx, sqlNoteJoin, name, id.String()); err != nil {
			return err
		}
		return t.count(ctx, map[string]storekit.StepCounts{id.String(): storekit.StepCounts{}.Moved(roles.StepPending, status)})
	})
}

// lateStep marks the message that becomes a step, and returns the step's name.
func (t *txn) lateStep(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) (name string, late storekit.LateStep,
	err error) {
	late.Found, err = t.one(ctx, []any{&name, &late.Waits}, sqlRecordToAttach, message.String())
	if err != nil || !late.Found {
		return "", late, err
	}
	name = cmp.Or(name, message.String())
	var has roles.StepStatus
	if late.Member, err = t.one(ctx, []any{&has}, sqlMemberStatus, id.String(), name); err != nil || late.Member {
		return name, late, err
	}
	if _, err := t.exec(ctx, sqlSetStep, message.String()); err != nil {
		return "", late, err
	}
	_, err = t.one(ctx, []any{&late.Open, &late.Acked, &late.Dead}, sqlRecordsOfStep, name)
	return name, late, err
}

// Report settles the step that the message names.
func (t *txn) Report(ctx context.Context, join *storekit.JoinState, message outmill.WorkItemID, as roles.StepStatus) (known bool,
	err error) {
	var name string
	if _, err := t.one(ctx, []any{&name}, sqlStepOfRecord, message.String()); err != nil {
		return false, err
	}
	var status roles.StepStatus
	id := join.ID.String()
	known, err = t.one(ctx, []any{&status}, sqlMemberStatus, id, name)
	if err != nil || !known || status != roles.StepPending {
		return known, err
	}
	return true, t.eachMember(ctx, map[string]int{name: 1}, func(m *member, _ int) {
		if m.join == id {
			m.status, m.reported = as, true
		}
	})
}

// Seal writes how many steps the join has.
func (t *txn) Seal(ctx context.Context, join *storekit.JoinState) error {
	_, err := t.exec(ctx, sqlSeal, join.ID.String(), join.ExpectedSteps, t.now)
	return err
}

// End writes how the join ended.
func (t *txn) End(ctx context.Context, join *storekit.JoinState) error {
	join.FinishedAt, join.UpdatedAt = timeOf(t.now), timeOf(t.now)
	_, err := t.exec(ctx, sqlEndJoin, join.ID.String(), join.Status, join.Reason, t.now)
	return err
}

// Append appends the record that follows a join.
func (t *txn) Append(ctx context.Context, record *outmill.Record) (*storekit.Appending, error) {
	follow := newAppending([]*outmill.Record{record})
	return follow.Appending, follow.run(ctx, t)
}

// ListJoins reads joins of each status.
func (j joining) ListJoins(ctx context.Context, operation string, query roles.JoinQuery) ([]*storekit.JoinState, error) {
	template, args := sqlListJoins, []any{query.After.String(), query.Limit, query.Status}
	if query.GroupingKey != "" {
		template, args = sqlListGroup, append(args, query.GroupingKey)
	}
	var all []*storekit.JoinState
	err := j.s.read(ctx, operation, func(ctx context.Context, t *txn) error {
		all = nil
		for _, status := range query.Statuses() {
			args[2] = status
			found, err := list(ctx, t, scanJoin, template, args...)
			if err != nil {
				return err
			}
			for i := range found {
				all = append(all, t.state(&found[i]))
			}
		}
		return nil
	})
	return all, err
}

// ListSteps reads steps of a join.
func (j joining) ListSteps(ctx context.Context, operation string, id outmill.JoinID, after outmill.WorkItemID,
	limit int) ([]roles.JoinStep, error) {
	var found []roles.JoinStep
	err := j.s.read(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		join, err := t.join(ctx, id.String())
		if err != nil {
			return err
		}
		if join == nil {
			return fmt.Errorf("%w: %s", roles.ErrUnknownJoin, id)
		}
		found, err = list(ctx, t, func(rows *sql.Rows, step *roles.JoinStep) error {
			return rows.Scan(&step.ID, &step.Status)
		}, sqlListSteps, id.String(), after.String(), limit)
		return err
	})
	return found, err
}

// DeleteJoins deletes joins that ended long ago. See roles.Joins.
func (s *Store) DeleteJoins(ctx context.Context, limit int) (int, error) {
	all := 0
	for {
		more := false
		n, err := s.tidy(ctx, "delete joins", limit-all, func(t *txn, ctx context.Context, limit int) (deleted int, err error) {
			deleted, more, err = t.deleteJoins(ctx, limit)
			return deleted, err
		})
		if all += n; err != nil || !more || all == limit {
			return all, err
		}
	}
}

// membersAtOnce is the most members that one transaction of DeleteJoins deletes, because other
// writers wait for it.
const membersAtOnce = 2000

// deleteJoins deletes up to limit joins. more says that it left one, some of whose members may be
// deleted, to the next transaction.
func (t *txn) deleteJoins(ctx context.Context, limit int) (deleted int, more bool, err error) {
	ids, err := t.texts(ctx, sqlOldJoins, t.now-t.s.config.RetainJoins.Microseconds(), limit)
	if err != nil {
		return 0, false, err
	}
	left := membersAtOnce
	for _, id := range ids {
		n, err := t.exec(ctx, sqlDeleteMembers, id, left)
		if left -= n; err != nil || left == 0 {
			return deleted, err == nil, err
		}
		if _, err := t.exec(ctx, sqlDeleteJoin, id); err != nil {
			return deleted, false, err
		}
		deleted++
	}
	return deleted, false, nil
}
