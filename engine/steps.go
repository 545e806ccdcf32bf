package engine

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// A step is one message: all its records, one for each group, count together. tx.apply notes a change of a row, and tx.countSteps
// counts it in the same transaction, so no call that settles, expires, parks, requeues or deletes records has code for joins. The
// counts are of the step, and each join that is pending takes over the outcome; a join that has ended keeps what it
// had. A report settles the step in one join for good, so what its message does later is not taken over there.

// stepMove counts records of a step: those that are open, that were acked, and that are dead.
type stepMove struct{ Open, Acked, Dead int }

func (m stepMove) plus(o stepMove) stepMove {
	return stepMove{m.Open + o.Open, m.Acked + o.Acked, m.Dead + o.Dead}
}

func (m stepMove) minus(o stepMove) stepMove { return m.plus(stepMove{-o.Open, -o.Acked, -o.Dead}) }

// counted is a row in this stage.
func counted(stage driver.Stage) stepMove {
	switch stage {
	case driver.Processed:
		return stepMove{Acked: 1}
	case driver.Dead:
		return stepMove{Dead: 1}
	default:
		return stepMove{Open: 1}
	}
}

// storedStep is the Value of a step's entry: the joins that it is a step of, in the order in which it became so,
// and the records of its message.
type storedStep struct {
	Joins []outmill.JoinID
	stepMove
}

func stepKey(step outmill.WorkItemID) driver.Entry {
	return driver.Entry{Kind: stepKind, Key: step.String()}
}

// outcome is the status of the step by its records.
func (s storedStep) outcome() roles.StepStatus {
	return stepOutcome(s.Open, s.Acked, s.Dead)
}

// memberStatus is the status of a step in a join, and whether it was reported.
func memberStatus(entry driver.Entry) (status roles.StepStatus, isReported bool) {
	text, isReported := strings.CutSuffix(entry.Value, reported)
	return roles.StepStatus(text), isReported
}

// removeAs is remove for a row that counts as this for its step.
func (t *tx) removeAs(r driver.Row, as stepMove) {
	if !r.Step.IsZero() {
		if t.gone == nil {
			t.gone = map[outmill.WorkItemID]stepMove{}
		}
		t.gone[r.ID] = as
	}
	t.remove(r)
}

// drop removes a row that was deleted with its group: its step no longer waits for it.
func (t *tx) drop(r driver.Row) { t.removeAs(r, stepMove{}) }

// moveSteps adds the moves of the steps of rows that were written. What was lost was written by somebody else, who has counted it.
func (t *tx) moveSteps(c driver.Changes, lost map[outmill.WorkItemID]bool) {
	if t.moves == nil {
		t.moves = map[string]stepMove{}
	}
	add := func(r driver.Row, now stepMove) {
		if move := now.minus(counted(r.Stage)); !lost[r.ID] && move != (stepMove{}) {
			step := r.Step.String()
			t.moves[step] = t.moves[step].plus(move)
		}
	}
	for _, change := range c.Rows {
		if !change.Was.Step.IsZero() {
			add(change.Was, counted(change.Now.Stage))
		}
	}
	for _, r := range c.Delete {
		as, noted := t.gone[r.ID]
		if !noted {
			as = counted(driver.Dead)
		}
		// What was processed or dead counts as before.
		if !r.Step.IsZero() && r.Stage < driver.Processed {
			add(r, as)
		}
	}
}

// hasSteps reports whether one of the rows is a record of a step.
func hasSteps(c *driver.Changes) bool {
	return slices.ContainsFunc(c.Rows, func(change driver.Change) bool { return !change.Was.Step.IsZero() }) ||
		slices.ContainsFunc(c.Delete, func(r driver.Row) bool { return !r.Step.IsZero() })
}

// countSteps counts the moves of records in their steps, and in the joins of those that are pending. It is the last that a transaction
// locks.
func (t *tx) countSteps(ctx context.Context) error {
	moves := t.moves
	t.moves = nil
	if len(moves) == 0 {
		return nil
	}
	entries, err := t.lockSteps(ctx, slices.Sorted(maps.Keys(moves)))
	if err != nil {
		return err
	}
	steps, of := make(map[string]storedStep, len(entries)), map[outmill.JoinID][]string{}
	for i, entry := range entries {
		step, err := valueAs[storedStep](entry)
		if err != nil {
			return err
		}
		step.stepMove = step.plus(moves[entry.Key])
		if entries[i].Value, err = asText(step); err != nil {
			return err
		}
		steps[entry.Key] = step
		for _, join := range step.Joins {
			of[join] = append(of[join], entry.Key)
		}
	}
	changed, err := t.countJoins(ctx, of, steps)
	if err != nil {
		return err
	}
	return t.Put(ctx, append(entries, changed...)...)
}

// countJoins locks the joins, gives those of their steps that are listed their outcome, if the join is pending, and counts
// the changes. It returns the entries to write.
func (t *tx) countJoins(ctx context.Context, of map[outmill.JoinID][]string, steps map[string]storedStep) ([]driver.Entry, error) {
	ids := slices.SortedFunc(maps.Keys(of), func(a, b outmill.JoinID) int { return bytes.Compare(a[:], b[:]) })
	joins, err := t.joins(ctx, true, ids...)
	if err != nil {
		return nil, err
	}
	var keys []driver.Entry
	pending := map[string]*storekit.JoinState{}
	for _, join := range joins {
		if join.Status != roles.JoinPending {
			continue
		}
		kind := stepsOf(join.ID)
		pending[kind] = join
		for _, step := range of[join.ID] {
			keys = append(keys, driver.Entry{Kind: kind, Key: step})
		}
	}
	members, err := t.Entries(ctx, false, keys...)
	if err != nil {
		return nil, err
	}
	var written []driver.Entry
	counts := map[string]stepCounts{}
	for _, member := range members {
		was, isReported := memberStatus(member)
		if now := steps[member.Key].outcome(); now != was && !isReported {
			counts[member.Kind] = counts[member.Kind].moved(was, now)
			member.Value = string(now)
			written = append(written, member)
		}
	}
	for kind, c := range counts {
		if c == (stepCounts{}) {
			continue
		}
		entry, err := t.countIn(pending[kind], c)
		if err != nil {
			return nil, err
		}
		written = append(written, entry)
	}
	return written, nil
}

// countIn adds to the counts of a join that is locked, and returns the entry to write.
func (t *tx) countIn(join *storekit.JoinState, c stepCounts) (driver.Entry, error) {
	join.CompletedSteps += c.Completed
	join.FailedSteps += c.Failed
	join.UpdatedAt = t.now.Of()
	if join.Decided() {
		t.hurry(join.ID)
	}
	return joinEntry(&join.Join)
}

// hurry has the records become due after the commit that wait for the join, if it is decided by then.
func (t *tx) hurry(join outmill.JoinID) {
	if !slices.Contains(t.hurries, join) {
		t.hurries = append(t.hurries, join)
	}
}

// attach writes the steps of an append.
func (a *appending) attach(ctx context.Context, t *tx, rows []driver.NewRow) error {
	groups := map[outmill.WorkItemID]int{}
	for _, r := range rows {
		if !r.Step.IsZero() {
			groups[r.Step] = 1 + len(r.CopyTo)
		}
	}
	var entries []driver.Entry
	for i, r := range a.Records {
		if len(r.Joins) == 0 || a.Duplicate[i] {
			continue
		}
		entry := stepKey(a.IDs[i])
		var err error
		if entry.Value, err = asText(storedStep{r.Joins, stepMove{Open: groups[a.IDs[i]]}}); err != nil {
			return err
		}
		entries = append(entries, entry)
		for _, join := range r.Joins {
			entries = append(entries, driver.Entry{Kind: stepsOf(join), Key: entry.Key, Value: string(roles.StepPending)})
		}
	}
	return t.Put(ctx, entries...)
}

func (t *tx) lockSteps(ctx context.Context, ids []string) ([]driver.Entry, error) {
	return t.Entries(ctx, true, mapped(ids, func(id string) driver.Entry { return driver.Entry{Kind: stepKind, Key: id} })...)
}

// forgetSteps takes joins that have ended out of their steps, and deletes the steps that are then in no join. It locks the steps of all
// joins together, before the joins.
func (t *tx) forgetSteps(ctx context.Context, members []driver.Entry) error {
	of := map[string][]string{}
	for _, m := range members {
		of[m.Key] = append(of[m.Key], m.Kind)
	}
	entries, err := t.lockSteps(ctx, slices.Sorted(maps.Keys(of)))
	if err != nil {
		return err
	}
	var left, gone []driver.Entry
	for _, entry := range entries {
		step, err := valueAs[storedStep](entry)
		if err != nil {
			return err
		}
		step.Joins = slices.DeleteFunc(step.Joins, func(join outmill.JoinID) bool { return slices.Contains(of[entry.Key], stepsOf(join)) })
		if len(step.Joins) == 0 {
			gone = append(gone, entry)
			continue
		}
		if entry.Value, err = asText(step); err != nil {
			return err
		}
		left = append(left, entry)
	}
	if err := t.Put(ctx, left...); err != nil {
		return err
	}
	return t.Delete(ctx, append(gone, members...)...)
}

// stepOutcome returns the status of a step from the records of its message: open counts the
// unsettled records, acked and dead the others. If all records are gone and none was acked,
// the step has failed.
func stepOutcome(open, acked, dead int) roles.StepStatus {
	switch {
	case dead > 0 || open <= 0 && acked == 0:
		return roles.StepFailed
	case open <= 0:
		return roles.StepCompleted
	}
	return roles.StepPending
}

// stepCounts are the numbers to add to the counts of a join.
type stepCounts struct{ Completed, Failed int }

// moved returns the counts after a step has changed from one status to another.
func (c stepCounts) moved(from, to roles.StepStatus) stepCounts {
	c.add(from, -1)
	c.add(to, +1)
	return c
}

func (c *stepCounts) add(status roles.StepStatus, n int) {
	switch status {
	case roles.StepCompleted:
		c.Completed += n
	case roles.StepFailed:
		c.Failed += n
	case roles.StepPending:
	}
}

func byWorkItem(a, b outmill.WorkItemID) int { return bytes.Compare(a[:], b[:]) }
