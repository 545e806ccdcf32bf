package sqlserver

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.TxAcker = (*Store)(nil)

const (
	sqlAnyAcked = atReadCommitted + `SELECT CASE WHEN EXISTS (SELECT 1 FROM [dbo].[OutboxAcked]` + notLocked + `) THEN 1 ELSE 0 END`

	// sqlCountAckedOf counts all acks of a step. Its transaction has locked the records of the
	// step, so no other transaction can have an open ack of it.
	sqlCountAckedOf = `DECLARE @id BINARY(16) = CONVERT(BINARY(16), @step, 1);
EXEC [dbo].[Outbox_CountAcked] @Limit = 900, @Step = @id`

	// ackedAtOnce bounds the acks that one call counts.
	ackedAtOnce = 10 * maxAtOnce
)

// HoldForTx extends leases. See storekit.TxAcker.
func (s *Store) HoldForTx(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	return s.Extend(ctx, lease, leases)
}

// AckInTx makes records processed in the caller's transaction. The transaction keeps these
// records locked, and no other row for which other calls wait. See storekit.TxAcker.
func (s *Store) AckInTx(ctx context.Context, by string, leases []outmill.Lease) error {
	const operation = "ack in a transaction"
	tx, err := storekit.RequireTx(s.txOf(ctx))
	if err == nil {
		err = storekit.CheckWorker(by)
	}
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	leases = storekit.Distinct(leases)
	if len(leases) == 0 {
		return s.explain(ctx, operation, s.usable(ctx))
	}
	return s.within(ctx, operation, tx, func(ctx context.Context, on querier) error {
		for rows := range slices.Chunk(s.leaseRows(storekit.Bare(leases)), maxAtOnce) {
			var acked int
			err := s.do(ctx, on, call{
				template: "[dbo].[Outbox_AckWithin]",
				args:     []any{set(s, "Leases", "Lease", rows), named("Keep", s.config.Retain > 0), named("By", some(by))},
				sets:     []reader{numbers(&acked)},
			})
			if err != nil {
				return err
			}
			if acked < len(rows) {
				return storekit.ErrLeaseLost
			}
		}
		return nil
	})
}

// AckedInTx opens the keys of the records that transactions have acked, and counts the steps of
// joins. See storekit.TxAcker.
func (s *Store) AckedInTx(ctx context.Context, _ []*outmill.Record) error {
	counted, err := s.countAllAcked(ctx, "ack", ackedAtOnce)
	if counted > 0 {
		s.notifier.Notify()
	}
	return err
}

func (s *Store) countAllAcked(ctx context.Context, operation string, limit int) (int, error) {
	return s.tidy(ctx, operation, "[dbo].[Outbox_CountAcked]", "Limit", limit)
}

// countAcked counts steps that transactions have acked. Each read of a join calls it first.
func (s *Store) countAcked(ctx context.Context, operation string) error {
	waiting := false
	err := s.run(ctx, operation, call{template: sqlAnyAcked, looks: true, sets: []reader{numbers(&waiting)}})
	if err == nil && waiting {
		_, err = s.countAllAcked(ctx, operation, ackedAtOnce)
	}
	return err
}

// CountAcked counts steps that transactions have acked. If a session, such as an operator's, has
// no right to do that, the subscribers count them later.
func (j joining) CountAcked(ctx context.Context, operation string) error {
	err := j.s.countAcked(ctx, operation)
	if number(err) == errNoRight {
		return nil
	}
	return err
}

// countAcked counts the acks of a step, and returns the joins that were counted.
func (t *joinTx) countAcked(ctx context.Context, step string, counted *[]outmill.JoinID) error {
	return t.s.do(ctx, t.tx, call{
		template: sqlCountAckedOf, args: []any{named("step", step)},
		reset: func() { *counted = nil }, sets: []reader{nil, joinIDs(counted)},
	})
}
