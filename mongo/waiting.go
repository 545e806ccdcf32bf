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

// waitingStages are those of the parts of the records that wait. Records that wait for a retry or are leased have
// two parts: those that are due, and the others.
var waitingStages = []int{
	storekit.StageReady, storekit.StageHeld, storekit.StageWaiting, storekit.StageDelayed, storekit.StageLeased, storekit.StageAside,
	storekit.StageWaiting, storekit.StageLeased,
}

// firstNotDue is the number of the first part whose records are not due.
const firstNotDue = 6

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
	parts, laterParts := map[int]int{}, map[int]int{}
	var each []driver.Pipeline
	collected := map[line]*storekit.WaitingOf{}
	for _, of := range lines {
		collected[of] = storekit.NewWaitingOf(limit, waitingStages...)
		for i, stage := range waitingStages {
			filter, order := of.due(stage, now)
			if i < firstNotDue {
				parts[stage] = i
			} else {
				laterParts[stage] = i
				filter, order = of.in(stage, notUntil(now)), ascending("available_at")
			}
			each = append(each, some(filter, limit, order, "grp", "topic", "key", "tenant_id", "stage", "available_at", "next_at",
				"created_at", "attempts"))
		}
	}
	// An index has the ready records of a fair topic under another number.
	parts[stageInTurn] = parts[storekit.StageReady]
	rows, err := aggregateAll[waitingRow](ctx, s.records, union(s.records, each...))
	for _, row := range rows {
		r := row.Record
		part := parts[r.Stage]
		if later, found := laterParts[r.Stage]; found && r.AvailableAt.After(now) {
			part = later
		}
		collected[line{row.Group, row.Topic}].Add(part, storekit.WaitingRecord{
			ID: outmill.WorkItemID(r.ID), DueAt: r.due(), Key: r.Key, TenantID: r.TenantID, Attempts: r.Attempts,
		})
	}
	all := map[line]storekit.Waiting{}
	for of, found := range collected {
		all[of] = found.At(now)
	}
	return all, err
}

// notUntil is a filter for a wait or a lease that has not ended.
func notUntil(now time.Time) bson.E {
	return bson.E{Key: "available_at", Value: bson.D{{Key: "$gt", Value: now}}}
}
