package driver

import (
	"context"
	"math"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Find returns the rows with these ids.
func (t *tx) Find(ctx context.Context, ids []outmill.WorkItemID) ([]driver.Row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	unique := slices.Clone(ids)
	slices.SortFunc(unique, func(a, b outmill.WorkItemID) int { return slices.Compare(a[:], b[:]) })
	unique = slices.Compact(unique)
	return list(ctx, t, "find", args{"ids": idsOf(unique, func(i *outmill.WorkItemID) outmill.WorkItemID { return *i })}, sqlkit.ReadBlocked)
}

// Lock returns a row and locks it.
func (t *tx) Lock(ctx context.Context, id outmill.WorkItemID) (r driver.Row, found bool, err error) {
	rows, err := list(ctx, t, "find_locked", args{"id": id[:]}, sqlkit.ReadBlocked)
	if err != nil || len(rows) == 0 {
		return r, false, err
	}
	return rows[0], true, nil
}

// After returns the rows behind an id.
func (t *tx) After(ctx context.Context, id outmill.WorkItemID, limit int, _ driver.Like) ([]outmill.WorkItemID, []driver.Row, error) {
	return driver.Looked(list(ctx, t, "after", args{"id": id[:], "limit": limit}, sqlkit.ReadBlocked))
}

// fromOf is Search.From; 0 is before every row.
func fromOf(s driver.Search) int64 {
	if s.From == 0 {
		return math.MinInt64
	}
	return s.From
}

// statementOf returns the statement and the arguments of a search.
func statementOf(s driver.Search, now driver.Time) (name string, a args) {
	a = args{"limit": s.Limit}
	with := func(name string, values args) (string, args) {
		for key, value := range values {
			a[key] = value
		}
		return name, a
	}
	switch s.By {
	case driver.ByEnded:
		return with("by_ended", args{"now": now})
	case driver.ByExpiry:
		return with("by_expiry", args{"now": now})
	case driver.ByDone:
		return with("by_done", args{"until": s.Until})
	case driver.ByUnrouted:
		return with("by_unrouted", args{"topic": s.Name()})
	case driver.ByStep:
		return with("by_step", args{"step": s.Step[:]})
	case driver.ByWaiter:
		return with("by_waiter", args{"join": s.Join[:], "now": now})
	case driver.ByOpen:
		return "by_open", a
	default:
	}
	a["group"], a["topic"] = s.Group, s.Name()
	switch s.By {
	case driver.ByPlace:
		return "by_place", a
	case driver.ByKeyed:
		return with("by_hold", args{"hold": 1})
	case driver.ByPaused:
		return with("by_hold", args{"hold": 2})
	case driver.ByComing:
		return with("coming", args{"now": now})
	case driver.ByDue:
		return with("any_order", args{"now": now})
	case driver.ByLater:
		return with("by_later", args{"now": now, "stage": s.Stage})
	case driver.ByKey:
		return with("by_key", args{"key": s.Key, "from": fromOf(s)})
	case driver.ByParked:
		return with("by_parked", args{"key": s.Key, "from": fromOf(s)})
	default:
	}
	switch s.Stage {
	case driver.Ready:
		return "by_line", a
	case driver.Held:
		return "by_held", a
	case driver.Waiting, driver.Delayed, driver.Leased:
		return with("by_stage_later", args{"stage": s.Stage})
	default:
		return with("by_stage_settled", args{"stage": s.Stage})
	}
}

// Rows runs the searches.
func (t *tx) Rows(ctx context.Context, searches ...driver.Search) (all []driver.Row, err error) {
	for _, s := range searches {
		name, a := statementOf(s, t.state.Now)
		var found []driver.Row
		err := t.queryAs(ctx, name, t.locks && s.Free, a, sqlkit.Into(&found, sqlkit.ReadRow))
		if err != nil {
			return nil, err
		}
		if s.By.ForEach() {
			s.By.Sort(found)
		}
		all = append(all, found...)
	}
	return all, nil
}

// Count counts what searches of lines find.
func (t *tx) Count(ctx context.Context, searches ...driver.Search) ([]driver.Counted, error) {
	all := make([]driver.Counted, len(searches))
	for i, s := range searches {
		name, a := statementOf(s, t.state.Now)
		a["now"] = t.state.Now
		c := &all[i]
		err := t.queryAs(ctx, countOf+name, false, a, func(scan scan) error { return scan(&c.N, &c.Later, (*int64)(&c.Oldest)) })
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
