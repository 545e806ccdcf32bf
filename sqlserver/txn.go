package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/outmill/outmill/storekit"
)

// reader reads one row of a result set, by its Scan.
type reader = func(scan func(into ...any) error) error

// call is one round trip: a procedure of the schema, or a statement, and the readers of its
// result sets.
type call struct {
	// template is a statement, or the name of a procedure.
	template string
	args     []any // each a sql.NamedArg
	// sets read one result set each, row by row; nil skips a result set. Readers of missing
	// result sets are not called.
	sets []reader
	// looks means that the call only reads, under READ COMMITTED.
	looks bool
	// reset discards the rows that were read, because a call may be repeated.
	reset func()
}

const (
	// atReadCommitted begins statements that read with READPAST, which the server refuses under
	// SERIALIZABLE and SNAPSHOT. A caller's transaction, or a connection of the pool, may have
	// these levels. The level ends with the statement, because the server runs a statement with
	// parameters as a procedure (sp_executesql). Statements without parameters are only for the
	// pool, where each transaction sets its own level.
	atReadCommitted = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n"

	// asMaintenance begins statements that may be repeated at any time. In a deadlock the other
	// transaction, which may be a user's, continues. The priority ends with the statement, too.
	asMaintenance = "SET DEADLOCK_PRIORITY LOW;\n" + atReadCommitted
)

// text returns the text for the driver. If the text is only a name, the driver calls it as a
// procedure, which the server need not parse.
func (c call) text(s *Store) string {
	if !c.looks {
		return s.sql.text(c.template)
	}
	template := atReadCommitted + c.template
	if s.versioned.Load() {
		template = strings.ReplaceAll(template, notLocked, "")
	}
	return s.sql.text(template)
}

func (c call) isProcedure() bool { return strings.HasPrefix(c.template, "[dbo].[Outbox_") }

// arguments returns the arguments for the driver. The driver declares a text by its length, and
// the server keeps a plan for each declaration. So the texts of a statement are declared without
// a length, and the statement casts those that it compares with a column. A procedure declares
// the types of its parameters itself.
func (c call) arguments() []any {
	if c.isProcedure() {
		return c.args
	}
	args := slices.Clone(c.args)
	for i, arg := range args {
		name := arg.(sql.NamedArg)
		switch value := name.Value.(type) {
		case string:
			name.Value = mssql.NVarCharMax(value)
		case sql.NullString:
			if value.Valid {
				name.Value = mssql.NVarCharMax(value.String)
			}
		}
		args[i] = name
	}
	return args
}

// querier is a pool, a transaction or a caller's handle.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (s *Store) do(ctx context.Context, on querier, c call) (err error) {
	if c.reset != nil {
		c.reset()
	}
	text := c.text(s)
	if _, ok := on.(callers); ok && !c.isProcedure() {
		text = onlyWithin + text
	}
	rows, err := on.QueryContext(ctx, text, c.arguments()...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for i := 0; ; i++ {
		for rows.Next() {
			if i < len(c.sets) && c.sets[i] != nil {
				if err := c.sets[i](rows.Scan); err != nil {
					return err
				}
			}
		}
		// An error may follow the last result set that was asked for.
		if err := rows.Err(); err != nil || !rows.NextResultSet() {
			return errors.Join(err, rows.Err())
		}
	}
}

// run makes one call that is a transaction by itself, and repeats it if it fails for a reason
// that passes.
func (s *Store) run(ctx context.Context, operation string, c call) error {
	return s.runAll(ctx, operation, []call{c})
}

// runAll makes the calls in one transaction.
func (s *Store) runAll(ctx context.Context, operation string, calls []call) error {
	if len(calls) == 0 {
		return s.explain(ctx, operation, s.ready(ctx))
	}
	if len(calls) == 1 {
		return s.try(ctx, operation, func(ctx context.Context) error { return s.do(ctx, s.db, calls[0]) })
	}
	return s.write(ctx, operation, func(ctx context.Context, tx *sql.Tx) error {
		for _, c := range calls {
			if err := s.do(ctx, tx, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// write runs fn in the store's own transaction, and repeats it if it fails for a reason that
// passes.
func (s *Store) write(ctx context.Context, operation string, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return s.try(ctx, operation, func(ctx context.Context) error { return s.in(ctx, fn) })
}

func (s *Store) try(ctx context.Context, operation string, fn func(ctx context.Context) error) error {
	err := s.ready(ctx)
	if err == nil {
		err = storekit.Repeat(ctx, passes, func() error { return fn(ctx) })
	}
	return s.explain(ctx, operation, err)
}

// readCommitted is set for each transaction, because a connection of a pool may still have the
// level of its last use.
var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// in runs fn in a transaction.
func (s *Store) in(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, readCommitted)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := fn(ctx, tx); err != nil {
		return err
	}
	// Commit does nothing then.
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		err = ended(err)
		if mayBeCommitted(err) {
			err = storekit.CommitInDoubt(err)
		}
		return commitError{err}
	}
	return nil
}

// commitError is the error of a commit that may have been carried out. Such a transaction is not
// repeated, because the second run would not know the changes of the first: an ordered claim
// would hand out the later records of the keys that it has leased.
type commitError struct{ error }

func (e commitError) Unwrap() error { return e.error }

func named(name string, value any) any { return sql.Named(name, value) }

// texts collects a column of text.
func texts(into *[]string) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		var text string
		err := scan(&text)
		*into = append(*into, text)
		return err
	}
}

// numbers reads the numbers of the only row.
func numbers(into ...any) func(scan func(...any) error) error {
	return func(scan func(...any) error) error { return scan(into...) }
}

// hex is the form of bytes in JSON.
func hex[T ~[16]byte](id T) string { return fmt.Sprintf("0x%x", [16]byte(id)) }
