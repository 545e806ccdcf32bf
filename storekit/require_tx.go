package storekit

import "github.com/outmill/outmill"

// RequireTx returns the transaction that a store has found in a context, or ErrNoTx if
// there is none.
func RequireTx[T comparable](tx T, err error) (T, error) {
	var none T
	if err == nil && tx == none {
		err = outmill.ErrNoTx
	}
	return tx, err
}
