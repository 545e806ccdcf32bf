package driver

import (
	"context"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Due returns the lines that may have something to claim.
func (t *tx) Due(ctx context.Context, ask driver.Topics) ([]driver.Line, error) {
	a := args{"group": ask.Group, "free": jsonOf(ask.Free), "held": flag(ask.Held), "now": t.state.Now, "lines": nil}
	if ask.Lines != nil {
		a["lines"] = jsonOf(sqlkit.Mapped(ask.Lines, func(l *driver.Line) string { return l.Name() }))
	}
	return list(ctx, t, "due", a, sqlkit.LineIn(ask.Group))
}

var _ driver.Looker = (*Driver)(nil)

// Quiet asks whether a group has nothing at all, whatever the lines of the look are. See driver.Looker.
func (d *Driver) Quiet(ctx context.Context, ask driver.Topics, pauses int64) (quiet bool, err error) {
	var version storekit.SchemaVersion
	var now int64
	err = d.on(d.db).query(ctx, "quiet", args{"group": ask.Group},
		func(scan scan) error { return scan(&version.Version, &version.Compatible, &now, &quiet) })
	return quiet && now == pauses && version.Check(schemaVersion) == nil, err
}

// LinesOf returns the lines of groups.
func (t *tx) LinesOf(ctx context.Context, groups ...string) ([]driver.Line, error) {
	return driver.LinesOfEach(ctx, groups, func(ctx context.Context, group string) ([]driver.Line, error) {
		return list(ctx, t, "lines_of", args{"group": group}, sqlkit.LineIn(group))
	})
}

// Pausing returns the blockers of a group that are pauses.
func (t *tx) Pausing(ctx context.Context, group string) ([]string, error) {
	return list(ctx, t, "pausing", args{"group": group}, sqlkit.One[string])
}

// Adopt gives rows to a group.
func (t *tx) Adopt(ctx context.Context, from driver.Line, group string, limit int) (n int, err error) {
	err = t.query(ctx, "adopt", args{"topic": from.Name(), "group": group, "limit": limit}, func(scan scan) error { return scan(&n) })
	return n, err
}
