package mongo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/storekit"
)

// The counts of a join are in separate documents (parts), several for a join with many steps,
// because two transactions that write one document conflict, and the later one must begin again.
// The count of a join is the sum of its parts. A transaction that settles a step reads that the
// join is pending, and adds to one part. A transaction that ends the join writes all parts. So of
// the two one conflicts, and sees the other when it is repeated, even if the part did not exist
// before.

// partID names a part: the id of the join, followed by the number of the part.
func partID(join uuid, part int) bson.Binary {
	return bson.Binary{Data: slices.Concat(join[:], []byte{byte(part)})}
}

// addCounts adds to the counts of joins, within a transaction.
func (s *Store) addCounts(ctx context.Context, all map[uuid]storekit.StepCounts, parts map[uuid]int, counted touched) error {
	var models []driver.WriteModel
	for id, c := range all {
		if c == (storekit.StepCounts{}) {
			continue
		}
		counted[id] = true
		models = append(models, partOf(id, rand.N(max(1, parts[id])), bson.D{
			{Key: "$inc", Value: bson.D{{Key: "completed", Value: c.Completed}, {Key: "failed", Value: c.Failed}}},
			{Key: "$currentDate", Value: bson.D{{Key: "updated_at", Value: true}}},
		}))
	}
	return s.writeParts(ctx, models)
}

// endCounts makes this transaction, which ends the join, conflict with transactions that add to
// the counts of the join.
func (s *Store) endCounts(ctx context.Context, join *joinDocument) error {
	models := make([]driver.WriteModel, join.Parts)
	for part := range models {
		models[part] = partOf(join.ID, part, bson.D{{Key: "$set", Value: bson.D{{Key: "ended", Value: true}}}})
	}
	return s.writeParts(ctx, models)
}

func partOf(join uuid, part int, update bson.D) driver.WriteModel {
	return driver.NewUpdateOneModel().SetFilter(where("_id", partID(join, part))).SetUpsert(true).
		SetUpdate(append(update, bson.E{Key: "$setOnInsert", Value: where("join", join)}))
}

func (s *Store) writeParts(ctx context.Context, models []driver.WriteModel) error {
	if len(models) == 0 {
		return nil
	}
	_, err := s.counts.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true))
	if driver.IsDuplicateKeyError(err) {
		// Another transaction has just inserted the document.
		return fmt.Errorf("%w: %w", errContended, err)
	}
	return err
}

// summed selects the joins with the sum of their counts, and the server's time.
func (s *Store) summed(joins ...bson.D) driver.Pipeline {
	return append(slices.Clone(joins),
		bson.D{{Key: "$lookup", Value: bson.D{
			{Key: "from", Value: s.counts.Name()}, {Key: "localField", Value: "_id"}, {Key: "foreignField", Value: "join"},
			{Key: "as", Value: "counts"},
		}}},
		bson.D{{Key: "$set", Value: bson.D{
			{Key: "now", Value: "$$NOW"},
			{Key: "completed_steps", Value: bson.D{{Key: "$sum", Value: "$counts.completed"}}},
			{Key: "failed_steps", Value: bson.D{{Key: "$sum", Value: "$counts.failed"}}},
			{Key: "updated_at", Value: bson.D{{Key: "$max",
				Value: bson.D{{Key: "$concatArrays", Value: bson.A{bson.A{"$updated_at"}, "$counts.updated_at"}}}}}},
		}}},
		bson.D{{Key: "$unset", Value: "counts"}})
}
