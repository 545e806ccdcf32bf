package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Pauses of keys and tenants are compared with the records that a claim meets. So that each claim
// need not skip the same paused records again, a claim moves them out of its way, each with the
// number of the pause:
//
//	ready, waiting, delayed, ended lease
//	   ──a claim meets it, and it is paused──► held (its lane has the number)    with OrderKey, if the record has a key
//	                                     └───► aside (it has the number)         without an order, or without a key
//	held, aside ──a claim finds that there is no pause with this number──► the lane is checked; or waiting, and due as before
//
// Only claims move records. Pause and Resume write one document, so a crash leaves nothing half
// done: while the pause exists, claims set more records aside; afterwards they bring them back.
// Numbers are never used again, so a record that was set aside for an earlier pause of the same
// scope comes back.
//
// A claim learns the generation of the pauses in its first read, and reads the pauses if it does
// not know that generation. So a claim that begins after a pause was written sees it. A claim
// that began before may set records aside for a pause that has ended since, and does no harm: the
// next claim finds a number without a pause.
//
// Records that are aside have no order. If readers of a group have changed from no order to an
// order, or if some read with an order and some without, a claim in order first brings back what
// has an order for it: records with a key, or all records of the topic. As long as some are left,
// it treats their keys as blocked, or the topic. It searches for them before it reads the ready
// records, and once more after the waiting records, because claims without an order move records
// in both directions at any time.

// asideAtOnce is the default of Store.asideAtOnce.
const asideAtOnce = 1000

// pausedRecord is a record to set aside, and the number of its pause.
type pausedRecord struct {
	candidate
	number int64
}

// setAside sets records of the topic aside, and returns how many it moved. An ended lease counts as an expiry.
func (s *Store) setAside(ctx context.Context, of line, list []pausedRecord) (int, error) {
	if len(list) == 0 {
		return 0, nil
	}
	ids, keys := map[int64]bson.A{}, map[lineKey]bool{}
	for _, r := range list {
		ids[r.number] = append(ids[r.number], r.ID)
		if r.Stage == storekit.StageHeld {
			// It may be the last held record of its lane.
			keys[lineKey{of.Group, of.Topic, r.Key}] = true
		}
	}
	ended := bson.D{{Key: "$eq", Value: bson.A{"$stage", storekit.StageLeased}}}
	var models []driver.WriteModel
	for number, ids := range ids {
		models = append(models, driver.NewUpdateManyModel().SetFilter(append(in("_id", ids), stillDue())).
			SetUpdate(pipeline(append(countEnded(ended),
				bson.E{Key: "stage", Value: storekit.StageAside}, bson.E{Key: "status", Value: outmill.StatusPending},
				bson.E{Key: "paused_by", Value: number},
			), "owner", "available_at")))
	}
	result, err := s.records.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	if err != nil {
		return 0, err
	}
	return int(result.ModifiedCount), s.openLanes(ctx, keys)
}

// bringBack makes records that are aside due as before, and returns how many it moved.
func (s *Store) bringBack(ctx context.Context, ids bson.A) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	result, err := s.records.UpdateMany(ctx, append(in("_id", ids), bson.E{Key: "stage", Value: storekit.StageAside}),
		append(dueAsBefore(), unset("paused_by")))
	if err != nil {
		return 0, err
	}
	s.trails.stir()
	return int(result.ModifiedCount), nil
}

// resumed selects the records that are aside for pauses that are gone.
func (l line) resumed(pauses *roles.PauseList) bson.D {
	return l.in(storekit.StageAside, gone(pauses))
}
