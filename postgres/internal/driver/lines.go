package driver

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// dueLine is a line, and since when something of it is due.
type dueLine struct {
	driver.Line
	first int64
}

func (t *tx) addDue(ask driver.Topics) *[]dueLine {
	name, args := "due", []any{ask.Group, ask.Free, ask.Held, int64(t.state.Now)}
	if ask.Lines != nil {
		name, args = "due_of", append(args, textsOf(ask.Lines, func(l *driver.Line) string { return l.Name() }))
	}
	return collect(t, name, args, func(scan scan, d *dueLine) error {
		var name string
		err := scan(&name, &d.first)
		d.Line = driver.LineOf(ask.Group, name)
		return err
	})
}

// Due returns the lines that may have something to claim.
func (t *tx) Due(ctx context.Context, ask driver.Topics) ([]driver.Line, error) {
	first := t.first()
	if first.lines == nil || !same(*first.Topics, ask) {
		first.lines = t.addDue(ask)
		if err := t.flush(ctx); err != nil {
			return nil, err
		}
	}
	due, err := t.alsoDue(ctx, ask, *first.lines)
	if err != nil {
		return nil, err
	}
	var lines []driver.Line
	for _, d := range due {
		lines = append(lines, d.Line)
	}
	return lines, nil
}

// alsoDue adds the lines of which the log has something due.
func (t *tx) alsoDue(ctx context.Context, ask driver.Topics, due []dueLine) ([]dueLine, error) {
	since, err := t.logDue(ctx, ask)
	if err != nil || len(since) == 0 {
		return due, err
	}
	due = slices.Clone(due)
	for i, d := range due {
		if first, also := since[d.Name()]; also {
			due[i].first = min(d.first, first)
			delete(since, d.Name())
		}
	}
	for name, first := range since {
		due = append(due, dueLine{driver.LineOf(ask.Group, name), first})
	}
	slices.SortFunc(due, func(a, b dueLine) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.Name(), b.Name())) })
	return due, nil
}

// LinesOf returns the lines of groups.
func (t *tx) LinesOf(ctx context.Context, groups ...string) (all []driver.Line, _ error) {
	found := make([]*[]driver.Line, len(groups))
	for i, group := range groups {
		found[i] = collect(t, "lines_of", []any{group}, sqlkit.LineIn(group))
	}
	logged, err := t.logLinesOf(ctx, groups)
	if err != nil {
		return nil, err
	}
	for i, group := range groups {
		lines := *found[i]
		for line := range logged {
			if line.Group == group && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
		slices.SortFunc(lines, driver.ByTopic)
		all = append(all, lines...)
	}
	return all, nil
}

// Pausing returns the blockers of a group that are pauses.
func (t *tx) Pausing(ctx context.Context, group string) ([]string, error) {
	return list(ctx, t, "pausing", []any{group}, sqlkit.One[string])
}

// Adopt gives rows to a group.
func (t *tx) Adopt(ctx context.Context, from driver.Line, group string, limit int) (int, error) {
	return t.changed(ctx, "adopt", from.Name(), group, limit)
}

// Count counts what searches of lines find.
func (t *tx) Count(ctx context.Context, searches ...driver.Search) ([]driver.Counted, error) {
	found := make([]*[]driver.Counted, len(searches))
	for i, s := range searches {
		name, args := statementOf(s, t.state.Now)
		if !strings.Contains(templates()[name], nowOfSearch) {
			args = append(args, int64(t.state.Now))
		}
		found[i] = collect(t, countOf+name, args, func(scan scan, c *driver.Counted) error { return scan(&c.N, &c.Later, (*int64)(&c.Oldest)) })
	}
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	all := make([]driver.Counted, len(searches))
	for i := range found {
		all[i] = (*found[i])[0]
	}
	if len(all) > 0 {
		return all, t.logCount(ctx, searches, all)
	}
	return all, nil
}
