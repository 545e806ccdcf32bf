package memdriver

import (
	"fmt"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// Lose has each Apply lose the rows for which lose returns true, as if another call had changed them; nil loses none.
func (d *Database) Lose(lose func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lose = lose
}

// Loses reports whether Lose has set a function.
func (d *Database) Loses() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lose != nil
}

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

// zero are the columns of a row. Those of the content are "".
var zero = map[Column]func(r *driver.Row){
	KeyColumn: func(r *driver.Row) { r.Key = "" }, TenantColumn: func(r *driver.Row) { r.Tenant = "" },
	CreatedColumn: func(r *driver.Row) { r.Created = 0 }, WakeColumn: func(r *driver.Row) { r.Wake = 0 },
	NextColumn: func(r *driver.Row) { r.Next = 0 }, ExpiresColumn: func(r *driver.Row) { r.Expires = 0 },
	AttemptsColumn: func(r *driver.Row) { r.Attempts = 0 }, ClaimsColumn: func(r *driver.Row) { r.Claims = 0 },
	ExpiriesColumn: func(r *driver.Row) { r.Expiries = 0 }, OwnerColumn: func(r *driver.Row) { r.Owner = "" },
	UnderColumn: func(r *driver.Row) { r.Under = "" }, ProcessedColumn: func(r *driver.Row) { r.Processed = 0 },
}

// Break makes a column of a record unreadable, as a change by hand does.
func (d *Database) Break(id outmill.WorkItemID, column Column) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byID[id] == nil {
		return outmill.ErrNotFound
	}
	if !slices.Contains(Columns(), column) {
		return fmt.Errorf("there is no column %q", column)
	}
	reason := fmt.Sprintf("column %s has a value of another type;", column)
	s := *d.byID[id]
	record := *s.record
	s.record = &record
	switch column {
	case MetadataColumn:
		s.metadata, record.Metadata = reason, nil
	case PayloadColumn:
		s.payload, record.Payload = reason, nil
	default:
		zero[column](&s.Row)
		s.Broken += reason
		if column == KeyColumn || column == TenantColumn || column == CreatedColumn {
			s.identity += reason
		}
	}
	d.put(id, &s)
	return nil
}

// Notes are all notes.
func (d *Database) Notes() (notes []driver.Note) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.notes {
		notes = append(notes, *n)
	}
	return notes
}

// Rows are all rows.
func (d *Database) Rows() (rows []driver.Row) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, list := range d.lines {
		for _, s := range list {
			rows = append(rows, s.Row)
		}
	}
	return rows
}

// Now is the time of the database.
func (d *Database) Now() driver.Time { return d.now() }

// Unnoted are the held rows whose note does not exist, or begins behind them, as the transaction sees them.
func Unnoted(t driver.Tx) (list []driver.Row) {
	mine := t.(*tx)
	for _, rows := range mine.lines {
		for _, s := range rows {
			n := mine.notes[noteKey{s.Line, s.Under}]
			if s.Stage == driver.Held && (n == nil || n.Head > s.Seq) {
				list = append(list, s.Row)
			}
		}
	}
	return list
}
