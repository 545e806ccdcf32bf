package driver

import (
	"bytes"
	"context"
	"math"
	"reflect"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// rowInto has the columns of a row.
type rowInto struct{ sqlkit.RowInto }

// columns are the targets of rowColumns.
func (i *rowInto) columns() []any { return i.Columns(bytesOfID, &i.Parked) }

// bytesOfID is the target of an id, which pgx scans as it is.
func bytesOfID(into *[16]byte) any { return into }

// collectRows is collect of rows; blocked says that each is followed by whether the note of its key holds it.
func (t *tx) collectRows(name string, args []any, blocked bool) *[]driver.Row {
	found, into := new([]driver.Row), new(rowInto)
	columns := into.columns()
	if blocked {
		columns = append(columns, &into.Blocked)
	}
	t.add(name, args, func(scan scan) error {
		err := scan(columns...)
		*found = append(*found, into.Checked())
		return err
	})
	return found
}

func (t *tx) listRows(ctx context.Context, name string, args []any, blocked bool) ([]driver.Row, error) {
	found := t.collectRows(name, args, blocked)
	err := t.flush(ctx)
	return *found, err
}

// once are the ids without repeats.
func once(ids []outmill.WorkItemID) []outmill.WorkItemID {
	seen, list := make(map[outmill.WorkItemID]bool, len(ids)), make([]outmill.WorkItemID, 0, len(ids))
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			list = append(list, id)
		}
	}
	return list
}

func itself[T any](item *T) T { return *item }

// same reports whether a call asks for what the first read has read.
func same[T any](read, asked T) bool { return reflect.DeepEqual(read, asked) }

// found are the rows of a Find.
type found struct{ records, logged *[]driver.Row }

func (t *tx) addFind(ids []outmill.WorkItemID) *found {
	f := &found{logged: new([]driver.Row)}
	// What a process has leased it finds at once. A row moves to the records only, so those are read behind the log.
	t.addRemembered(ids, func(r driver.Row) { *f.logged = append(*f.logged, r) })
	f.records = t.collectRows("find", []any{idsOf(once(ids), itself)}, true)
	return f
}

// Find returns the rows with these ids.
func (t *tx) Find(ctx context.Context, ids []outmill.WorkItemID) ([]driver.Row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	first := t.first()
	if first.found == nil || !same(first.Find, ids) {
		if err := t.needsHistory(ctx); err != nil {
			return nil, err
		}
		first.found = t.addFind(ids)
		if err := t.flush(ctx); err != nil {
			return nil, err
		}
	}
	return t.alsoInLog(ctx, ids, *first.found.records, first.found.logged)
}

// Lock returns a row and locks it.
func (t *tx) Lock(ctx context.Context, id outmill.WorkItemID) (r driver.Row, found bool, err error) {
	for logged := true; ; {
		rows, err := t.listRows(ctx, "find_locked", []any{id.String()}, true)
		switch {
		case err != nil:
			return r, false, err
		case len(rows) > 0:
			return rows[0], true, nil
		case !logged:
			return r, false, nil
		}
		// A row that the log does not have any more may have become a record since. One that it has may be leased before it moves.
		if logged, err = t.toRecord(ctx, id); err != nil {
			return r, false, err
		}
	}
}

// After returns the rows behind an id: of the log those that are like the given one, and all records.
func (t *tx) After(ctx context.Context, id outmill.WorkItemID, limit int, like driver.Like) ([]outmill.WorkItemID, []driver.Row, error) {
	logged, err := t.afterInLog(ctx, id, limit, like)
	if err != nil {
		return nil, nil, err
	}
	rows, err := t.listRows(ctx, "after", []any{id.String(), limit}, true)
	if err != nil || len(logged.found)+len(logged.others) == 0 {
		return driver.Looked(rows, err)
	}
	found := byIDs(rows)
	rows = append(rows, slices.DeleteFunc(logged.found, func(r driver.Row) bool { return found[r.ID] })...)
	ids, _, _ := driver.Looked(rows, nil)
	ids = once(append(ids, logged.besides(rows)...))
	slices.SortFunc(ids, func(a, b outmill.WorkItemID) int { return bytes.Compare(a[:], b[:]) })
	return ids[:min(len(ids), limit)], rows, nil
}

// fromOf is Search.From; 0 is before every row.
func fromOf(s driver.Search) int64 {
	if s.From == 0 {
		return math.MinInt64
	}
	return s.From
}

// statementOf returns the statement and the arguments of a search.
func statementOf(s driver.Search, now driver.Time) (name string, args []any) {
	switch s.By {
	case driver.ByEnded:
		return "by_ended", []any{s.Limit, int64(now)}
	case driver.ByExpiry:
		return "by_expiry", []any{s.Limit, int64(now)}
	case driver.ByDone:
		return "by_done", []any{s.Limit, int64(s.Until)}
	case driver.ByUnrouted:
		return "by_unrouted", []any{s.Name(), s.Limit}
	case driver.ByStep:
		return "by_step", []any{s.Limit, s.Step.String()}
	case driver.ByWaiter:
		return "by_waiter", []any{s.Limit, s.Join.String(), int64(now)}
	case driver.ByOpen:
		return "by_open", []any{s.Limit}
	default:
	}
	line := []any{s.Group, s.Name(), s.Limit}
	switch s.By {
	case driver.ByPlace:
		return "by_place", line
	case driver.ByKeyed:
		return "by_keyed", line
	case driver.ByPaused:
		return "by_paused", line
	case driver.ByComing:
		return "coming", append(line, int64(now))
	case driver.ByDue:
		return "any_order", append(line, int64(now))
	case driver.ByLater:
		return "by_later", append(line, int64(now), int64(s.Stage))
	case driver.ByKey:
		return "by_key", append(line, fromOf(s), s.Key)
	case driver.ByParked:
		return "by_parked", append(line, fromOf(s), s.Key)
	default:
	}
	switch s.Stage {
	case driver.Ready:
		return "by_line", line
	case driver.Held:
		return "by_held", line
	case driver.Waiting, driver.Delayed, driver.Leased:
		return "by_stage_later", append(line, int64(s.Stage))
	default:
		return "by_stage_settled", append(line, int64(s.Stage))
	}
}

// addSearches queues searches, and returns what returns their rows.
func (t *tx) addSearches(list []driver.Search) func() []driver.Row {
	all, logs := make([]*[]driver.Row, 0, len(list)), make([]*logSearch, len(list))
	may := t.locks
	for i, s := range list {
		logs[i] = t.addLogSearch(s)
		name, args := statementOf(s, t.state.Now)
		t.locks = may && s.Free
		all = append(all, t.collectRows(name, args, false))
	}
	t.locks = may
	return func() (rows []driver.Row) {
		for i, found := range all {
			rows = append(rows, t.searched(list[i], logs[i], *found)...)
		}
		return rows
	}
}

// Rows runs the searches.
func (t *tx) Rows(ctx context.Context, searches ...driver.Search) ([]driver.Row, error) {
	if first := t.first(); first.rows != nil && same(first.Searches, searches) {
		return t.unlessStale(first.rows())
	}
	if err := t.needsHistory(ctx); err != nil {
		return nil, err
	}
	rows := t.addSearches(searches)
	if err := t.flush(ctx); err != nil {
		return nil, err
	}
	all, err := t.unlessStale(rows())
	if err != nil {
		return nil, err
	}
	for _, s := range searches {
		more, err := t.overAllLines(ctx, s, len(all))
		if all = append(all, more...); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// unlessStale is an error if a page was of other registrations.
func (t *tx) unlessStale(rows []driver.Row) ([]driver.Row, error) {
	if t.log.stale {
		return nil, errStale
	}
	return rows, nil
}
