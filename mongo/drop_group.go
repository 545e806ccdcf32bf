package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// never is a time that does not come.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// DropGroup removes the group's registrations, and gives back or deletes its records, 1,000 at a
// time. See outmill.Inspector. It does not see records of transactions that are still open. Another call
// removes these.
func (s *Store) DropGroup(ctx context.Context, name string) (outmill.Dropped, error) {
	const operation = "drop group"
	name = storekit.GroupOf(name)
	if err := storekit.CheckGroup(name); err != nil {
		return outmill.Dropped{}, s.explain(ctx, operation, err)
	}
	d := &drop{s: s, operation: operation, of: reader(name)}
	dropped, err := storekit.GroupDrop{Begin: d.begin, Topics: d.topics, GiveBack: d.giveBack, Delete: d.delete,
		DeleteSettled: d.deleteSettled, End: d.end}.Run(ctx)
	if dropped.GivenBack > 0 {
		s.cameBack()
	}
	return dropped, err
}

// drop has the steps of a drop.
type drop struct {
	s         *Store
	operation string
	of        reader
	// last is the last generation that contained the group. If the group is registered again
	// during the call, its new records have a later generation, and stay.
	last int64
}

func (d *drop) begin(ctx context.Context) (others storekit.Selections, err error) {
	err = d.s.do(ctx, d.operation, func(ctx context.Context) error {
		others, err = d.unregister(ctx)
		return err
	})
	return others, err
}

// unregister notes the drop first, and removes the registrations then, if they are still as they
// were read. Between the two the note does no harm: a group that has a registration gets a new one.
func (d *drop) unregister(ctx context.Context) (storekit.Selections, error) {
	found, err := d.s.loadState(ctx)
	if err != nil {
		return nil, err
	}
	d.last = found.Generation
	name, table := string(d.of), found.table()
	noted, err := findAll[ending](ctx, d.s.endings, append(where("_id", name), exists("others")...))
	if err != nil {
		return nil, err
	}
	registered := table.Has(name)
	if len(noted) > 0 && !registered {
		return storekit.ParseSelections(noted[0].Others)
	}
	others := table.Others(name)
	_, err = d.s.endings.UpdateOne(ctx, where("_id", name), bson.D{
		{Key: "$set", Value: bson.D{{Key: "ended_at", Value: found.Now}, {Key: "look_at", Value: never}, {Key: "empty", Value: false},
			{Key: "others", Value: others.String()}}},
		{Key: "$inc", Value: bson.D{{Key: "times", Value: int64(1)}}},
	}, options.UpdateOne().SetUpsert(true))
	if driver.IsDuplicateKeyError(err) {
		err = errContended
	}
	if err != nil {
		return nil, err
	}
	if registered {
		same, err := d.s.setMeta(ctx, bson.D{{Key: "generation", Value: found.Generation}}, bson.D{
			{Key: "$pull", Value: bson.D{{Key: "groups", Value: bson.D{{Key: "group", Value: name}}}}},
			{Key: "$inc", Value: bson.D{{Key: "generation", Value: int64(1)}}},
		})
		if err == nil && !same {
			err = errContended
		}
		if err != nil {
			return nil, err
		}
	}
	return others, d.s.forgetWorkers(ctx, name, found.Now)
}

func (d *drop) topics(ctx context.Context) (topics []string, err error) {
	err = d.s.do(ctx, d.operation, func(ctx context.Context) error {
		topics, err = d.s.topicsOf(ctx, d.of, undelivered...)
		return err
	})
	return topics, err
}

func (d *drop) giveBack(ctx context.Context, topic string) (done int, more bool, err error) {
	return d.step(ctx, undelivered, bson.D{{Key: "topic", Value: topic}}, func(ctx context.Context, ids bson.D) (int, error) {
		result, err := d.s.records.UpdateMany(ctx, append(ids, bson.E{Key: "open", Value: true}), givenBack())
		if err != nil {
			return 0, err
		}
		return int(result.ModifiedCount), nil
	})
}

// givenBack is the update that makes a record as if it were appended without a group. What waits for a join is due
// when the join is decided.
func givenBack() driver.Pipeline {
	waits := bson.D{{Key: "$ne", Value: bson.A{bson.D{{Key: "$type", Value: "$waits_for"}}, "missing"}}}
	due := given(waits, "$next_at", "$due_at")
	later := bson.D{{Key: "$gt", Value: bson.A{due, "$created_at"}}}
	return pipeline(bson.D{
		{Key: "grp", Value: literal("")}, {Key: "status", Value: outmill.StatusPending},
		{Key: "stage", Value: given(later, storekit.StageDelayed, storekit.StageReady)},
		{Key: "available_at", Value: given(later, due, "$$REMOVE")}, {Key: "next_at", Value: due},
		{Key: "attempts", Value: 0}, {Key: "expiries", Value: 0},
	}, "owner", "paused_by")
}

func (d *drop) delete(ctx context.Context, topic string) (done int, more bool, err error) {
	return d.step(ctx, undelivered, bson.D{{Key: "topic", Value: topic}}, d.remove)
}

func (d *drop) deleteSettled(ctx context.Context) (done int, more bool, err error) {
	return d.step(ctx, []int{storekit.StageProcessed, storekit.StageDead}, nil, d.remove)
}

func (d *drop) remove(ctx context.Context, ids bson.D) (int, error) {
	return d.s.remove(ctx, ids, isDropped)
}

// step changes records of the first of the stages that has some.
func (d *drop) step(ctx context.Context, stages []int, filter bson.D, change func(ctx context.Context, ids bson.D) (int, error)) (
	done int, more bool, err error) {
	err = d.s.do(ctx, d.operation, func(ctx context.Context) error {
		for _, stage := range stages {
			found, err := findAll[candidate](ctx, d.s.records, append(d.of.in(stage, filter...),
				bson.E{Key: "generation", Value: bson.D{{Key: "$lte", Value: d.last}}}), first(adoptAtOnce, nil, "_id"))
			if err != nil {
				return err
			}
			if len(found) == 0 {
				continue
			}
			ids := make(bson.A, len(found))
			for i, r := range found {
				ids[i] = r.ID
			}
			n, err := change(ctx, append(in("_id", ids), bson.E{Key: "grp", Value: d.of}))
			done, more = done+n, true
			return err
		}
		more = false
		return nil
	})
	return done, more, err
}

func (d *drop) end(ctx context.Context) error {
	return d.s.do(ctx, d.operation, func(ctx context.Context) error {
		if _, err := d.s.endings.DeleteOne(ctx, append(where("_id", string(d.of)), exists("others")...)); err != nil {
			return err
		}
		lanes, err := findAll[lane](ctx, d.s.lanes, bson.D{{Key: "grp", Value: d.of}})
		if err == nil {
			err = d.s.dropLanes(ctx, lanes)
		}
		return err
	})
}
