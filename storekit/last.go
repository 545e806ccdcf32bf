package storekit

import (
	"context"

	"github.com/outmill/outmill"
)

type lastKey struct{}

type joinedKey struct{ store outmill.Writer }

// Last returns a context for the last call that a function of Transact makes in its
// transaction: the function returns the error of that call, and does nothing more. A store may
// then commit together with the call, and save a round trip. Where the function takes part in
// the transaction of another Transact, it is not the last one, and nothing changes.
//
// In a function of TransactPatiently it returns outmill.ErrLeaseLost if the lease of the message
// was lost; the function must then return that.
func Last(ctx context.Context) (context.Context, error) {
	tx, _ := ctx.Value(patienceKey{}).(*handlerTx)
	if err := tx.commits(); err != nil {
		return nil, err
	}
	return context.WithValue(ctx, lastKey{}, true), nil
}

// IsLast reports whether a call is the last one in the transaction that the outermost Transact
// of the store has begun. Stores call it.
func IsLast(ctx context.Context, store outmill.Writer) bool {
	return ctx.Value(lastKey{}) != nil && ctx.Value(joinedKey{store}) == nil
}
