package mongo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/storekit"
)

// A lane stands for a key that has held records, and notes what blocked them when an ordered
// claim last checked the key. Every call that ends a lease or a wait opens the lane of its key:
// the next ordered claim checks the key again. Only ordered claims write lanes; all other calls
// insert an opening, which conflicts with nothing.
//
// Lanes are hints. A lease may end while a claim is about to note that this lease blocks a key.
// So each lane has a time of its next check: soon at first, then at longer and longer intervals,
// and at the latest when the lease or the wait ends.

const (
	firstLook = 100 * time.Millisecond
	// lastLook is the longest interval between two checks of a lane. A check that is further in
	// the future is wrong, because the server's clock was set back.
	lastLook = 6400 * time.Millisecond
	// pausedLook is the interval between two checks of a lane that has been paused for long.
	pausedLook = 5 * time.Minute
)

// lane is a document of the lanes.
type lane struct {
	ID        lineKey        `bson:"_id"`
	Group     reader         `bson:"grp"`
	Topic     string         `bson:"topic"`
	BlockedBy string         `bson:"blocked_by"`
	Until     time.Time      `bson:"until,omitempty"`
	Head      bson.Timestamp `bson:"head"`
	Looks     int            `bson:"looks"`
	// PausedBy is the number of the pause that blocks the key. Such a lane is checked when there
	// is no pause with this number, and at Expires: when its first record expires, or earlier,
	// because the note that this record was deleted may be missing. There may be many such lanes
	// for long, so the checks become rare.
	PausedBy int64     `bson:"paused_by,omitempty"`
	Expires  time.Time `bson:"expires,omitempty"`
}

// block says what blocks a key, and when that ends. pause is the number of a pause, or zero.
type block struct {
	by    string
	until time.Time
	pause int64
}

// note notes what blocks the lane, and the time of the next check.
func (l *lane) note(b block, now time.Time) {
	if l.PausedBy != b.pause {
		l.Looks = 0
	}
	l.PausedBy, l.Expires = b.pause, time.Time{}
	switch b.by {
	case storekit.BlockedByNothing:
		l.BlockedBy, l.Until, l.Looks = b.by, time.Time{}, 0
		return
	case storekit.BlockedByPause:
		next := firstLook << min(l.Looks, 10)
		if next > lastLook {
			next = pausedLook
		}
		l.BlockedBy, l.Until, l.Expires = b.by, time.Time{}, b.nextCheck(now, next)
	default:
		l.BlockedBy, l.Until = b.by, b.nextCheck(now, min(firstLook<<min(l.Looks, 10), lastLook))
	}
	l.Looks++
}

// nextCheck is at the end of the block, and after that time at the latest.
func (b block) nextCheck(now time.Time, within time.Duration) time.Time {
	next := now.Add(within)
	if !b.until.IsZero() && b.until.Before(next) {
		return b.until
	}
	return next
}

// line is a topic of a group, from which claims in order take one at a time.
type line struct {
	Group reader `bson:"grp"`
	Topic string `bson:"topic"`
}

// opening says that the next claim must check the lane of a key.
type opening struct {
	ID    bson.ObjectID `bson:"_id"`
	Group reader        `bson:"grp"`
	Topic string        `bson:"topic"`
	Key   string        `bson:"key"`
	// OpenedAt is an estimate of the server's time. An opening that no claim has met for an hour
	// belongs to a lane that is gone, and is deleted.
	OpenedAt time.Time `bson:"opened_at"`
}

// laneSeen remembers, for laneSeenFor, whether there were any lanes. While there are none, a call
// that settles a record need not read its key. A lane that is made within that time is checked
// soon anyway.
type laneSeen struct {
	mu     sync.Mutex
	at     time.Time
	exists bool
}

// laneSeenFor is how long laneSeen remembers.
const laneSeenFor = 250 * time.Millisecond

func (l *laneSeen) note(exists bool, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.exists, l.at = exists, at
}

func (l *laneSeen) known() (exists, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.exists, time.Since(l.at) < laneSeenFor
}

// laneMark is the name of the field in the document that anyLane adds.
const laneMark = "lane"

// anyLane is a stage that adds a document if there is a lane, of any topic.
func (s *Store) anyLane() bson.D {
	return bson.D{{Key: "$unionWith", Value: bson.D{{Key: "coll", Value: s.lanes.Name()}, {Key: "pipeline", Value: bson.A{
		bson.D{{Key: "$match", Value: everyLane}}, bson.D{{Key: "$limit", Value: 1}},
		bson.D{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: laneMark, Value: literal("")}}}},
	}}}}}
}

// everyLane selects all lanes by an index.
var everyLane = where("_id", bson.D{{Key: "$gt", Value: bson.MinKey{}}})

// noLanes reports whether there is no lane.
func (s *Store) noLanes(ctx context.Context) (bool, error) {
	if exists, fresh := s.laneSeen.known(); fresh {
		return !exists, nil
	}
	asked := time.Now()
	found, err := findAll[lane](ctx, s.lanes, everyLane, first(1, nil, "_id"))
	if err == nil {
		s.laneSeen.note(len(found) > 0, asked)
	}
	return err == nil && len(found) == 0, err
}

// openLanes makes the next claims check the lanes of the keys, if they have lanes.
func (s *Store) openLanes(ctx context.Context, keys map[lineKey]bool) error {
	if len(keys) == 0 {
		return nil
	}
	ids := make(bson.A, 0, len(keys))
	for key := range keys {
		ids = append(ids, key)
	}
	found, err := findAll[lane](ctx, s.lanes, in("_id", ids), first(len(ids), nil, "_id"))
	if err != nil || len(found) == 0 {
		return err
	}
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	openings := make([]any, len(found))
	for i, l := range found {
		openings[i] = opening{bson.NewObjectID(), l.ID.Group, l.ID.Topic, l.ID.Key, now}
	}
	_, err = s.openings.InsertMany(ctx, openings)
	return err
}

// touch makes the transaction conflict with claims in order from these topics.
func (s *Store) touch(ctx context.Context, lines []line) error {
	var models []driver.WriteModel
	seen := map[line]bool{}
	for _, l := range lines {
		if !seen[l] {
			seen[l] = true
			models = append(models, driver.NewUpdateOneModel().SetFilter(where("_id", l)).
				SetUpdate(bson.D{{Key: "$inc", Value: bson.D{{Key: "claims", Value: int64(1)}}}}).SetUpsert(true))
		}
	}
	if len(models) == 0 {
		return nil
	}
	_, err := s.locks.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true))
	if driver.IsDuplicateKeyError(err) {
		// Another transaction has just inserted the document.
		return fmt.Errorf("%w: %w", errContended, err)
	}
	return err
}
