package storekit

import "context"

// TxHandling lets a middleware ack a message in the transaction of its handler. The
// subscriber puts it into the message's context.
//
// The middleware calls Hold, runs the transaction with AckInTx as its last statement, and
// then calls Ended. Afterwards the message is acked as usual, which causes no further ack
// in the store if the transaction has committed.
type TxHandling interface {
	// Acker returns the store that the record came from. A middleware compares it with its own
	// store, because only a transaction of the same store can ack the record.
	Acker() TxAcker
	// Hold prepares the lease before the transaction begins. The transaction must end with ctx
	// at the latest. If the store limits the duration of transactions, Hold makes the lease
	// longer than ctx or the limit, and the subscriber does not extend it before Ended.
	// Errors: ErrLeaseLost, those of the store.
	Hold(ctx context.Context) error
	// Waits tells the subscriber that the handler waits for its transaction, and Begins that it
	// does not any more. See TransactPatiently, which calls both. Begins may be called more often.
	Waits()
	Begins()
	// AckInTx acks the record in the transaction of ctx. Errors: those of TxAcker.
	AckInTx(ctx context.Context) error
	// Ended tells the subscriber that the transaction has ended, and whether it has acked the
	// record.
	Ended(acked bool)
}

// TxHandlingKey is the key of the TxHandling in a message's context, for subscribers.
type TxHandlingKey struct{}

// TxHandlingOf returns the TxHandling of the message of this context. It reports false for
// messages of other subscribers, and of stores that do not implement TxAcker.
func TxHandlingOf(ctx context.Context) (TxHandling, bool) {
	handling, ok := ctx.Value(TxHandlingKey{}).(TxHandling)
	if !ok || handling.Acker() == nil {
		return nil, false
	}
	return handling, true
}
