package next

import (
	"cmp"
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/engine/driver"
)

// Pausing returns the blockers of a group that are pauses.
func (t *tx) Pausing(ctx context.Context, group string) (blockers []string, err error) {
	found, err := t.all(ctx, part{t.d.notes, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "_id.grp", Value: group}, blockedByPause}}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$blocker"}}}}, {{Key: "$sort", Value: ascending("_id")}},
	}})
	for _, raw := range found {
		blocker := raw.Lookup("_id").StringValue()
		if _, paused := driver.ByPause(blocker); paused {
			blockers = append(blockers, blocker)
		}
	}
	return blockers, err
}

// linesAtOnce is how many lines one command of Due looks at.
const linesAtOnce = 80

// Due returns the lines that may have something to claim, those that have been due longest first.
func (t *tx) Due(ctx context.Context, ask driver.Topics) ([]driver.Line, error) {
	lines := ask.Lines
	if lines == nil {
		var err error
		if lines, err = t.LinesOf(ctx, ask.Group); err != nil {
			return nil, err
		}
	}
	since := map[driver.Line]driver.Time{}
	note := func(line driver.Line, due driver.Time) {
		if first, known := since[line]; !known || due < first {
			since[line] = due
		}
	}
	for piece := range slices.Chunk(lines, linesAtOnce) {
		var parts []part
		for _, line := range piece {
			line.Group = ask.Group
			parts = append(parts, t.dueParts(line, ask)...)
		}
		results, err := t.readInPieces(ctx, parts)
		if err != nil {
			return nil, err
		}
		for _, found := range results {
			for _, r := range readRows(found) {
				note(r.Line, max(r.Next, r.Created))
			}
		}
	}
	if err := t.dueNotes(ctx, ask, note); err != nil {
		return nil, err
	}
	due := make([]driver.Line, 0, len(since))
	for line := range since {
		if ask.Lines == nil || slices.Contains(ask.Lines, line) {
			due = append(due, line)
		}
	}
	slices.SortFunc(due, func(a, b driver.Line) int { return cmp.Or(cmp.Compare(since[a], since[b]), byTopic(a, b)) })
	return due, nil
}

func byTopic(a, b driver.Line) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Part, b.Part))
}

// dueParts read the first row of each stage that may be due.
func (t *tx) dueParts(line driver.Line, ask driver.Topics) []part {
	one := func(filter ...bson.E) part { return t.partOf(query{ofLine(line, filter...), byWake, 1}) }
	parts := []part{one(stageIs(driver.Ready))}
	for _, stage := range dueStages {
		parts = append(parts, one(t.come(stage)...))
	}
	if ask.Held {
		parts = append(parts, one(stageIs(driver.Held),
			bson.E{Key: "under", Value: bson.D{{Key: "$gte", Value: driver.KeyNote("")}, {Key: "$lt", Value: "l"}}}))
	}
	return parts
}

func (t *tx) dueNotes(ctx context.Context, ask driver.Topics, note func(line driver.Line, due driver.Time)) error {
	found, err := t.all(ctx, part{t.d.notes, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "_id.grp", Value: ask.Group}, t.looks(ask.Free)}}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$_id.topic"}, {Key: "look_at", Value: bson.D{{Key: "$min", Value: "$look_at"}}}}}},
	}})
	for _, raw := range found {
		at, _ := raw.Lookup("look_at").AsInt64OK()
		note(driver.LineOf(ask.Group, raw.Lookup("_id").StringValue()), driver.Time(at))
	}
	return err
}

// LinesOf returns the lines of a group.
func (t *tx) LinesOf(ctx context.Context, group string) ([]driver.Line, error) {
	found, err := t.all(ctx, part{t.d.records, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "grp", Value: group}}}}, {{Key: "$group", Value: bson.D{{Key: "_id", Value: "$topic"}}}},
	}})
	lines := make([]driver.Line, len(found))
	for i, raw := range found {
		lines[i] = driver.LineOf(group, raw.Lookup("_id").StringValue())
	}
	slices.SortFunc(lines, byTopic)
	return lines, err
}
