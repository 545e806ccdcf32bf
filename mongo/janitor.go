package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/storekit"
)

// tidy runs one bounded batch of work. The queries select documents by the estimate of the
// server's time. For each record that may still be delivered, the server's own clock decides.
//
// Janitors that work at the same time find the same documents, and each gets a part of them. So
// work also returns how many it found, and tidy looks for more after a part. A janitor that got
// nothing leaves the work to those that got something. If all of them ended after a part, the rest
// would wait for the next round.
func (s *Store) tidy(ctx context.Context, operation string, limit int,
	work func(ctx context.Context, limit int) (found, did int, err error),
) (int, error) {
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, s.explain(ctx, operation, err)
	}
	done := 0
	err := s.do(ctx, operation, func(ctx context.Context) error {
		for done < limit {
			asked := limit - done
			found, did, err := work(ctx, asked)
			done += did
			if err != nil || found < asked || did == 0 {
				return err
			}
		}
		return nil
	})
	return done, err
}

// ReapExpired makes records pending whose lease has ended. See outmill.Queue.
func (s *Store) ReapExpired(ctx context.Context, limit int) (int, error) {
	reaped, err := s.tidy(ctx, "reap", limit, func(ctx context.Context, limit int) (int, int, error) {
		now, err := s.now(ctx)
		if err != nil {
			return 0, 0, err
		}
		found, err := findAll[candidate](ctx, s.records, append(exists("owner"), bson.E{Key: "stage", Value: storekit.StageLeased}, until(now)),
			first(limit, ascending("available_at"), "_id"))
		ended := bson.D{{Key: "$eq", Value: bson.A{"$stage", storekit.StageLeased}}}
		reaped, err := s.change(ctx, found, err, dueAsBefore(countEnded(ended)...), nil,
			bson.E{Key: "stage", Value: storekit.StageLeased}, expr(hasPassed("available_at")))
		return len(found), reaped, err
	})
	s.logger.Reaped(reaped)
	if reaped > 0 {
		s.cameBack()
	}
	return reaped, err
}

// change updates the records that a search found, unless the search failed, and opens their
// lanes. If how is not nil, it counts the change of steps in their joins.
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

// ExpireDue makes records dead whose expiry has passed and that have no lease. See
// outmill.Janitor.
func (s *Store) ExpireDue(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "expire", limit, func(ctx context.Context, limit int) (int, int, error) {
		now, err := s.now(ctx)
		if err != nil {
			return 0, 0, err
		}
		held := bson.A{
			bson.D{{Key: "stage", Value: bson.D{{Key: "$ne", Value: storekit.StageLeased}}}},
			bson.D{until(now)},
		}
		found, err := findAll[candidate](ctx, s.records, bson.D{
			{Key: "expires_at", Value: bson.D{{Key: "$lte", Value: now}}}, {Key: "open", Value: true},
			{Key: "$or", Value: held},
		}, first(limit, ascending("expires_at"), "_id"))
		expired, err := s.change(ctx, found, err, dead("expired"), &isDead,
			bson.E{Key: "stage", Value: bson.D{{Key: "$lt", Value: storekit.StageProcessed}}},
			expr(bson.D{{Key: "$and", Value: bson.A{
				hasPassed("expires_at"),
				bson.D{{Key: "$or", Value: bson.A{bson.D{{Key: "$ne", Value: bson.A{"$stage", storekit.StageLeased}}}, hasPassed("available_at")}}},
			}}}))
		return len(found), expired, err
	})
}

// DeleteProcessed deletes processed records whose retention has passed and that the server's TTL
// index has not deleted yet. The store that acked a record has set the end of its retention: a
// change of Config.Retain does not move it. See outmill.Janitor.
func (s *Store) DeleteProcessed(ctx context.Context, limit int) (int, error) {
	return s.deleteOver(ctx, "delete processed", limit, s.records, "delete_at")
}

// DeleteDedupKeys deletes dedup keys whose window has ended and that the server's TTL index has
// not deleted yet. See outmill.Janitor.
func (s *Store) DeleteDedupKeys(ctx context.Context, limit int) (int, error) {
	return s.deleteOver(ctx, "delete dedup keys", limit, s.dedup, "expires_at")
}

// deleteOver deletes documents whose time in the field has passed.
func (s *Store) deleteOver(ctx context.Context, operation string, limit int, from *driver.Collection, field string) (int, error) {
	return s.tidy(ctx, operation, limit, func(ctx context.Context, limit int) (int, int, error) {
		now, err := s.now(ctx)
		if err != nil {
			return 0, 0, err
		}
		over := bson.E{Key: field, Value: bson.D{{Key: "$lte", Value: now}}}
		found, err := findAll[struct {
			ID any `bson:"_id"`
		}](ctx, from, bson.D{over}, first(limit, ascending(field), "_id"))
		if err != nil || len(found) == 0 {
			return 0, 0, err
		}
		ids := make(bson.A, len(found))
		for i, document := range found {
			ids[i] = document.ID
		}
		result, err := from.DeleteMany(ctx, append(in("_id", ids), over))
		if err != nil {
			return 0, 0, err
		}
		return len(found), int(result.DeletedCount), nil
	})
}

// Maintain does nothing, because MongoDB deletes expired documents by itself. See
// outmill.Janitor.
func (s *Store) Maintain(ctx context.Context) (more bool, err error) {
	return false, s.explain(ctx, "maintain", s.ready(ctx))
}
