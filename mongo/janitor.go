package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// tidy runs one bounded batch of work. The documents are chosen by about the
// server's time; its own clock decides about each that may still be delivered.
func (s *Store) tidy(ctx context.Context, operation string, limit int, work func(ctx context.Context, limit int) (int, error)) (int, error) {
	if limit < 1 {
		return 0, s.explain(ctx, operation, invalid("limit is %d: want 1 or more", limit))
	}
	done := 0
	err := s.do(ctx, operation, func(ctx context.Context) error {
		n, err := work(ctx, limit-done)
		done += n
		return err
	})
	return done, err
}

// ReapExpired makes leased records pending whose lease has ended. See
// outmill.Queue.
func (s *Store) ReapExpired(ctx context.Context, limit int) (int, error) {
	reaped, err := s.tidy(ctx, "reap", limit, func(ctx context.Context, limit int) (int, error) {
		now, err := s.now(ctx)
		if err != nil {
			return 0, err
		}
		found, err := findAll[candidate](ctx, s.records, append(exists("owner"), bson.E{Key: "stage", Value: stageLeased}, until(now)), first(limit, ascending("available_at"), "_id"))
		ended := bson.D{{Key: "$eq", Value: bson.A{"$stage", stageLeased}}}
		return s.change(ctx, found, err, dueAsBefore(countEnded(ended)...), nil,
			bson.E{Key: "stage", Value: stageLeased}, expr(hasPassed("available_at")))
	})
	s.logger.Reaped(reaped)
	if reaped > 0 {
		s.bell.Ring()
	}
	return reaped, err
}

// change updates the records that were found, unless that failed, counts those
// of steps by how, if given, and opens their lanes.
func (s *Store) change(ctx context.Context, found []candidate, err error, update any, how *change, conditions ...bson.E) (int, error) {
	if err != nil || len(found) == 0 {
		return 0, err
	}
	ids := make(bson.A, len(found))
	for i, r := range found {
		ids[i] = r.ID
	}
	keys, err := s.keysOf(ctx, ids)
	if err != nil {
		return 0, err
	}
	filter := append(in("_id", ids), conditions...)
	steps := 0
	if how != nil && !s.config.WithoutTransactions {
		if steps, err = s.withSteps(ctx, filter, update, *how); err != nil {
			return 0, err
		}
		filter = append(filter, noStep())
	}
	result, err := s.records.UpdateMany(ctx, filter, update)
	if err != nil {
		return steps, err
	}
	return steps + int(result.ModifiedCount), s.openLanes(ctx, keys)
}

// ExpireDue makes records dead whose expiry has passed and that nobody holds.
// See outmill.Janitor.
func (s *Store) ExpireDue(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "expire", limit, func(ctx context.Context, limit int) (int, error) {
		now, err := s.now(ctx)
		if err != nil {
			return 0, err
		}
		held := bson.A{
			bson.D{{Key: "stage", Value: bson.D{{Key: "$ne", Value: stageLeased}}}},
			bson.D{until(now)},
		}
		found, err := findAll[candidate](ctx, s.records, bson.D{
			{Key: "expires_at", Value: bson.D{{Key: "$lte", Value: now}}}, {Key: "open", Value: true},
			{Key: "$or", Value: held},
		}, first(limit, ascending("expires_at"), "_id"))
		return s.change(ctx, found, err, dead("expired"), &isDead,
			bson.E{Key: "stage", Value: bson.D{{Key: "$lt", Value: stageProcessed}}},
			expr(bson.D{{Key: "$and", Value: bson.A{
				hasPassed("expires_at"),
				bson.D{{Key: "$or", Value: bson.A{bson.D{{Key: "$ne", Value: bson.A{"$stage", stageLeased}}}, hasPassed("available_at")}}},
			}}}))
	})
}

// DeleteProcessed deletes processed records older than Config.Retain, before
// the index does that has the same time. See outmill.Janitor.
func (s *Store) DeleteProcessed(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete processed", limit, func(ctx context.Context, limit int) (int, error) {
		ids, err := s.processed(ctx, limit)
		if err != nil || len(ids) == 0 {
			return 0, err
		}
		result, err := s.records.DeleteMany(ctx, append(in("_id", ids), bson.E{Key: "stage", Value: stageProcessed}))
		if err != nil {
			return 0, err
		}
		return int(result.DeletedCount), nil
	})
}

// processed finds records to delete. A store that retains nothing has no index of
// their times, and deletes what another retained.
func (s *Store) processed(ctx context.Context, limit int) (ids bson.A, err error) {
	if s.config.Retain <= 0 {
		lines, err := s.linesOf(ctx, stageProcessed)
		for _, l := range lines {
			if err == nil && len(ids) < limit {
				var more bson.A
				more, err = s.idsOf(ctx, l.Group, l.Topic, limit-len(ids), stageProcessed)
				ids = append(ids, more...)
			}
		}
		return ids, err
	}
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	found, err := findAll[candidate](ctx, s.records, bson.D{{Key: "processed_at", Value: bson.D{{Key: "$lte", Value: now.Add(-s.config.Retain)}}}},
		first(limit, ascending("processed_at"), "_id"))
	for _, r := range found {
		ids = append(ids, r.ID)
	}
	return ids, err
}

// DeleteDedupKeys deletes dedup keys whose window has ended, before the index
// does that deletes them. See outmill.Janitor.
func (s *Store) DeleteDedupKeys(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete dedup keys", limit, func(ctx context.Context, limit int) (int, error) {
		now, err := s.now(ctx)
		if err != nil {
			return 0, err
		}
		over := bson.E{Key: "expires_at", Value: bson.D{{Key: "$lte", Value: now}}}
		found, err := findAll[dedupKey](ctx, s.dedup, bson.D{over}, first(limit, ascending("expires_at"), "_id"))
		if err != nil || len(found) == 0 {
			return 0, err
		}
		ids := make(bson.A, len(found))
		for i, k := range found {
			ids[i] = k.ID
		}
		result, err := s.dedup.DeleteMany(ctx, append(in("_id", ids), over))
		if err != nil {
			return 0, err
		}
		return int(result.DeletedCount), nil
	})
}
