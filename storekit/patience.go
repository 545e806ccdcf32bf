package storekit

import (
	"context"
	"errors"
)

// ErrOwnWriter says that a transaction of this process has had the database's only write lock
// since the call began, so that nobody else has written, claimed or reaped in the meantime.
var ErrOwnWriter = errors.New("outmill: a transaction of this process has the write lock")

// ErrBusy says that the database did nothing, because other transactions had its write lock for
// as long as the call may wait.
var ErrBusy = errors.New("the database was locked by another write transaction")

type patienceKey struct{}

// TransactPatiently runs fn as t.Transact does, for the handler of a message: where the
// transaction must wait for its turn (the write lock of SQLite, a connection of a small pool), it
// waits until ctx ends. Waiting is no failure of the message, so the subscriber counts
// MaxProcessing from the moment at which fn first runs, and gives the message back, without an
// attempt, if it has waited that long. Inside of a transaction that TransactPatiently began it is
// t.Transact.
func TransactPatiently(ctx context.Context, t Transactor, fn func(ctx context.Context) error) error {
	if ctx.Value(patienceKey{}) != nil || fn == nil {
		return t.Transact(ctx, fn)
	}
	handling, _ := ctx.Value(TxHandlingKey{}).(TxHandling)
	begins := func() {
		if handling != nil {
			handling.Begins()
		}
	}
	if handling != nil {
		handling.Waits()
	}
	defer begins()
	return t.Transact(context.WithValue(ctx, patienceKey{}, true), func(ctx context.Context) error {
		begins()
		return fn(context.WithValue(ctx, patienceKey{}, false))
	})
}

// IsPatient reports whether ctx is that of TransactPatiently, before its function runs. Stores
// call it.
func IsPatient(ctx context.Context) bool {
	patient, _ := ctx.Value(patienceKey{}).(bool)
	return patient
}
