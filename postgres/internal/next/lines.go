package next

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/outmill/outmill/engine/driver"
)

func lineIn(group string) func(scan scan, line *driver.Line) error {
	return func(scan scan, line *driver.Line) error {
		var name string
		err := scan(&name)
		*line = driver.LineOf(group, name)
		return err
	}
}

func (t *tx) addDue(ask driver.Topics) *[]driver.Line {
	name, args := "due", []any{ask.Group, ask.Free, ask.Held, int64(t.state.Now)}
	if ask.Lines != nil {
		name, args = "due_of", append(args, textsOf(ask.Lines, func(l *driver.Line) string { return l.Name() }))
	}
	return collect(t, name, args, lineIn(ask.Group))
}

// Due returns the lines that may have something to claim.
func (t *tx) Due(ctx context.Context, ask driver.Topics) ([]driver.Line, error) {
	if first := t.first(); first.lines != nil && same(*first.Topics, ask) {
		return *first.lines, nil
	}
	lines := t.addDue(ask)
	err := t.flush(ctx)
	return *lines, err
}

// LinesOf returns the lines of a group.
func (t *tx) LinesOf(ctx context.Context, group string) ([]driver.Line, error) {
	lines, err := list(ctx, t, "lines_of", []any{group}, lineIn(group))
	slices.SortFunc(lines, func(a, b driver.Line) int { return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Part, b.Part)) })
	return lines, err
}

// Pausing returns the blockers of a group that are pauses.
func (t *tx) Pausing(ctx context.Context, group string) ([]string, error) {
	return list(ctx, t, "pausing", []any{group}, one[string])
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
	return all, nil
}
