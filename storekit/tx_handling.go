package storekit

import "context"

// TxHandling is what middleware needs of the subscriber to ack a message in the
// transaction of its handler. The subscriber gives it in the message's context.
//
// The middleware calls Hold, runs the transaction with Ack as the last thing that it does,
// and then calls Ended. The message is acked as usual after that, which costs the store
// nothing more where the transaction has committed.
type TxHandling interface {
	// Acker is the store that the record came from. A middleware compares it with its
	// own: only a transaction of the same store can ack the record.
	Acker() TxAcker
	// Hold makes the lease ready, before the transaction begins. The transaction ends with
	// ctx at the latest. Where the store limits transactions, the subscriber does not extend
	// the lease from then on until Ended: it lasts for longer than ctx or the limit. Errors: ErrLeaseLost, those of the store.
	Hold(ctx context.Context) error
	// AckInTx acks the record in the transaction of ctx. Errors: those of TxAcker.
	AckInTx(ctx context.Context) error
	// Ended says that the transaction has ended, and whether it has acked the record.
	Ended(acked bool)
}

// TxHandlingKey is the key of the TxHandling in a message's context, for subscribers.
type TxHandlingKey struct{}

// TxHandlingOf returns the TxHandling of the message of this context. It reports false for
// messages of other subscribers, and of stores that are no TxAcker.
func TxHandlingOf(ctx context.Context) (TxHandling, bool) {
	handling, ok := ctx.Value(TxHandlingKey{}).(TxHandling)
	if !ok || handling.Acker() == nil {
		return nil, false
	}
	return handling, true
}
