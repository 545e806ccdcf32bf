package driver

import (
	"context"
	"reflect"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// query is one search along one index.
type query struct {
	filter, sort bson.D
	limit        int
}

var (
	// underKeys selects what is held under the notes of keys.
	underKeys      = bson.E{Key: "under", Value: bson.D{{Key: "$gte", Value: driver.KeyNote("")}, {Key: "$lt", Value: "l"}}}
	unroutedStages = bson.A{driver.Ready, driver.Delayed}
	byWake         = ascending("wake", "seq")
	bySeq          = ascending("seq")
)

// serverNow is the time of the database within a command that reads the state, too. See tx.read.
const serverNow = "$$at"

// same reports whether a call asks for what the first read has read.
func same[T any](read, asked T) bool { return reflect.DeepEqual(read, asked) }

// now is the time of the transaction in a query.
func (t *tx) now() int64 { return int64(t.state.Now) }

// passed selects documents whose time has come. Where the state is read by the same command, only the server knows the time.
func (t *tx) passed(field string) bson.E {
	if t.state.Now != 0 {
		return upTo(field, t.now())
	}
	return bson.E{Key: "$expr", Value: bson.D{{Key: "$lte", Value: bson.A{"$" + field, serverNow}}}}
}

func (t *tx) come(stage driver.Stage) bson.D { return bson.D{stageIs(stage), t.passed("wake")} }

func ofLine(l driver.Line, more ...bson.E) bson.D {
	return append(bson.D{{Key: "grp", Value: l.Group}, {Key: "topic", Value: l.Name()}}, more...)
}

func stageIs(stage driver.Stage) bson.E { return bson.E{Key: "stage", Value: stage} }

func above(field string, value any) bson.E {
	return bson.E{Key: field, Value: bson.D{{Key: "$gt", Value: value}}}
}

func upTo(field string, value any) bson.E {
	return bson.E{Key: field, Value: bson.D{{Key: "$lte", Value: value}}}
}

// dueStages are those of ByComing.
var dueStages = []driver.Stage{driver.Waiting, driver.Delayed, driver.Leased}

// queries are those of a search, whose results follow one another.
func (t *tx) queries(s driver.Search) []query {
	one := func(sort bson.D, filter bson.D) []query { return []query{{filter, sort, s.Limit}} }
	switch s.By {
	case driver.ByStage:
		return one(byWake, ofLine(s.Line, stageIs(s.Stage)))
	case driver.ByPlace:
		return one(bySeq, ofLine(s.Line, in("stage", bson.A{driver.Ready, driver.Held}), bson.E{Key: "wake", Value: 0}))
	case driver.ByKeyed:
		return one(bySeq, ofLine(s.Line, stageIs(driver.Held), bson.E{Key: "wake", Value: 0},
			underKeys))
	case driver.ByPaused:
		return one(bySeq, ofLine(s.Line, stageIs(driver.Held), bson.E{Key: "wake", Value: 0},
			bson.E{Key: "under", Value: bson.D{{Key: "$gte", Value: "l"}}}))
	case driver.ByComing, driver.ByDue:
		var list []query
		if s.By == driver.ByDue {
			list = one(byWake, ofLine(s.Line, stageIs(driver.Ready)))
		}
		for _, stage := range dueStages {
			list = append(list, query{ofLine(s.Line, t.come(stage)...), byWake, s.Limit})
		}
		return list
	case driver.ByLater:
		return one(byWake, ofLine(s.Line, stageIs(s.Stage), above("wake", t.now())))
	case driver.ByEnded:
		return one(byWake, t.come(driver.Leased))
	case driver.ByExpiry:
		return one(ascending("expires", "seq"), bson.D{
			{Key: "expires", Value: bson.D{{Key: "$gt", Value: 0}, {Key: "$lte", Value: t.now()}}},
			{Key: "$or", Value: bson.A{
				bson.D{{Key: "stage", Value: bson.D{{Key: "$lt", Value: driver.Leased}}}},
				bson.D{stageIs(driver.Leased), upTo("wake", t.now())},
			}},
		})
	case driver.ByKey:
		return one(bySeq, ofLine(s.Line, bson.E{Key: "key", Value: s.Key},
			in("stage", bson.A{driver.Ready, driver.Held, driver.Waiting, driver.Delayed}), above("seq", timestampOf(s.From))))
	case driver.ByParked:
		return one(bySeq, ofLine(s.Line, bson.E{Key: "key", Value: s.Key}, isParked,
			above("seq", timestampOf(s.From))))
	case driver.ByDone:
		return one(ascending("processed", "seq"), bson.D{stageIs(driver.Processed),
			{Key: "processed", Value: bson.D{{Key: "$gt", Value: 0}, {Key: "$lte", Value: int64(s.Until)}}}})
	case driver.ByUnrouted:
		return one(bySeq, ofLine(driver.Line{Topic: s.Topic, Part: s.Part}, in("stage", unroutedStages)))
	case driver.ByStep:
		return one(nil, bson.D{{Key: "step", Value: uuid(s.Step)}})
	case driver.ByWaiter:
		return one(nil, bson.D{
			{Key: "waits_for", Value: uuid(s.Join)}, in("stage", bson.A{driver.Waiting, driver.Delayed}), above("wake", t.now()),
		})
	case driver.ByOpen:
		// The server skips from group to group.
		return one(nil, bson.D{{Key: "grp", Value: bson.D{{Key: "$gte", Value: ""}}}, upTo("stage", driver.Leased)})
	}
	return nil
}

// withoutContent leaves the content out.
var withoutContent = bson.D{{Key: "$project", Value: bson.D{{Key: "content", Value: 0}}}}

func (t *tx) partOf(q query) part {
	stages := mongo.Pipeline{{{Key: "$match", Value: q.filter}}}
	if q.sort != nil {
		stages = append(stages, bson.D{{Key: "$sort", Value: q.sort}})
	}
	return part{t.d.records, append(stages, bson.D{{Key: "$limit", Value: q.limit}}, withoutContent)}
}

// search returns the results of the searches, one after the other.
func (t *tx) search(ctx context.Context, state bool, searches []driver.Search) (rows []driver.Row, err error) {
	if len(searches) == 1 && searches[0].Free && searches[0].By == driver.ByDue {
		return t.searchFree(ctx, state, searches[0])
	}
	var parts []part
	for _, s := range searches {
		parts = append(parts, t.partsOf(s)...)
	}
	if len(parts) == 0 && !state {
		return nil, nil
	}
	results, err := t.read(ctx, state, parts...)
	for _, found := range results {
		rows = append(rows, readRows(found)...)
	}
	return rows, err
}

func (t *tx) partsOf(s driver.Search) (parts []part) {
	if s.Limit <= 0 {
		return nil
	}
	for _, q := range t.queries(s) {
		parts = append(parts, t.partOf(q))
	}
	return parts
}

// searchFree is the search of a claim without an order: small contents come along, and rows that claims of other processes are likely to
// take are left to them. If that leaves too few, it takes them after all.
func (t *tx) searchFree(ctx context.Context, state bool, s driver.Search) (rows []driver.Row, err error) {
	if s.Limit <= 0 && !state {
		return nil, nil
	}
	if err := t.choose(ctx, s.Line); err != nil {
		return nil, err
	}
	parts, skip := t.partsOf(s), t.d.crowds.skip(s.Line, s.Limit)
	for i, p := range parts {
		last := len(p.stages) - 1
		if s.Limit <= smallOnes {
			p.stages[last] = withSmallContent
		}
		if i == 0 && skip > 0 {
			// Ready rows are first. See driver.ByDue.
			parts[0].stages = slices.Insert(p.stages, last-1, bson.D{{Key: "$skip", Value: skip}})
		}
	}
	results, err := t.read(ctx, state, parts...)
	if err != nil {
		return nil, err
	}
	if skip > 0 && len(results[0]) < s.Limit {
		t.d.crowds.forget(s.Line)
		return t.searchFree(ctx, false, s)
	}
	for _, found := range results {
		rows = append(rows, readRows(found)...)
		t.keepContents(found)
	}
	return rows, nil
}

// A claim without an order reads small contents with its rows: the lease then needs the row to be unchanged, so the content is that of
// the leased row. Large ones are read behind the lease, so that a record that ends its process by its size becomes a suspect.
const (
	smallOnes = 1000
	small     = 2 << 10
)

var withSmallContent = bson.D{{Key: "$set", Value: bson.D{{Key: "content", Value: given(
	bson.D{{Key: "$lte", Value: bson.A{"$size", small}}}, "$content", "$$REMOVE")}}}}

func (t *tx) keepContents(found []bson.Raw) {
	for _, raw := range found {
		if _, err := raw.LookupErr("content"); err != nil {
			continue
		}
		if t.contents == nil {
			t.contents = make(map[outmill.WorkItemID]bson.Raw, len(found))
		}
		if _, data, ok := raw.Lookup("_id").BinaryOK(); ok && len(data) == len(outmill.WorkItemID{}) {
			t.contents[outmill.WorkItemID(data)] = raw
		}
	}
}

// chosen is the lock of a line from which a claim without an order chooses: the claims of one process choose one after another, so that
// they do not choose the same rows. What only reads takes nothing from others.
type chosen struct{ driver.Line }

// choose locks the line within this process. A transaction waits for its first line only, and not if it holds rows: see tx.lockWithin.
func (t *tx) choose(ctx context.Context, line driver.Line) error {
	if t.reads {
		return nil
	}
	unlock, err := t.d.lock(ctx, chosen{line}, len(t.unlocks) > 0 || t.held)
	if unlock != nil {
		t.unlocks = append(t.unlocks, unlock)
	}
	return err
}

// Rows returns the results of the searches. It locks nothing: Apply compares.
func (t *tx) Rows(ctx context.Context, searches ...driver.Search) ([]driver.Row, error) {
	if first := t.first(); first.read && len(first.Searches) > 0 && same(first.Searches, searches) {
		return first.rows, nil
	}
	return t.search(ctx, false, searches)
}

// Find returns the rows with these ids.
func (t *tx) Find(ctx context.Context, ids []outmill.WorkItemID) ([]driver.Row, error) {
	if first := t.first(); first.read && first.Find != nil && same(first.Find, ids) {
		return first.rows, nil
	}
	return t.find(ctx, false, ids)
}

func (t *tx) find(ctx context.Context, state bool, ids []outmill.WorkItemID) ([]driver.Row, error) {
	if len(ids) == 0 && !state {
		return nil, nil
	}
	list := make(bson.A, len(ids))
	for i, id := range ids {
		list[i] = uuid(id)
	}
	results, err := t.read(ctx, state, part{t.d.records, mongo.Pipeline{{{Key: "$match", Value: bson.D{in("_id", list)}}}, withoutContent}})
	if err != nil {
		return nil, err
	}
	return t.shown(ctx, readRows(results[0]))
}

// shown sets Blocked, by another read if rows are held under the notes of their keys.
func (t *tx) shown(ctx context.Context, rows []driver.Row) ([]driver.Row, error) {
	var ids bson.A
	for i := range rows {
		if rows[i].Stage == driver.Held && ofKey(rows[i].Under) {
			ids = append(ids, noteID(rows[i].Line, rows[i].Under))
		}
	}
	if len(ids) == 0 {
		return rows, nil
	}
	found, err := t.all(ctx, part{t.d.notes, mongo.Pipeline{{{Key: "$match", Value: bson.D{in("_id", ids), above("blocker", "")}}}}})
	if err != nil {
		return nil, err
	}
	closed := map[noteKey]bool{}
	for _, raw := range found {
		n := readNote(raw)
		closed[noteKey{n.Line, n.Name}] = true
	}
	for i := range rows {
		r := &rows[i]
		r.Blocked = r.Stage == driver.Held && ofKey(r.Under) && closed[noteKey{r.Line, r.Under}]
	}
	return rows, nil
}

func ofKey(under string) bool {
	_, is := driver.KeyOf(under)
	return is
}

// Lock returns a row, and writes it so that no other transaction changes it.
func (t *tx) Lock(ctx context.Context, id outmill.WorkItemID) (r driver.Row, found bool, err error) {
	own, err := t.begin(ctx)
	if err != nil {
		return r, false, err
	}
	result, err := t.d.records.UpdateOne(own, idIs(uuid(id)), bson.D{{Key: "$inc", Value: bson.D{{Key: "locks", Value: 1}}}})
	if err != nil || result.MatchedCount == 0 {
		return r, false, err
	}
	rows, err := t.find(ctx, false, []outmill.WorkItemID{id})
	if err != nil || len(rows) == 0 {
		return r, false, err
	}
	return rows[0], true, nil
}

// Load returns the content of rows, in their order.
func (t *tx) Load(ctx context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	contents := make([]driver.Content, len(rows))
	if len(rows) == 0 {
		return contents, nil
	}
	ids := make(bson.A, len(rows))
	for i := range rows {
		ids[i] = uuid(rows[i].ID)
	}
	fields := bson.D{{Key: "content", Value: 1}}
	if without := unwanted(want); len(without) > 0 {
		fields = without
	}
	found, err := t.all(ctx, part{t.d.records, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{in("_id", ids)}}}, {{Key: "$project", Value: fields}},
	}})
	if err != nil {
		return nil, err
	}
	byID := make(map[outmill.WorkItemID]bson.Raw, len(found))
	for _, raw := range found {
		_, data := raw.Lookup("_id").Binary()
		byID[outmill.WorkItemID(data)] = raw
	}
	for i := range rows {
		if raw := byID[rows[i].ID]; raw != nil {
			contents[i] = readContent(raw)
		}
	}
	return contents, nil
}

func unwanted(want driver.Want) (fields bson.D) {
	for _, w := range []struct {
		want  driver.Want
		field string
	}{{driver.Metadata, "content.metadata"}, {driver.Payload, "content.payload"}, {driver.History, "content.history"}} {
		if want&w.want == 0 {
			fields = append(fields, bson.E{Key: w.field, Value: 0})
		}
	}
	return fields
}

// Count counts what searches find.
func (t *tx) Count(ctx context.Context, searches ...driver.Search) ([]driver.Counted, error) {
	var parts []part
	var of []int
	for i, s := range searches {
		if s.Limit <= 0 {
			continue
		}
		for _, q := range t.queries(s) {
			p := t.partOf(q)
			p.stages[len(p.stages)-1] = bson.D{{Key: "$group", Value: t.counted()}}
			parts, of = append(parts, p), append(of, i)
		}
	}
	counted := make([]driver.Counted, len(searches))
	if len(parts) == 0 {
		return counted, nil
	}
	results, err := t.read(ctx, false, parts...)
	if err != nil {
		return nil, err
	}
	for i, found := range results {
		for _, raw := range found {
			var one struct {
				N, Later int
				Oldest   *int64
			}
			if err := bson.Unmarshal(raw, &one); err != nil {
				return nil, err
			}
			c := &counted[of[i]]
			c.N, c.Later = c.N+one.N, c.Later+one.Later
			if one.Oldest != nil && (c.Oldest == 0 || driver.Time(*one.Oldest) < c.Oldest) {
				c.Oldest = driver.Time(*one.Oldest)
			}
		}
	}
	return counted, nil
}

// counted is a group of all rows.
func (t *tx) counted() bson.D {
	leased := bson.D{{Key: "$eq", Value: bson.A{"$stage", driver.Leased}}}
	later := bson.D{{Key: "$and", Value: bson.A{
		bson.D{{Key: "$ne", Value: bson.A{"$stage", driver.Leased}}}, bson.D{{Key: "$gt", Value: bson.A{"$next", t.now()}}},
	}}}
	// A missing expiry sorts before all numbers.
	expired := bson.D{{Key: "$and", Value: bson.A{
		bson.D{{Key: "$gt", Value: bson.A{"$expires", 0}}}, bson.D{{Key: "$lte", Value: bson.A{"$expires", t.now()}}},
	}}}
	return bson.D{
		{Key: "_id", Value: nil}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}},
		{Key: "later", Value: bson.D{{Key: "$sum", Value: given(later, 1, 0)}}},
		{Key: "oldest", Value: bson.D{{Key: "$min", Value: given(expired, nil, given(leased, "$wake", "$next"))}}},
	}
}

func given(condition, then, otherwise any) bson.D {
	return bson.D{{Key: "$cond", Value: bson.A{condition, then, otherwise}}}
}
