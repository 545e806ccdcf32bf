package storekit

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill"
)

// ErrNoTransactions says that the store was made without transactions (MongoDB's
// Config.WithoutTransactions).
var ErrNoTransactions = errors.New("outmill: the store was made without transactions")

// Transactor runs functions in transactions of the store, without the types of its
// driver, for code that works on every store.
type Transactor interface {
	// Transact runs fn in a transaction, commits if fn returns nil, and rolls back if
	// it returns an error, panics (the panic goes on) or ctx has ended. The context
	// that fn gets carries the transaction: publishers, Append and the other methods
	// that work in transactions take part in it. The store's typed accessor (Tx,
	// Session) returns the driver's transaction from it.
	//
	// In a context that already carries a transaction of this store, fn runs in that
	// one: Transact then neither commits nor rolls back nor repeats, and the error of
	// fn is for the outermost Transact, or for the caller who began the transaction.
	//
	// The outermost Transact runs fn again, in a new transaction, where it failed for a
	// reason that passes: a deadlock, a serialization failure, a write conflict. So fn
	// must have no effects outside of the transaction. Where the answer to a commit is
	// lost and the engine can tell (MongoDB), only the commit is repeated; elsewhere the
	// error says that the transaction may have been committed.
	//
	// A store may commit together with the call that gets the context of Last: see there.
	//
	// SQL stores begin READ COMMITTED, SQL Server with XACT_ABORT, MongoDB with a
	// snapshot. SQLite runs one writing transaction at a time, so a function that takes
	// long holds up every other writer of the database.
	//
	// Errors: ErrNoTransactions, outmill.ErrInvalidTx, that of fn, the driver's.
	Transact(ctx context.Context, fn func(ctx context.Context) error) error

	// TxLimit is the longest that the engine lets a transaction take; 0 is no limit.
	// Of MongoDB it is 60 s.
	TxLimit() time.Duration
}

// InTransaction reports whether ctx carries a transaction of the store, in which its
// Transact then takes part. Transactions of other stores do not count. Stores call it.
func InTransaction(ctx context.Context, store outmill.Writer) (bool, error) {
	tx, err := store.TxOf(ctx)
	if errors.Is(err, outmill.ErrForeignTx) {
		return false, nil
	}
	return tx != nil, err
}

// TransactOr is Transactor.Transact for stores: fn runs in the transaction of the store that
// ctx carries, or own begins one, runs fn in it, and repeats that as the store does. An error
// of fn and of own is returned as it is; explain names the operation in others.
func TransactOr(ctx context.Context, store outmill.Writer, fn func(ctx context.Context) error, explain func(error) error,
	own func() error) error {
	if fn == nil {
		return explain(InvalidConfig("Transact: fn is nil"))
	}
	joined, err := InTransaction(ctx, store)
	switch {
	case err != nil:
		return explain(err)
	case joined:
		return fn(context.WithValue(ctx, joinedKey{store}, true))
	}
	return own()
}
