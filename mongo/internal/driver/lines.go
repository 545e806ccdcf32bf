package driver

import (
	"cmp"
	"context"
	"maps"
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

// Due returns the lines that may have something to claim, those that have been due longest first. The server skips from line to line: it
// reads an entry of an index for each line that has rows in a stage.
func (t *tx) Due(ctx context.Context, ask driver.Topics) ([]driver.Line, error) {
	if first := t.first(); first.read && first.Topics != nil && same(*first.Topics, ask) {
		return first.lines, nil
	}
	return t.dueLines(ctx, false, ask)
}

func (t *tx) dueLines(ctx context.Context, state bool, ask driver.Topics) ([]driver.Line, error) {
	found, err := t.readAlike(ctx, state, t.dueParts(ask, state || t.state.Notes)...)
	if err != nil {
		return nil, err
	}
	since := map[driver.Line]driver.Time{}
	for _, raw := range found {
		name, ok := raw.Lookup("_id").StringValueOK()
		if !ok {
			continue
		}
		line, due := driver.LineOf(ask.Group, name), driver.Time(0)
		for _, field := range []string{"next", "created", "look_at"} {
			at, _ := raw.Lookup(field).AsInt64OK()
			due = max(due, driver.Time(at))
		}
		if first, known := since[line]; !known || due < first {
			since[line] = due
		}
	}
	due := make([]driver.Line, 0, len(since))
	for line := range since {
		if ask.Lines == nil || slices.Contains(ask.Lines, line) {
			due = append(due, line)
		}
	}
	slices.SortFunc(due, func(a, b driver.Line) int { return cmp.Or(cmp.Compare(since[a], since[b]), driver.ByTopic(a, b)) })
	return due, nil
}

// dueParts read the first row of each line in each stage that may be due, and the notes to look at. notes says that there may be some, and
// rows that are held.
func (t *tx) dueParts(ask driver.Topics, notes bool) []part {
	var names []string
	for _, line := range ask.Lines {
		names = append(names, line.Name())
	}
	parts := append(t.coming(ask.Group, names, true), t.firstsOf(ask.Group, names, ascending("topic", "wake", "seq"), stageIs(driver.Ready)))
	if notes && ask.Held {
		parts = append(parts, t.firstsOf(ask.Group, names, ascending("topic", "under", "seq"), stageIs(driver.Held), underKeys))
	}
	if notes {
		parts = append(parts, t.notesOfLines(driver.Ask{Free: ask.Free}, ask.Group, names)...)
	}
	return parts
}

// LinesOf returns the lines of groups.
func (t *tx) LinesOf(ctx context.Context, groups ...string) ([]driver.Line, error) {
	return driver.LinesOfEach(ctx, groups, t.linesOf)
}

func (t *tx) linesOf(ctx context.Context, group string) ([]driver.Line, error) {
	var parts []part
	for stage := driver.Ready; stage <= driver.Dead; stage++ {
		parts = append(parts, part{t.d.records, mongo.Pipeline{
			{{Key: "$match", Value: bson.D{{Key: "grp", Value: group}, stageIs(stage)}}},
			{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$topic"}}}},
		}})
	}
	found, err := t.readAlike(ctx, false, parts...)
	seen := map[driver.Line]bool{}
	for _, raw := range found {
		if name, ok := raw.Lookup("_id").StringValueOK(); ok {
			seen[driver.LineOf(group, name)] = true
		}
	}
	return slices.Collect(maps.Keys(seen)), err
}
