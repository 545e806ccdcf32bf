package engine

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// dropping begins the Value of the entry of an ended group that is being dropped. The selections of the other
// groups follow. Its At is 0, so no sweep looks at it.
const dropping = "drop "

// DropGroup removes a group, and gives back or deletes its records, in steps. See outmill.Inspector. If the
// group registers during the call, it keeps what it still has.
func (e *Engine) DropGroup(ctx context.Context, group string) (outmill.Dropped, error) {
	const operation = "drop group"
	group = storekit.GroupOf(group)
	if err := storekit.CheckGroup(group); err != nil {
		return outmill.Dropped{}, e.explain(ctx, operation, err)
	}
	d := &drop{e: e, operation: operation, group: group}
	dropped, err := d.run(ctx)
	dropped.GivenBack += d.left.Waiting
	dropped.Deleted += d.left.Gone
	if dropped.GivenBack > 0 {
		e.wake()
	}
	return dropped, err
}

// drop has the steps of a drop. Each is one transaction, ends with the context, and may be repeated.
//
//	registered ──begin──► dropping ──end──► absent
//	                      │  ▲ giveBack, delete, deleteSettled; a crash stays here, and begin goes on
//	                      └──RegisterGroup──► registered, with what it still has
//
// Which topics other groups read is decided once, by begin, which keeps it in a note. Otherwise
// a group that registers between an interrupted drop and the call that finishes it would have
// the rest deleted, although it never got these messages.
type drop struct {
	e                *Engine
	operation, group string
	// left is what a log had for the group.
	left driver.Left
}

// run drops the group. After an error it returns what it has reached.
func (d *drop) run(ctx context.Context) (dropped outmill.Dropped, err error) {
	others, err := d.begin(ctx)
	if err != nil {
		return dropped, err
	}
	for before := (outmill.Dropped{GivenBack: -1}); before != dropped; {
		before = dropped
		lines, err := d.lines(ctx)
		if err != nil {
			return dropped, err
		}
		for _, line := range lines {
			if err := d.dropLine(ctx, line, others, &dropped); err != nil {
				return dropped, err
			}
		}
	}
	if err := repeat(ctx, &dropped.Deleted, d.deleteSettled); err != nil {
		return dropped, err
	}
	return dropped, d.end(ctx)
}

func (d *drop) dropLine(ctx context.Context, line string, others selections, dropped *outmill.Dropped) error {
	step, count := d.giveBack, &dropped.GivenBack
	if topic, _ := storekit.TopicOfLine(line); others.match(topic) {
		step, count = d.delete, &dropped.Deleted
	}
	return repeat(ctx, count, func(ctx context.Context) (int, bool, error) { return step(ctx, line) })
}

// repeat runs the step until it has done all.
func repeat(ctx context.Context, count *int, step func(ctx context.Context) (int, bool, error)) error {
	for more := true; more; {
		var n int
		var err error
		n, more, err = step(ctx)
		if *count += n; err != nil {
			return err
		}
	}
	return nil
}

// begin removes the registrations and workers, and notes the selections of the other groups.
func (d *drop) begin(ctx context.Context) (others selections, err error) {
	err = d.e.update(ctx, d.operation, func(ctx context.Context, t *tx) error {
		table, err := t.lockedRoutes(ctx)
		if err != nil {
			return err
		}
		note, err := t.entry(ctx, false, endedKind, d.group)
		if err != nil {
			return err
		}
		if note != nil && !table.Has(d.group) {
			if text, goesOn := strings.CutPrefix(note.Value, dropping); goesOn {
				others, err = parseSelections(text)
				return err
			}
		}
		others = othersIn(table, d.group)
		var gone []driver.Entry
		for _, kind := range []string{registrationKind, workerKind} {
			entries, err := t.Scan(ctx, kind, joined(d.group, ""))
			if err != nil {
				return err
			}
			gone = append(gone, entries...)
			if kind != registrationKind {
				continue
			}
			if d.left, err = t.registrationsEnd(ctx, driver.Drops, entries); err != nil {
				return err
			}
		}
		if err := t.Delete(ctx, gone...); err != nil {
			return err
		}
		if err := t.Put(ctx, driver.Entry{Kind: endedKind, Key: d.group, Made: t.now, Value: dropping + others.String()}); err != nil {
			return err
		}
		return t.bumpRoutes(ctx)
	})
	return others, err
}

// step runs work, unless the group has registered again. work returns how many rows it has changed, and whether more may be left.
func (d *drop) step(ctx context.Context, work func(ctx context.Context, t *tx, limit int) (int, bool, error)) (
	done int, more bool, err error) {
	err = d.e.update(ctx, d.operation, func(ctx context.Context, t *tx) error {
		done, more = 0, false
		routes, err := t.lockedRoutes(ctx)
		if err == nil && !routes.Has(d.group) {
			done, more, err = work(ctx, t, d.e.config.AtOnce.Step())
		}
		return err
	})
	if err != nil {
		return 0, false, err
	}
	return done, more, nil
}

func (d *drop) lines(ctx context.Context) ([]string, error) {
	return valueOf(ctx, d.e.view, d.operation, func(ctx context.Context, t *tx) ([]string, error) {
		lines, err := t.LinesOf(ctx, d.group)
		return mapped(lines, driver.Line.Name), err
	})
}

func (d *drop) giveBack(ctx context.Context, line string) (done int, more bool, err error) {
	return d.step(ctx, func(ctx context.Context, t *tx, limit int) (int, bool, error) {
		return t.unroute(ctx, driver.LineOf(d.group, line), limit)
	})
}

// unroute makes up to limit of the undelivered rows as if they were appended without a group.
func (t *tx) unroute(ctx context.Context, line driver.Line, limit int) (done int, more bool, err error) {
	first := map[outmill.WorkItemID]driver.Time{}
	return t.changeLine(ctx, line, undelivered, limit, func(ctx context.Context, search driver.Search) ([]driver.Row, error) {
		rows, err := t.Rows(ctx, search)
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		contents, err := t.Load(ctx, rows, 0)
		for i, c := range contents {
			// What waits for a join is due when the join is decided.
			if first[rows[i].ID] = rows[i].Next; c.Record != nil && rows[i].WaitsFor.IsZero() {
				first[rows[i].ID] = driver.Time(c.Record.DueAt.UnixMicro())
			}
		}
		return rows, err
	}, func(r driver.Row) {
		t.change(r, func(r *driver.Row) { unroute(r, first[r.ID]) })
	})
}

func (d *drop) delete(ctx context.Context, line string) (done int, more bool, err error) {
	return d.step(ctx, func(ctx context.Context, t *tx, limit int) (int, bool, error) {
		return t.removeLine(ctx, driver.LineOf(d.group, line), undelivered, true, limit)
	})
}

func (d *drop) deleteSettled(ctx context.Context) (done int, more bool, err error) {
	return d.step(ctx, func(ctx context.Context, t *tx, limit int) (done int, more bool, err error) {
		lines, err := t.LinesOf(ctx, d.group)
		for i := 0; i < len(lines) && !more && err == nil; i++ {
			var n int
			n, more, err = t.removeLine(ctx, lines[i], settled, true, limit-done)
			done += n
		}
		return done, more, err
	})
}

// end ends the note of the drop, and deletes the notes of keys, unless the group has registered again, or has records again.
func (d *drop) end(ctx context.Context) error {
	err := d.endAnd(ctx, true)
	if errors.Is(err, errHasRecords) {
		err = d.endAnd(ctx, false)
	}
	return err
}

// errHasRecords takes back that the notes of a group were deleted.
var errHasRecords = errors.New("the group has records again")

func (d *drop) endAnd(ctx context.Context, forget bool) error {
	return d.e.update(ctx, d.operation, func(ctx context.Context, t *tx) error {
		routes, err := t.lockedRoutes(ctx)
		if err != nil {
			return err
		}
		if forget && !routes.Has(d.group) {
			// Records that are committed from here on get notes of their own. Those of before may be held under one of these.
			if err := t.Forget(ctx, d.group); err != nil {
				return err
			}
			if lines, err := t.LinesOf(ctx, d.group); err != nil || len(lines) > 0 {
				return cmp.Or(err, errHasRecords)
			}
		}
		note, err := t.entry(ctx, false, endedKind, d.group)
		if err != nil || note == nil || !strings.HasPrefix(note.Value, dropping) {
			return err
		}
		if _, err := t.registered(ctx, driver.Event{What: driver.Dropped, Group: d.group}); err != nil {
			return err
		}
		// A transaction that is still open may append for the group: Stats finds such records by the entry.
		note.Value = hasNoRecords
		return t.Put(ctx, *note)
	})
}
