package driver

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ driver.AppendWithin = (*Driver)(nil)

const (
	// sqlInsertWithin is an append in a caller's transaction in one round trip, on MariaDB, which takes IF outside of programs: it proves
	// that the transaction exists, reads what the rows were made for, and inserts them. Its results are those two, or none without a
	// transaction. The read is a statement of its own, so that it locks nothing at REPEATABLE READ, as a part of the INSERT would. Variables
	// of a program, with which the server could compare, take longer than the INSERT.
	sqlInsertWithin = `IF @@in_transaction = 1 THEN
	SELECT version, compatible, routes FROM {p:meta} WHERE only_row = 1;
	? RETURNING created_at;
END IF`

	// sqlTakeBack undoes it. Nobody else has seen the rows.
	sqlTakeBack = `DELETE FROM {p:records} WHERE id IN (?)`
)

// known is what the last transaction of the process has found out about the database.
type known struct {
	driver.State
	// packet is the largest statement that the server takes.
	packet int
	// compound says that it takes sqlInsertWithin: it is MariaDB.
	compound bool
}

// errGuess says that nothing is left of what a transaction that guessed the state has written.
var errGuess = errors.New("the state of the database is not known")

// guessing is the connection of a tx that guesses the state: whatever it is asked for needs the state.
type guessing struct{}

func (guessing) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	return nil, errGuess
}

func (guessing) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errGuess
}

// AppendWithin runs fn, which inserts and does nothing else, as if the state were that of the last transaction of the process. It needs no
// savepoint, because the server undoes a statement that fails by itself. If the state was another one, the rows are taken back, and Within
// follows.
func (d *Driver) AppendWithin(ctx context.Context, caller any, fn func(driver.Tx) error) error {
	last := d.last.Load()
	if last == nil || !last.compound {
		return d.Within(ctx, caller, fn)
	}
	err := d.appendWithin(ctx, caller, last, fn)
	if errors.Is(err, errGuess) {
		return d.Within(ctx, caller, fn)
	}
	return err
}

func (d *Driver) appendWithin(ctx context.Context, caller any, last *known, fn func(driver.Tx) error) error {
	t, leave, err := d.join(ctx, caller)
	if err != nil {
		return err
	}
	defer leave()
	t.caller, t.on, t.state, t.packet = t.on, guessing{}, last.State, last.packet
	if err := fn(t); err != nil {
		return err
	}
	d.handOver(caller, t)
	return nil
}

// insertWithin inserts rows whose times count from the moment of the INSERT. If they were made for another state, it takes them back.
func (t *tx) insertWithin(ctx context.Context, insert *insertion, rows []driver.NewRow) error {
	if len(insert.parameters) > 0 {
		return errGuess
	}
	on := &tx{d: t.d, on: t.caller, packet: t.packet}
	version, open, same := storekit.SchemaVersion{}, false, false
	err := on.eachOf(ctx, []func(scan scan) error{
		func(scan scan) error {
			var routes int64
			err := scan(&version.Version, &version.Compatible, &routes)
			same = version.Check(schemaVersion) == nil && routes == t.state.Routes
			return err
		},
		func(scan scan) error {
			open = true
			return scan((*int64)(&t.state.Now))
		},
	}, sqlInsertWithin, fragment(insert.text))
	switch {
	case number(err) == errSyntax:
		// With sql_mode=ORACLE the server has another syntax.
		return errGuess
	case err != nil:
		return explainTaken(err)
	case !open:
		return storekit.TxGone(nil)
	case !same:
		ids := sqlkit.Mapped(rows, func(r *driver.NewRow) outmill.WorkItemID { return r.ID })
		return cmp.Or(on.run(context.WithoutCancel(ctx), sqlTakeBack, ids), errGuess)
	}
	return nil
}

// moment is a time of a row, and created that of its append. Where the state is guessed, they count from the moment of the INSERT: an
// expression may name a column that stands before its own.
func (t *tx) moment(at driver.Time) any {
	switch {
	case t.caller == nil || at == 0 || at == driver.Never:
		return at
	case at == t.state.Now:
		return fragment("created_at")
	}
	return t.d.part(`created_at + ?`, at-t.state.Now)
}

func (t *tx) created(at driver.Time) any {
	if t.caller == nil {
		return at
	}
	return t.d.part(`{now}`)
}

// hasFixedTime reports whether a row has a time that does not depend on the moment of its append.
func hasFixedTime(r *driver.NewRow) bool {
	return !r.Record.DueAt.IsZero() || !r.Record.ExpiresAt.IsZero()
}
