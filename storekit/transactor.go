package storekit

import (
	"context"
	"errors"
	"fmt"

	"github.com/outmill/outmill"
)

// ErrCommitInDoubt says that nobody knows whether a transaction was committed: the answer to its
// COMMIT was lost, or the context ended in the meantime. It may also be committed after the error.
// errors.Is finds it in errors of Transact.
var ErrCommitInDoubt = errors.New("outmill: nobody knows whether the transaction was committed")

// CommitInDoubt returns the error of a COMMIT as an ErrCommitInDoubt that wraps it. Stores call it.
func CommitInDoubt(err error) error {
	if errors.Is(err, ErrCommitInDoubt) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCommitInDoubt, err)
}

// CommitJudge is a Transactor that can tell from the error of a COMMIT whether the transaction may
// have been committed, for transactions that the caller ends.
type CommitJudge interface {
	// MayBeCommitted returns false for an error with which the database, or the driver, says that the
	// transaction of ctx has not been committed. It makes no call to the database.
	MayBeCommitted(ctx context.Context, err error) bool
}

// JudgeCommit returns the error of a COMMIT in a transaction of the store that the caller has ended: as
// an ErrCommitInDoubt, unless the store knows that nothing was committed.
func JudgeCommit(ctx context.Context, store outmill.Writer, err error) error {
	judge, ok := outmill.As[CommitJudge](store)
	if err == nil || ok && !judge.MayBeCommitted(ctx, err) {
		return err
	}
	return CommitInDoubt(err)
}

// InTransaction reports whether ctx carries a transaction of the store, in which its
// Transact would take part. Transactions of other stores do not count. Stores call it.
func InTransaction(ctx context.Context, store outmill.Writer) (bool, error) {
	tx, err := store.TxOf(ctx)
	if errors.Is(err, outmill.ErrForeignTx) {
		return false, nil
	}
	return tx != nil, err
}

// TransactOr implements Transactor.Transact for stores. If ctx carries a transaction of the
// store, fn runs in it, after prove has found that it has not ended. Otherwise own begins a
// transaction, runs fn in it, and repeats as the store does. Errors of fn and of own are
// returned unchanged; explain adds the operation to other errors.
func TransactOr(ctx context.Context, store outmill.Writer, fn func(ctx context.Context) error, explain func(error) error,
	prove func(ctx context.Context) error, own func() error) error {
	if fn == nil {
		return explain(InvalidConfig("Transact: fn is nil"))
	}
	joined, err := InTransaction(ctx, store)
	if err == nil && joined {
		err = prove(ctx)
	}
	switch {
	case err != nil:
		return explain(err)
	case joined:
		return fn(context.WithValue(ctx, joinedKey{store}, true))
	}
	return own()
}

// TxGone returns the outmill.ErrInvalidTx of a call in a transaction that has ended while the
// program went on in it. cause may be nil.
func TxGone(cause error) error {
	const why = "the database has ended it, or a COMMIT or ROLLBACK was sent as a statement: " +
		"roll back what began it, and run the whole transaction again"
	if cause == nil {
		return fmt.Errorf("%w: %s", outmill.ErrInvalidTx, why)
	}
	return fmt.Errorf("%w: %s (%w)", outmill.ErrInvalidTx, why, cause)
}
