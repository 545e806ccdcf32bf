package drivertest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
)

// wrong is the driver in memory with one fault.
type wrong struct {
	memdriver.Driver
	fault string
}

func (d wrong) View(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	return d.Driver.View(ctx, begin, func(t driver.Tx) error { return fn(wrongTx{t, d.fault}) })
}

func (d wrong) Update(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) (err error) {
	done := d.Driver.Update(ctx, begin, func(t driver.Tx) error {
		err = fn(wrongTx{t, d.fault})
		if d.fault == "Update commits although fn fails" && errors.Is(err, errRollback) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return done
}

func (d wrong) Within(ctx context.Context, tx any, fn func(driver.Tx) error) error {
	return d.Driver.Within(ctx, tx, func(t driver.Tx) error { return fn(wrongTx{t, d.fault}) })
}

func (d wrong) Transact(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	if d.fault != "Transact commits although fn fails" {
		return d.Driver.Transact(ctx, fn)
	}
	done := d.Driver.Transact(ctx, func(ctx context.Context) error { err = fn(ctx); return nil })
	if err != nil {
		return err
	}
	return done
}

func (d wrong) Read(ctx context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	contents, err := d.Driver.Read(ctx, rows, want)
	if d.fault == "Read leaves out a content" && len(contents) > 0 {
		contents[len(contents)-1] = driver.Content{}
	}
	return contents, err
}

// wrongTx makes the fault in the calls of a transaction.
type wrongTx struct {
	driver.Tx
	fault string
}

// State has the walks expect all that they expect of a driver that is not Serial.
func (t wrongTx) State() driver.State {
	s := t.Tx.State()
	s.Serial = false
	switch t.fault {
	case "State says that there are no notes":
		s.Notes = false
	case "State says that there are no notes of pauses":
		s.Paused = false
	case "State says that no row waits for a group":
		s.Unrouted = false
	}
	return s
}

func less[T any](list []T) []T { return list[:max(len(list)-1, 0)] }

func reversed[T any](list []T) []T { slices.Reverse(list); return list }

func (t wrongTx) Rows(ctx context.Context, searches ...driver.Search) ([]driver.Row, error) {
	searches = slices.Clone(searches)
	for i := range searches {
		switch s := &searches[i]; t.fault {
		case "Rows ignores From":
			s.From = 0
		case "Rows reads the first part":
			s.Part = 0
		case "Rows returns one more than the limit":
			s.Limit++
		case "Rows takes ready rows for held ones":
			if s.By == driver.ByStage && s.Stage == driver.Held {
				s.Stage = driver.Ready
			}
		case "Rows takes rows of keys for those of pauses":
			if s.By == driver.ByPaused {
				s.By = driver.ByKeyed
			}
		case "Rows returns what comes later":
			if s.By == driver.ByLater {
				s.By = driver.ByStage
			}
		}
	}
	rows, err := t.Tx.Rows(ctx, searches...)
	switch t.fault {
	case "Rows leaves out a row":
		rows = less(rows)
	case "Rows returns another order":
		rows = reversed(rows)
	case "Rows returns no worker":
		for i := range rows {
			rows[i].Worker = ""
		}
	}
	return rows, err
}

func (t wrongTx) Pages(ctx context.Context, ask driver.Ask, lines []driver.Line) ([]driver.Page, error) {
	pages, err := t.Tx.Pages(ctx, ask, lines)
	for i := range pages {
		switch p := &pages[i]; t.fault {
		case "Pages returns no busy page":
			p.Busy = false
		case "Pages leaves out a row":
			p.Ready = less(p.Ready)
		case "Pages returns no states of keys":
			p.Keys = nil
		case "Pages returns another page":
			pages[i] = pages[0]
		}
	}
	return pages, err
}

func (t wrongTx) Page(ctx context.Context, ask driver.Ask) (driver.Page, error) {
	if t.fault == "Page reads the first part" {
		ask.Part = 0
	}
	if t.fault == "Page ignores Free" {
		ask.Free = []string{""}
	}
	p, err := t.Tx.Page(ctx, ask)
	switch t.fault {
	case "Page has as many rows of each key as of a pause":
		wide := ask
		wide.Keys = false
		more, wrong := t.Tx.Page(ctx, wide)
		if err = errors.Join(err, wrong); len(more.Notes) == len(p.Notes) {
			p.Held = more.Held
		}
	case "Page leaves out a note":
		p.Notes = less(p.Notes)
	case "Page leaves out a held row":
		p.Held = less(p.Held)
	case "Page leaves out a ready row":
		p.Ready = less(p.Ready)
	case "Page returns no due rows":
		p.Due = nil
	case "Page does not know that rows are unrouted":
		p.Unrouted = false
	case "Page returns no states of keys":
		p.Keys = nil
	case "Page brings the content of another row":
		err = errors.Join(err, t.bring(&p, ask.Want, ask.MaxBytes, ask.MaxRows, 1))
	case "Page brings more rows than the claim takes":
		err = errors.Join(err, t.bring(&p, ask.Want, ask.MaxBytes, all, 0))
	case "Page brings too much":
		err = errors.Join(err, t.bring(&p, ask.Want, all, ask.MaxRows, 0))
	case "Page brings what is not wanted":
		err = errors.Join(err, t.bring(&p, driver.Payload, ask.MaxBytes, ask.MaxRows, 0))
	}
	return p, err
}

// bring brings contents, each as that of the row so many places before.
func (t wrongTx) bring(p *driver.Page, want driver.Want, bytes, rows, before int) error {
	contents, err := t.Load(context.Background(), p.Ready, want)
	p.Contents = map[outmill.WorkItemID]driver.Content{}
	for i, r := range p.Ready[:min(rows, len(p.Ready))] {
		if bytes -= r.Size; want == 0 || bytes < 0 {
			break
		}
		p.Contents[r.ID] = contents[(i+before)%len(contents)]
	}
	return err
}

func (t wrongTx) Apply(ctx context.Context, c driver.Changes) (driver.Applied, error) {
	var none driver.Changes
	switch t.fault {
	case "Apply opens no notes":
		c.Open = none.Open
	case "Apply drops no notes":
		c.Drop = none.Drop
	case "Apply drops whatever the Looks are":
		for _, n := range c.Drop {
			for looks := range 10 {
				n.Looks = looks
				if _, err := t.Tx.Apply(ctx, driver.Changes{Drop: []driver.Note{n}}); err != nil {
					return driver.Applied{}, err
				}
			}
		}
	case "Apply sets no notes":
		c.Notes = none.Notes
	case "Apply deletes nothing":
		c.Delete = none.Delete
	}
	c.Rows = slices.Clone(c.Rows)
	for i := range c.Rows {
		switch now := &c.Rows[i].Now; t.fault {
		case "Apply writes no last error":
			now.Error = nil
		case "Apply writes no history":
			now.Tried = ""
		case "Apply does not write Next":
			now.Next = c.Rows[i].Was.Next
		case "Apply does not write Parked":
			now.Parked = false
		case "Apply does not change the group":
			now.Group = c.Rows[i].Was.Group
		}
	}
	done, err := t.Tx.Apply(ctx, c)
	if t.fault == "Apply does not say what it has lost" {
		done.Lost = nil
	}
	return done, err
}

func (t wrongTx) Insert(ctx context.Context, rows []driver.NewRow) error {
	switch rows = slices.Clone(rows); t.fault {
	case "Insert returns another order":
		rows = reversed(rows)
	case "Insert ignores the part":
		for i := range rows {
			rows[i].Part = 0
		}
	}
	return t.Tx.Insert(ctx, rows)
}

func (t wrongTx) Replace(ctx context.Context, n driver.NewRow) error {
	if t.fault == "Replace does not write the size" {
		n.Size = 1
	}
	return t.Tx.Replace(ctx, n)
}

func (t wrongTx) Load(ctx context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	if t.fault == "Load reads the payload always" {
		want |= driver.Payload
	}
	contents, err := t.Tx.Load(ctx, rows, want)
	if t.fault == "Load returns another order" {
		contents = reversed(contents)
	}
	return contents, err
}

func (t wrongTx) Find(ctx context.Context, ids []outmill.WorkItemID) ([]driver.Row, error) {
	rows, err := t.Tx.Find(ctx, ids)
	switch t.fault {
	case "Find returns a row twice":
		rows = append(rows, rows[:min(len(rows), 1)]...)
	case "Find does not say that a row is blocked":
		rows = unblocked(rows)
	}
	return rows, err
}

func (t wrongTx) After(ctx context.Context, id outmill.WorkItemID, limit int, like driver.Like) (
	[]outmill.WorkItemID, []driver.Row, error) {
	if t.fault == "After compares the group with the topic" {
		like.Group, like.Topic = like.Topic, like.Group
	}
	ids, rows, err := t.Tx.After(ctx, id, limit, like)
	switch t.fault {
	case "After returns another order":
		ids = reversed(ids)
	case "After leaves out a row":
		rows = rows[min(len(rows), 1):]
	}
	return ids, rows, err
}

func (t wrongTx) Keys(ctx context.Context, line driver.Line, owner string, keys []string) (map[string]driver.KeyState, error) {
	states, err := t.Tx.Keys(ctx, line, owner, keys)
	states = maps.Clone(states)
	for key, k := range states {
		switch t.fault {
		case "Keys does not know other owners":
			k.Other = ""
		case "Keys does not know parked rows":
			k.Parked = driver.None
		case "Keys does not know held rows":
			k.Held = driver.None
		}
		states[key] = k
	}
	return states, err
}

func (t wrongTx) Whole(ctx context.Context, line driver.Line, owner string) (driver.KeyState, error) {
	k, err := t.Tx.Whole(ctx, line, owner)
	if t.fault == "Whole does not know waiting rows" {
		k.Waiting = driver.None
	}
	return k, err
}

func (t wrongTx) Due(ctx context.Context, ask driver.Topics) ([]driver.Line, error) {
	switch t.fault {
	case "Due ignores Held":
		ask.Held = false
	case "Due ignores Lines":
		ask.Lines = nil
	case "Due takes all parts of the topics":
		for _, line := range ask.Lines {
			line.Part = 63
			ask.Lines = append(slices.Clip(ask.Lines), line)
		}
	}
	found, err := t.Tx.Due(ctx, ask)
	switch t.fault {
	case "Due leaves out a line":
		found = less(found)
	case "Due returns another order":
		found = reversed(found)
	case "Due returns no parts":
		for i := range found {
			found[i].Part = 0
		}
	}
	return found, err
}

func (t wrongTx) LinesOf(ctx context.Context, groups ...string) ([]driver.Line, error) {
	found, err := t.Tx.LinesOf(ctx, groups...)
	switch t.fault {
	case "Page reads the first part", "Pages returns no busy page", "Pages leaves out a row", "Pages returns no states of keys",
		"Pages returns another page", "Rows reads the first part",
		"LinesOf leaves out a line":
		found = less(found)
	case "LinesOf returns another order":
		found = reversed(found)
	}
	return found, err
}

func (t wrongTx) Pausing(ctx context.Context, group string) ([]string, error) {
	found, err := t.Tx.Pausing(ctx, group)
	if t.fault == "Pausing leaves out a pause" {
		found = less(found)
	}
	return found, err
}

func (t wrongTx) Count(ctx context.Context, searches ...driver.Search) ([]driver.Counted, error) {
	counted, err := t.Tx.Count(ctx, searches...)
	for i := range counted {
		switch t.fault {
		case "Count does not know the oldest":
			counted[i].Oldest = 0
		case "Count does not know what comes later":
			counted[i].Later = 0
		}
	}
	return counted, err
}

func (t wrongTx) Adopt(ctx context.Context, from driver.Line, group string, limit int) (int, error) {
	switch t.fault {
	case "Adopt gives one more":
		limit++
	case "Adopt takes from the first part":
		from.Part = 0
	}
	return t.Tx.Adopt(ctx, from, group, limit)
}

func (t wrongTx) Forget(ctx context.Context, group string) error {
	if t.fault == "Forget forgets nothing" {
		return nil
	}
	return t.Tx.Forget(ctx, group)
}

func (t wrongTx) Attach(ctx context.Context, step outmill.WorkItemID, join outmill.JoinID, rows []driver.Row) error {
	if t.fault == "Attach attaches one row less" {
		rows = less(rows)
	}
	return t.Tx.Attach(ctx, step, join, rows)
}

func (t wrongTx) Put(ctx context.Context, entries ...driver.Entry) error {
	if t.fault == "Put writes one less" {
		entries = less(entries)
	}
	return t.Tx.Put(ctx, entries...)
}

func (t wrongTx) Take(ctx context.Context, entries ...driver.Entry) ([]bool, error) {
	if t.fault == "Take takes what others have" {
		return slices.Repeat([]bool{true}, len(entries)), t.Tx.Put(ctx, entries...)
	}
	return t.Tx.Take(ctx, entries...)
}

func (t wrongTx) Add(ctx context.Context, wait time.Duration, e driver.Entry) (bool, error) {
	if t.fault == "Add takes what has ended" {
		free, err := t.Tx.Take(ctx, e)
		return err == nil && free[0], err
	}
	return t.Tx.Add(ctx, wait, e)
}

func (t wrongTx) Entries(ctx context.Context, lock bool, keys ...driver.Entry) ([]driver.Entry, error) {
	found, err := t.Tx.Entries(ctx, lock, keys...)
	if t.fault == "Entries leaves out one" {
		found = less(found)
	}
	return found, err
}

func (t wrongTx) Scan(ctx context.Context, kind, prefix string) ([]driver.Entry, error) {
	if t.fault == "Scan ignores the prefix" {
		prefix = ""
	}
	return t.Tx.Scan(ctx, kind, prefix)
}

func (t wrongTx) Range(ctx context.Context, kind, after string, limit int) ([]driver.Entry, error) {
	if t.fault == "Range ignores the key" {
		after = ""
	}
	return t.Tx.Range(ctx, kind, after, limit)
}

func (t wrongTx) Old(ctx context.Context, kind string, until driver.Time, limit int) ([]driver.Entry, error) {
	if t.fault == "Old ignores the time" {
		until = driver.Never
	}
	return t.Tx.Old(ctx, kind, until, limit)
}

func (t wrongTx) Delete(ctx context.Context, entries ...driver.Entry) error {
	if t.fault == "Delete ignores the time" {
		entries = slices.Clone(entries)
		for i := range entries {
			entries[i].At = 0
		}
	}
	return t.Tx.Delete(ctx, entries...)
}

func (t wrongTx) CountEntries(ctx context.Context, kinds ...string) ([]int, error) {
	n, err := t.Tx.CountEntries(ctx, kinds...)
	if t.fault == "CountEntries counts one more" && len(n) > 0 {
		n[len(n)-1]++
	}
	return n, err
}

func (t wrongTx) Bump(ctx context.Context, routes, pauses bool) (driver.Generations, error) {
	if t.fault == "Bump bumps both" {
		routes, pauses = routes || pauses, routes || pauses
	}
	return t.Tx.Bump(ctx, routes, pauses)
}

func (t wrongTx) OnCommit(fn func()) {
	switch t.fault {
	case "OnCommit runs at once":
		fn()
	case "OnCommit runs nothing":
	default:
		t.Tx.OnCommit(fn)
	}
}

var faults = []string{
	"Update commits although fn fails", "Transact commits although fn fails", "Read leaves out a content",
	"State says that there are no notes", "State says that there are no notes of pauses", "State says that no row waits for a group",
	"Rows ignores From",
	"Rows returns one more than the limit", "Rows takes ready rows for held ones", "Rows returns what comes later",
	"Rows leaves out a row", "Rows returns another order",
	"Rows returns no worker", "Page ignores Free", "Page leaves out a note", "Page leaves out a held row", "Page leaves out a ready row",
	"Page has as many rows of each key as of a pause",
	"Page brings the content of another row", "Page brings more rows than the claim takes", "Page brings too much",
	"Page brings what is not wanted",
	"Page returns no due rows", "Page does not know that rows are unrouted", "Page returns no states of keys", "Apply opens no notes",
	"Apply drops no notes", "Apply drops whatever the Looks are", "Apply sets no notes", "Apply deletes nothing",
	"Apply writes no last error", "Apply writes no history", "Apply does not write Next", "Apply does not write Parked",
	"Apply does not change the group", "Apply does not say what it has lost", "Insert returns another order",
	"Replace does not write the size", "Load reads the payload always", "Load returns another order", "Find returns a row twice",
	"Find does not say that a row is blocked", "After returns another order", "After leaves out a row",
	"After compares the group with the topic", "Keys does not know other owners",
	"Keys does not know parked rows", "Keys does not know held rows", "Whole does not know waiting rows",
	"Rows takes rows of keys for those of pauses",
	"Due ignores Held", "Due ignores Lines", "Due takes all parts of the topics", "Due leaves out a line", "Due returns no parts",
	"Due returns another order",
	"Page reads the first part", "Pages returns no busy page", "Pages leaves out a row", "Pages returns no states of keys",
	"Pages returns another page", "Rows reads the first part",
	"LinesOf leaves out a line", "LinesOf returns another order", "Insert ignores the part", "Adopt takes from the first part",
	"Pausing leaves out a pause",
	"Count does not know the oldest", "Count does not know what comes later", "Adopt gives one more", "Forget forgets nothing",
	"Attach attaches one row less", "Put writes one less", "Take takes what others have", "Add takes what has ended",
	"Entries leaves out one", "Scan ignores the prefix", "Range ignores the key", "Old ignores the time", "Delete ignores the time",
	"CountEntries counts one more", "Bump bumps both", "OnCommit runs at once", "OnCommit runs nothing",
}

// walks is how many walks may pass before a fault is noticed.
const walks = 300

func TestRun_NoticesFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range faults {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			d := wrong{memdriver.Driver{Database: memdriver.New()}, fault}
			if err := d.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			walk := rapid.Custom(func(rt *rapid.T) error { return compare(t.Context(), rt, d) })
			for seed := range walks {
				if err := walk.Example(seed); err != nil {
					t.Logf("noticed by walk %d: %.300s", seed+1, err)
					return
				}
			}
			t.Errorf("%d walks have not noticed it", walks)
		})
	}
}
