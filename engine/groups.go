package engine

import (
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// deleteAtOnce is the largest number of records that one transaction deletes.
const deleteAtOnce = 10_000

// undelivered are the stages of records that are neither processed nor dead, and allStages are all.
var (
	undelivered = []driver.Stage{driver.Ready, driver.Held, driver.Waiting, driver.Delayed, driver.Leased}
	allStages   = append(undelivered[:len(undelivered):len(undelivered)], driver.Processed, driver.Dead)
)

// Groups lists the groups. See outmill.Inspector.
func (e *Engine) Groups(ctx context.Context) (infos []outmill.GroupInfo, err error) {
	err = e.view(ctx, "list groups", func(ctx context.Context, t *tx) error {
		registrations, err := t.registrations(ctx)
		if err != nil {
			return err
		}
		workers, err := t.workers(ctx)
		if err != nil {
			return err
		}
		ended, err := t.endedGroups(ctx)
		if err != nil {
			return err
		}
		table := storekit.RoutingTable{Registrations: registrations}
		infos = table.Infos(workers, ended)
		storekit.NamePauses(infos, t.pauses.All())
		return nil
	})
	return infos, err
}

// DropGroup removes a group and its records, in steps. See outmill.Inspector.
func (e *Engine) DropGroup(ctx context.Context, group string) (dropped int, err error) {
	const operation = "drop group"
	group = storekit.GroupOf(group)
	if err := storekit.CheckGroup(group); err != nil {
		return 0, e.explain(ctx, operation, err)
	}
	for n := deleteAtOnce; n == deleteAtOnce; dropped += n {
		err := e.update(ctx, operation, func(ctx context.Context, t *tx) (err error) {
			if err := t.forgetGroup(ctx, group); err != nil {
				return err
			}
			n, err = t.removeGroup(ctx, group, deleteAtOnce)
			return err
		})
		if err != nil {
			return dropped, err
		}
	}
	return dropped, nil
}

// forgetGroup deletes the registrations, workers and notes of a group.
func (t *tx) forgetGroup(ctx context.Context, group string) error {
	if _, err := t.lockRoutes(ctx); err != nil {
		return err
	}
	gone := []driver.Entry{{Kind: endedKind, Key: group}}
	for _, kind := range []string{registrationKind, workerKind} {
		entries, err := t.Scan(ctx, kind, joined(group, ""))
		if err != nil {
			return err
		}
		gone = append(gone, entries...)
	}
	if err := t.Delete(ctx, gone...); err != nil {
		return err
	}
	if err := t.Forget(ctx, group); err != nil {
		return err
	}
	return t.bumpRoutes(ctx)
}

// removeGroup deletes up to limit records of a group.
func (t *tx) removeGroup(ctx context.Context, group string, limit int) (removed int, err error) {
	topics, err := t.TopicsOf(ctx, group)
	for _, topic := range topics {
		if err != nil || removed == limit {
			break
		}
		var n int
		n, err = t.removeLine(ctx, driver.Line{Group: group, Topic: topic}, allStages, limit-removed)
		removed += n
	}
	return removed, err
}

// removeLine deletes up to limit records of the line in these stages, but without allStages none whose lease
// has not ended.
func (t *tx) removeLine(ctx context.Context, line driver.Line, stages []driver.Stage, limit int) (removed int, err error) {
	for _, stage := range stages {
		search := driver.Search{By: driver.ByStage, Line: line, Stage: stage}
		n, _, err := t.changeAll(ctx, limit-removed, func(ctx context.Context, limit int) ([]driver.Row, error) {
			rows, err := t.searched(search)(ctx, limit)
			if stage == driver.Leased && len(stages) < len(allStages) {
				rows = slices.DeleteFunc(rows, func(r driver.Row) bool { return r.Wake > t.now })
			}
			return rows, err
		}, t.remove)
		if removed += n; err != nil || removed == limit {
			return removed, err
		}
	}
	return removed, nil
}
