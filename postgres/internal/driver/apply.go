package driver

import (
	"context"
	"fmt"
	"slices"

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

// Apply writes the changes of the rows that still stand as they were read, and then the notes, in one round trip.
func (t *tx) Apply(ctx context.Context, c driver.Changes) (done driver.Applied, err error) {
	w := writing{t: t, last: c.Last && t.rides, want: c.Want, done: &done}
	if err := w.logFirst(ctx, &c); err != nil {
		return done, err
	}
	w.addRecords(&c)
	t.addNotes(&c)
	if w.last {
		return done, t.commit(ctx)
	}
	if err := t.flush(ctx); err != nil {
		return done, err
	}
	for _, lost := range w.lost {
		lost()
	}
	for _, list := range w.asked {
		for i := range list {
			if id := list[i].Was.ID; !w.written[id] {
				w.lose(id)
			}
		}
	}
	return done, nil
}

// writing is one Apply.
type writing struct {
	t *tx
	// last says that the commit travels with it. It must fail if a row is lost.
	last    bool
	want    driver.Want
	done    *driver.Applied
	asked   [][]driver.Change
	written map[outmill.WorkItemID]bool
	// lost say, after the flush, which rows of the log were lost.
	lost []func()
}

func (w *writing) lose(id outmill.WorkItemID) {
	if w.done.Lost == nil {
		w.done.Lost = map[outmill.WorkItemID]bool{}
	}
	w.done.Lost[id] = true
}

// add queues a statement for the rows, with what was read of them, and then these arguments.
func (w *writing) add(name string, rows []driver.Change, args ...any) {
	was := func(of func(r *driver.Row) int64) string {
		return numbersOf(rows, func(c *driver.Change) int64 { return of(&c.Was) })
	}
	w.addWith(name, rows, append([]any{
		changedIDs(rows),
		was(func(r *driver.Row) int64 { return int64(r.Stage) }), was(func(r *driver.Row) int64 { return int64(r.Wake) }),
		was(func(r *driver.Row) int64 { return int64(r.Claims) }), textsOf(rows, func(c *driver.Change) string { return c.Was.Owner }),
		textsOf(rows, func(c *driver.Change) string { return guardOf(&c.Was) }),
	}, args...))
}

func changedIDs(rows []driver.Change) string {
	return idsOf(rows, func(c *driver.Change) outmill.WorkItemID { return c.Was.ID })
}

// addWith queues a statement with these arguments for the rows. It returns the ids of those that it has written. With the last
// write it fails instead unless it has written all, and returns the content of those that are leased.
func (w *writing) addWith(name string, rows []driver.Change, args []any) {
	t := w.t
	switch {
	case w.last && w.want != 0 && (name == "lease" || name == "lease_same"):
		if w.done.Contents == nil {
			w.done.Contents = make(map[outmill.WorkItemID]driver.Content, len(rows))
		}
		t.add(contentOf+name, append(args, len(rows), int(w.want)), func(scan scan) error {
			var c content
			err := readContent(scan, &c)
			w.done.Contents[c.id] = c.Content
			return err
		})
		return
	case w.last:
		t.add(allOf+name, append(args, len(rows)), nil)
		return
	}
	w.asked = append(w.asked, rows)
	if w.written == nil {
		w.written = make(map[outmill.WorkItemID]bool, len(rows))
	}
	t.add(name, args, func(scan scan) error {
		var id outmill.WorkItemID
		err := scan((*[16]byte)(&id))
		w.written[id] = true
		return err
	})
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

// how is how a statement writes a row: each is for the rows of one kind.
type how struct {
	statement string
	// Of leases: what all rows of the statement become.
	wake          driver.Time
	owner, worker string
}

func howOf(c *driver.Change) how {
	switch {
	case c.IsLease():
		return how{"lease", c.Now.Wake, c.Now.Owner, c.Now.Worker}
	case c.IsExtension():
		return how{statement: "extend"}
	}
	return how{statement: "change"}
}

// kind is what was read of a row that becomes leased, and what is added to it.
type kind struct {
	stage                      driver.Stage
	wake                       driver.Time
	owner, guard               string
	claims, attempts, expiries int
}

func kindOf(c *driver.Change) kind {
	w := &c.Was
	return kind{w.Stage, w.Wake, w.Owner, guardOf(w), w.Claims, c.Now.Attempts - w.Attempts, c.Now.Expiries - w.Expiries}
}

// parts are the rows of each kind, in the order of the kinds' first rows. Rows of one kind only are not copied.
func parts[K comparable](rows []driver.Change, of func(*driver.Change) K) (kinds []K, lists [][]driver.Change) {
	at := map[K]int{}
	for n := range rows {
		kind := of(&rows[n])
		i, known := at[kind]
		if !known {
			i = len(kinds)
			at[kind], kinds = i, append(kinds, kind)
			lists = append(lists, nil)
		}
		if i == 0 && len(kinds) == 1 {
			lists[0] = rows[: n+1 : n+1]
			continue
		}
		lists[i] = append(lists[i], rows[n])
	}
	return kinds, lists
}

// fewKinds is how many statements are still cheaper than one with lists of what was read.
const fewKinds = 3

// addRecords writes records. Several statements lock the rows first: each goes by the ids, but not all of them together.
func (w *writing) addRecords(c *driver.Changes) {
	t, before := w.t, len(w.t.queue)
	w.addRows(c.Rows)
	w.addDelete(c.Delete)
	if len(t.queue)-before < 2 {
		return
	}
	ids := make([]outmill.WorkItemID, 0, len(c.Rows)+len(c.Delete))
	for i := range c.Rows {
		ids = append(ids, c.Rows[i].Was.ID)
	}
	for i := range c.Delete {
		ids = append(ids, c.Delete[i].ID)
	}
	t.queue = slices.Insert(t.queue, before, step{text: t.d.names.text("lock_rows", false), args: []any{idsOf(ids, itself)}})
}

// addRows writes leases, extensions and other changes by a statement each.
func (w *writing) addRows(rows []driver.Change) {
	all, lists := parts(rows, howOf)
	for i, h := range all {
		switch rows := lists[i]; h.statement {
		case "lease":
			w.addLeases(rows, h)
		case "extend":
			w.add("extend", rows, numbersOf(rows, func(c *driver.Change) int64 { return int64(c.Now.Wake) }))
		default:
			w.add("change", rows, stateArgs(rows)...)
		}
	}
}

// addLeases writes a claim. Mostly the same was read of all its rows; rows that waited for different times are of many kinds.
func (w *writing) addLeases(rows []driver.Change, h how) {
	kinds, lists := parts(rows, kindOf)
	if len(kinds) > fewKinds {
		w.add("lease", rows, int64(h.wake), h.owner, h.worker,
			numbersOf(rows, func(c *driver.Change) int { return c.Now.Attempts - c.Was.Attempts }),
			numbersOf(rows, func(c *driver.Change) int { return c.Now.Expiries - c.Was.Expiries }))
		return
	}
	for i, k := range kinds {
		w.addWith("lease_same", lists[i], []any{
			changedIDs(lists[i]), int(k.stage), int64(k.wake), k.claims, k.owner, k.guard, int64(h.wake), h.owner, h.worker, k.attempts, k.expiries,
		})
	}
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
	t.state.Noted(c.Notes)
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
