// Package sqltx holds what the SQL stores share about the handles that their
// users pass as transactions.
package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/outmill/outmill"
)

// Handle runs statements within a transaction. *sql.Tx is one, and so is
// whatever satisfies watermill-sql's ContextExecutor; this package names the
// methods itself so that the library does not depend on that module.
type Handle interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Carry returns a context that carries tx for the store. It refuses nothing:
// what is wrong with tx is told by [From], to whoever uses the context.
func Carry(ctx context.Context, store any, tx Handle) context.Context {
	if err := check(tx); err != nil {
		return outmill.ContextWithTx(ctx, store, refusal{err})
	}
	return outmill.ContextWithTx(ctx, store, tx)
}

// From returns the handle that ctx carries for the store, nil where it
// carries no transaction at all. It returns outmill.ErrForeignTx where ctx
// carries transactions of other stores only, and outmill.ErrInvalidTx where
// what was passed to Carry cannot be used. Handles can be compared with ==.
func From(ctx context.Context, store any) (Handle, error) {
	carried, err := outmill.TxFromContext(ctx, store)
	if err != nil || carried == nil {
		return nil, err
	}
	switch tx := carried.(type) {
	case Handle:
		return tx, nil
	case refusal:
		return nil, tx.err
	}
	return nil, fmt.Errorf("%w: the context carries a %T for this store: use the store's WithTx", outmill.ErrInvalidTx, carried)
}

// Adoption finds the transaction of a context that Carry did not make.
type Adoption func(ctx context.Context) (tx Handle, ok bool)

// Adopt makes one of a function that returns a handle of its own kind.
func Adopt[T Handle](from func(ctx context.Context) (T, bool)) Adoption {
	return func(ctx context.Context) (Handle, bool) {
		tx, ok := from(ctx)
		return tx, ok
	}
}

// FromOr is From, or else what adopt finds, which may be nil.
func FromOr(ctx context.Context, store any, adopt Adoption) (Handle, error) {
	tx, err := From(ctx, store)
	if tx != nil || adopt == nil {
		return tx, err
	}
	if adopted, ok := adopt(ctx); ok {
		return From(Carry(ctx, store, adopted), store)
	}
	return nil, err
}

// Ended marks the error of a statement on a transaction that is already over
// as outmill.ErrInvalidTx; other errors it leaves alone.
func Ended(err error) error {
	if errors.Is(err, sql.ErrTxDone) && !errors.Is(err, outmill.ErrInvalidTx) {
		return fmt.Errorf("%w: it was committed or rolled back before: %w", outmill.ErrInvalidTx, err)
	}
	return err
}

// refusal travels in the place of a transaction that cannot be used. It holds
// a pointer, so that it can be compared.
type refusal struct{ err error }

func check(tx Handle) error {
	if isNil(tx) {
		return fmt.Errorf("%w: it is nil", outmill.ErrInvalidTx)
	}
	if _, ok := tx.(*sql.DB); ok {
		return fmt.Errorf("%w: a *sql.DB is a pool, not a transaction: pass what its BeginTx returns", outmill.ErrInvalidTx)
	}
	if !reflect.ValueOf(tx).Comparable() {
		return fmt.Errorf("%w: a %T cannot be compared, so two uses of it cannot be told from two transactions: pass a pointer", outmill.ErrInvalidTx, tx)
	}
	return nil
}

func isNil(tx Handle) bool {
	if tx == nil {
		return true
	}
	switch v := reflect.ValueOf(tx); v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan, reflect.Interface:
		return v.IsNil()
	default:
		return false
	}
}
