package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	sqlStepsStanding = `SELECT r.seq, r.step` + standing + ` AND r.step IS NOT NULL`

	sqlStepsOf = `SELECT seq, step FROM {p:records} WHERE seq IN (SELECT value FROM json_each(?1)) AND step IS NOT NULL`

	sqlOpenStepsOf = sqlStepsOf + ` AND status IN ('pending', 'leased')`

	// sqlMembers reads the members of pending joins that belong to the steps.
	sqlMembers = `SELECT m.join_id, m.step, m.status, m.open, m.acked, m.dead, m.reported
FROM json_each(?1) AS s CROSS JOIN {p:join_members} AS m ON m.step = s.value
CROSS JOIN {p:joins} AS j ON j.id = m.join_id WHERE j.status = 'pending'`

	sqlSetMember = `UPDATE {p:join_members} SET status = ?3, open = ?4, acked = ?5, dead = ?6, reported = ?7
WHERE join_id = ?1 AND step = ?2`

	sqlCount = `UPDATE {p:joins} SET completed_steps = completed_steps + ?2, failed_steps = failed_steps + ?3, updated_at = ?4
WHERE id = ?1`

	// sqlHurry makes the records due that wait for a decided join.
	sqlHurry = `UPDATE {p:records} SET available_at = ?2, next_at = ?2
WHERE waits_for = ?1 AND stage IN (2, 3) AND available_at > ?2`
)

// change is what happens to a record of a step.
type change struct{ open, acked, dead int }

var (
	isAcked    = change{open: -1, acked: +1}
	isDead     = change{open: -1, dead: +1}
	isRequeued = change{open: +1, dead: -1}
	isDropped  = change{open: -1}
)

// member is a step of a join.
type member struct {
	join, step        string
	status            roles.StepStatus
	open, acked, dead int
	reported          bool
}

func scanMember(rows *sql.Rows, m *member) error {
	return rows.Scan(&m.join, &m.step, &m.status, &m.open, &m.acked, &m.dead, &m.reported)
}

// settled returns the outcome of the step.
func (m *member) settled() roles.StepStatus {
	if m.reported {
		return m.status
	}
	return storekit.StepOutcome(m.open, m.acked, m.dead)
}

// stepRecord is a record of a step.
type stepRecord struct {
	seq  int64
	step string
}

// moveSteps counts a change of records that are steps, in the transaction that changes them.
// The query selects the records.
func (t *txn) moveSteps(ctx context.Context, how change, template string, args ...any) error {
	if !t.steps {
		return nil
	}
	records, err := list(ctx, t, func(rows *sql.Rows, r *stepRecord) error { return rows.Scan(&r.seq, &r.step) }, template, args...)
	if err != nil || len(records) == 0 {
		return err
	}
	times, seen := map[string]int{}, map[stepRecord]bool{}
	for _, r := range records {
		// A call may have the same lease twice.
		if !seen[r] {
			seen[r] = true
			times[r.step]++
		}
	}
	return t.eachMember(ctx, times, func(m *member, n int) {
		m.open, m.acked, m.dead = m.open+n*how.open, m.acked+n*how.acked, m.dead+n*how.dead
		m.status = m.settled()
	})
}

// eachMember changes the steps' members of pending joins, and counts the changes.
func (t *txn) eachMember(ctx context.Context, of map[string]int, move func(m *member, n int)) error {
	names := make([]string, 0, len(of))
	for step := range of {
		names = append(names, step)
	}
	members, err := list(ctx, t, scanMember, sqlMembers, textList(names))
	if err != nil {
		return err
	}
	moved := map[string]storekit.StepCounts{}
	for _, m := range members {
		before := m.status
		move(&m, of[m.step])
		if _, err := t.exec(ctx, sqlSetMember, m.join, m.step, m.status, m.open, m.acked, m.dead, m.reported); err != nil {
			return err
		}
		moved[m.join] = moved[m.join].Moved(before, m.status)
	}
	return t.count(ctx, moved)
}

func (t *txn) count(ctx context.Context, all map[string]storekit.StepCounts) error {
	for id, c := range all {
		if c == (storekit.StepCounts{}) {
			continue
		}
		if _, err := t.exec(ctx, sqlCount, id, c.Completed, c.Failed, t.now); err != nil {
			return err
		}
		if err := t.hurry(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// hurry makes the records due that wait for the join, if it is decided or has ended.
func (t *txn) hurry(ctx context.Context, id string) error {
	join, err := t.join(ctx, id)
	if err != nil || join == nil {
		return err
	}
	if !t.state(join).Decided() {
		return nil
	}
	t.decided = true
	_, err = t.exec(ctx, sqlHurry, id, t.now)
	return err
}

// attachment has the steps of joins that an append adds.
type attachment struct {
	join outmill.JoinID
	step outmill.WorkItemID
	open int
}

func (t *txn) attach(ctx context.Context, list []attachment) error {
	for _, a := range list {
		if _, err := t.exec(ctx, sqlAddMember, a.join.String(), a.step.String(), roles.StepPending, a.open, 0, 0); err != nil {
			return err
		}
	}
	return nil
}

func joinMetadata(text string, into *map[string]string) error {
	if text == "" {
		return nil
	}
	return json.Unmarshal([]byte(text), into)
}
