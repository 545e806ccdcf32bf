package sqlkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Handle runs statements in a transaction. *sql.Tx implements it, and so do types that
// satisfy the ContextExecutor of watermill-sql v3, gorm's ConnPool or ent's ExecQuerier.
// This package lists the methods itself, so that it depends on none of these libraries.
type Handle interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// WithTx returns a context that carries the transaction of tx for the store, as [ResolveTx]
// finds it. It returns no error: if tx is invalid, [TxFrom] returns the error.
func WithTx(ctx context.Context, store, tx any) context.Context {
	found, err := ResolveTx(tx, Driver{})
	if err != nil {
		found = refusal{err}
	}
	return storekit.ContextWithTx(ctx, store, found)
}

// TxFrom returns the handle that ctx carries for the store, or nil if ctx carries no
// transaction. It returns outmill.ErrForeignTx if ctx carries only transactions of other
// stores, and outmill.ErrInvalidTx if the argument of WithTx is not usable. Handles can be
// compared with ==.
func TxFrom(ctx context.Context, store any) (Handle, error) {
	carried, err := storekit.TxFromContext(ctx, store)
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

// Adoption finds a transaction that another library has put into a context.
type Adoption func(ctx context.Context) (tx any, ok bool)

// Adopt makes an Adoption from a function that returns a transaction of another type.
func Adopt[T any](from func(ctx context.Context) (T, bool)) Adoption {
	return func(ctx context.Context) (any, bool) {
		tx, ok := from(ctx)
		return tx, ok
	}
}

// TxFromOr returns the result of TxFrom, or else the transaction that adopt finds. adopt
// may be nil.
func TxFromOr(ctx context.Context, store any, adopt Adoption) (Handle, error) {
	tx, err := TxFrom(ctx, store)
	if tx != nil || adopt == nil {
		return tx, err
	}
	if adopted, ok := adopt(ctx); ok {
		return TxFrom(WithTx(ctx, store, adopted), store)
	}
	return nil, err
}

// TxOf is TxFromOr for a store's own TxOf: without a transaction the result is nil.
func TxOf(ctx context.Context, store any, adopt Adoption) (any, error) {
	tx, err := TxFromOr(ctx, store, adopt)
	if tx == nil {
		return nil, err
	}
	return tx, err
}

// TxEnded marks the error of a statement in a transaction that has ended as
// outmill.ErrInvalidTx. It returns other errors unchanged.
func TxEnded(err error) error {
	if errors.Is(err, sql.ErrTxDone) && !errors.Is(err, outmill.ErrInvalidTx) {
		return fmt.Errorf("%w: it was committed or rolled back before: %w", outmill.ErrInvalidTx, err)
	}
	return err
}

// refusal replaces a transaction that cannot be used in the context. It holds a pointer, so
// that it is comparable.
type refusal struct{ err error }
