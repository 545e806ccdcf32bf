package sqlite

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// HoldForTx extends leases. See storekit.TxAcker.
func (s *Store) HoldForTx(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	if lease == 0 {
		return leases, s.explain(ctx, "hold for a transaction", s.usable(ctx))
	}
	return s.Extend(ctx, lease, leases)
}

// AckInTx makes records processed in the caller's transaction. It has the database's only
// write lock, so it counts the steps of joins at once. See storekit.TxAcker.
func (s *Store) AckInTx(ctx context.Context, by string, leases []outmill.Lease) error {
	const operation = "ack in a transaction"
	h, err := storekit.RequireTx(s.txOf(ctx))
	if err == nil {
		err = storekit.CheckWorker(by)
	}
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	leases = storekit.Distinct(leases)
	list, err := settlements(storekit.Bare(leases), nil)
	if err != nil || len(list) == 0 {
		return s.explain(ctx, operation, err)
	}
	return s.within(ctx, operation, h, func(ctx context.Context, t *txn) error {
		valid := 0
		for _, of := range list {
			if err := t.openLanesOf(ctx, of); err != nil {
				return err
			}
			n, err := t.ack(ctx, by, of)
			if err != nil {
				return err
			}
			valid += n
		}
		if valid < len(leases) {
			return storekit.ErrLeaseLost
		}
		return nil
	})
}

// AckedInTx only wakes readers, because AckInTx has done the rest. See storekit.TxAcker.
func (s *Store) AckedInTx(ctx context.Context, _ []*outmill.Record) error {
	const operation = "ack"
	if err := s.usable(ctx); err != nil {
		return s.explain(ctx, operation, err)
	}
	s.waker.notifier.Notify()
	return nil
}
