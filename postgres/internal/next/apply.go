package next

import (
	"context"
	"fmt"
	"strconv"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// guardOf is what the statements compare together: the step and the group. A row that could not be decoded has '*'.
func guardOf(r *driver.Row) string {
	switch {
	case r.Broken != "":
		return "*"
	case r.Step.IsZero():
		return r.Group
	}
	return r.Step.String() + r.Group
}

// isLease reports whether a claim makes the change.
func isLease(was, now driver.Row) bool {
	was.Stage, was.Wake, was.Owner, was.Worker, was.Under = driver.Leased, now.Wake, now.Owner, now.Worker, ""
	was.Attempts, was.Claims, was.Expiries = now.Attempts, was.Claims+1, now.Expiries
	return was == now && was.Broken == ""
}

// isExtension reports whether only the end of a lease changes.
func isExtension(was, now driver.Row) bool {
	was.Wake = now.Wake
	return now.Stage == driver.Leased && was == now && was.Broken == ""
}

// lease is what one statement writes for all its rows.
type lease struct {
	wake          driver.Time
	owner, worker string
}

// Apply writes the changes of the rows that still stand as they were read, and then the notes, in one round trip.
func (t *tx) Apply(ctx context.Context, c driver.Changes) (done driver.Applied, err error) {
	w := writing{t: t, last: c.Last && t.rides}
	w.addRows(c.Rows)
	w.addDelete(c.Delete)
	t.addNotes(&c)
	if w.last {
		return done, t.commitAnd(ctx, w.leasedIn(c.Rows, c.Want), c.Want, &done)
	}
	if err := t.flush(ctx); err != nil {
		return done, err
	}
	for _, list := range w.asked {
		for _, id := range list {
			if !w.written[id] {
				if done.Lost == nil {
					done.Lost = map[outmill.WorkItemID]bool{}
				}
				done.Lost[id] = true
			}
		}
	}
	return done, nil
}

// leasedIn are the rows of which the caller wants the content.
func (w *writing) leasedIn(rows []driver.Change, want driver.Want) (leased []driver.Row) {
	for i := range rows {
		if want != 0 && isLease(rows[i].Was, rows[i].Now) {
			leased = append(leased, rows[i].Now)
		}
	}
	return leased
}

// writing is one Apply.
type writing struct {
	t *tx
	// last says that the commit travels with it. It must fail if a row is lost.
	last    bool
	asked   [][]outmill.WorkItemID
	written map[outmill.WorkItemID]bool
}

// add queues a statement that returns the ids of the rows that it has written.
func (w *writing) add(name string, rows []driver.Change, args ...any) {
	was := func(of func(r *driver.Row) int64) string {
		return numbersOf(rows, func(c *driver.Change) int64 { return of(&c.Was) })
	}
	args = append([]any{
		idsOf(rows, func(c *driver.Change) outmill.WorkItemID { return c.Was.ID }),
		was(func(r *driver.Row) int64 { return int64(r.Stage) }), was(func(r *driver.Row) int64 { return int64(r.Wake) }),
		was(func(r *driver.Row) int64 { return int64(r.Claims) }), textsOf(rows, func(c *driver.Change) string { return c.Was.Owner }),
		textsOf(rows, func(c *driver.Change) string { return guardOf(&c.Was) }),
	}, args...)
	w.addText(name, rows, args)
}

// addText queues a statement with these arguments for the rows.
func (w *writing) addText(name string, rows []driver.Change, args []any) {
	text := w.t.d.names.text(name, false)
	if w.last {
		args = append(args, len(rows))
		w.t.addStep(step{text: w.t.d.names.demanding(text, len(args)), args: args})
		return
	}
	ids := make([]outmill.WorkItemID, len(rows))
	for i := range rows {
		ids[i] = rows[i].Was.ID
	}
	w.asked = append(w.asked, ids)
	if w.written == nil {
		w.written = make(map[outmill.WorkItemID]bool, len(rows))
	}
	w.t.addStep(step{text: text, args: args, row: func(scan scan) error {
		var id outmill.WorkItemID
		err := scan((*[16]byte)(&id))
		w.written[id] = true
		return err
	}})
}

// demanding makes a statement fail unless it has written as many rows as its last argument says.
func (n *names) demanding(text string, last int) string {
	return "WITH written AS (" + text + ") SELECT " + n.qualified("demand") + "(count(*), $" + strconv.Itoa(last) + "::bigint) FROM written"
}

func (w *writing) addDelete(rows []driver.Row) {
	if len(rows) == 0 {
		return
	}
	list := make([]driver.Change, len(rows))
	for i := range rows {
		list[i].Was = rows[i]
	}
	w.add("delete", list)
}

// addRows writes leases, extensions and other changes by a statement each.
func (w *writing) addRows(rows []driver.Change) {
	leases := map[lease][]driver.Change{}
	var order []lease
	var extensions, others []driver.Change
	for _, c := range rows {
		switch {
		case isLease(c.Was, c.Now):
			l := lease{c.Now.Wake, c.Now.Owner, c.Now.Worker}
			if leases[l] == nil {
				order = append(order, l)
			}
			leases[l] = append(leases[l], c)
		case isExtension(c.Was, c.Now):
			extensions = append(extensions, c)
		default:
			others = append(others, c)
		}
	}
	for _, l := range order {
		same, some := alike(leases[l])
		for _, rows := range same {
			w.addSame(rows, l)
		}
		if len(some) == 0 {
			continue
		}
		w.add("lease", some, int64(l.wake), l.owner, l.worker,
			numbersOf(some, func(c *driver.Change) int { return c.Now.Attempts - c.Was.Attempts }),
			numbersOf(some, func(c *driver.Change) int { return c.Now.Expiries - c.Was.Expiries }))
	}
	if len(extensions) > 0 {
		w.add("extend", extensions, numbersOf(extensions, func(c *driver.Change) int64 { return int64(c.Now.Wake) }))
	}
	if len(others) > 0 {
		w.add("change", others, stateArgs(others)...)
	}
}

// fewKinds is how many statements are still cheaper than one with lists of what was read.
const fewKinds = 3

// alike parts the rows of a claim by what was read of them and is added to them. If these are many kinds, as with rows that waited for
// different times, it returns all of them as rest.
func alike(rows []driver.Change) (same [][]driver.Change, rest []driver.Change) {
	type kind struct {
		stage                      driver.Stage
		wake                       driver.Time
		owner, guard               string
		claims, attempts, expiries int
	}
	at := map[kind]int{}
	for _, c := range rows {
		w := &c.Was
		k := kind{w.Stage, w.Wake, w.Owner, guardOf(w), w.Claims, c.Now.Attempts - w.Attempts, c.Now.Expiries - w.Expiries}
		i, known := at[k]
		if !known {
			if i = len(same); i == fewKinds {
				return nil, rows
			}
			at[k], same = i, append(same, nil)
		}
		same[i] = append(same[i], c)
	}
	return same, nil
}

// addSame is add of lease_same.
func (w *writing) addSame(rows []driver.Change, l lease) {
	was, now := &rows[0].Was, &rows[0].Now
	w.addText("lease_same", rows, []any{
		idsOf(rows, func(c *driver.Change) outmill.WorkItemID { return c.Was.ID }),
		int(was.Stage), int64(was.Wake), was.Claims, was.Owner, guardOf(was),
		int64(l.wake), l.owner, l.worker, now.Attempts - was.Attempts, now.Expiries - was.Expiries,
	})
}

// stateArgs are the lists of the new state.
func stateArgs(rows []driver.Change) []any {
	number := func(of func(r *driver.Row) int64) string {
		return numbersOf(rows, func(c *driver.Change) int64 { return of(&c.Now) })
	}
	text := func(of func(r *driver.Row) string) []string {
		return textsOf(rows, func(c *driver.Change) string { return of(&c.Now) })
	}
	return []any{
		number(func(r *driver.Row) int64 { return int64(r.Stage) }), number(func(r *driver.Row) int64 { return int64(r.Wake) }),
		number(func(r *driver.Row) int64 { return int64(r.Next) }), number(func(r *driver.Row) int64 { return int64(r.Expires) }),
		number(func(r *driver.Row) int64 { return int64(r.Attempts) }), number(func(r *driver.Row) int64 { return int64(r.Claims) }),
		number(func(r *driver.Row) int64 { return int64(r.Expiries) }), text(func(r *driver.Row) string { return r.Owner }),
		text(func(r *driver.Row) string { return r.Worker }), text(func(r *driver.Row) string { return r.Under }),
		boolsOf(rows, func(c *driver.Change) bool { return c.Now.Parked }), number(func(r *driver.Row) int64 { return int64(r.Processed) }),
		text(func(r *driver.Row) string { return r.By }), text(func(r *driver.Row) string { return r.Group }), text(errorOf),
		text(func(r *driver.Row) string { return r.Tried }),
	}
}

// errorOf marks an error that is written, also an empty one.
func errorOf(r *driver.Row) string {
	if r.Error == nil {
		return ""
	}
	return "+" + *r.Error
}

// addNotes opens, drops and writes notes.
func (t *tx) addNotes(c *driver.Changes) {
	named := func(notes []driver.Note) []any {
		return []any{
			textsOf(notes, func(n *driver.Note) string { return n.Group }), textsOf(notes, func(n *driver.Note) string { return n.Line.Name() }),
			textsOf(notes, func(n *driver.Note) string { return n.Name }),
		}
	}
	if len(c.Open) > 0 {
		t.addStep(step{text: t.d.names.text("open_notes", false), args: named(c.Open)})
	}
	if len(c.Drop) > 0 {
		t.addStep(step{text: t.d.names.text("drop_notes", false), args: append(named(c.Drop),
			numbersOf(c.Drop, func(n *driver.Note) int { return n.Looks }),
			numbersOf(c.Drop, func(n *driver.Note) int64 { return t.writers[noteKey{n.Line, n.Name}] }))})
	}
	if len(c.Notes) == 0 {
		return
	}
	t.addStep(step{text: t.d.names.text("put_notes", false), args: append(named(c.Notes),
		textsOf(c.Notes, func(n *driver.Note) string { return n.Blocker }), numbersOf(c.Notes, func(n *driver.Note) int64 { return n.Head }),
		numbersOf(c.Notes, func(n *driver.Note) int64 { return int64(n.LookAt) }),
		numbersOf(c.Notes, func(n *driver.Note) int { return n.Looks }))})
	for _, n := range c.Notes {
		_, paused := driver.ByPause(n.Blocker)
		t.state.Notes, t.state.Paused = true, t.state.Paused || paused
	}
}

// Forget deletes the notes of a group.
func (t *tx) Forget(ctx context.Context, group string) error {
	_, err := t.changed(ctx, "forget", group)
	return err
}

// Replace writes another payload and metadata.
func (t *tx) Replace(ctx context.Context, r driver.NewRow) error {
	_, err := t.changed(ctx, "replace", r.ID.String(), r.Size, r.Metadata, r.Record.Payload)
	return err
}

// Attach makes rows records of a step.
func (t *tx) Attach(ctx context.Context, step outmill.WorkItemID, join outmill.JoinID, rows []driver.Row) error {
	_, err := t.changed(ctx, "attach", idsOf(rows, func(r *driver.Row) outmill.WorkItemID { return r.ID }), step.String(), join.String())
	return err
}

// taken explains that one of the ids of an Insert exists.
func taken(err error) error {
	return fmt.Errorf("a record with one of these ids exists: leave the id empty, and Append makes one (%w)", err)
}
