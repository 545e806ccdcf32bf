package memstore

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// txAck is a row that is acked when its transaction commits. Until then the row's field acking
// is set and it counts as leased, so that no claim and no reaper changes it.
type txAck struct {
	row    *row
	by     string
	retain bool
}

// HoldForTx extends leases, because an ack in a transaction needs nothing else. See
// storekit.TxAcker.
func (s *Store) HoldForTx(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	if lease == 0 {
		return leases, s.usable(ctx)
	}
	return s.Extend(ctx, lease, leases)
}

// AckInTx makes records processed when the transaction commits. See storekit.TxAcker.
func (s *Store) AckInTx(ctx context.Context, by string, leases []outmill.Lease) error {
	const operation = "ack in a transaction"
	_, err := storekit.RequireTx(s.tx(ctx))
	if err == nil {
		err = storekit.CheckWorker(by)
	}
	if err != nil {
		return failed(operation, err)
	}
	return s.inTx(ctx, operation, func(t *Tx, _ time.Time) error {
		var rows []*row
		for _, l := range storekit.Distinct(leases) {
			r := t.db.valid(l)
			if r == nil || r.acking {
				return storekit.ErrLeaseLost
			}
			rows = append(rows, r)
		}
		for _, r := range rows {
			r.acking = true
			t.acks = append(t.acks, txAck{r, by, s.options.Retain > 0})
		}
		return nil
	})
}

// AckedInTx wakes the readers that waited for the keys. See storekit.TxAcker.
func (s *Store) AckedInTx(ctx context.Context, _ []*outmill.Record) error {
	err := s.do(ctx, "acked in a transaction", func(*Database, time.Time) error { return nil })
	if err == nil {
		s.wake()
	}
	return err
}

// endAcks settles the rows that the transaction acks, or leaves them leased as they were.
func (t *Tx) endAcks(committed bool) {
	for _, a := range t.acks {
		a.row.acking = false
		if committed && !a.row.gone {
			t.db.processed(a.row, a.by, a.retain, t.db.now())
		}
	}
}
