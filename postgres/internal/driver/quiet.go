package driver

import (
	"context"
	_ "embed"
	"slices"

	"github.com/outmill/outmill/engine/driver"
)

// quietFunction looks for anything that a group has.
//
//go:embed log_quiet.sql
var quietFunction string

var _ driver.Looker = (*Driver)(nil)

// Quiet is one statement. A process that does not know the history, or the topics of the log, cannot tell; the look that follows reads
// both. See driver.Looker.
func (d *Driver) Quiet(ctx context.Context, ask driver.Topics, pauses int64) (quiet bool, err error) {
	h, topics := d.log.history.Load(), d.log.topics.Load()
	if h == nil || ask.Lines == nil && topics == nil {
		return false, nil
	}
	lines := ask.Lines
	if lines == nil {
		lines = inLine(ask.Group, slices.Clone(*topics))
	}
	// The names of the lines are what the look is about, or else what the process has seen.
	names := textsOf(lines, func(l *driver.Line) string { return l.Name() })
	var seen []string
	if ask.Lines == nil {
		names, seen = nil, names
	}
	args := append([]any{ask.Group, schemaVersion, h.stamp, pauses, names, seen}, chainArgs(h.dueChains(lines))...)
	// The function has its settings.
	one := step{text: d.names.text("log_quiet", false), args: args}
	err = d.send(ctx, func(scan func(...any) error) error { return scan(&quiet) }, one)
	return quiet, err
}
