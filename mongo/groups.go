package mongo

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// adoptAtOnce is how many records one update gives to a group, or takes from a group that is
// dropped.
const adoptAtOnce = 1000

// seenEvery is how often a repeated registration is written.
const seenEvery = 5 // seconds

// RegisterGroup makes the group a reader of the topics. See outmill.Queue. It gives records that
// waited for a group to it, 1,000 at a time. Claims in order hand out no record of a topic before
// all its waiting records are adopted.
//
// A record whose transaction was open during the first registration may still be inserted without
// a group. The next claims adopt it.
//
// Each registration of the call takes one or two round trips.
func (s *Store) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	const operation = "register group"
	regs = storekit.WithGroups(regs)
	if err := storekit.CheckRegistrations(regs); err != nil || len(regs) == 0 {
		return s.explain(ctx, operation, errors.Join(err, s.usable(ctx)))
	}
	s.life.CheckAgain()
	stopped, regs := storekit.Stopped(regs)
	for _, reg := range stopped {
		if err := s.do(ctx, operation, func(ctx context.Context) error { return s.stopWorker(ctx, reg) }); err != nil {
			return err
		}
	}
	if len(regs) == 0 {
		return nil
	}
	adopted := 0
	for _, reg := range regs {
		if err := s.do(ctx, operation, func(ctx context.Context) error { return s.register(ctx, reg) }); err != nil {
			return err
		}
	}
	err := s.do(ctx, operation, func(ctx context.Context) error {
		waiting, err := s.topicsOf(ctx, reader(""), adoptedStages...)
		if err != nil {
			return err
		}
		n, err := s.adoptAll(ctx, slices.DeleteFunc(waiting, func(topic string) bool { return !selects(regs, topic) }))
		adopted += n
		return err
	})
	if adopted > 0 {
		s.notifier.Notify()
	}
	return err
}

func selects(regs []outmill.Registration, topic string) bool {
	return slices.ContainsFunc(regs, func(reg outmill.Registration) bool { return reg.Topics.Match(topic) })
}

// adoptedStages are the stages in which a record may wait for a group.
var adoptedStages = []int{storekit.StageReady, storekit.StageDelayed, storekit.StageExpired, storekit.StageDead}

// register writes the registration. If another process changes the registrations between its read
// and its write, it returns an error after which the caller repeats it.
func (s *Store) register(ctx context.Context, reg outmill.Registration) error {
	found, err := s.loadState(ctx)
	if err != nil {
		return err
	}
	done, err := s.registerIn(ctx, found, reg)
	if err == nil && !done {
		err = errContended
	}
	if err != nil {
		return err
	}
	// The worker is written after the registration: without one it may be deleted.
	return s.seeWorker(ctx, reg, found.Now)
}

// registerIn reports whether the registration was still as in found.
func (s *Store) registerIn(ctx context.Context, found *state, reg outmill.Registration) (bool, error) {
	wanted := registration{Group: reg.Group, Include: storekit.OrEmpty(reg.Topics.Include), Exclude: storekit.OrEmpty(reg.Topics.Exclude),
		SeenAt: found.Now, Holding: reg.Hold}
	if reg.TTL > 0 {
		wanted.ExpiresAt = found.Now.Add(ceil(reg.TTL))
	}
	i := slices.IndexFunc(found.Groups, wanted.same)
	if i < 0 {
		// Another process may do the same. Only the first one adds the registration.
		return s.setMeta(ctx, bson.D{{Key: "groups", Value: bson.D{{Key: "$not", Value: wanted.match()}}}}, bson.D{
			{Key: "$push", Value: bson.D{{Key: "groups", Value: wanted}}},
			{Key: "$inc", Value: bson.D{{Key: "generation", Value: int64(1)}}},
		})
	}
	if found.Groups[i].Holding && !reg.Hold {
		return s.endHolding(ctx, found.Groups[i], wanted)
	}
	update := bson.D{{Key: "$currentDate", Value: bson.D{{Key: "groups.$.seen_at", Value: true}}}}
	switch permanent := found.Groups[i].ExpiresAt.IsZero(); {
	case permanent && found.Now.Sub(found.Groups[i].SeenAt).Seconds() < seenEvery:
		return true, nil
	case permanent:
	case reg.TTL > 0:
		update = append(update, bson.E{Key: "$set", Value: bson.D{{Key: "groups.$.expires_at", Value: wanted.ExpiresAt}}})
	default:
		update = append(update, bson.E{Key: "$unset", Value: bson.D{{Key: "groups.$.expires_at", Value: ""}}})
	}
	known := wanted.match(hasEnd(found.Groups[i]))
	return s.setMeta(ctx, bson.D{{Key: "groups", Value: known}}, update)
}

// endHolding moves the registration to the end of the list, where a new one would be: records without
// a group that another group has not taken yet stay with that group. It reports whether the registration was
// still as in old.
func (s *Store) endHolding(ctx context.Context, old, wanted registration) (bool, error) {
	if old.ExpiresAt.IsZero() {
		wanted.ExpiresAt = old.ExpiresAt
	}
	is := func(field string, value any) bson.D {
		return bson.D{{Key: "$eq", Value: bson.A{"$$r." + field, bson.D{{Key: "$literal", Value: value}}}}}
	}
	others := bson.D{{Key: "$filter", Value: bson.D{
		{Key: "input", Value: "$groups"},
		{Key: "as", Value: "r"},
		{Key: "cond", Value: bson.D{{Key: "$not", Value: bson.A{bson.D{{Key: "$and", Value: bson.A{
			is("group", old.Group), is("include", old.Include), is("exclude", old.Exclude)}}}}}}},
	}}}
	last := bson.D{{Key: "$literal", Value: bson.A{wanted}}}
	known := old.match(bson.E{Key: "holding", Value: true}, hasEnd(old))
	return s.setMeta(ctx, bson.D{{Key: "groups", Value: known}}, driver.Pipeline{{{Key: "$set", Value: bson.D{
		{Key: "groups", Value: bson.D{{Key: "$concatArrays", Value: bson.A{others, last}}}},
		{Key: "generation", Value: bson.D{{Key: "$add", Value: bson.A{"$generation", int64(1)}}}},
	}}}})
}

// hasEnd selects the registration by whether it ends, like the one that was found.
func hasEnd(found registration) bson.E {
	return bson.E{Key: "expires_at", Value: bson.D{{Key: "$exists", Value: !found.ExpiresAt.IsZero()}}}
}

// same reports whether both are the registration of one group for one selection.
func (r registration) same(as registration) bool {
	return r.Group == as.Group && slices.Equal(r.Include, as.Include) && slices.Equal(r.Exclude, as.Exclude)
}

// match selects the registration in the list.
func (r registration) match(more ...bson.E) bson.D {
	return bson.D{{Key: "$elemMatch", Value: append(bson.D{
		{Key: "group", Value: r.Group}, {Key: "include", Value: r.Include}, {Key: "exclude", Value: r.Exclude},
	}, more...)}}
}

// adoptAll gives records of the topics that wait for a group to the first group that registered
// for their topic, and returns how many it gave.
func (s *Store) adoptAll(ctx context.Context, topics []string) (adopted int, err error) {
	for _, topic := range topics {
		for {
			n, err := s.adopt(ctx, topic)
			if adopted += n; err != nil {
				return adopted, err
			}
			if n == 0 {
				break
			}
		}
	}
	return adopted, nil
}

// adopt gives some records of the topic to a group. It writes the document of the registrations,
// so that it conflicts with a call that changes them.
func (s *Store) adopt(ctx context.Context, topic string) (adopted int, err error) {
	work := func(ctx context.Context) error {
		adopted = 0
		found, err := s.loadState(ctx)
		if err != nil {
			return err
		}
		first, registered := found.table().First(topic)
		if !registered {
			return nil
		}
		ids, err := s.idsOf(ctx, reader(""), topic, adoptAtOnce, adoptedStages...)
		if err != nil || len(ids) == 0 {
			return err
		}
		if _, err := s.setMeta(ctx, nil, bson.D{{Key: "$inc", Value: bson.D{{Key: "adoptions", Value: int64(1)}}}}); err != nil {
			return err
		}
		result, err := s.records.UpdateMany(ctx, append(in("_id", ids), bson.E{Key: "grp", Value: reader("")}),
			set(bson.D{{Key: "grp", Value: first.Group}, {Key: "generation", Value: found.Generation}}))
		if err == nil {
			adopted = int(result.ModifiedCount)
		}
		return err
	}
	if s.config.WithoutTransactions {
		err = work(ctx)
	} else {
		err = again(ctx, func() error { return s.once(ctx, work) })
	}
	return adopted, err
}

// idsOf returns up to limit ids of the topic's records in these stages. Ready records are in
// their order.
func (s *Store) idsOf(ctx context.Context, of reader, topic string, limit int, stages ...int) (bson.A, error) {
	var ids bson.A
	for _, stage := range stages {
		var order bson.D
		if stage == storekit.StageReady {
			order = ascending("seq")
		}
		found, err := findAll[candidate](ctx, s.records, line{of, topic}.in(stage), first(limit-len(ids), order, "_id"))
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			ids = append(ids, r.ID)
		}
		if len(ids) >= limit {
			break
		}
	}
	return ids, nil
}

// dropLanes deletes the lanes that have no held records, in transactions that conflict with
// claims.
func (s *Store) dropLanes(ctx context.Context, lanes []lane) (err error) {
	if s.config.WithoutTransactions {
		return nil
	}
	for _, l := range lanes {
		if err == nil {
			err = again(ctx, func() error { return s.once(ctx, func(ctx context.Context) error { return s.dropLane(ctx, l.ID) }) })
		}
	}
	return err
}

func (s *Store) dropLane(ctx context.Context, id lineKey) error {
	held, err := findAll[candidate](ctx, s.records, line{id.Group, id.Topic}.keyed(storekit.StageHeld, id.Key), first(1, nil, "_id"))
	if err != nil || len(held) > 0 {
		return err
	}
	if err := s.touch(ctx, []line{{id.Group, id.Topic}}); err != nil {
		return err
	}
	_, err = s.lanes.DeleteOne(ctx, where("_id", id))
	return err
}

// Groups lists the groups. See outmill.Inspector.
func (s *Store) Groups(ctx context.Context) ([]outmill.GroupInfo, error) {
	var infos []outmill.GroupInfo
	err := s.do(ctx, "list groups", func(ctx context.Context) error {
		found, err := s.loadState(ctx)
		if err != nil {
			return err
		}
		documents, err := findAll[worker](ctx, s.workers, bson.D{})
		if err != nil {
			return err
		}
		workers := make([]storekit.StoredWorker, len(documents))
		for i, w := range documents {
			workers[i] = storekit.StoredWorker{Group: w.ID.Group, Name: w.ID.Name, SeenAt: w.SeenAt.UTC(), Problems: w.Problems}
		}
		ended, err := s.ended(ctx)
		if err != nil {
			return err
		}
		pauses, err := s.findPauses(ctx)
		infos = found.table().Infos(workers, ended)
		storekit.NamePauses(infos, pauses.pauses().All())
		return err
	})
	return infos, err
}
