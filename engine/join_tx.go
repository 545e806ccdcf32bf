package engine

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.JoinTx = (*tx)(nil)

// OnJoin runs work in a transaction. After its commit the records become due that wait for the join, if it is
// decided.
func (j joinStore) OnJoin(ctx context.Context, operation string, id outmill.JoinID,
	work func(ctx context.Context, tx storekit.JoinTx, join *storekit.JoinState) error) error {
	return j.e.update(ctx, operation, func(ctx context.Context, t *tx) error {
		join, err := t.join(ctx, true, id)
		if err != nil {
			return err
		}
		t.hurry(id)
		return work(ctx, t, join)
	})
}

// JoinsToFill reads joins, with the number of steps of those that are pending and sealed.
func (t *tx) JoinsToFill(ctx context.Context, ids []outmill.JoinID) ([]*storekit.JoinState, error) {
	found, err := t.joins(ctx, false, ids...)
	for _, join := range found {
		if err == nil {
			err = t.countMembers(ctx, join)
		}
	}
	// JoinEngine appends to the joins in the order of ids.
	slices.SortFunc(found, func(a, b *storekit.JoinState) int {
		return cmp.Compare(slices.Index(ids, a.ID), slices.Index(ids, b.ID))
	})
	return found, err
}

func (t *tx) countMembers(ctx context.Context, join *storekit.JoinState) (err error) {
	if join.Status == roles.JoinPending && !join.Unsealed {
		join.Members, err = t.CountEntries(ctx, stepsOf(join.ID))
	}
	return err
}

// CountMembers counts the steps of a join.
func (t *tx) CountMembers(ctx context.Context, id outmill.JoinID) (int, error) {
	return t.CountEntries(ctx, stepsOf(id))
}

// Seal writes the number of steps.
func (t *tx) Seal(ctx context.Context, join *storekit.JoinState) error {
	join.UpdatedAt = t.now.Of()
	entry, err := joinEntry(&join.Join)
	if err != nil {
		return err
	}
	return t.Put(ctx, entry)
}

// End writes how the join ended.
func (t *tx) End(ctx context.Context, join *storekit.JoinState) error {
	was := join.Join
	was.Status = roles.JoinPending
	if err := t.Delete(ctx, joinIndex(&was)...); err != nil {
		return err
	}
	join.FinishedAt = t.now.Of()
	if err := t.Put(ctx, joinIndex(&join.Join)...); err != nil {
		return err
	}
	return t.Seal(ctx, join)
}

// Append appends the record that follows a join.
func (t *tx) Append(ctx context.Context, record *outmill.Record) (*storekit.Appending, error) {
	follow := &appending{Appending: storekit.NewAppending([]*outmill.Record{record})}
	return follow.Appending, follow.run(ctx, t)
}

// Report settles the step that the message names.
func (t *tx) Report(ctx context.Context, join *storekit.JoinState, message outmill.WorkItemID, as roles.StepStatus) (bool, error) {
	rows, err := t.Find(ctx, []outmill.WorkItemID{message})
	if err != nil {
		return false, err
	}
	// If the message is gone, its own id is that of the step.
	step := message
	if len(rows) > 0 {
		step = cmp.Or(rows[0].Step, message)
	}
	// A settlement changes the members of a step while it has the step locked.
	if _, err := t.entry(ctx, true, stepKind, step.String()); err != nil {
		return false, err
	}
	member, err := t.entry(ctx, false, stepsOf(join.ID), step.String())
	if err != nil || member == nil {
		return false, err
	}
	status, _ := memberStatus(*member)
	if join.Status != roles.JoinPending || status != roles.StepPending {
		return true, nil
	}
	member.Value = string(as) + reported
	entry, err := t.countIn(join, storekit.StepCounts{}.Moved(status, as))
	if err != nil {
		return true, err
	}
	return true, t.Put(ctx, *member, entry)
}

// AttachStep makes a record a step. See roles.Joins.
func (e *Engine) AttachStep(ctx context.Context, id outmill.JoinID, message outmill.WorkItemID) error {
	return joinStore{finder{e}}.OnJoin(ctx, "attach step", id, func(ctx context.Context, j storekit.JoinTx, join *storekit.JoinState) error {
		return j.(*tx).attachStep(ctx, join, message)
	})
}

func (t *tx) attachStep(ctx context.Context, join *storekit.JoinState, message outmill.WorkItemID) error {
	if err := t.countMembers(ctx, join); err != nil {
		return err
	}
	row, found, err := t.Lock(ctx, message)
	if err != nil {
		return err
	}
	late := storekit.LateStep{Found: found, Waits: !row.WaitsFor.IsZero()}
	name := cmp.Or(row.Step, message)
	rows, step, err := t.stepToAttach(ctx, row, name)
	if err != nil {
		return err
	}
	member := driver.Entry{Kind: stepsOf(join.ID), Key: name.String()}
	known, err := t.entry(ctx, false, member.Kind, member.Key)
	if err != nil {
		return err
	}
	late.Member = known != nil
	late.Open, late.Acked, late.Dead = step.Open, step.Acked, step.Dead
	if attach, err := late.Check(message, join, t.e.config.Retain); err != nil || !attach {
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
	counts, err := t.countIn(join, storekit.StepCounts{}.Moved(roles.StepPending, step.outcome()))
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
