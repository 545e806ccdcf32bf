package next

import (
	"context"

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

// Due returns the lines that may have something to claim.
func (t *tx) Due(ctx context.Context, ask driver.Topics) ([]driver.Line, error) {
	a := args{"group": ask.Group, "free": jsonOf(ask.Free), "held": flag(ask.Held), "now": t.state.Now, "lines": nil}
	if ask.Lines != nil {
		a["lines"] = jsonOf(mapped(ask.Lines, func(l *driver.Line) string { return l.Name() }))
	}
	return list(ctx, t, "due", a, lineIn(ask.Group))
}

// LinesOf returns the lines of groups.
func (t *tx) LinesOf(ctx context.Context, groups ...string) ([]driver.Line, error) {
	return driver.LinesOfEach(ctx, groups, func(ctx context.Context, group string) ([]driver.Line, error) {
		return list(ctx, t, "lines_of", args{"group": group}, lineIn(group))
	})
}

// Pausing returns the blockers of a group that are pauses.
func (t *tx) Pausing(ctx context.Context, group string) ([]string, error) {
	return list(ctx, t, "pausing", args{"group": group}, one[string])
}

// Adopt gives rows to a group.
func (t *tx) Adopt(ctx context.Context, from driver.Line, group string, limit int) (n int, err error) {
	err = t.query(ctx, "adopt", args{"topic": from.Name(), "group": group, "limit": limit}, func(scan scan) error { return scan(&n) })
	return n, err
}
