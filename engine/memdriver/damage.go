package memdriver

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// Column is one column of a row, or a part of its content, that Database.Break makes unreadable.
type Column string

// The columns of what identifies a row and never changes, of its state, and of its content.
const (
	KeyColumn     Column = "key"
	TenantColumn  Column = "tenant"
	CreatedColumn Column = "created"

	WakeColumn      Column = "wake"
	NextColumn      Column = "next"
	ExpiresColumn   Column = "expires"
	AttemptsColumn  Column = "attempts"
	ClaimsColumn    Column = "claims"
	ExpiriesColumn  Column = "expiries"
	OwnerColumn     Column = "owner"
	UnderColumn     Column = "under"
	ProcessedColumn Column = "processed"

	MetadataColumn Column = "metadata"
	PayloadColumn  Column = "payload"
)

// Columns are all of them.
func Columns() []Column {
	return []Column{
		KeyColumn, TenantColumn, CreatedColumn, WakeColumn, NextColumn, ExpiresColumn, AttemptsColumn, ClaimsColumn, ExpiriesColumn,
		OwnerColumn, UnderColumn, ProcessedColumn, MetadataColumn, PayloadColumn,
	}
}

// damage are the columns of a row that cannot be read. It is never changed in place.
type damage map[Column]bool

// Break makes a column of a record unreadable, as a change by hand does. It is for tests of package engine.
func (d *Database) Break(id outmill.WorkItemID, column Column) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.byID[id]
	if s == nil {
		return outmill.ErrNotFound
	}
	zero, known := map[Column]func(r *driver.Row){
		KeyColumn: func(r *driver.Row) { r.Key = "" }, TenantColumn: func(r *driver.Row) { r.Tenant = "" },
		CreatedColumn: func(r *driver.Row) { r.Created = 0 }, WakeColumn: func(r *driver.Row) { r.Wake = 0 },
		NextColumn: func(r *driver.Row) { r.Next = 0 }, ExpiresColumn: func(r *driver.Row) { r.Expires = 0 },
		AttemptsColumn: func(r *driver.Row) { r.Attempts = 0 }, ClaimsColumn: func(r *driver.Row) { r.Claims = 0 },
		ExpiriesColumn: func(r *driver.Row) { r.Expiries = 0 }, OwnerColumn: func(r *driver.Row) { r.Owner = "" },
		UnderColumn: func(r *driver.Row) { r.Under = "" }, ProcessedColumn: func(r *driver.Row) { r.Processed = 0 },
		MetadataColumn: func(*driver.Row) {}, PayloadColumn: func(*driver.Row) {},
	}[column]
	if !known {
		return fmt.Errorf("there is no column %q", column)
	}
	zero(&s.Row)
	s.damage = maps.Clone(s.damage)
	if s.damage == nil {
		s.damage = damage{}
	}
	s.damage[column] = true
	s.Broken = s.damage.ofRow()
	return nil
}

func (d damage) has(c Column) bool { return d[c] }

// text names those of the columns for which is holds.
func (d damage) text(is func(c Column) bool) string {
	var reasons []string
	for c := range d {
		if is(c) {
			reasons = append(reasons, fmt.Sprintf("column %s has a value of another type", c))
		}
	}
	slices.Sort(reasons)
	return strings.Join(reasons, ", ")
}

func (c Column) isContent() bool { return c == MetadataColumn || c == PayloadColumn }

// isState is for the columns that Apply writes.
func (c Column) isState() bool {
	return !c.isContent() && c != KeyColumn && c != TenantColumn && c != CreatedColumn
}

// ofRow is Row.Broken.
func (d damage) ofRow() string { return d.text(func(c Column) bool { return !c.isContent() }) }

// of is Content.Broken.
func (d damage) of(want driver.Want) string {
	return d.text(func(c Column) bool {
		return c == MetadataColumn && want&driver.Metadata != 0 || c == PayloadColumn && want&driver.Payload != 0
	})
}

// mended is the damage after Apply has written the state.
func (d damage) mended() damage { return d.without(Column.isState) }

// replaced is the damage after Replace has written the content.
func (d damage) replaced() damage { return d.without(Column.isContent) }

func (d damage) without(mended func(c Column) bool) damage {
	if len(d) == 0 {
		return nil
	}
	left := maps.Clone(d)
	maps.DeleteFunc(left, func(c Column, _ bool) bool { return mended(c) })
	return left
}
