package engine

import (
	"cmp"
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// topicsAtOnce is the largest number of topics that one transaction looks at to delete their records.
const topicsAtOnce = 200

// undelivered are the stages of records that are neither processed nor dead, and settled the others.
var (
	undelivered = []driver.Stage{driver.Ready, driver.Held, driver.Waiting, driver.Delayed, driver.Leased}
	settled     = []driver.Stage{driver.Processed, driver.Dead}
)

// Groups lists the groups. See outmill.Inspector.
func (e *Engine) Groups(ctx context.Context) ([]outmill.GroupInfo, error) {
	return valueOf(ctx, e.view, "list groups", func(ctx context.Context, t *tx) ([]outmill.GroupInfo, error) {
		registrations, err := t.registrations(ctx)
		workers, badWorkers := t.workers(ctx)
		ended, badEnded := t.endedGroups(ctx)
		if err = cmp.Or(err, badWorkers, badEnded); err != nil {
			return nil, err
		}
		table := storekit.RoutingTable{Registrations: registrations}
		infos := table.Infos(workers, ended)
		storekit.NamePauses(infos, t.pauses.All())
		return infos, nil
	})
}

// removeLine deletes up to limit records of the line in these stages, but without leased none whose lease has
// not ended. more says that some of them may be left.
func (t *tx) removeLine(ctx context.Context, line driver.Line, stages []driver.Stage, leased bool, limit int) (
	removed int, more bool, err error) {
	return t.changeLine(ctx, line, stages, limit, func(ctx context.Context, search driver.Search) ([]driver.Row, error) {
		rows, err := t.Rows(ctx, search)
		if search.Stage == driver.Leased && !leased {
			rows = slices.DeleteFunc(rows, func(r driver.Row) bool { return r.Wake > t.now })
		}
		return rows, err
	}, t.drop)
}

// changeLine changes up to limit records of the line in these stages. more says that some of them may be left.
func (t *tx) changeLine(ctx context.Context, line driver.Line, stages []driver.Stage, limit int,
	find func(ctx context.Context, search driver.Search) ([]driver.Row, error), change func(r driver.Row)) (
	changed int, more bool, err error) {
	for _, stage := range stages {
		n, lost, err := t.changeAll(ctx, limit-changed, func(ctx context.Context, limit int) ([]driver.Row, error) {
			return find(ctx, driver.Search{By: driver.ByStage, Line: line, Stage: stage, Limit: limit})
		}, change)
		if changed += n; err != nil || lost || changed == limit {
			return changed, true, err
		}
	}
	return changed, false, nil
}
