package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// onJoin runs work in a transaction that locks the join. After its commit the records become due that wait for the join, if it is
// decided.
func (e *Engine) onJoin(ctx context.Context, operation string, id outmill.JoinID,
	work func(ctx context.Context, t *tx, join *storekit.JoinState) error) error {
	return e.update(ctx, operation, func(ctx context.Context, t *tx) error {
		join, err := t.lockJoin(ctx, id)
		if err != nil {
			return err
		}
		return work(ctx, t, join)
	})
}

// lockJoin locks a join that must exist. After the commit the records become due that wait for it, if it is decided.
func (t *tx) lockJoin(ctx context.Context, id outmill.JoinID) (*storekit.JoinState, error) {
	join, err := t.join(ctx, true, id)
	if err == nil {
		t.hurry(id)
	}
	return join, err
}

// lockStepOf locks the step of a message. If the message is gone, its own id is that of the step.
func (t *tx) lockStepOf(ctx context.Context, message outmill.WorkItemID) (step outmill.WorkItemID, err error) {
	rows, err := t.Find(ctx, []outmill.WorkItemID{message})
	if err != nil {
		return step, err
	}
	step = message
	if len(rows) > 0 {
		step = cmp.Or(rows[0].Step, message)
	}
	_, err = t.entry(ctx, true, stepKind, step.String())
	return step, err
}

// joinsToFill reads joins, with the number of steps of those that are pending and sealed.
func (t *tx) joinsToFill(ctx context.Context, ids []outmill.JoinID) ([]*storekit.JoinState, error) {
	found, err := t.joins(ctx, false, ids...)
	if err == nil {
		err = t.countMembers(ctx, found...)
	}
	// What follows a join is a step of the others in the order of the ids.
	slices.SortFunc(found, func(a, b *storekit.JoinState) int {
		return cmp.Compare(slices.Index(ids, a.ID), slices.Index(ids, b.ID))
	})
	return found, err
}

// countMembers counts the steps of those joins that are pending and sealed.
func (t *tx) countMembers(ctx context.Context, joins ...*storekit.JoinState) error {
	var counted []*storekit.JoinState
	for _, join := range joins {
		if join.Status == roles.JoinPending && !join.Unsealed {
			counted = append(counted, join)
		}
	}
	if len(counted) == 0 {
		return nil
	}
	n, err := t.CountEntries(ctx, mapped(counted, func(join *storekit.JoinState) string { return stepsOf(join.ID) })...)
	if err != nil {
		return err
	}
	for i, join := range counted {
		join.Members = n[i]
	}
	return nil
}

// writeJoin writes a join that is locked.
func (t *tx) writeJoin(ctx context.Context, join *storekit.JoinState) error {
	join.UpdatedAt = t.now.Of()
	entry, err := joinEntry(&join.Join)
	if err != nil {
		return err
	}
	return t.Put(ctx, entry)
}

// endJoin writes how the join ended.
func (t *tx) endJoin(ctx context.Context, join *storekit.JoinState) error {
	was := join.Join
	was.Status = roles.JoinPending
	if err := t.Delete(ctx, joinIndex(&was)...); err != nil {
		return err
	}
	join.FinishedAt = t.now.Of()
	if err := t.Put(ctx, joinIndex(&join.Join)...); err != nil {
		return err
	}
	return t.writeJoin(ctx, join)
}

// reportStep settles a step that is locked, unless it is settled or the join has ended. known says that it is a step of the join.
func (t *tx) reportStep(ctx context.Context, join *storekit.JoinState, step outmill.WorkItemID, as roles.StepStatus) (
	known bool, err error) {
	member, err := t.entry(ctx, false, stepsOf(join.ID), step.String())
	if err != nil || member == nil {
		return false, err
	}
	status, _ := memberStatus(*member)
	if join.Status != roles.JoinPending || status != roles.StepPending {
		return true, nil
	}
	member.Value = string(as) + reported
	entry, err := t.countIn(join, stepCounts{}.moved(status, as))
	if err != nil {
		return true, err
	}
	return true, t.Put(ctx, *member, entry)
}

// AttachStep makes a record a step. See roles.Joins.
func (e *Engine) AttachStep(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) error {
	return e.update(ctx, "attach step", func(ctx context.Context, t *tx) error { return t.attachStep(ctx, id, message) })
}

func (t *tx) attachStep(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) error {
	row, found, err := t.Lock(ctx, message)
	if err != nil {
		return err
	}
	name := cmp.Or(row.Step, message)
	rows, step, err := t.stepToAttach(ctx, row, name)
	if err != nil {
		return err
	}
	join, err := t.lockJoin(ctx, id)
	if err != nil {
		return err
	}
	if err := t.countMembers(ctx, join); err != nil {
		return err
	}
	switch {
	case !found || t.e.config.Retain <= 0:
		return fmt.Errorf("%w: %s", roles.ErrUnknownMessage, message)
	case !row.WaitsFor.IsZero():
		return storekit.ErrWaitIsNoStep
	}
	member := driver.Entry{Kind: stepsOf(join.ID), Key: name.String()}
	if known, err := t.entry(ctx, false, member.Kind, member.Key); err != nil || known != nil {
		return err
	}
	if err := takes(join, 1); err != nil {
		return err
	}
	if err := t.Attach(ctx, name, join.ID, rows); err != nil {
		return err
	}
	step.Joins = append(step.Joins, join.ID)
	entry := stepKey(name)
	if entry.Value, err = asText(step); err != nil {
		return err
	}
	member.Value = string(step.outcome())
	counts, err := t.countIn(join, stepCounts{}.moved(roles.StepPending, step.outcome()))
	if err != nil {
		return err
	}
	return t.Put(ctx, entry, member, counts)
}

// stepToAttach returns the rows of the step, and the step: as its entry has it, or else from its rows.
func (t *tx) stepToAttach(ctx context.Context, row driver.Row, name outmill.WorkItemID) (rows []driver.Row, step storedStep, err error) {
	rows = []driver.Row{row}
	if !row.Step.IsZero() {
		rows, err = t.Rows(ctx, driver.Search{By: driver.ByStep, Step: name, Limit: math.MaxInt32})
		if err != nil {
			return nil, step, err
		}
	}
	entry, err := t.entry(ctx, true, stepKind, name.String())
	if err != nil {
		return nil, step, err
	}
	if entry != nil {
		step, err = valueAs[storedStep](*entry)
		return rows, step, err
	}
	for _, r := range rows {
		step.stepMove = step.plus(counted(r.Stage))
	}
	return rows, step, nil
}
