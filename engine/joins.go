package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// A join is an entry of joinKind. Its key is the id, Made when it was started, At when it ended, and Value a
// storedJoin. An entry of the kind of its status, and one of the kind of its status and grouping key, lead a list
// to it. The entries of stepsOf are its steps: the key is the id of the step, and Value its status.
//
// The entries of stepKind have what the joins of a step share: the key is the id of the step, and Value a
// storedStep.
//
// Locks are taken in this order: rows, steps, joins, each sorted. Only work on a join that needs none of its rows and steps, such as a
// seal, begins with the join.
const (
	joinKind = "join"
	stepKind = "step"
	// reported follows the status of a step that was reported: its message counts no longer.
	reported = " reported"
)

func stepsOf(join outmill.JoinID) string { return "steps of " + join.String() }

// joinsWith is the kind of the entries of the joins with this status, and with this grouping key if it is not "".
func joinsWith(status roles.JoinStatus, grouping string) string {
	if grouping == "" {
		return "join " + string(status)
	}
	return "join " + string(status) + " of " + hashed(grouping)
}

type storedJoin struct {
	Status             roles.JoinStatus
	Policy             roles.JoinPolicy
	Quorum             int               `json:",omitempty"`
	Expected           int               `json:",omitempty"`
	Unsealed           bool              `json:",omitempty"`
	Completed, Failed  int               `json:",omitempty"`
	Deadline           time.Time         `json:",omitzero"`
	CompleteAtDeadline bool              `json:",omitempty"`
	Reason             string            `json:",omitempty"`
	Grouping           string            `json:",omitempty"`
	Metadata           map[string]string `json:",omitempty"`
	Updated            driver.Time
}

// joinEntry is the entry of the join.
func joinEntry(j *roles.Join) (driver.Entry, error) {
	entry := driver.Entry{Kind: joinKind, Key: j.ID.String(), Made: driver.Time(j.CreatedAt.UnixMicro())}
	if !j.FinishedAt.IsZero() {
		entry.At = driver.Time(j.FinishedAt.UnixMicro())
	}
	value, err := asText(storedJoin{
		Status: j.Status, Policy: j.Policy, Quorum: j.Quorum, Expected: j.ExpectedSteps, Unsealed: j.Unsealed,
		Completed: j.CompletedSteps, Failed: j.FailedSteps, Deadline: j.Deadline, CompleteAtDeadline: j.CompleteAtDeadline,
		Reason: j.Reason, Grouping: j.GroupingKey, Metadata: j.Metadata, Updated: driver.Time(j.UpdatedAt.UnixMicro()),
	})
	entry.Value = value
	return entry, err
}

// joinOf reads the entry of a join.
func (t *tx) joinOf(entry driver.Entry) (*storekit.JoinState, error) {
	id, badID := outmill.ParseJoinID(entry.Key)
	s, err := valueAs[storedJoin](entry)
	if err = cmp.Or(err, badID); err != nil {
		return nil, err
	}
	j := &storekit.JoinState{Join: roles.Join{
		ID: id, GroupingKey: s.Grouping, ExpectedSteps: s.Expected, Unsealed: s.Unsealed, Policy: s.Policy, Quorum: s.Quorum,
		Deadline: s.Deadline, CompleteAtDeadline: s.CompleteAtDeadline, Metadata: s.Metadata, Status: s.Status,
		CompletedSteps: s.Completed, FailedSteps: s.Failed, Reason: s.Reason,
		CreatedAt: entry.Made.Of(), UpdatedAt: s.Updated.Of(), FinishedAt: entry.At.Of(),
	}}
	if !j.Deadline.IsZero() {
		j.DeadlineIn = j.Deadline.Sub(t.now.Of())
		j.Late = j.DeadlineIn <= 0
	}
	return j, nil
}

// joinIndex has the entries that lead to the join.
func joinIndex(j *roles.Join) []driver.Entry {
	index := []driver.Entry{{Kind: joinsWith(j.Status, ""), Key: j.ID.String()}}
	if j.GroupingKey != "" {
		index = append(index, driver.Entry{Kind: joinsWith(j.Status, j.GroupingKey), Key: j.ID.String()})
	}
	return index
}

// startJoin writes a join.
func (e *Engine) startJoin(ctx context.Context, operation string, join *roles.Join) error {
	return e.inTx(ctx, operation, func(ctx context.Context, t *tx) error {
		started := *join
		started.Status, started.CompletedSteps, started.FailedSteps, started.Reason = roles.JoinPending, 0, 0, ""
		started.CreatedAt, started.UpdatedAt, started.FinishedAt = t.now.Of(), t.now.Of(), time.Time{}
		if join.Timeout > 0 {
			started.Deadline = t.after(join.Timeout).Of()
		}
		started.Deadline = started.Deadline.UTC().Truncate(time.Microsecond)
		entry, err := joinEntry(&started)
		if err != nil {
			return fmt.Errorf("metadata: %w", err)
		}
		added, err := t.Add(ctx, 0, entry)
		if err == nil && !added {
			err = fmt.Errorf("%w: %s", roles.ErrJoinExists, join.ID)
		}
		if err != nil {
			return busyAs(err, roles.ErrJoinExists)
		}
		return t.Put(ctx, joinIndex(&started)...)
	})
}

// joins reads the joins that exist.
func (t *tx) joins(ctx context.Context, lock bool, ids ...outmill.JoinID) ([]*storekit.JoinState, error) {
	return t.joinsOf(ctx, lock, mapped(ids, func(id outmill.JoinID) driver.Entry { return driver.Entry{Kind: joinKind, Key: id.String()} }))
}

func (t *tx) joinsOf(ctx context.Context, lock bool, keys []driver.Entry) ([]*storekit.JoinState, error) {
	entries, err := t.Entries(ctx, lock, keys...)
	if err != nil {
		return nil, err
	}
	return mappedOr(entries, t.joinOf)
}

// readJoins reads joins without a lock.
func (e *Engine) readJoins(ctx context.Context, operation string, ids []outmill.JoinID) ([]*storekit.JoinState, error) {
	return valueOf(ctx, e.view, operation, func(ctx context.Context, t *tx) ([]*storekit.JoinState, error) {
		return t.joins(ctx, false, ids...)
	})
}

// listJoins reads joins of each status of the query, up to its Limit.
func (e *Engine) listJoins(ctx context.Context, operation string, query roles.JoinQuery) ([]*storekit.JoinState, error) {
	return valueOf(ctx, e.view, operation, func(ctx context.Context, t *tx) (all []*storekit.JoinState, err error) {
		for _, status := range query.Statuses() {
			index, err := t.Range(ctx, joinsWith(status, query.GroupingKey), query.After.String(), query.Limit)
			if err != nil {
				return nil, err
			}
			for i := range index {
				index[i].Kind = joinKind
			}
			found, err := t.joinsOf(ctx, false, index)
			if err != nil {
				return nil, err
			}
			for _, join := range found {
				// It may have ended since.
				if join.Status == status && (query.GroupingKey == "" || join.GroupingKey == query.GroupingKey) {
					all = append(all, join)
				}
			}
		}
		return all, nil
	})
}

// listSteps reads steps of a join.
func (e *Engine) listSteps(ctx context.Context, operation string, id outmill.JoinID, after outmill.WorkItemID,
	limit int) ([]roles.JoinStep, error) {
	return valueOf(ctx, e.view, operation, func(ctx context.Context, t *tx) ([]roles.JoinStep, error) {
		if _, err := t.join(ctx, false, id); err != nil {
			return nil, err
		}
		entries, err := t.Range(ctx, stepsOf(id), after.String(), limit)
		if err != nil {
			return nil, err
		}
		return mappedOr(entries, func(entry driver.Entry) (roles.JoinStep, error) {
			step, err := outmill.ParseWorkItemID(entry.Key)
			status, _ := memberStatus(entry)
			return roles.JoinStep{ID: step, Status: status}, err
		})
	})
}

// join reads a join that must exist.
func (t *tx) join(ctx context.Context, lock bool, id outmill.JoinID) (*storekit.JoinState, error) {
	found, err := t.joins(ctx, lock, id)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %s", roles.ErrUnknownJoin, id)
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// joinsAtOnce is the most joins that one transaction of makeDue looks for.
const joinsAtOnce = 100

// makeDue makes due the records that wait for the joins. It locks no join, because joins are locked behind rows.
// It works in steps, and one that was cut short is repeated by the next snooze of a record.
func (e *Engine) makeDue(ctx context.Context, ids []outmill.JoinID) error {
	limit := e.config.AtOnce.Step()
	for some := range slices.Chunk(ids, joinsAtOnce) {
		waiters := mapped(some, func(id outmill.JoinID) driver.Search { return driver.Search{By: driver.ByWaiter, Join: id} })
		for n := limit; n == limit; {
			var err error
			n, err = e.count(ctx, "make records due", limit, func(ctx context.Context, t *tx) (int, error) {
				n, _, err := t.changeAll(ctx, limit, t.searched(waiters...), func(r driver.Row) {
					t.change(r, func(r *driver.Row) { hurry(r, t.now) })
				})
				return n, err
			})
			if err != nil {
				return err
			}
		}
	}
	e.wake()
	return nil
}

// membersAtOnce is the most steps that one transaction of DeleteJoins deletes.
const membersAtOnce = 2000

// DeleteJoins deletes joins that ended long ago. See roles.Joins.
func (e *Engine) DeleteJoins(ctx context.Context, limit int) (deleted int, err error) {
	const operation = "delete joins"
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, e.explain(ctx, operation, err)
	}
	more := true
	for more && deleted < limit {
		// No lock is taken yet: those of the steps come before that of their join.
		old, err := valueOf(ctx, e.view, operation, func(ctx context.Context, t *tx) ([]driver.Entry, error) {
			return t.Old(ctx, joinKind, t.now-driver.Time(t.e.config.RetainJoins.Microseconds()), limit-deleted)
		})
		if err != nil || len(old) == 0 {
			return deleted, err
		}
		n, err := valueOf(ctx, e.update, operation, func(ctx context.Context, t *tx) (n int, err error) {
			n, more, err = t.deleteJoins(ctx, old)
			return n, err
		})
		if err != nil {
			return deleted, err
		}
		deleted += n
	}
	return deleted, nil
}

// deleteJoins deletes joins that have ended. more says that it left some, or steps of one, to the next transaction.
func (t *tx) deleteJoins(ctx context.Context, ended []driver.Entry) (deleted int, more bool, err error) {
	var steps, whole []driver.Entry
	for _, entry := range ended {
		id, err := outmill.ParseJoinID(entry.Key)
		if err != nil {
			return 0, false, err
		}
		left := membersAtOnce - len(steps)
		members, err := t.Range(ctx, stepsOf(id), "", left)
		if err != nil {
			return 0, false, err
		}
		steps = append(steps, members...)
		if len(members) == left {
			more = true
			break
		}
		whole = append(whole, entry)
	}
	if err := t.forgetSteps(ctx, steps); err != nil {
		return 0, false, err
	}
	// Another janitor may have deleted some.
	joins, err := t.joinsOf(ctx, true, whole)
	if err != nil {
		return 0, false, err
	}
	for _, join := range joins {
		whole = append(whole, joinIndex(&join.Join)...)
	}
	return len(joins), more, t.Delete(ctx, whole...)
}
