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

// call is one round trip: a procedure of the schema, or a statement, and how
// the result sets are read.
type call struct {
	// template is a statement, or the name of a procedure.
	template string
	args     []any // each a sql.NamedArg
	// sets read one result set each, a row at a time; nil passes over one. Sets
	// that are not there are not read.
	sets []reader
	// looks: it changes nothing, and reads under READ COMMITTED.
	looks bool
	// reset forgets what was read, since a call may be made more than once.
	reset func()
}

const (
	// atReadCommitted begins what reads with READPAST, which is refused under
	// SERIALIZABLE and SNAPSHOT: a caller's transaction, or a connection of the pool,
	// may have these. The level ends with the statement, because the server runs a
	// statement that has parameters as a procedure (sp_executesql). One without
	// parameters is for the pool only: each transaction there says its own level.
	atReadCommitted = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;\n"

	// asMaintenance begins what may be repeated at any time: in a deadlock the other
	// transaction, which may be a user's, goes on. It ends with the statement, too.
	asMaintenance = "SET DEADLOCK_PRIORITY LOW;\n" + atReadCommitted
)

// text is what the driver is given. It calls what is only a name as a procedure,
// which the server need not parse.
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

// arguments are those that the driver is given. It declares a text by its length, and
// the server keeps a plan for each declaration, so a statement's texts are declared
// without a length. A statement casts those that it compares with a column. What a
// procedure's parameters are is said there.
func (c call) arguments() []any {
	if strings.HasPrefix(c.template, "[dbo].[Outbox_") {
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
	rows, err := on.QueryContext(ctx, c.text(s), c.arguments()...)
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
		// An error may come after all sets that were asked for.
		if err := rows.Err(); err != nil || !rows.NextResultSet() {
			return errors.Join(err, rows.Err())
		}
	}
}

// run makes one call that is a transaction by itself, again if it fails for a
// reason that passes.
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

// write runs fn in a transaction of the store's own, again if it fails for a
// reason that passes.
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

// readCommitted is said for each transaction: a connection of a pool may have
// another level from its last use.
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
	if err := tx.Commit(); err != nil {
		return commitError{err}
	}
	return nil
}

// commitError is that of a commit, which may have been carried out: what is run again
// then would not know what it has done. An ordered claim would hand out the later
// records of the keys that it holds.
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

// hex is how bytes are passed in JSON.
func hex[T ~[16]byte](id T) string { return fmt.Sprintf("0x%x", [16]byte(id)) }
