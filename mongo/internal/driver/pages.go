package driver

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/engine/driver"
)

// pageOfLine is one of several pages, and what rows its line has beside.
type pageOfLine struct {
	*driver.Page
	beside
}

// Pages returns a page of each line, by one command for all, and one for the states of their keys. Those are of one moment where there are
// keys: a claim without an order needs none.
func (t *tx) Pages(ctx context.Context, ask driver.Ask, lines []driver.Line) (pages []driver.Page, err error) {
	ask.Pass = true
	pages = make([]driver.Page, len(lines))
	free, state := lines, false
	if ask.Lock && !t.reads {
		if free, err = t.lockLines(ctx, ask, lines); err != nil {
			return nil, err
		}
		state = t.state.Now == 0
	}
	if ask.Keys && t.session == nil && t.view == nil {
		if t.view, err = t.d.moment(); err != nil {
			return nil, err
		}
		defer func() {
			t.d.endSession(ctx, t.view, err)
			t.view = nil
		}()
	}
	at := make(map[driver.Line]*pageOfLine, len(lines))
	for i, line := range lines {
		pages[i].Busy = true
		at[line] = &pageOfLine{Page: &pages[i]}
	}
	for _, line := range free {
		at[line].Busy = false
	}
	if err := t.readReady(ctx, ask, state, free, at); err != nil || !ask.Keys {
		return pages, err
	}
	return pages, t.readKeys(ctx, ask, free, at)
}

// lockLines locks lines by one command, and returns those that nobody else has locked. After a conflict, which aborts the transaction, the
// next try locks them one by one, and so learns which.
func (t *tx) lockLines(ctx context.Context, ask driver.Ask, lines []driver.Line) (free []driver.Line, err error) {
	var models []mongo.WriteModel
	for _, line := range lines {
		ask.Line = line
		if t.oneByOne {
			is, waited, err := t.lockLine(ctx, ask)
			if err != nil {
				return nil, err
			}
			if is {
				free = append(free, line)
			}
			t.forgetTime(waited)
			continue
		}
		is, err := t.mayLock(ctx, ask)
		if err != nil {
			return nil, err
		}
		if is && !t.locked[line] {
			models = append(models, mongo.NewUpdateOneModel().SetFilter(idIs(lineID(line))).SetUpdate(t.d.lockOfLine()).SetUpsert(true))
		}
		if is {
			free = append(free, line)
		}
	}
	if len(models) == 0 {
		return free, nil
	}
	own, err := t.begin(ctx)
	if err != nil {
		return nil, err
	}
	result, err := t.d.lines.BulkWrite(own, models, options.BulkWrite().SetOrdered(false))
	if err == nil && int(result.ModifiedCount+result.UpsertedCount) < len(models) {
		err = errConflict
	}
	if err != nil {
		t.oneByOne = true
		return nil, conflictOfLock(err)
	}
	for _, line := range free {
		t.noteLocked(line)
	}
	t.forgetTime(true)
	return free, nil
}

// forgetTime has the next read tell the time, because the transaction may have waited.
func (t *tx) forgetTime(waited bool) {
	if waited {
		t.state.Now = 0
	}
}

// readReady reads the first ready rows of the lines, and which lines need a Page of their own.
func (t *tx) readReady(ctx context.Context, ask driver.Ask, state bool, lines []driver.Line, at map[driver.Line]*pageOfLine) error {
	if len(lines) == 0 {
		return nil
	}
	names := make([]string, len(lines))
	for i, line := range lines {
		names[i] = line.Name()
	}
	group := lines[0].Group
	busy := t.coming(group, names, !ask.Keys)
	for _, stage := range unroutedStages {
		busy = append(busy, part{t.d.records, mongo.Pipeline{
			{{Key: "$match", Value: bson.D{{Key: "grp", Value: ""}, {Key: "stage", Value: stage}, in("topic", names)}}},
			{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$topic"}}}},
		}})
	}
	if state || t.state.Notes {
		busy = append(busy, t.notesOfLines(ask, group, names)...)
		if !ask.Keys {
			busy = append(busy, t.firstsOf(group, names, ascending("topic", "under", "seq"), stageIs(driver.Held), underKeys))
		}
	}
	ofKeys := len(busy)
	if ask.Keys {
		busy = append(busy, t.firstsOf(group, names, ascending("topic", "wake", "seq"), stageIs(driver.Held)),
			t.firstsOf(group, names, ascending("topic", "key", "seq"), isParked))
	}
	parts, along := busy, !ask.Keys && ask.Limit <= smallOnes
	for _, line := range lines {
		p := t.partOf(query{ofLine(line, stageIs(driver.Ready)), byWake, ask.Limit})
		if along {
			p.stages[len(p.stages)-1] = withSmallContent
		}
		parts = append(parts, p)
	}
	results, err := t.read(ctx, state, parts...)
	if err != nil {
		return err
	}
	for i, found := range results[:len(busy)] {
		for _, raw := range found {
			name, ok := raw.Lookup("_id").StringValueOK()
			page := at[driver.LineOf(group, name)]
			if !ok || page == nil {
				continue
			}
			wake, _ := raw.Lookup("wake").AsInt64OK()
			switch {
			case i == ofKeys:
				page.held = true
			case i == ofKeys+1:
				page.parked = true
			case i >= len(dueStages) || wake <= t.now():
				page.Busy = true
			default:
				page.live = page.live || dueStages[i] != driver.Delayed
			}
		}
	}
	for i, found := range results[len(busy):] {
		if page := at[lines[i]]; !page.Busy {
			page.Ready = readRows(found)
			if along {
				t.keepContents(found)
			}
		}
	}
	return nil
}

// coming reads which lines have rows in the stages that end by time, or only those whose Wake has come.
func (t *tx) coming(group string, names []string, onlyCome bool) (parts []part) {
	for _, stage := range dueStages {
		p := t.firstsOf(group, names, ascending("topic", "wake", "seq"), stageIs(stage))
		if onlyCome {
			p.stages = append(p.stages, bson.D{{Key: "$match", Value: bson.D{t.passed("wake")}}})
		}
		parts = append(parts, p)
	}
	return parts
}

// firstsOf reads the first row of each line; no names are all lines. The server skips from line to line.
func (t *tx) firstsOf(group string, names []string, sort bson.D, filter ...bson.E) part {
	of, first := bson.D{{Key: "grp", Value: group}}, bson.D{{Key: "_id", Value: "$topic"}}
	if names != nil {
		of = append(of, in("topic", names))
	}
	for _, field := range []string{"wake", "next", "created"} {
		first = append(first, bson.E{Key: field, Value: bson.D{{Key: "$first", Value: "$" + field}}})
	}
	return part{t.d.records, mongo.Pipeline{
		{{Key: "$match", Value: append(of, filter...)}}, {{Key: "$sort", Value: sort}}, {{Key: "$group", Value: first}},
	}}
}

// notesOfLines reads which lines have notes that a claim looks at, and the first time of these.
func (t *tx) notesOfLines(ask driver.Ask, group string, names []string) (parts []part) {
	of := bson.D{{Key: "_id.grp", Value: group}}
	if names != nil {
		of = append(of, in("_id.topic", names))
	}
	lines := make([]driver.Line, len(names))
	for i, name := range names {
		lines[i] = driver.LineOf(group, name)
	}
	first := bson.D{{Key: "_id", Value: "$_id.topic"}, {Key: "look_at", Value: bson.D{{Key: "$min", Value: "$look_at"}}}}
	for _, filter := range t.looks(of, ask, lines...) {
		parts = append(parts, part{t.d.notes, mongo.Pipeline{{{Key: "$match", Value: filter}}, {{Key: "$group", Value: first}}}})
	}
	return parts
}

// readKeys reads the states of the keys of the ready rows.
func (t *tx) readKeys(ctx context.Context, ask driver.Ask, lines []driver.Line, at map[driver.Line]*pageOfLine) error {
	var parts []part
	keys, gives := make([][]string, len(lines)), make([][]int, len(lines))
	for i, line := range lines {
		if page := at[line]; !page.Busy {
			keys[i] = keysOfPage(page.Page)
		}
		if len(keys[i]) > 0 {
			var more []part
			more, gives[i] = t.keyParts(line, keys[i], at[line].beside)
			parts = append(parts, more...)
		}
	}
	results, err := t.readInPieces(ctx, parts)
	if err != nil {
		return err
	}
	for i, line := range lines {
		if len(keys[i]) > 0 {
			at[line].Keys = t.statesOf(keys[i], ask.Owner, placed(gives[i], results))
			results = results[len(gives[i]):]
		}
	}
	return nil
}
