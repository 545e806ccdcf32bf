package driver

import (
	"context"
	"database/sql"
	"errors"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// tx is a transaction: the driver's own, or the caller's. The contract of its methods is that of driver.Tx, and of driver.Parts.
type tx struct {
	d *Driver
	h sqlkit.Handle
	// own is set if prepared statements can be used, and conn if the transaction is the driver's own.
	own  *sql.Tx
	conn *sql.Conn
	// kept are the statements that have run, prepared. They end with the transaction; nil keeps none.
	kept map[string]*sql.Stmt
	// interruptible: statements end with their context. patient: they run although it has ended.
	interruptible, patient bool
	state                  driver.State
	// last is the Seq of the last row that was inserted.
	last int64
	storekit.AfterCommit
}

var _ driver.Tx = (*tx)(nil)

// plain runs single statements, which end with their context.
func (d *Driver) plain(h sqlkit.Handle) *tx { return &tx{d: d, h: h, interruptible: true} }

func (t *tx) State() driver.State { return t.state }

// readState begins the work of a transaction.
func (t *tx) readState(ctx context.Context) error {
	version := 0
	s := &t.state
	// SQLite runs in the process, so its clock is that of the process, which is finer.
	s.Serial, s.Now = true, driver.Time(t.d.config.Now().UnixMicro())
	_, err := list(ctx, t, func(v *values, _ *struct{}) {
		version, s.Routes, s.Pauses = int(v.number(0)), v.number(1), v.number(2)
		s.Notes, s.Paused, s.Unrouted = v.truth(3), v.truth(4), v.truth(5)
	}, sqlState)
	if err != nil {
		return err
	}
	// If there is no row, the process that created the schema was lost.
	return versionError(version)
}

// context is the context of a statement. Statements of write transactions take some milliseconds and are not
// interrupted, because SQLite would end the transaction; the end of ctx is noticed between them. It also saves
// modernc's driver a goroutine for each statement.
func (t *tx) context(ctx context.Context) (context.Context, error) {
	switch {
	case t.interruptible:
		return ctx, nil
	case t.patient:
		return context.WithoutCancel(ctx), nil
	}
	return context.WithoutCancel(ctx), ctx.Err()
}

// statement returns the prepared statement of a template, or nil: then the handle runs it, and has the error, too.
func (t *tx) statement(ctx context.Context, template string) *sql.Stmt {
	if kept := t.kept[template]; kept != nil {
		return kept
	}
	prepared := t.d.prepared(template)
	switch {
	case t.own == nil && t.h == t.d.db:
		return prepared
	case t.own == nil:
		return nil
	case prepared != nil:
		t.kept[template] = t.own.StmtContext(ctx, prepared)
	case t.conn != nil:
		// A call such as Stats runs a statement once for each topic, and preparing one takes longer than running it.
		if own, err := t.own.PrepareContext(ctx, t.d.text(template)); err == nil { //nolint:sqlclosecheck // ends with its transaction
			t.kept[template] = own
		}
	}
	return t.kept[template]
}

func (t *tx) query(ctx context.Context, template string, args ...any) (*sql.Rows, error) {
	return through(ctx, t, (*sql.Stmt).QueryContext, t.h.QueryContext, template, args)
}

func (t *tx) run(ctx context.Context, template string, args ...any) (sql.Result, error) {
	return through(ctx, t, (*sql.Stmt).ExecContext, t.h.ExecContext, template, args)
}

// through runs a template as a prepared statement, or else as a text.
func through[T any](ctx context.Context, t *tx, prepared func(*sql.Stmt, context.Context, ...any) (T, error),
	plain func(context.Context, string, ...any) (T, error), template string, args []any) (none T, err error) {
	if ctx, err = t.context(ctx); err != nil {
		return none, err
	}
	if statement := t.statement(ctx, template); statement != nil {
		return prepared(statement, ctx, args...)
	}
	return plain(ctx, t.d.text(template), args...)
}

func (t *tx) exec(ctx context.Context, template string, args ...any) error {
	_, err := t.run(ctx, template, args...)
	return err
}

// changed returns how many rows a statement has changed.
func (t *tx) changed(ctx context.Context, template string, args ...any) (int, error) {
	result, err := t.run(ctx, template, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// list returns what read makes of the rows of a query. A value that cannot be read is an error, unless read has asked
// for it (see values.broken).
func list[T any](ctx context.Context, t *tx, read func(v *values, item *T), template string, args ...any) (found []T, err error) {
	rows, err := t.query(ctx, template, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	v, err := newValues(rows)
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		if err := rows.Scan(v.into...); err != nil {
			return nil, err
		}
		var item T
		read(v, &item)
		if wrong := v.broken(); wrong != "" {
			return nil, errors.New(wrong)
		}
		found = append(found, item)
	}
	return found, rows.Err()
}

// texts returns the only column of a query.
func (t *tx) texts(ctx context.Context, template string, args ...any) ([]string, error) {
	return list(ctx, t, func(v *values, text *string) { *text = v.text(0) }, template, args...)
}

// number returns the only column of the first row of a query, or 0 if there is none.
func (t *tx) number(ctx context.Context, template string, args ...any) (n int64, err error) {
	_, err = list(ctx, t, func(v *values, _ *struct{}) { n = v.number(0) }, template, args...)
	return n, err
}

// versionError returns an error if this program does not support the version of the schema.
func versionError(version int) error {
	return storekit.SchemaVersion{Version: version, Compatible: version}.Check(schemaVersion)
}
