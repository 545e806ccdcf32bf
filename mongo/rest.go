package mongo

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/outmill/outmill/mongo/internal/sagas"
	"github.com/outmill/outmill/storekit"
)

// No command of MongoDB reads several databases. So a store asks its own database once, and then
// keeps the answer while its change stream stands and reports no change that ends a rest: an
// append, a requeue or a dropped collection. The answer is no older than such a change, because
//
//   - the store was asked while the stream stood, so a change that the answer does not have comes
//     later in the stream;
//   - the server reads with read concern linearizable: it is the primary, so it has all changes that
//     the stream has reported, and a failover takes nothing back that the answer has;
//   - a stream that has ended, or to which the server gives no answer, makes no answer stand.
//
// What becomes due by time alone has a time in the database, and the answer stands until the first
// of these times.

const (
	// shortestStand and longestStand bound how long an answer stands without a change. They are a
	// precaution against a change that no stream reports, such as documents that were restored from
	// a backup.
	shortestStand, longestStand = 20 * time.Minute, 40 * time.Minute
	// asksAtOnce is how many databases one call of Resting asks at the same time.
	asksAtOnce = 4
	// deafAfter is how long the server may give a stream no answer, not even an empty one.
	deafAfter = 3 * awaitInCluster
)

// standing is the last answer by which the store is at rest.
type standing struct {
	mu sync.Mutex
	// of is the stream that stood when the store was asked. No answer stands without one.
	of    *changes
	until time.Time
	// stirs counts the changes that have ended a rest, or would have.
	stirs uint64
}

// end notes a change that ends a rest.
func (r *standing) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of = nil
	r.stirs++
}

func (r *standing) stirred() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stirs
}

// keep has the answer stand, unless something has changed since the store was asked.
func (r *standing) keep(of *changes, stirs uint64, lasts time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stirs == stirs {
		r.of, r.until = of, time.Now().Add(lasts)
	}
}

func (r *standing) stands(of *changes) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return of != nil && r.of == of && time.Now().Before(r.until)
}

// IdleWith returns the client and the store. See roles.Idle.
func (s *Store) IdleWith() (with, self any) { return s.client, s }

// AreIdle asks each database with one command. While a store has a change stream, which it opens
// for Wake, its answer stands for 20 to 40 minutes unless the stream reports a change, and costs no
// command. See roles.Idle.
func (s *Store) AreIdle(ctx context.Context, stores []any) ([]bool, error) {
	const operation = "look for rest"
	if err := s.usable(ctx); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	return storekit.RestOf(ctx, stores, asksAtOnce, func(ctx context.Context, other *Store) (bool, error) {
		return other.rests(ctx, operation)
	})
}

func (s *Store) rests(ctx context.Context, operation string) (bool, error) {
	if err := s.usable(ctx); err != nil {
		return false, err
	}
	stream := s.changes.Load()
	if stream != nil && !stream.isOpen() {
		stream = nil
	}
	if s.rest.stands(stream) {
		return true, nil
	}
	// A change that comes from now on ends the rest, also if the answer has it.
	stirs := s.rest.stirred()
	var lasts time.Duration
	err := s.do(ctx, operation, func(ctx context.Context) (err error) {
		lasts, err = s.askForRest(ctx, stream != nil)
		return err
	})
	if err != nil || lasts <= 0 {
		return false, err
	}
	if stream != nil {
		s.rest.keep(stream, stirs, min(lasts, shortestStand+rand.N(longestStand-shortestStand)))
	}
	return true, nil
}

// restRow is a part of the answer.
type restRow struct {
	// Now is the server's time. It is in one row, unless the schema was dropped.
	Now time.Time `bson:"now"`
	// Busy says that there is something to do now.
	Busy bool `bson:"busy"`
	// At is when there is something to tidy: the first time of a kind.
	At time.Time `bson:"at"`
	// Ended is At of the joins: RetainJoins later.
	Ended time.Time `bson:"ended"`
}

// askForRest returns for how long the store is at rest if nothing changes: zero if it is not.
func (s *Store) askForRest(ctx context.Context, stands bool) (lasts time.Duration, err error) {
	level := readconcern.Local()
	if stands {
		level = readconcern.Linearizable()
	}
	rows, err := aggregateAll[restRow](ctx, s.meta.Clone(options.Collection().SetReadConcern(level)), s.restQuery())
	if err != nil {
		return 0, err
	}
	var now time.Time
	for _, row := range rows {
		if row.Busy {
			return 0, nil
		}
		if !row.Now.IsZero() {
			now = row.Now
		}
	}
	if now.IsZero() {
		return 0, nil
	}
	lasts = longestStand
	for _, row := range rows {
		if !row.At.IsZero() {
			lasts = min(lasts, row.At.Sub(now))
		}
		if !row.Ended.IsZero() {
			lasts = min(lasts, row.Ended.Add(s.config.RetainJoins).Sub(now))
		}
	}
	return lasts, nil
}

// restQuery reads one entry of an index for each group, and one for each kind of upkeep. It
// begins with the meta collection.
func (s *Store) restQuery() driver.Pipeline {
	busy := bson.D{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: "busy", Value: bson.D{{Key: "$literal", Value: true}}}}}}
	query := driver.Pipeline{
		{{Key: "$match", Value: where("_id", metaID)}},
		{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: "now", Value: "$$NOW"},
			{Key: "at", Value: bson.D{{Key: "$min", Value: "$groups.expires_at"}}}}}},
		// The server skips from group to group.
		unionWith(part{s.records, driver.Pipeline{
			{{Key: "$match", Value: bson.D{{Key: "grp", Value: bson.D{{Key: "$gte", Value: ""}}},
				{Key: "stage", Value: bson.D{{Key: "$lt", Value: storekit.StageProcessed}}}}}},
			{{Key: "$limit", Value: 1}}, busy,
		}}),
		unionWith(earliest(s.records, "delete_at", "at")),
		unionWith(earliest(s.dedup, "expires_at", "at")),
		unionWith(earliest(s.inbox, "delete_at", "at")),
		unionWith(earliest(s.inbox, "look_at", "at")),
		unionWith(earliest(s.endings, "look_at", "at")),
		unionWith(earliest(s.joins, "finished_at", "ended")),
	}
	for _, in := range s.Collections() {
		query = append(query, unionWith(earliest(in, sagas.FieldDelete, "at")))
	}
	return query
}

// earliest reads the first time in the field, which an index has. The condition is for a partial
// index.
func earliest(in *driver.Collection, field, as string) part {
	return part{in, driver.Pipeline{
		{{Key: "$match", Value: where(field, bson.D{{Key: "$gte", Value: time.Unix(0, 0)}})}},
		{{Key: "$sort", Value: ascending(field)}}, {{Key: "$limit", Value: 1}},
		{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: as, Value: "$" + field}}}},
	}}
}
