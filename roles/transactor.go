package roles

import (
	"context"
	"time"
)

// Transactor runs functions in transactions of the store, without the types of its
// driver, for code that works on every store.
type Transactor interface {
	// Transact runs fn in a transaction. It commits if fn returns nil, and rolls back if fn
	// returns an error or panics (the panic continues) or ctx has ended. The context of fn
	// carries the transaction: publishers, Append and the other methods that work in
	// transactions take part in it. The store's typed accessor (Tx, Session) returns the
	// driver's transaction from the context.
	//
	// If ctx already carries a transaction of this store, fn runs in it: Transact then neither
	// commits nor rolls back nor repeats. It returns the error of fn, which the outermost
	// Transact, or the caller that began the transaction, handles. If that transaction has
	// ended, Transact returns outmill.ErrInvalidTx.
	//
	// If the transaction has ended before its commit, such as by a statement that failed, by an
	// interruption, or because fn sent a COMMIT or ROLLBACK, the outermost Transact returns an
	// error or runs fn again. It never returns nil for a transaction that it has not committed.
	//
	// After a transient error (a deadlock, a serialization failure, a write conflict) the
	// outermost Transact runs fn again in a new transaction. So fn must have no effects
	// outside the transaction. If the answer to a commit is lost, MongoDB repeats only the
	// commit. If nobody knows in the end whether the transaction was committed, the error is
	// ErrCommitInDoubt, and fn does not run again.
	//
	// A store may commit together with the call that gets the context of Last: see there.
	//
	// SQL stores begin READ COMMITTED, SQL Server with XACT_ABORT, MongoDB with a snapshot.
	// SQLite runs one writing transaction at a time, so a slow function delays every other
	// writer of the database.
	//
	// Errors: ErrCommitInDoubt, outmill.ErrInvalidTx, the error of fn, the driver's.
	Transact(ctx context.Context, fn func(ctx context.Context) error) error

	// TxLimit returns the longest duration of a transaction that the engine allows; 0 is no
	// limit. On MongoDB it is 60 s.
	TxLimit() time.Duration
}
