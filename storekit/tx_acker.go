package storekit

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill"
)

// ErrLeaseLost says that a lease is not valid any more: the record was reaped, claimed by
// another worker, settled or deleted. The caller must roll back the transaction that acks
// it, because the message is handled again, or was handled before.
var ErrLeaseLost = errors.New("outmill: the lease was lost: roll the transaction back, because another worker may handle the message")

// TxAcker acks records in the caller's transaction, so that the handler's changes, the
// messages that it published and the ack of its own message commit together. Transactions
// that ack different records can run concurrently, also if one claim returned these
// records.
//
// The states of a record:
//
//	leased ──HoldForTx──► leased ──AckInTx──► leased, for everybody but the transaction
//	                                             ├─ commit ──► processed ── AckedInTx: keys and joins go on at once
//	                                             └─ rollback, crash ──► leased, as before
//
// A crash between the commit and AckedInTx loses nothing: the store processes the keys and
// joins later by itself.
type TxAcker interface {
	// HoldForTx prepares leases for AckInTx, sets their end to now + lease or later, and
	// returns those that are valid. A lease of 0 leaves the ends unchanged, and may return
	// leases that are not valid, which AckInTx then refuses. Call it before the transaction
	// begins; it ignores a transaction in ctx. If Transactor.TxLimit is not 0, an extension
	// during the transaction would conflict with the ack: hold the lease for longer than the
	// limit, and do not extend it until the transaction has ended.
	HoldForTx(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error)

	// AckInTx makes the records processed when the transaction in ctx commits: deleted, or
	// kept with the time and by, as Ack does. Call it as the last statement before the commit.
	// If one of the leases is not valid, it returns ErrLeaseLost, and the caller must roll the
	// transaction back. by is as in Queue.Ack.
	//
	// Until the transaction ends, neither a claim nor ReapExpired waits for it. No claim
	// returns the records, and no ordered claim returns later records of their keys, even if
	// the leases end. An ack of another record never waits for it, even if both are steps of
	// the same join. A rollback leaves the leases unchanged.
	//
	// Errors: outmill.ErrNoTx, outmill.ErrForeignTx, outmill.ErrInvalidTx, ErrLeaseLost,
	// outmill.ErrInvalidRecord (by), the driver's.
	AckInTx(ctx context.Context, by string, leases []outmill.Lease) error

	// AckedInTx tells the store that the transactions that acked these records have committed.
	// It counts the records in their joins, and frees their keys for claims at once. It
	// ignores a transaction in ctx. Without it both happen later: when the join, or the key,
	// is read next.
	AckedInTx(ctx context.Context, records []*outmill.Record) error
}
