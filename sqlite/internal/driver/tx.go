package driver

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"strings"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// names converts templates of statements to SQL for one prefix: {p:records} becomes the quoted name of the table
// (or index) records.
type names struct{ prefix string }

var placeholder = regexp.MustCompile(`\{p:([a-z_]+)\}`)

func (n names) in(template string) string {
	return placeholder.ReplaceAllString(strings.ReplaceAll(template, "LIMIT ?", "LIMIT +?"), `"`+n.prefix+`$1"`)
}

// The sign in LIMIT +? hides the parameter from SQLite's planner. The planner would plan by its value, and so
// prepare the statement again each time that it gets one.

// tx is a transaction: the driver's own, or the caller's.
type tx struct {
	d *Driver
	h sqlkit.Handle
	// own is set if prepared statements can be used.
	own *sql.Tx
	// kept are the statements of a read transaction that are not prepared for the whole handle. A call such as Stats
	// runs them once for each topic, and preparing one takes longer than running it. They end with the
	// transaction; nil keeps none.
	kept map[string]*sql.Stmt
	// outside: there is no transaction of the driver's. Each statement stands alone.
	outside bool
	// patient: the transaction does not look at the end of a context.
	patient bool
	state   driver.State
	// steps says that records are steps of joins.
	steps bool
	// known has the standing of the rows that a write transaction has read. Nobody else can change it.
	known map[int64]standing
	// last is the Seq of the last row that was inserted.
	last     int64
	onCommit []func()
}

var _ driver.Tx = (*tx)(nil)

// plain runs single statements, which end with their context.
func (d *Driver) plain(h sqlkit.Handle) *tx { return &tx{d: d, h: h, outside: true} }

// State returns what the transaction knows about the database.
func (t *tx) State() driver.State { return t.state }

// OnCommit has fn run after the commit of the driver's own transaction.
func (t *tx) OnCommit(fn func()) { t.onCommit = append(t.onCommit, fn) }

var stateNames = columns("version, routes, pauses, notes, paused, unrouted, steps")

// begin reads the state.
func (t *tx) begin(ctx context.Context) error {
	version := int64(0)
	s := &t.state
	// SQLite runs in the process, so its clock is that of the process, which is finer.
	s.Serial, s.Now = true, driver.Time(t.d.config.Now().UnixMicro())
	_, err := list(ctx, t, stateNames, func(v values, _ *struct{}) error {
		version = v.number(0)
		s.Routes, s.Pauses = v.number(1), v.number(2)
		s.Notes, s.Paused, s.Unrouted, t.steps = v.truth(3), v.truth(4), v.truth(5), v.truth(6)
		return v.bad()
	}, sqlState)
	if err != nil {
		return err
	}
	// If there is no row, the process that created the schema was lost.
	return versionError(int(version))
}

// context is the context of a statement. Statements of write transactions take some milliseconds and are not
// interrupted, because SQLite would end the transaction; the end of ctx is noticed between them. It also saves
// modernc's driver a goroutine for each statement.
func (t *tx) context(ctx context.Context) (context.Context, error) {
	if t.kept != nil || t.outside && !t.patient {
		return ctx, nil
	}
	if err := ctx.Err(); err != nil && !t.patient {
		return nil, err
	}
	return context.WithoutCancel(ctx), nil
}

func (t *tx) prepared(ctx context.Context, template string) *sql.Stmt {
	if t.own == nil && !t.outside {
		return nil
	}
	if all := t.d.statements.Load(); all != nil {
		if statement, found := (*all)[template]; found && t.outside {
			return statement
		} else if found {
			return t.own.StmtContext(ctx, statement)
		}
	}
	return t.kept[template]
}

func (t *tx) query(ctx context.Context, template string, args ...any) (*sql.Rows, error) {
	ctx, err := t.context(ctx)
	if err != nil {
		return nil, err
	}
	if statement := t.prepared(ctx, template); statement != nil { //nolint:sqlclosecheck // ends with its transaction
		return statement.QueryContext(ctx, args...)
	}
	text := t.d.names.in(template)
	if t.kept == nil {
		return t.h.QueryContext(ctx, text, args...)
	}
	statement, err := t.own.PrepareContext(ctx, text) //nolint:sqlclosecheck // ends with its transaction
	if err != nil {
		return nil, err
	}
	t.kept[template] = statement
	return statement.QueryContext(ctx, args...)
}

func (t *tx) run(ctx context.Context, template string, args ...any) (sql.Result, error) {
	ctx, err := t.context(ctx)
	if err != nil {
		return nil, err
	}
	if statement := t.prepared(ctx, template); statement != nil { //nolint:sqlclosecheck // ends with its transaction
		return statement.ExecContext(ctx, args...)
	}
	return t.h.ExecContext(ctx, t.d.names.in(template), args...)
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

// list returns what read makes of the rows of a query, which has columns with these names.
func list[T any](ctx context.Context, t *tx, names []string, read func(v values, item *T) error, template string, args ...any) (
	found []T, err error) {
	rows, err := t.query(ctx, template, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	v := newValues(names)
	for rows.Next() {
		if err := rows.Scan(v.into...); err != nil {
			return nil, err
		}
		var item T
		if err := read(v, &item); err != nil {
			return nil, err
		}
		found = append(found, item)
	}
	return found, rows.Err()
}

var oneName = columns("value")

// texts returns the only column of a query.
func (t *tx) texts(ctx context.Context, template string, args ...any) ([]string, error) {
	return list(ctx, t, oneName, func(v values, text *string) error {
		*text = v.text(0)
		return v.bad()
	}, template, args...)
}

// number returns the only column of the first row of a query, or 0 if there is none.
func (t *tx) number(ctx context.Context, template string, args ...any) (int64, error) {
	found, err := list(ctx, t, oneName, func(v values, n *int64) error {
		*n = v.number(0)
		return v.bad()
	}, template, args...)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return found[0], nil
}

// versionError returns an error if this program does not support the version of the schema.
func versionError(version int) error {
	return storekit.SchemaVersion{Version: version, Compatible: version}.Check(schemaVersion)
}
