package driver

import (
	"context"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// mostHistory is more entries than a history of driver.HistoryBytes has that package engine writes.
const mostHistory = 100

// Apply writes changes of rows and notes. Leases that are the last changes of a claim are written outside of the transaction, if that has
// written no row: each is valid by itself. If the transaction has locked lines, its commit says that they were locked all the time.
func (t *tx) Apply(ctx context.Context, c driver.Changes) (driver.Applied, error) {
	if t.callers {
		return driver.Applied{}, errOutside
	}
	if c.Last && !t.wroteRows && onlyLeases(&c) {
		return t.lease(ctx, &c)
	}
	own, err := t.begin(ctx)
	if err != nil {
		return driver.Applied{}, err
	}
	done := driver.Applied{}
	if t.careful {
		if done.Lost, err = t.lost(ctx, &c); err != nil {
			return done, err
		}
	}
	t.applied = append(t.applied, c)
	var models []mongo.WriteModel
	changed, deleted := 0, 0
	for _, u := range updatesOf(c.Rows, done.Lost, t.state.Now) {
		models, changed = append(models, u.model()), changed+len(u.ids)
	}
	for i := range c.Delete {
		if r := &c.Delete[i]; !done.Lost[r.ID] {
			models, deleted = append(models, mongo.NewDeleteOneModel().SetFilter(append(idIs(uuid(r.ID)), unchanged(r)...))), deleted+1
		}
	}
	if len(models) > 0 {
		t.wroteRows = true
		result, err := t.d.records.BulkWrite(own, models, options.BulkWrite().SetOrdered(false))
		if err != nil {
			return done, err
		}
		if int(result.MatchedCount) != changed || int(result.DeletedCount) != deleted {
			// The answer does not say which. The next try reads that first.
			t.careful = true
			return done, errConflict
		}
	}
	return done, t.writeNotes(own, &c)
}

// lost returns the rows of which the snapshot of the transaction has another state.
func (t *tx) lost(ctx context.Context, c *driver.Changes) (map[outmill.WorkItemID]bool, error) {
	var was []driver.Row
	for i := range c.Rows {
		was = append(was, c.Rows[i].Was)
	}
	was = append(was, c.Delete...)
	ids := make([]outmill.WorkItemID, len(was))
	for i := range was {
		ids[i] = was[i].ID
	}
	found, err := t.find(ctx, false, ids)
	if err != nil {
		return nil, err
	}
	now := make(map[outmill.WorkItemID]driver.Row, len(found))
	for _, r := range found {
		now[r.ID] = r
	}
	lost := map[outmill.WorkItemID]bool{}
	for _, w := range was {
		r, exists := now[w.ID]
		if !exists || r.Line != w.Line || r.Stage != w.Stage || r.Wake != w.Wake || r.Owner != w.Owner || r.Claims != w.Claims ||
			r.Step != w.Step {
			lost[w.ID] = true
		}
	}
	return lost, nil
}

// unchanged selects a row that is still what was read. Of a row that could not be decoded, the fields that could be count.
func unchanged(r *driver.Row) bson.D {
	nothing := func(is bool, value any) any {
		if is {
			return nil
		}
		return value
	}
	all := bson.D{
		stageIs(r.Stage), {Key: "wake", Value: int64(r.Wake)}, {Key: "claims", Value: r.Claims}, {Key: "grp", Value: r.Group},
		{Key: "owner", Value: nothing(r.Owner == "", r.Owner)}, {Key: "step", Value: nothing(r.Step.IsZero(), uuid(r.Step))},
	}
	if r.Broken == "" {
		return all
	}
	readable := all[:0]
	for _, e := range all {
		if !strings.Contains(r.Broken, "field "+e.Key+":") {
			readable = append(readable, e)
		}
	}
	return readable
}

// update is one update of rows that were in the same state, and become the same.
type update struct {
	driver.Change
	ids bson.A
	// tells says that other processes are told.
	tells bool
}

// updatesOf makes as few updates of the changes as possible.
func updatesOf(changes []driver.Change, without map[outmill.WorkItemID]bool, now driver.Time) []update {
	at := make(map[driver.Change]int, 4)
	var list []update
	for _, c := range changes {
		id := c.Was.ID
		if without[id] {
			continue
		}
		one := c
		for _, r := range []*driver.Row{&one.Was, &one.Now} {
			r.Seq, r.ID, r.Topic, r.Part, r.Key, r.Tenant, r.Created, r.Size, r.Blocked = 0, outmill.WorkItemID{}, "", 0, "", "", 0, 0, false
			r.WaitsFor = outmill.JoinID{}
		}
		if one.Was.Next == one.Now.Next && one.Was.Broken == "" {
			one.Was.Next, one.Now.Next = 0, 0
		}
		if one.Now.Error != nil {
			// Errors are compared by their addresses, so each is alone.
			list = append(list, update{one, bson.A{uuid(id)}, givesBack(&c.Was, &c.Now, now)})
			continue
		}
		i, known := at[one]
		if !known {
			i = len(list)
			at[one], list = i, append(list, update{one, nil, givesBack(&c.Was, &c.Now, now)})
		}
		list[i].ids = append(list[i].ids, uuid(id))
	}
	return list
}

// model is the update with further conditions.
func (u *update) model(more ...bson.E) mongo.WriteModel {
	filter, change := append(unchanged(&u.Was), more...), changeOf(&u.Was, &u.Now)
	if u.tells {
		change = append(change, bson.E{Key: "$inc", Value: bson.D{{Key: fieldWoken, Value: 1}}})
	}
	if len(u.ids) == 1 {
		return mongo.NewUpdateOneModel().SetFilter(append(idIs(u.ids[0]), filter...)).SetUpdate(change)
	}
	return mongo.NewUpdateManyModel().SetFilter(append(bson.D{in("_id", u.ids)}, filter...)).SetUpdate(change)
}

// changeOf is the update of the state, as far as it differs.
func changeOf(was, now *driver.Row) bson.D {
	var set, unset bson.D
	put := func(field string, differs, isZero bool, value any) {
		switch {
		case !differs && was.Broken == "":
		case isZero:
			unset = append(unset, bson.E{Key: field, Value: ""})
		default:
			set = append(set, bson.E{Key: field, Value: value})
		}
	}
	text := func(field, was, now string) { put(field, was != now, now == "", now) }
	number := func(field string, was, now int64) { put(field, was != now, now == 0, now) }
	put("stage", was.Stage != now.Stage, false, int32(now.Stage))
	put("wake", was.Wake != now.Wake, false, int64(now.Wake))
	put("claims", was.Claims != now.Claims, false, int32(now.Claims))
	put("grp", was.Group != now.Group, false, now.Group)
	number("next", int64(was.Next), int64(now.Next))
	number("expires", int64(was.Expires), int64(now.Expires))
	number("attempts", int64(was.Attempts), int64(now.Attempts))
	number("expiries", int64(was.Expiries), int64(now.Expiries))
	number("processed", int64(was.Processed), int64(now.Processed))
	text("owner", was.Owner, now.Owner)
	text("worker", was.Worker, now.Worker)
	text("under", was.Under, now.Under)
	text("by", was.By, now.By)
	put("parked", was.Parked != now.Parked, !now.Parked, true)
	if now.Error != nil {
		set = append(set, bson.E{Key: "content.error", Value: *now.Error})
	}
	var change bson.D
	if len(set) > 0 {
		change = append(change, bson.E{Key: "$set", Value: set})
	}
	if len(unset) > 0 {
		change = append(change, bson.E{Key: "$unset", Value: unset})
	}
	if now.Tried != "" {
		change = append(change, bson.E{Key: "$push", Value: bson.D{{Key: "content.history", Value: bson.D{
			{Key: "$each", Value: bson.A{now.Tried}}, {Key: "$position", Value: 0}, {Key: "$slice", Value: mostHistory},
		}}}})
	}
	if len(change) == 0 {
		// A bulk write has no update that changes nothing.
		change = bson.D{{Key: "$set", Value: bson.D{{Key: "claims", Value: int32(now.Claims)}}}}
	}
	return change
}

// writeNotes opens, drops and sets notes.
func (t *tx) writeNotes(ctx context.Context, c *driver.Changes) error {
	var models []mongo.WriteModel
	for _, n := range c.Open {
		models = append(models, mongo.NewUpdateOneModel().SetFilter(idIs(noteID(n.Line, n.Name))).SetUpdate(bson.D{
			{Key: "$set", Value: bson.D{{Key: "blocker", Value: ""}, {Key: "look_at", Value: int64(0)}, {Key: "looks", Value: 0}}},
		}))
	}
	for _, n := range c.Drop {
		models = append(models, mongo.NewDeleteOneModel().SetFilter(append(idIs(noteID(n.Line, n.Name)), bson.E{Key: "looks", Value: n.Looks})))
	}
	for _, n := range c.Notes {
		set := bson.D{{Key: "blocker", Value: n.Blocker}, {Key: "look_at", Value: int64(n.LookAt)}}
		change := bson.D{{Key: "$set", Value: append(set, bson.E{Key: "head", Value: n.Head}, bson.E{Key: "looks", Value: n.Looks})}}
		if n.Name == n.Blocker {
			// A new note has the Looks of the change, and one that exists one more than it had.
			models = append(models, mongo.NewUpdateOneModel().SetFilter(idIs(noteID(n.Line, n.Name))).SetUpdate(mongo.Pipeline{
				{{Key: "$set", Value: bson.D{
					{Key: "blocker", Value: bson.D{{Key: "$literal", Value: n.Blocker}}}, {Key: "look_at", Value: int64(n.LookAt)},
					{Key: "head", Value: bson.D{{Key: "$min", Value: bson.A{"$head", n.Head}}}},
					{Key: "looks", Value: bson.D{{Key: "$ifNull", Value: bson.A{
						bson.D{{Key: "$add", Value: bson.A{"$looks", 1}}}, n.Looks,
					}}}},
				}}},
			}).SetUpsert(true))
			continue
		}
		models = append(models, mongo.NewUpdateOneModel().SetFilter(idIs(noteID(n.Line, n.Name))).SetUpdate(change).SetUpsert(true))
	}
	t.state.Noted(c.Notes)
	if len(models) == 0 {
		return nil
	}
	_, err := t.d.notes.BulkWrite(ctx, models)
	return err
}

// Forget deletes the notes of a group.
func (t *tx) Forget(ctx context.Context, group string) error {
	own, err := t.begin(ctx)
	if err == nil {
		_, err = t.d.notes.DeleteMany(own, bson.D{{Key: "_id.grp", Value: group}})
	}
	return err
}
