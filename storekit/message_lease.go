package storekit

import (
	"context"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// MessageLease is the lease of the message that a handler has. A subscriber puts it into the
// message's context, so that a middleware which handles the message in a transaction knows the
// lease, and the subscriber knows how far the transaction is. See TransactPatiently.
type MessageLease interface {
	// Inbox returns the inbox of the store that has delivered the message; nil if it has none. A
	// middleware compares it with its own, because only the same store can check the lease.
	Inbox() roles.Inbox
	// Lease returns the lease.
	Lease() outmill.Lease
	// Waits tells the subscriber that the handler waits for its transaction, and Begins that the
	// function in it runs; it may run more often.
	Waits()
	Begins()
	// Commits tells the subscriber that the transaction is about to commit. It returns
	// outmill.ErrLeaseLost if the subscriber has lost or given up the lease, or if the lease has
	// ended by the clock of this process; then the transaction must roll back. Otherwise the
	// subscriber does not give up the message before Ended.
	Commits() error
	// Ended tells the subscriber that the transaction has ended, or that the handler does not wait
	// for it any more, with the error of Transact or nil. After ErrCommitInDoubt the message comes
	// again without an attempt, whatever its handler returns, unless another transaction begins or
	// the message is acked.
	Ended(err error)
}

// MessageLeaseKey is the key of the MessageLease in a message's context, for subscribers.
type MessageLeaseKey struct{}

// MessageLeaseOf returns the MessageLease of the message of this context. It reports false for
// messages of other subscribers.
func MessageLeaseOf(ctx context.Context) (MessageLease, bool) {
	lease, ok := ctx.Value(MessageLeaseKey{}).(MessageLease)
	return lease, ok
}

// noLease is the lease of a message of another subscriber.
type noLease struct{}

func (noLease) Inbox() roles.Inbox   { return nil }
func (noLease) Lease() outmill.Lease { return outmill.Lease{} }
func (noLease) Waits()               {}
func (noLease) Begins()              {}
func (noLease) Commits() error       { return nil }
func (noLease) Ended(error)          {}
