package engine

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// waitingKinds are the kinds of records that FirstWaiting shows, each with its own index.
var waitingKinds = []struct {
	stage int
	driver.Search
}{
	{storekit.StageReady, driver.Search{Stage: driver.Ready}},
	{storekit.StageHeld, driver.Search{By: driver.ByKeyed}},
	{storekit.StageAside, driver.Search{By: driver.ByPaused}},
	{storekit.StageWaiting, driver.Search{Stage: driver.Waiting}},
	{storekit.StageDelayed, driver.Search{Stage: driver.Delayed}},
	{storekit.StageLeased, driver.Search{Stage: driver.Leased}},
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
		for _, kind := range waitingKinds {
			search := kind.Search
			searches := mapped(namedLines(fair.FairTopics, group, topic), func(line driver.Line) driver.Search {
				search.Line, search.Limit = line, limit
				return search
			})
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
			if len(rows) == 0 {
				continue
			}
			shown := mapped(rows, func(r driver.Row) storekit.WaitingRecord {
				return storekit.WaitingRecord{
					ID: r.ID, Stage: kind.stage, DueAt: dueOf(r).Of(), Key: r.Key, TenantID: r.Tenant, Attempts: r.Attempts,
				}
			})
			found.Kinds = append(found.Kinds, storekit.WaitingKind{Records: shown, More: len(rows) == limit})
		}
		return found, nil
	})
}

// byWaiting is the order of a kind of records: by their times, or by their appends where they have none. The Seqs of
// two parts say nothing about that.
func byWaiting(a, b driver.Row) int {
	return cmp.Or(cmp.Compare(a.Wake, b.Wake), cmp.Compare(a.Created, b.Created), bytes.Compare(a.ID[:], b.ID[:]))
}
