package sqlkit

import (
	"fmt"

	"github.com/outmill/outmill/engine/driver"
)

// ID scans a column of 16 bytes in which NULL stands for the zero id.
type ID [16]byte

// Scan implements sql.Scanner.
func (i *ID) Scan(src any) error {
	*i = ID{}
	if src == nil {
		return nil
	}
	bytes, ok := src.([]byte)
	if !ok || len(bytes) != len(i) {
		return fmt.Errorf("a column of an id has a %T of %d bytes", src, len(bytes))
	}
	copy(i[:], bytes)
	return nil
}

// ScanID is the target of a column of an id for drivers of database/sql: see RowInto.Columns.
func ScanID(into *[16]byte) any { return (*ID)(into) }

// RowInto has the columns of a row. Their types are certain, but not their values: somebody may have changed them by hand.
type RowInto struct {
	driver.Row
	group, topic                            string
	stage, attempts, claims, expiries, size int64
}

// Columns returns the targets of the columns of a row: the place, the id, the line, the key, the tenant, and so on to who has
// processed it. id returns the target of an id, and parked is the target of the column that says whether the row is parked.
func (i *RowInto) Columns(id func(into *[16]byte) any, parked any) []any {
	r := &i.Row
	return []any{
		&r.Seq, id((*[16]byte)(&r.ID)), &i.group, &i.topic, &r.Key, &r.Tenant, (*int64)(&r.Created), &i.size, &i.stage,
		(*int64)(&r.Wake), (*int64)(&r.Next), (*int64)(&r.Expires), &i.attempts, &i.claims, &i.expiries,
		&r.Owner, &r.Worker, &r.Under, id((*[16]byte)(&r.Step)), id((*[16]byte)(&r.WaitsFor)), parked, (*int64)(&r.Processed), &r.By,
	}
}

// Checked returns the row that was scanned. A value that is not possible becomes zero, and Broken names it.
func (i *RowInto) Checked() driver.Row {
	r := &i.Row
	r.Broken = ""
	r.Line, r.Stage = driver.LineOf(i.group, i.topic), driver.Stage(i.stage)
	r.Attempts, r.Claims, r.Expiries, r.Size = int(i.attempts), int(i.claims), int(i.expiries), int(i.size)
	r.Refuse()
	return *r
}

// SQLColumns are Columns for drivers of database/sql.
func (i *RowInto) SQLColumns() []any { return i.Columns(ScanID, Truth(&i.Parked)) }

// ReadRow reads a row by SQLColumns.
func ReadRow(scan Scan, r *driver.Row) error {
	var into RowInto
	err := scan(into.SQLColumns()...)
	*r = into.Checked()
	return err
}

// ReadBlocked is ReadRow with a last column for Row.Blocked.
func ReadBlocked(scan Scan, r *driver.Row) error {
	var into RowInto
	err := scan(append(into.SQLColumns(), &into.Blocked)...)
	*r = into.Checked()
	return err
}

// Bytes is the size as its column has it.
func (i *RowInto) Bytes() int { return int(i.size) }
