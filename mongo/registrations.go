package mongo

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// worker is a document of the collection workers: a worker that registered a group.
type worker struct {
	ID     workerID  `bson:"_id"`
	Group  string    `bson:"grp"`
	SeenAt time.Time `bson:"seen_at"`
	// Problems is the JSON of storekit.EncodeProblems.
	Problems string `bson:"problems,omitempty"`
}

type workerID struct {
	Group string `bson:"grp"`
	Name  string `bson:"name"`
}

// ending is a document of the collection endings: a group of which a registration has ended. It
// is deleted when the group's undelivered records of topics that it no longer reads are gone.
type ending struct {
	Group   string    `bson:"_id"`
	EndedAt time.Time `bson:"ended_at"`
	LookAt  time.Time `bson:"look_at"`
	// Empty means that the group had no records at the last check.
	Empty bool `bson:"empty"`
	// Times counts the registrations of the group that have ended since the note was made.
	Times int64 `bson:"times"`
	// Others means that the group is being dropped: the storekit.Selections of the other groups
	// when the drop began.
	Others string `bson:"others,omitempty"`
}

// seeWorker notes the worker, if it has a name, and deletes workers that have not registered for
// long.
func (s *Store) seeWorker(ctx context.Context, reg outmill.Registration, now time.Time) error {
	if reg.Worker != "" {
		_, err := s.workers.UpdateOne(ctx, where("_id", workerID{reg.Group, reg.Worker}),
			set(bson.D{{Key: "grp", Value: reg.Group}, {Key: "seen_at", Value: now},
				{Key: "problems", Value: storekit.EncodeProblems(reg)}}), options.UpdateOne().SetUpsert(true))
		if err != nil && !driver.IsDuplicateKeyError(err) {
			return err
		}
	}
	many, err := findAll[worker](ctx, s.workers, where("grp", reg.Group),
		options.Find().SetSort(bson.D{{Key: "grp", Value: -1}, {Key: "seen_at", Value: -1}}).SetSkip(storekit.MaxWorkers))
	if err != nil {
		return err
	}
	if len(many) > 0 {
		ids := make(bson.A, len(many))
		for i, w := range many {
			ids[i] = w.ID
		}
		if _, err := s.workers.DeleteMany(ctx, in("_id", ids)); err != nil {
			return err
		}
	}
	return s.forgetWorkers(ctx, reg.Group, now.Add(-storekit.KeepWorkersFor))
}

// stopWorker notes that the worker has stopped.
func (s *Store) stopWorker(ctx context.Context, reg outmill.Registration) error {
	now, err := s.now(ctx)
	if err != nil {
		return err
	}
	_, err = s.workers.UpdateOne(ctx, where("_id", workerID{reg.Group, reg.Worker}),
		set(bson.D{{Key: "seen_at", Value: now}, {Key: "problems", Value: storekit.EncodeProblems(reg)}}))
	return err
}

// forgetWorkers deletes the workers of the group that have not registered since then.
func (s *Store) forgetWorkers(ctx context.Context, name string, since time.Time) error {
	_, err := s.workers.DeleteMany(ctx, append(where("grp", name), bson.E{Key: "seen_at", Value: bson.D{{Key: "$lt", Value: since}}}))
	return err
}

// ended returns the groups that may have no registration, but have records.
func (s *Store) ended(ctx context.Context) ([]storekit.EndedGroup, error) {
	found, err := findAll[ending](ctx, s.endings, where("empty", false))
	list := make([]storekit.EndedGroup, len(found))
	for i, e := range found {
		list[i] = storekit.EndedGroup{Group: e.Group, At: e.EndedAt.UTC()}
	}
	return list, err
}

// ExpireRegistrations removes registrations whose end has passed, and the
// undelivered records of their groups. See outmill.Janitor.
func (s *Store) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	const operation = "expire registrations"
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, 0, s.explain(ctx, operation, err)
	}
	return storekit.RegistrationExpiry{
		End: func(ctx context.Context, limit int) (ended int, err error) {
			err = s.do(ctx, operation, func(ctx context.Context) error {
				ended, err = s.endRegistrations(ctx, limit)
				return err
			})
			return ended, err
		},
		Noted: func(ctx context.Context, limit int) (groups []string, err error) {
			err = s.do(ctx, operation, func(ctx context.Context) error {
				groups, err = s.noted(ctx, limit)
				return err
			})
			return groups, err
		},
		Sweep: func(ctx context.Context, name string, limit int) (int, error) {
			return s.tidy(ctx, operation, limit, func(ctx context.Context, limit int) (int, int, error) {
				deleted, err := s.sweep(ctx, name, limit)
				return deleted, deleted, err
			})
		},
	}.Expire(ctx, limit)
}

// endRegistrations removes registrations whose end has passed. If one was renewed in between, its
// end differs from the one that was read, and it stays.
func (s *Store) endRegistrations(ctx context.Context, limit int) (ended int, err error) {
	found, err := s.loadState(ctx)
	if err != nil {
		return 0, err
	}
	over := slices.DeleteFunc(found.Groups, func(r registration) bool { return r.ExpiresAt.IsZero() || r.ExpiresAt.After(found.Now) })
	slices.SortStableFunc(over, func(a, b registration) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
	over = over[:min(limit, len(over))]
	if len(over) == 0 {
		return 0, nil
	}
	// The notes come first. Without transactions, a note for a registration that stays does no
	// harm.
	work := func(ctx context.Context) (err error) {
		if err := s.noteEndings(ctx, over, found.Now); err != nil {
			return err
		}
		ended, err = s.unregisterAll(ctx, over)
		return err
	}
	if s.config.WithoutTransactions {
		err = work(ctx)
	} else {
		err = s.once(ctx, work)
	}
	return ended, err
}

func (s *Store) noteEndings(ctx context.Context, over []registration, now time.Time) error {
	var models []driver.WriteModel
	seen := map[string]bool{}
	for _, r := range over {
		if !seen[r.Group] {
			seen[r.Group] = true
			models = append(models, driver.NewUpdateOneModel().SetFilter(where("_id", r.Group)).SetUpsert(true).SetUpdate(bson.D{
				{Key: "$set", Value: bson.D{{Key: "ended_at", Value: now}, {Key: "look_at", Value: now}, {Key: "empty", Value: false}}},
				{Key: "$inc", Value: bson.D{{Key: "times", Value: int64(1)}}},
				{Key: "$unset", Value: bson.D{{Key: "others", Value: ""}}},
			}))
		}
	}
	_, err := s.endings.BulkWrite(ctx, models)
	return err
}

// unregisterAll removes the registrations, and returns how many it found.
func (s *Store) unregisterAll(ctx context.Context, over []registration) (int, error) {
	each := make(bson.A, len(over))
	for i, r := range over {
		each[i] = bson.D{{Key: "group", Value: r.Group}, {Key: "include", Value: r.Include}, {Key: "exclude", Value: r.Exclude},
			{Key: "expires_at", Value: r.ExpiresAt}}
	}
	var before state
	err := s.meta.FindOneAndUpdate(ctx, where("_id", metaID), bson.D{
		{Key: "$pull", Value: bson.D{{Key: "groups", Value: bson.D{{Key: "$or", Value: each}}}}},
		{Key: "$inc", Value: bson.D{{Key: "generation", Value: int64(1)}}},
	}).Decode(&before)
	ended := 0
	for _, r := range before.Groups {
		if slices.ContainsFunc(over, func(o registration) bool {
			return o.Group == r.Group && slices.Equal(o.Include, r.Include) && slices.Equal(o.Exclude, r.Exclude) && o.ExpiresAt.Equal(r.ExpiresAt)
		}) {
			ended++
		}
	}
	return ended, err
}

func (s *Store) noted(ctx context.Context, limit int) ([]string, error) {
	found, err := s.loadState(ctx)
	if err != nil {
		return nil, err
	}
	list, err := findAll[ending](ctx, s.endings, where("look_at", bson.D{{Key: "$lte", Value: found.Now}}),
		first(limit, ascending("look_at"), "_id"))
	groups := make([]string, len(list))
	for i, e := range list {
		groups[i] = e.Group
	}
	return groups, err
}

var allStages = append(slices.Clone(undelivered), storekit.StageProcessed, storekit.StageDead)

// undelivered are the stages of records that are neither processed nor dead.
var undelivered = []int{storekit.StageReady, storekit.StageHeld, storekit.StageWaiting, storekit.StageDelayed, storekit.StageLeased,
	storekit.StageExpired, storekit.StageAside, stageInTurn}

// sweep deletes undelivered records of topics that the group no longer reads. If it has found all
// of them, it notes when to check again. A new registration of the group increments the
// generation, so its records have a later generation than the ones that sweep deletes.
func (s *Store) sweep(ctx context.Context, name string, limit int) (deleted int, err error) {
	notes, err := findAll[ending](ctx, s.endings, where("_id", name))
	if err != nil || len(notes) == 0 {
		return 0, err
	}
	found, err := s.loadState(ctx)
	if err != nil {
		return 0, err
	}
	table := found.table()
	unread, err := s.unread(ctx, table, name)
	if err != nil {
		return 0, err
	}
	for _, topic := range unread {
		for _, stage := range undelivered {
			n, err := s.dropUndelivered(ctx, line{reader(name), topic}, stage, found, limit-deleted)
			if deleted += n; err != nil || deleted == limit {
				return deleted, err
			}
		}
	}
	if err := s.dropUnreadLanes(ctx, table, name); err != nil {
		return deleted, err
	}
	return deleted, s.noteSwept(ctx, notes[0], found)
}

// unread returns the topics of the group's undelivered records that the group does not read.
func (s *Store) unread(ctx context.Context, table *storekit.RoutingTable, name string) ([]string, error) {
	topics, err := s.topicsOf(ctx, reader(name), undelivered...)
	return table.Unread(name, topics), err
}

// dropUndelivered deletes records of a stage, except records whose lease has not ended.
func (s *Store) dropUndelivered(ctx context.Context, of line, stage int, found *state, limit int) (deleted int, err error) {
	conditions := bson.D{{Key: "stage", Value: stage}, {Key: "generation", Value: bson.D{{Key: "$lte", Value: found.Generation}}}}
	filter := of.in(stage, conditions[1])
	if stage == storekit.StageLeased {
		filter = append(filter, until(found.Now))
		conditions = append(conditions, expr(hasPassed("available_at")))
	}
	for deleted < limit {
		some, err := findAll[candidate](ctx, s.records, filter, first(min(limit-deleted, adoptAtOnce), nil, "_id"))
		if err != nil || len(some) == 0 {
			return deleted, err
		}
		ids := make(bson.A, len(some))
		for i, r := range some {
			ids[i] = r.ID
		}
		keys, err := s.keysOf(ctx, ids)
		if err != nil {
			return deleted, err
		}
		n, err := s.remove(ctx, append(in("_id", ids), conditions...), isDropped)
		if deleted += n; err != nil {
			return deleted, err
		}
		if err := s.openLanes(ctx, keys); err != nil || n == 0 {
			return deleted, err
		}
	}
	return deleted, nil
}

// dropUnreadLanes deletes lanes without held records, of topics that the group no longer reads.
func (s *Store) dropUnreadLanes(ctx context.Context, table *storekit.RoutingTable, name string) error {
	topics, err := aggregateAll[struct {
		Topic string `bson:"_id"`
	}](ctx, s.lanes, driver.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "grp", Value: reader(name)}}}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$topic"}}}},
	})
	for _, t := range topics {
		if len(table.Unread(name, []string{t.Topic})) == 0 {
			continue
		}
		var lanes []lane
		lanes, err = findAll[lane](ctx, s.lanes, bson.D{{Key: "grp", Value: reader(name)}, {Key: "topic", Value: t.Topic}},
			first(adoptAtOnce, nil, "_id"))
		if err == nil {
			err = s.dropLanes(ctx, lanes)
		}
		if err != nil {
			break
		}
	}
	return err
}

// noteSwept notes when to check the group again: in the next round if there are records left of
// topics that it does not read, and later otherwise. It changes nothing if another registration
// of the group has ended since.
func (s *Store) noteSwept(ctx context.Context, note ending, found *state) error {
	table := found.table()
	left, err := s.unread(ctx, table, note.Group)
	if err != nil {
		return err
	}
	topics, err := s.topicsOf(ctx, reader(note.Group), allStages...)
	if err != nil {
		return err
	}
	registered := table.Has(note.Group)
	if !registered {
		if err := s.forgetWorkers(ctx, note.Group, found.Now); err != nil {
			return err
		}
	}
	same := append(where("_id", note.Group), bson.E{Key: "times", Value: note.Times})
	if len(left) == 0 && !note.EndedAt.After(found.Now.Add(-storekit.SweepFor)) && (registered || len(topics) == 0) {
		_, err = s.endings.DeleteOne(ctx, same)
		return err
	}
	again := found.Now
	if len(left) == 0 {
		again = again.Add(storekit.SweepEvery)
	}
	_, err = s.endings.UpdateOne(ctx, same, set(bson.D{{Key: "look_at", Value: again}, {Key: "empty", Value: len(topics) == 0}}))
	return err
}
