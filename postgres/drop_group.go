package postgres

import (
	"context"
	"time"

	"github.com/outmill/outmill/storekit"
)

// DropGroup removes the group's registration and its records, 5,000 in a
// transaction. See outmill.Inspector. Records of transactions that are
// still open remain; another call removes them.
func (s *Store) DropGroup(ctx context.Context, group string) (int, error) {
	const operation = "drop group"
	group = storekit.GroupOf(group)
	if err := storekit.CheckGroup(group); err != nil {
		return 0, s.explain(ctx, operation, err)
	}
	// The group may be registered again during the call. Its new records must stay.
	var now time.Time
	err := s.durably(ctx, operation, func(ctx context.Context, t *txn) error {
		return t.finish(ctx, s.lockRoutes(), step{template: sqlLockGroups}, step{template: sqlForgetGroup, args: []any{group}},
			step{template: sqlNow, row: func(scan func(...any) error) error { return scan(&now) }})
	})
	if err != nil {
		return 0, err
	}
	if err := s.moveGroup(ctx, operation, group); err != nil {
		return 0, err
	}
	dropped, err := s.dropRecords(ctx, operation, group, now)
	if err != nil {
		return dropped, err
	}
	// Lanes without records do no harm, but held records without a lane would wait for ever. So
	// lanes are dropped last, and only empty ones.
	var topics []string
	if err := s.writeAll(ctx, operation, step{template: sqlTopicsOfLanes, args: []any{group}, row: texts(&topics)}); err != nil {
		return dropped, err
	}
	return dropped, s.dropLanes(ctx, operation, group, topics)
}

// dropLanes drops the lanes of the topics that hold no record, while no claim of their topic is
// running.
func (s *Store) dropLanes(ctx context.Context, operation, group string, topics []string) error {
	for _, topic := range topics {
		err := s.writeAll(ctx, operation,
			step{template: sqlLock, args: []any{s.lockOfTopic(group, topic)}},
			step{template: sqlDropLanes, args: []any{group, topic}})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) dropRecords(ctx context.Context, operation, group string, before time.Time) (dropped int, err error) {
	for {
		var found, deleted int
		err := s.writeSteps(ctx, operation, step{
			template: sqlDropRecords, args: []any{group, adoptAtOnce, before},
			row: func(scan func(...any) error) error { return scan(&found, &deleted) },
		})
		if err != nil {
			return dropped, err
		}
		if dropped += deleted; found == 0 {
			return dropped, nil
		}
	}
}
