package storekit

import (
	"context"
	"errors"

	"github.com/outmill/outmill/roles"
)

// ErrOwnWriter says that a transaction of this process has had the database's only write lock
// since the call began, so that nobody else has written, claimed or reaped in the meantime.
var ErrOwnWriter = errors.New("outmill: a transaction of this process has the write lock")

// ErrBusy says that the database did nothing, because other transactions had its write lock for
// as long as the call may wait.
var ErrBusy = errors.New("the database was locked by another write transaction")

type patienceKey struct{}

// handlerTx is the transaction of a message's handler.
type handlerTx struct {
	// of is nil inside of a transaction that somebody else ends.
	of MessageLease
	// waits says that the function does not run yet.
	waits bool
	// told says that the subscriber knows of the commit.
	told bool
}

func (h *handlerTx) commits() error {
	if h == nil || h.of == nil || h.told {
		return nil
	}
	h.told = true
	return h.of.Commits()
}

// TransactPatiently runs fn as t.Transact does, for the handler of a message, and tells the
// subscriber of the message about it (MessageLease). Where the transaction must wait for its turn
// (the write lock of SQLite, a connection of a small pool), it waits until ctx ends. Waiting is no
// failure of the message, so the subscriber counts MaxProcessing from the moment at which fn first
// runs, and gives the message back, without an attempt, if it has waited that long.
//
// If the lease of the message is lost before the commit, the transaction rolls back, and the error
// is outmill.ErrLeaseLost. Inside of a transaction that TransactPatiently or CommitPatiently began
// it is t.Transact.
func TransactPatiently(ctx context.Context, t roles.Transactor, fn func(ctx context.Context) error) error {
	if fn == nil {
		return t.Transact(ctx, fn)
	}
	if ctx.Value(patienceKey{}) != nil {
		return t.Transact(ctx, func(ctx context.Context) error {
			return fn(context.WithValue(ctx, patienceKey{}, &handlerTx{}))
		})
	}
	return CommitPatiently(ctx, t.Transact, fn)
}

// CommitPatiently is TransactPatiently for a function that begins and ends transactions as
// Transactor.Transact does.
func CommitPatiently(ctx context.Context, transact func(ctx context.Context, fn func(ctx context.Context) error) error,
	fn func(ctx context.Context) error) (err error) {
	of, ours := MessageLeaseOf(ctx)
	if !ours {
		of = noLease{}
	}
	of.Waits()
	defer func() { of.Ended(err) }()
	return transact(context.WithValue(ctx, patienceKey{}, &handlerTx{waits: true}), func(ctx context.Context) error {
		of.Begins()
		run := &handlerTx{of: of}
		if err := fn(context.WithValue(ctx, patienceKey{}, run)); err != nil {
			return err
		}
		return run.commits()
	})
}

// IsPatient reports whether ctx is that of TransactPatiently, before its function runs. Stores
// call it.
func IsPatient(ctx context.Context) bool {
	tx, _ := ctx.Value(patienceKey{}).(*handlerTx)
	return tx != nil && tx.waits
}
