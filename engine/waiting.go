package engine

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// waitingSearches find the records that FirstWaiting shows, each kind by its own index.
var waitingSearches = []driver.Search{
	{Stage: driver.Ready}, {Stage: driver.Held}, {Stage: driver.Waiting}, {Stage: driver.Delayed}, {Stage: driver.Leased},
}

// FirstWaiting returns the first records of a group and topic that wait. See storekit.WaitingReader.
func (e *Engine) FirstWaiting(ctx context.Context, group, topic string, limit int) (storekit.Waiting, error) {
	view := e.checked(storekit.CheckWaiting(limit), e.view)
	return valueOf(ctx, view, "first waiting", func(ctx context.Context, t *tx) (found storekit.Waiting, err error) {
		found.Now = t.now.Of()
		fair, err := t.fair(ctx)
		if err != nil {
			return found, err
		}
		for _, search := range waitingSearches {
			var searches []driver.Search
			for _, line := range namedLines(fair.FairTopics, group, topic) {
				search.Line, search.Limit = line, limit
				searches = append(searches, search)
			}
			rows, err := t.Rows(ctx, searches...)
			if err != nil {
				return found, err
			}
			if search.Stage == driver.Delayed {
				rows = slices.DeleteFunc(rows, func(r driver.Row) bool { return r.Wake > t.now })
			}
			if len(searches) > 1 {
				slices.SortFunc(rows, byWaiting)
				rows = rows[:min(len(rows), limit)]
			}
			kinds := map[int]*storekit.WaitingKind{}
			for _, r := range rows {
				stage := stageOf(r)
				if kinds[stage] == nil {
					kinds[stage] = &storekit.WaitingKind{More: len(rows) == limit}
				}
				kinds[stage].Records = append(kinds[stage].Records, storekit.WaitingRecord{
					ID: r.ID, Stage: stage, DueAt: dueOf(r).Of(), Key: r.Key, TenantID: r.Tenant, Attempts: r.Attempts,
				})
			}
			for _, kind := range kinds {
				found.Kinds = append(found.Kinds, *kind)
			}
		}
		return found, nil
	})
}

// byWaiting is the order of a kind of records: by their times, or by their appends where they have none. The Seqs of
// two parts say nothing about that.
func byWaiting(a, b driver.Row) int {
	return cmp.Or(cmp.Compare(a.Wake, b.Wake), cmp.Compare(a.Created, b.Created), bytes.Compare(a.ID[:], b.ID[:]))
}

// stageOf is the stage of storekit.
func stageOf(r driver.Row) int {
	switch r.Stage {
	case driver.Held:
		if _, paused := driver.ByPause(r.Under); paused {
			return storekit.StageAside
		}
		return storekit.StageHeld
	case driver.Waiting:
		return storekit.StageWaiting
	case driver.Delayed:
		return storekit.StageDelayed
	case driver.Leased:
		return storekit.StageLeased
	default:
		return storekit.StageReady
	}
}
