package next

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// id scans a column of an id in which NULL stands for none.
type id [16]byte

// Scan implements sql.Scanner.
func (i *id) Scan(src any) error {
	*i = id{}
	if src == nil {
		return nil
	}
	bytes, ok := src.([]byte)
	if !ok || len(bytes) != len(i) {
		return fmt.Errorf("a column of an id has a %T", src)
	}
	copy(i[:], bytes)
	return nil
}

// rowInto has the columns of a row as SQL Server has them. Their types are certain, but not their values: somebody may have changed
// them by hand.
type rowInto struct {
	driver.Row
	group, topic                            string
	stage, attempts, claims, expiries, size int64
}

// columns are the targets of rowColumns.
func (i *rowInto) columns() []any {
	r := &i.Row
	return []any{
		&r.Seq, (*id)(&r.ID), &i.group, &i.topic, &r.Key, &r.Tenant, (*int64)(&r.Created), &i.size, &i.stage, (*int64)(&r.Wake),
		(*int64)(&r.Next), (*int64)(&r.Expires),
		&i.attempts, &i.claims, &i.expiries, &r.Owner, &r.Worker, &r.Under, (*id)(&r.Step), (*id)(&r.WaitsFor), &r.Parked,
		(*int64)(&r.Processed), &r.By,
	}
}

// row returns the row. What is no possible value is zero, and named in Broken.
func (i *rowInto) row() driver.Row {
	r := &i.Row
	r.Line, r.Stage = driver.LineOf(i.group, i.topic), driver.Stage(i.stage)
	r.Attempts, r.Claims, r.Expiries, r.Size = int(i.attempts), int(i.claims), int(i.expiries), int(i.size)
	r.Refuse()
	return *r
}

// readRow reads a row; readBlocked also whether the note of its key holds it.
func readRow(scan scan, r *driver.Row) error {
	var into rowInto
	err := scan(into.columns()...)
	*r = into.row()
	return err
}

func readBlocked(scan scan, r *driver.Row) error {
	var into rowInto
	err := scan(append(into.columns(), &into.Blocked)...)
	*r = into.row()
	return err
}

// Find returns the rows with these ids.
func (t *tx) Find(ctx context.Context, ids []outmill.WorkItemID) ([]driver.Row, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	unique := slices.Clone(ids)
	slices.SortFunc(unique, func(a, b outmill.WorkItemID) int { return slices.Compare(a[:], b[:]) })
	unique = slices.Compact(unique)
	return list(ctx, t, "find", args{"ids": idsOf(unique, func(i *outmill.WorkItemID) outmill.WorkItemID { return *i })}, readBlocked)
}

// Lock returns a row and locks it.
func (t *tx) Lock(ctx context.Context, id outmill.WorkItemID) (r driver.Row, found bool, err error) {
	rows, err := list(ctx, t, "find_locked", args{"id": id[:]}, readBlocked)
	if err != nil || len(rows) == 0 {
		return r, false, err
	}
	return rows[0], true, nil
}

// After returns the rows behind an id.
func (t *tx) After(ctx context.Context, id outmill.WorkItemID, limit int, _ driver.Like) ([]outmill.WorkItemID, []driver.Row, error) {
	return driver.Looked(list(ctx, t, "after", args{"id": id[:], "limit": limit}, readBlocked))
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
		err := t.queryAs(ctx, name, t.locks && s.Free, a, func(scan scan) error {
			found = append(found, driver.Row{})
			return readRow(scan, &found[len(found)-1])
		})
		if err != nil {
			return nil, err
		}
		if s.By == driver.ByComing || s.By == driver.ByDue {
			slices.SortFunc(found, byComing)
		}
		all = append(all, found...)
	}
	return all, nil
}

// byComing is the order of driver.ByDue: no rule of SQL keeps that of the parts of a UNION.
func byComing(a, b driver.Row) int {
	return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Wake, b.Wake), cmp.Compare(a.Seq, b.Seq))
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
