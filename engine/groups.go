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

// undelivered are the stages of records that are neither processed nor dead.
var undelivered = []driver.Stage{driver.Ready, driver.Held, driver.Waiting, driver.Delayed, driver.Leased}

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
	for _, stage := range stages {
		search := driver.Search{By: driver.ByStage, Line: line, Stage: stage}
		n, lost, err := t.changeAll(ctx, limit-removed, func(ctx context.Context, limit int) ([]driver.Row, error) {
			rows, err := t.searched(search)(ctx, limit)
			if stage == driver.Leased && !leased {
				rows = slices.DeleteFunc(rows, func(r driver.Row) bool { return r.Wake > t.now })
			}
			return rows, err
		}, t.drop)
		if removed += n; err != nil || lost || removed == limit {
			return removed, true, err
		}
	}
	return removed, false, nil
}
