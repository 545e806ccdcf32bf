package sqlkit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Handle runs statements within a transaction. *sql.Tx is one, and so is
// whatever satisfies the ContextExecutor of watermill-sql v3, gorm's ConnPool or
// ent's ExecQuerier; this package names the methods itself so that the library
// depends on none of them.
type Handle interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// WithTx returns a context that carries the transaction of tx for the store, as
// [ResolveTx] finds it. It refuses nothing, because [TxFrom] returns the error where
// something is wrong with tx.
func WithTx(ctx context.Context, store, tx any) context.Context {
	found, err := ResolveTx(tx, Driver{})
	if err != nil {
		found = refusal{err}
	}
	return storekit.ContextWithTx(ctx, store, found)
}

// TxFrom returns the handle that ctx carries for the store, nil where it
// carries no transaction at all. It returns outmill.ErrForeignTx where ctx
// carries transactions of other stores only, and outmill.ErrInvalidTx where
// what was passed to WithTx cannot be used. Handles can be compared with ==.
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

// Adoption finds the transaction of a context that WithTx did not make.
type Adoption func(ctx context.Context) (tx any, ok bool)

// Adopt makes one of a function that returns a transaction of its own kind.
func Adopt[T any](from func(ctx context.Context) (T, bool)) Adoption {
	return func(ctx context.Context) (any, bool) {
		tx, ok := from(ctx)
		return tx, ok
	}
}

// TxFromOr is TxFrom, or else what adopt finds, which may be nil.
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

// TxEnded marks the error of a statement on a transaction that is already over
// as outmill.ErrInvalidTx; other errors it leaves alone.
func TxEnded(err error) error {
	if errors.Is(err, sql.ErrTxDone) && !errors.Is(err, outmill.ErrInvalidTx) {
		return fmt.Errorf("%w: it was committed or rolled back before: %w", outmill.ErrInvalidTx, err)
	}
	return err
}

// refusal travels in the place of a transaction that cannot be used. It holds
// a pointer, so that it can be compared.
type refusal struct{ err error }
