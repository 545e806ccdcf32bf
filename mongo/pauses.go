package mongo

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// pausesID is the id of the document of the pauses in the collection meta. The first Pause inserts
// it. The pauses are not in the document of the state, because many calls read that one.
const pausesID = "pauses"

// pausesDocument has all pauses, and a generation that grows with each change. Claims read only
// the generation each time.
type pausesDocument struct {
	Generation int64        `bson:"generation"`
	List       []pauseEntry `bson:"list"`
}

type pauseEntry struct {
	Number   int64     `bson:"number"`
	Group    string    `bson:"grp"`
	Topic    string    `bson:"topic"`
	Key      string    `bson:"key"`
	TenantID string    `bson:"tenant_id"`
	At       time.Time `bson:"at"`
	By       string    `bson:"by"`
	Reason   string    `bson:"reason"`
}

func (e pauseEntry) scope() roles.PauseScope {
	return roles.PauseScope{Group: e.Group, Topic: e.Topic, Key: e.Key, TenantID: e.TenantID}
}

func (d *pausesDocument) pauses() *roles.PauseList {
	infos := make([]roles.PauseInfo, len(d.List))
	for i, e := range d.List {
		infos[i] = roles.PauseInfo{PauseScope: e.scope(), Number: e.Number, At: e.At.UTC(), By: e.By, Reason: e.Reason}
	}
	return roles.NewPauseList(d.Generation, infos)
}

func (s *Store) findPauses(ctx context.Context) (*pausesDocument, error) {
	found := &pausesDocument{}
	err := s.meta.FindOne(ctx, where("_id", pausesID)).Decode(found)
	if errors.Is(err, driver.ErrNoDocuments) {
		err = nil
	}
	return found, err
}

// atScope is what a change of the pauses needs to know of them.
type atScope struct {
	Generation int64 `bson:"generation"`
	Count      int   `bson:"count"`
	// Entry has the pause of the scope, if there is one.
	Entry []pauseEntry `bson:"list"`
}

// findScope reads no more of the list, which may be long.
func (s *Store) findScope(ctx context.Context, scope roles.PauseScope) (*atScope, error) {
	found := &atScope{}
	err := s.meta.FindOne(ctx, where("_id", pausesID), options.FindOne().SetProjection(bson.D{
		{Key: "generation", Value: 1},
		{Key: "count", Value: bson.D{{Key: "$size", Value: "$list"}}},
		{Key: "list", Value: bson.D{{Key: "$elemMatch", Value: bson.D{
			{Key: "grp", Value: scope.Group}, {Key: "topic", Value: scope.Topic}, {Key: "key", Value: scope.Key},
			{Key: "tenant_id", Value: scope.TenantID},
		}}}},
	})).Decode(found)
	if errors.Is(err, driver.ErrNoDocuments) {
		err = nil
	}
	return found, err
}

// nextGeneration returns the generation after a change. A failover may undo a change that was not
// confirmed yet, after other processes have read it. So the next generation contains the time:
// otherwise it could be the same, and these processes would not read the pauses again.
func (p *atScope) nextGeneration(now time.Time) int64 {
	const perMilli = 1000
	return max(p.Generation+1, now.UnixMilli()*perMilli+rand.Int64N(perMilli))
}

// change changes the pauses, unless another process has changed them since they were read.
func (p *atScope) change(ctx context.Context, s *Store, generation int64, update bson.D, arrays ...any) error {
	update = append(update, bson.E{Key: "$max", Value: bson.D{{Key: "generation", Value: generation}}})
	opts := options.UpdateOne().SetUpsert(true)
	if len(arrays) > 0 {
		opts.SetArrayFilters(arrays)
	}
	crash.At(crash.BeforeCommit)
	defer crash.At(crash.AfterCommit)
	_, err := s.meta.UpdateOne(ctx, append(where("_id", pausesID), where("generation", p.Generation)...), update, opts)
	if driver.IsDuplicateKeyError(err) {
		// The document has another generation, so it was not matched and cannot be inserted.
		return errContended
	}
	return err
}

// Pause stops the deliveries of the scope. See roles.Pauses.
func (s *Store) Pause(ctx context.Context, scope roles.PauseScope, by, reason string) error {
	const operation = "pause"
	if err := storekit.CheckPause(scope, by, reason); err != nil {
		return s.explain(ctx, operation, err)
	}
	return s.do(ctx, operation, func(ctx context.Context) error {
		now, err := s.now(ctx)
		if err != nil {
			return err
		}
		found, err := s.findScope(ctx, scope)
		if err != nil {
			return err
		}
		generation := found.nextGeneration(now)
		if len(found.Entry) > 0 {
			return found.change(ctx, s, generation,
				set(bson.D{{Key: "list.$[same].by", Value: by}, {Key: "list.$[same].reason", Value: reason}}),
				where("same.number", found.Entry[0].Number))
		}
		if found.Count >= roles.MaxPauses {
			return roles.ErrTooManyPauses
		}
		return found.change(ctx, s, generation, bson.D{{Key: "$push", Value: bson.D{{Key: "list", Value: pauseEntry{
			generation, scope.Group, scope.Topic, scope.Key, scope.TenantID, now, by, reason,
		}}}}})
	})
}

// Resume ends the pause of the scope, and wakes the readers of this process. See roles.Pauses.
func (s *Store) Resume(ctx context.Context, scope roles.PauseScope) (bool, error) {
	const operation = "resume"
	if err := storekit.CheckPauseScope(scope); err != nil {
		return false, s.explain(ctx, operation, err)
	}
	ended := false
	err := s.do(ctx, operation, func(ctx context.Context) error {
		now, err := s.now(ctx)
		if err != nil {
			return err
		}
		found, err := s.findScope(ctx, scope)
		if err != nil || len(found.Entry) == 0 {
			return err
		}
		err = found.change(ctx, s, found.nextGeneration(now),
			bson.D{{Key: "$pull", Value: bson.D{{Key: "list", Value: where("number", found.Entry[0].Number)}}}})
		// If the answer was lost, this attempt may have ended the pause, and the next one finds none.
		ended = !errors.Is(err, errContended)
		return err
	})
	if err != nil {
		return false, err
	}
	if ended {
		s.busy.Forget()
		s.notifier.Notify()
	}
	return ended, nil
}

// Paused returns the pauses. See roles.Pauses.
func (s *Store) Paused(ctx context.Context) (list []roles.PauseInfo, err error) {
	err = s.do(ctx, "list pauses", func(ctx context.Context) error {
		found, err := s.findPauses(ctx)
		list = found.pauses().All()
		return err
	})
	return list, err
}

// LastPauses returns the pauses as the store last read them. Claim and Extend read their
// generation in a command that they send anyway. See roles.Pauses.
func (s *Store) LastPauses() *roles.PauseList { return s.pauses.Load() }

// pausesField is the field in the document that lastChange adds.
const pausesField = "pauses"

// lastChange is a part of an aggregation: a document with the generation of the pauses. There is
// none before the first pause.
func (s *Store) lastChange() part {
	return part{s.meta, driver.Pipeline{
		{{Key: "$match", Value: where("_id", pausesID)}},
		{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: pausesField, Value: "$generation"}}}},
	}}
}

// pausesOf returns the pauses of that generation or of a later one. It reads them if they are not
// the known ones.
func (s *Store) pausesOf(ctx context.Context, generation int64) (*roles.PauseList, error) {
	known := s.pauses.Load()
	if known != nil && known.Generation() == generation {
		return known, nil
	}
	found := &pausesDocument{}
	if generation > 0 {
		var err error
		if found, err = s.findPauses(ctx); err != nil {
			return nil, err
		}
	}
	if known != nil && known.Generation() == found.Generation {
		return known, nil
	}
	list := found.pauses()
	// The list was read after the known one. Unlike storekit.KnownPauses, this also replaces a
	// later generation, which a failover has undone.
	if s.pauses.CompareAndSwap(known, list) {
		s.trails.forget()
		s.busy.Forget()
	}
	return list, nil
}

// gone selects, in an index, the numbers of pauses that are not in the list. The first condition
// also says that there is a number, so that the server uses a partial index.
func gone(pauses *roles.PauseList) bson.E {
	numbers := bson.A{}
	for _, p := range pauses.All() {
		if p.Key != "" || p.TenantID != "" {
			numbers = append(numbers, p.Number)
		}
	}
	return bson.E{Key: "paused_by", Value: bson.D{{Key: "$gt", Value: int64(0)}, {Key: "$nin", Value: numbers}}}
}
