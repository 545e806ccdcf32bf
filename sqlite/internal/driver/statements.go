package driver

import (
	"context"
	"database/sql"
	"regexp"
	"strings"
)

var placeholder = regexp.MustCompile(`\{p:([a-z_]+)\}`)

// text converts the template of a statement to SQL: {p:records} becomes the quoted name of the table (or index) records. It
// hides the parameter of LIMIT ? behind a sign. SQLite would plan by its value, and so prepare the statement again each time
// that it gets another one.
func (d *Driver) text(template string) string {
	return placeholder.ReplaceAllString(strings.ReplaceAll(template, "LIMIT ?", "LIMIT +?"), `"`+d.config.Prefix+`$1"`)
}

// prepared returns the prepared statement of a template, or nil. Statements are prepared once for the whole handle, after the
// transaction that has run them first: in a transaction, another connection may not be free.
func (d *Driver) prepared(template string) *sql.Stmt {
	statement, seen := d.statements.LoadOrStore(template, (*sql.Stmt)(nil))
	if !seen {
		d.more.Store(true)
	}
	return statement.(*sql.Stmt)
}

// prepare prepares the statements that have run since the last call. It has time: without it they are slower.
func (d *Driver) prepare(ctx context.Context) {
	if !d.more.CompareAndSwap(true, false) {
		return
	}
	d.statements.Range(func(template, known any) bool {
		if known.(*sql.Stmt) != nil {
			return true
		}
		statement, err := d.db.PrepareContext(ctx, d.text(template.(string)))
		if err != nil {
			d.more.Store(true)
			return false
		}
		if !d.statements.CompareAndSwap(template, known, statement) {
			_ = statement.Close() //nolint:sqlclosecheck // another call has prepared it, too
		}
		return true
	})
	if d.closed.Load() {
		d.forget()
	}
}

// forget closes the prepared statements.
func (d *Driver) forget() {
	d.statements.Range(func(template, _ any) bool {
		if known, _ := d.statements.LoadAndDelete(template); known != nil && known.(*sql.Stmt) != nil {
			_ = known.(*sql.Stmt).Close()
		}
		return true
	})
}
