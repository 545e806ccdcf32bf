package postgres

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	// sqlAckInTx calls a function, because the caller's search_path may have operators that fit
	// the arguments better than PostgreSQL's own.
	sqlAckInTx = `SELECT {p:ack_in_tx}($1, $2, $3, $4, $5)`

	// sqlAckLast fails, together with the COMMIT after it, if it acks fewer than $6 records.
	sqlAckLast = `SELECT {p:demand}({p:ack_in_tx}($1, $2, $3, $4, $5), $6)`

	sqlAnyAckedSteps = `SELECT {p:any_acked}()`

	sqlHasAcked = `SELECT 1 FROM {p:acked_steps} WHERE step = $1::text::uuid LIMIT 1`

	// sqlCountAcked takes steps that transactions have acked, and notes them for count_steps.
	// It skips steps that another session is counting.
	sqlCountAcked = `WITH gone AS (DELETE FROM {p:acked_steps} WHERE id = ANY (ARRAY(
	SELECT id FROM {p:acked_steps} ORDER BY id LIMIT $1::bigint FOR UPDATE SKIP LOCKED)) RETURNING step)
` + noteAcked

	// sqlOpenLanesFor makes the next claim check keys of acked records.
	sqlOpenLanesFor = `WITH gone AS (SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS u (grp, topic, key))
` + openLanesOf

	// ackedAtOnce is the most steps that one transaction counts.
	ackedAtOnce = 1000
)

// HoldForTx extends leases. It moves records of the log to the records, where each can be acked
// by itself. Without the log, a lease of 0 needs no work. See storekit.TxAcker.
func (s *Store) HoldForTx(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	const operation = "hold for a transaction"
	logged, err := s.hasLog(ctx, operation)
	if err != nil {
		return nil, err
	}
	switch {
	case !logged && lease == 0:
		return leases, s.explain(ctx, operation, s.usable(ctx))
	case !logged || lease < 0 || len(leases) == 0:
		return s.Extend(ctx, lease, leases)
	}
	places, err := s.findAll(ctx, leases, true)
	if err != nil {
		return nil, err
	}
	batches, _ := grouped(leases, places)
	switch {
	case lease == 0 && len(batches) == 0:
		return leases, nil
	case lease == 0:
		return leases, s.writeAll(ctx, operation, moveSteps(batches)...)
	}
	var held []outmill.Lease
	err = s.write(ctx, operation, func(ctx context.Context, t *txn) error {
		held = nil
		return t.finish(ctx, append(moveSteps(batches), extendSteps(lease, storekit.Distinct(leases), &held)...)...)
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// AckInTx makes records processed in the caller's transaction, which locks only the rows of
// these records. A lease of the log that HoldForTx has not held is ErrLeaseLost. See
// storekit.TxAcker.
func (s *Store) AckInTx(ctx context.Context, by string, leases []outmill.Lease) error {
	const operation = "ack in a transaction"
	tx, err := storekit.RequireTx(s.TxOf(ctx))
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
	return s.within(ctx, operation, tx, func(ctx context.Context, r runner) error {
		send, commits := s.last(ctx, r)
		acked := 0
		count := func(scan func(...any) error) error {
			n := 0
			err := scan(&n)
			acked += n
			return err
		}
		var steps []step
		for _, same := range sorted(storekit.Bare(leases)) {
			ack := step{template: sqlAckInTx, args: append(same.args(), by, s.config.Retain > 0), row: count}
			if commits {
				ack.template, ack.args = sqlAckLast, append(ack.args, len(same.ids))
			}
			steps = append(steps, ack)
		}
		err := send(ctx, steps...)
		if code(err) == codeDemand || err == nil && acked < len(leases) {
			return storekit.ErrLeaseLost
		}
		return err
	})
}

// AckedInTx counts steps of joins, and makes claims check the keys of the records. See
// storekit.TxAcker.
func (s *Store) AckedInTx(ctx context.Context, records []*outmill.Record) error {
	const operation = "ack"
	var groups, topics, keys []string
	joins := false
	for _, r := range records {
		joins = joins || len(r.Joins) > 0
		if r.Key != "" {
			groups, topics, keys = append(groups, r.Group), append(topics, r.Topic), append(keys, r.Key)
		}
	}
	if len(keys) > 0 {
		if err := s.writeAll(ctx, operation, step{template: sqlOpenLanesFor, args: []any{groups, topics, keys}}); err != nil {
			return err
		}
		s.wake()
	}
	if !joins {
		return s.explain(ctx, operation, s.usable(ctx))
	}
	return s.countAcked(ctx, operation)
}

// countAcked counts the steps that transactions have acked. Every read of a join begins with
// it.
func (s *Store) countAcked(ctx context.Context, operation string) error {
	waiting := false
	err := s.read(ctx, operation, func(ctx context.Context) error {
		return s.safe().QueryRow(ctx, s.sql.text(sqlAnyAckedSteps)).Scan(&waiting)
	})
	if err != nil || !waiting {
		return err
	}
	return s.writeSteps(ctx, operation, step{template: sqlCountAcked, args: []any{ackedAtOnce}})
}

// countAckedFor is countAcked for a session without the right to count, such as an operator's.
// A subscriber counts later in that case.
func (s *Store) countAckedFor(ctx context.Context, operation string) error {
	err := s.countAcked(ctx, operation)
	if code(err) == codeNoRight {
		return nil
	}
	return err
}
