package storekit

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill"
)

// ErrLeaseLost says that a lease is not valid any more: the record was reaped, claimed
// by another worker, settled or deleted. The transaction that was to ack it must be
// rolled back, because the message is handled again, or was handled before.
var ErrLeaseLost = errors.New("outmill: the lease was lost: roll the transaction back, because another worker may handle the message")

// TxAcker acks records in the caller's transaction, so that what a handler changed, the
// messages that it published and the ack of the message that it handled commit together.
// Transactions that ack different records run at the same time, also where one claim
// handed these records out.
//
// This is a record's way through it:
//
//	leased ──HoldForTx──► leased ──AckInTx──► leased, for everybody but the transaction
//	                                             ├─ commit ──► processed ── AckedInTx: keys and joins go on at once
//	                                             └─ rollback, crash ──► leased, as before
//
// A crash between the commit and AckedInTx loses nothing: the store comes to the keys
// and joins by itself, but later.
type TxAcker interface {
	// HoldForTx makes leases ready for AckInTx and returns those that are valid, with
	// their end at now + lease, or later; a lease of 0 leaves the ends as they are, and may
	// return leases that are not valid, which AckInTx then refuses. It is called before the
	// transaction begins, and takes no part in one. Where Transactor.TxLimit is not 0, an extension that
	// runs while the transaction is open would make the ack conflict: hold the lease
	// for longer than the limit, and do not extend it until the transaction has ended.
	HoldForTx(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error)

	// AckInTx makes the records processed when the transaction in ctx commits: deleted,
	// or kept with the time and by, as Ack does. Call it last before the commit. If one
	// of the leases is not valid it returns ErrLeaseLost, and the transaction must be
	// rolled back. by is as in Queue.Ack.
	//
	// Until the transaction has ended, neither a claim nor ReapExpired waits for it, and
	// none hands the records out, or later ones of their keys in order, even if the
	// leases end. An ack of another record never waits for it, whatever joins both are
	// steps of. A rollback leaves the leases as they were.
	//
	// Errors: outmill.ErrNoTx, outmill.ErrForeignTx, outmill.ErrInvalidTx, ErrLeaseLost,
	// outmill.ErrInvalidRecord (by), the driver's.
	AckInTx(ctx context.Context, by string, leases []outmill.Lease) error

	// AckedInTx says that transactions that acked these records have committed. It
	// counts them in their joins, and lets claims come to their keys at once. It takes
	// no part in a transaction. Without it both happen later: with the next look at the
	// join, and the next look at the key.
	AckedInTx(ctx context.Context, records []*outmill.Record) error
}
