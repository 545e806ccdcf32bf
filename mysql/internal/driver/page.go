package driver

import (
	"context"
	"fmt"
	"slices"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	// sqlLockLine waits for the lock of a line, and sqlPassLine does not.
	sqlLockLine = `SELECT 1 FROM {p:lines} WHERE grp = ? AND topic = ? FOR UPDATE`
	sqlPassLine = sqlLockLine + ` SKIP LOCKED`
	sqlHasLine  = `SELECT 1 FROM {p:lines} WHERE grp = ? AND topic = ?`
	sqlNewLine  = `INSERT INTO {p:lines} (grp, topic) VALUES (?, ?) ON DUPLICATE KEY UPDATE grp = VALUES(grp)`
)

// lockLine locks a line until the transaction ends. With pass it does not wait, and says whether it was granted.
func (t *tx) lockLine(ctx context.Context, line driver.Line, pass bool) (granted bool, err error) {
	has := func(template string) (found bool, err error) {
		err = t.each(ctx, func(scan scan) error { found = true; return scan(new(int)) }, template, line.Group, line.Name())
		return found, err
	}
	how := sqlLockLine
	if pass {
		how = sqlPassLine
	}
	if granted, err = has(how); granted || err != nil {
		return granted, err
	}
	if pass {
		if locked, err := has(sqlHasLine); locked || err != nil {
			return false, err
		}
	}
	return true, t.run(ctx, sqlNewLine, line.Group, line.Name())
}

const (
	// pageColumns are the columns of a row of a page, whose group and topic are those of the line.
	pageColumns = `h.seq, h.id, h.rec_key, h.tenant_id, h.created_at, h.size, h.stage, h.wake_at, h.next_at, h.expires_at, h.attempts,
	h.claims, h.expiries, h.owner, h.worker, h.under, h.step, h.waits_for, h.parked, h.processed_at, h.processed_by`

	// sqlNoted finds the first notes of one blocker, and sqlLooking those whose time has come. sqlKeyedPauses are those of Ask.Keys.
	sqlNoted = `SELECT n.name, n.blocker, n.head, n.look_at, n.looks FROM {p:notes} AS n FORCE INDEX (blockers)
	WHERE n.grp = ? AND n.topic = ? AND n.blocker = ? ORDER BY n.head, n.name LIMIT ?`
	sqlLooking = `SELECT n.name, n.blocker, n.head, n.look_at, n.looks FROM {p:notes} AS n FORCE INDEX (looking)
	WHERE n.grp = ? AND n.topic = ? AND n.look_at > 0 AND n.look_at <= {now} ORDER BY n.look_at LIMIT ?`
	sqlKeyedPauses = `SELECT n.name, n.blocker, n.head, n.look_at, n.looks FROM {p:notes} AS n FORCE INDEX (PRIMARY)
	WHERE n.grp = ? AND n.topic = ? AND n.name >= x'71' AND n.name < x'72'`

	sqlNotes = `SELECT DISTINCT a.name, a.blocker, a.head, a.look_at, a.looks FROM (?) AS a ORDER BY a.head, a.name LIMIT ?`

	// sqlUnderKey and sqlUnder find the first rows under a note of a key, and of a pause.
	sqlUnderKey = rowsBy + `(by_key) WHERE r.grp = ? AND r.topic = ? AND r.rec_key = ? AND r.slot = 1 ORDER BY r.seq LIMIT ?`
	sqlUnder    = rowsBy + `(held_under) WHERE r.grp = ? AND r.topic = ? AND r.under = ? AND r.stage = 1 ORDER BY r.seq LIMIT ?`

	// sqlPage reads a page in one moment, which is that of a statement. The kinds of its rows are those below. Of a note, name stands in
	// rec_key, blocker in owner, head in seq, and looks in attempts. The parts are: the coming rows, the notes, the held rows, the ready rows,
	// the states of the keys.
	sqlPage = `SELECT 0 AS kind, 0 AS seq, NULL AS id, x'' AS rec_key, x'' AS tenant_id, {now} AS created_at, 0 AS size, 0 AS stage,
	0 AS wake_at, 0 AS next_at, 0 AS expires_at, 0 AS attempts, 0 AS claims, 0 AS expiries, x'' AS owner, x'' AS worker, x'' AS under,
	NULL AS step, NULL AS waits_for,
	EXISTS (SELECT 1 FROM {p:records} AS r FORCE INDEX (line) WHERE r.grp = x'' AND r.topic = ? AND r.slot IN (0, 3)) AS parked,
	0 AS processed_at, x'' AS processed_by
?`
	pageRows  = `UNION ALL SELECT ?, ` + pageColumns + ` FROM (?) AS h`
	pageNotes = `UNION ALL SELECT 1, h.head, NULL, h.name, x'', 0, 0, 0, h.look_at, 0, 0, h.looks, 0, 0, h.blocker, x'', x'', NULL,
	NULL, 0, 0, x'' FROM (?) AS h`
	pageKeys = `UNION ALL SELECT 4, s.waiting, NULL, s.k, x'', s.held, 0, 0, s.parked, s.due, 0, 0, 0, 0, s.other, x'', x'', NULL,
	NULL, 0, 0, x'' FROM (?) AS s`
	pageKey = `SELECT h.rec_key AS k FROM (?) AS h`

	// none is driver.None, and unexpired is a row that claims may take.
	none      = `9223372036854775807`
	unexpired = `(r.expires_at = 0 OR r.expires_at > {now})`
	// lineHas begins a condition that looks once whether the line has such rows at all, because most lines have none, and ofKey finds those
	// of a key.
	lineHas = `EXISTS (SELECT 1 FROM {p:records} AS r FORCE INDEX (line) WHERE r.grp = ?1 AND r.topic = ?2 AND `
	ofKey   = ` FROM {p:records} AS r FORCE INDEX (by_key) WHERE r.grp = ?1 AND r.topic = ?2 AND r.rec_key = k.k AND `
	ofLine  = ` FROM {p:records} AS r FORCE INDEX (line) WHERE r.grp = ?1 AND r.topic = ?2 AND `
	// ofOthers are leases of other owners: a lease that has ended counts only if its row has not expired. ofDue are rows that are due and
	// not admitted; they are few, because a claim admits them first.
	ofOthers = `r.slot = 4 AND r.owner <> ?3 AND (r.wake_at > {now} OR ` + unexpired + `)`
	ofDue    = `r.slot IN (2, 3, 4) AND r.wake_at <= {now} AND (r.slot <> 4 OR r.owner = ?3) AND ` + unexpired

	// sqlKeyStates finds, for each key of a list, another owner with a lease, and the first rows that wait, are held, are parked, and are due
	// and not admitted.
	sqlKeyStates = `SELECT k.k,
	COALESCE(IF(` + lineHas + `r.slot = 4), (SELECT r.owner` + ofKey + ofOthers + ` LIMIT 1), NULL), x'') AS other,
	COALESCE(IF(` + lineHas + `r.slot = 2), (SELECT r.seq` + ofKey + `r.slot = 2 AND ` + unexpired + ` ORDER BY r.seq LIMIT 1), NULL),
		` + none + `) AS waiting,
	COALESCE(IF(` + lineHas + `r.slot = 1), (SELECT r.seq` + ofKey + `r.slot = 1 ORDER BY r.seq LIMIT 1), NULL), ` + none + `) AS held,
	COALESCE(IF(` + lineHas + `r.slot = 8), (SELECT r.seq` + ofKey + `r.slot = 8 ORDER BY r.seq LIMIT 1), NULL), ` + none + `) AS parked,
	COALESCE(IF(` + lineHas + `r.slot IN (2, 3, 4) AND r.wake_at <= {now}), (SELECT MIN(r.seq)` + ofLine + ofDue + ` AND r.rec_key = k.k),
		NULL), ` + none + `) AS due
FROM (?4) AS k`

	sqlDistinctKeys = `SELECT DISTINCT a.k FROM (?) AS a WHERE a.k <> x''`

	// sqlWhole is the state of all rows of a line. Many may wait; the first that waits has few before it, because it was claimed once.
	sqlWhole = `SELECT COALESCE((SELECT r.owner` + ofLine + ofOthers + ` LIMIT 1), x'') AS other,
	COALESCE(IF(` + lineHas + `r.slot = 2), (SELECT r.seq FROM {p:records} AS r FORCE INDEX (held_under) WHERE r.grp = ?1
		AND r.topic = ?2 AND r.under = x'' AND r.slot = 2 AND ` + unexpired + ` ORDER BY r.seq LIMIT 1), NULL), ` + none + `) AS waiting,
	COALESCE((SELECT MIN(r.seq)` + ofLine + ofDue + `), ` + none + `) AS due`
)

// kindDue is the kind of the rows of a page that a claim makes ready first.
const kindDue = sqlkit.PageMore

// errMoved says that others have opened notes again and again while a page was read.
var errMoved = fmt.Errorf("the notes of a line changed while a claim read them: %w", driver.ErrBusy)

// pageTries is how often a page is read until it has the rows of all of its notes.
const pageTries = 10

// Page locks a line, and returns a page of it. One statement reads the page, and names the notes whose rows it wants; if it finds that
// there are others in its moment, it runs again.
func (t *tx) Page(ctx context.Context, ask driver.Ask) (p driver.Page, err error) {
	if ask.Lock && t.locks {
		granted, err := t.lockLine(ctx, ask.Line, ask.Pass)
		if err != nil || !granted {
			return driver.Page{Now: t.state.Now, Busy: !granted}, err
		}
	}
	var notes []driver.Note
	if t.state.Notes {
		if notes, err = t.noted(ctx, ask); err != nil {
			return p, err
		}
	}
	for range pageTries {
		if p, err = t.readPage(ctx, ask, notes); err != nil {
			return p, err
		}
		if p.Due, err = t.free(ctx, p.Due); err != nil || len(p.Due) > 0 {
			return driver.Page{Now: p.Now, Due: p.Due}, err
		}
		if slices.EqualFunc(p.Notes, notes, func(a, b driver.Note) bool { return a.Name == b.Name }) {
			t.state.Now = max(t.state.Now, p.Now)
			if !ask.Lock {
				p.Held, err = t.free(ctx, p.Held)
			}
			return p, err
		}
		notes = p.Notes
	}
	return driver.Page{}, errMoved
}

// noted returns the notes of a page.
func (t *tx) noted(ctx context.Context, ask driver.Ask) ([]driver.Note, error) {
	return list(ctx, t, func(scan scan, n *driver.Note) error {
		n.Line = ask.Line
		return scan(&n.Name, &n.Blocker, &n.Head, (*int64)(&n.LookAt), &n.Looks)
	}, `?`, t.notesOf(ask))
}

// lookingMore bounds how many notes are read whose time has come: those with the first Heads of them are wanted.
const lookingMore = 1000

// notesOf is the select of the notes of a page.
func (t *tx) notesOf(ask driver.Ask) fragment {
	var selects []fragment
	for _, blocker := range ask.Free {
		selects = append(selects, t.d.part(sqlNoted, ask.Group, ask.Name(), blocker, ask.Limit))
	}
	selects = append(selects, t.d.part(sqlLooking, ask.Group, ask.Name(), 10*ask.Limit+lookingMore))
	if ask.Keys {
		selects = append(selects, t.d.part(sqlKeyedPauses, ask.Group, ask.Name()))
	}
	return t.d.part(sqlNotes, unionOf(selects), ask.Limit)
}

// heldOf is the select of the rows that notes hold.
func (t *tx) heldOf(ask driver.Ask, notes []driver.Note) fragment {
	var selects []fragment
	for _, n := range notes {
		if key, is := driver.KeyOf(n.Name); is {
			selects = append(selects, t.d.part(sqlUnderKey, ask.Group, ask.Name(), key, ask.Share(notes)))
		} else {
			selects = append(selects, t.d.part(sqlUnder, ask.Group, ask.Name(), n.Name, ask.Limit))
		}
	}
	return unionOf(selects)
}

// readPage reads a page with the rows of these notes.
func (t *tx) readPage(ctx context.Context, ask driver.Ask, notes []driver.Note) (p driver.Page, err error) {
	d, parts, keys := t.d, []fragment(nil), []fragment(nil)
	add := func(kind int, rows fragment) { parts = append(parts, d.part(pageRows, kind, rows)) }
	if ask.Due > 0 {
		coming := t.selects(driver.Search{By: driver.ByComing, Line: ask.Line, Limit: ask.Due})
		add(kindDue, unionOf(coming))
	}
	parts = append(parts, d.part(pageNotes, t.notesOf(ask)))
	if len(notes) > 0 {
		held := t.heldOf(ask, notes)
		add(sqlkit.PageHeld, held)
		keys = append(keys, d.part(pageKey, held))
	}
	if ask.Keys {
		ready := d.part(sqlBySlot, ask.Group, ask.Name(), driver.Ready, ask.Limit)
		add(sqlkit.PageReady, ready)
		keys = append(keys, d.part(pageKey, ready))
		for _, n := range notes {
			if key, is := driver.KeyOf(n.Name); is {
				keys = append(keys, d.part(`SELECT ? AS k`, key))
			}
		}
		parts = append(parts, d.part(pageKeys, t.statesOf(ask.Line, ask.Owner, keys)))
	}
	err = t.each(ctx, func(scan scan) error {
		var r sqlkit.PageRow
		err := scan(append([]any{&r.Kind}, r.PageColumns(sqlkit.ScanID, sqlkit.Truth(&r.Parked))...)...)
		addTo(&p, &r, ask.Line)
		return err
	}, sqlPage, ask.Name(), joined(parts))
	p.Sort()
	return p, err
}

func joined(parts []fragment) (all fragment) {
	for _, p := range parts {
		all += p + "\n"
	}
	return all
}

// statesOf is the select of the states of keys.
func (t *tx) statesOf(line driver.Line, owner string, keys []fragment) fragment {
	return t.d.part(sqlKeyStates, line.Group, line.Name(), owner, t.d.part(sqlDistinctKeys, union(keys)))
}

// addTo adds a row of a page.
func addTo(page *driver.Page, p *sqlkit.PageRow, line driver.Line) {
	switch p.Kind {
	case sqlkit.PageHead:
		page.Now, page.Unrouted = p.Created, p.Parked
	case kindDue:
		page.Due = append(page.Due, p.Of(line))
	default:
		p.AddTo(page, line)
	}
}

// Pages returns a page of each line.
func (t *tx) Pages(ctx context.Context, ask driver.Ask, lines []driver.Line) ([]driver.Page, error) {
	pages := make([]driver.Page, len(lines))
	for i, line := range lines {
		ask.Line, ask.Due, ask.Pass = line, 1, true
		p, err := t.Page(ctx, ask)
		if err != nil {
			return nil, err
		}
		if p.Busy = p.Busy || len(p.Due)+len(p.Notes) > 0 || p.Unrouted; !p.Busy && !ask.Keys {
			if err := t.readyAlone(ctx, &p, ask); err != nil {
				return nil, err
			}
		}
		if pages[i] = p; p.Busy {
			pages[i] = driver.Page{Busy: true}
		}
	}
	return pages, nil
}

// readyAlone reads the ready rows of a page, unless rows are held under the notes of keys.
func (t *tx) readyAlone(ctx context.Context, p *driver.Page, ask driver.Ask) error {
	held, err := t.Rows(ctx, driver.Search{By: driver.ByKeyed, Line: ask.Line, Limit: 1})
	if p.Busy = len(held) > 0; err != nil || p.Busy {
		return err
	}
	p.Ready, err = t.Rows(ctx, driver.Search{By: driver.ByStage, Stage: driver.Ready, Line: ask.Line, Limit: ask.Limit, Free: !ask.Lock})
	return err
}

// Keys returns the states of keys of a line.
func (t *tx) Keys(ctx context.Context, line driver.Line, owner string, keys []string) (map[string]driver.KeyState, error) {
	states := make(map[string]driver.KeyState, len(keys))
	if len(keys) == 0 {
		return states, nil
	}
	names := make([]fragment, len(keys))
	for i, key := range keys {
		names[i] = t.d.part(`SELECT ? AS k`, key)
	}
	err := t.each(ctx, func(scan scan) error {
		var key string
		var s driver.KeyState
		err := scan(&key, &s.Other, &s.Waiting, &s.Held, &s.Parked, &s.Due)
		states[key] = s
		return err
	}, `?`, t.statesOf(line, owner, names))
	return states, err
}

// Whole returns the state of a line.
func (t *tx) Whole(ctx context.Context, line driver.Line, owner string) (driver.KeyState, error) {
	s := driver.KeyState{Held: driver.None, Parked: driver.None}
	err := t.each(ctx, func(scan scan) error { return scan(&s.Other, &s.Waiting, &s.Due) }, sqlWhole, line.Group, line.Name(), owner)
	return s, err
}
