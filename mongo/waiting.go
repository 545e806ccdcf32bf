package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.WaitingReader = (*Store)(nil)

// waitingStages are the parts of the records that wait.
var waitingStages = []int{
	storekit.StageReady, storekit.StageHeld, storekit.StageWaiting, storekit.StageDelayed, storekit.StageLeased, storekit.StageAside,
}

// FirstWaiting returns the first records of a group and topic that wait. See storekit.WaitingReader.
func (s *Store) FirstWaiting(ctx context.Context, group, topic string, limit int) (storekit.Waiting, error) {
	const operation = "first waiting"
	if err := storekit.CheckWaiting(limit); err != nil {
		return storekit.Waiting{}, s.explain(ctx, operation, err)
	}
	var found storekit.Waiting
	err := s.do(ctx, operation, func(ctx context.Context) error {
		now, err := s.now(ctx)
		if err != nil {
			return err
		}
		of := line{reader(group), topic}
		all, err := s.firstWaiting(ctx, []line{of}, limit, now)
		found = all[of]
		return err
	})
	return found, err
}

// waitingRow is a record that waits, with its topic and group.
type waitingRow struct {
	Record candidate `bson:",inline"`
	Group  reader    `bson:"grp"`
	Topic  string    `bson:"topic"`
}

// firstWaiting returns the first records of each of the topics of groups, in one round trip.
func (s *Store) firstWaiting(ctx context.Context, lines []line, limit int, now time.Time) (map[line]storekit.Waiting, error) {
	parts := map[int]int{}
	var each []driver.Pipeline
	collected := map[line]*storekit.WaitingOf{}
	for _, of := range lines {
		collected[of] = storekit.NewWaitingOf(limit, waitingStages...)
		for i, stage := range waitingStages {
			parts[stage] = i
			filter, order := of.waiting(stage, now)
			each = append(each, some(filter, limit, order, "grp", "topic", "key", "tenant_id", "stage", "available_at", "next_at",
				"created_at", "attempts"))
		}
	}
	// An index has the ready records of a fair topic under another number.
	parts[stageInTurn] = parts[storekit.StageReady]
	rows, err := aggregateAll[waitingRow](ctx, s.records, union(s.records, each...))
	for _, row := range rows {
		r := row.Record
		collected[line{row.Group, row.Topic}].Add(parts[r.Stage], storekit.WaitingRecord{
			ID: outmill.WorkItemID(r.ID), DueAt: r.due(), Key: r.Key, TenantID: r.TenantID, Attempts: r.Attempts,
		})
	}
	all := map[line]storekit.Waiting{}
	for of, found := range collected {
		all[of] = found.At(now)
	}
	return all, err
}

// waiting is due, and for records that wait for a retry or are leased those that are not due yet, too.
func (l line) waiting(stage int, now time.Time) (filter, order bson.D) {
	if stage == storekit.StageWaiting || stage == storekit.StageLeased {
		return l.in(stage), ascending("available_at")
	}
	return l.due(stage, now)
}
