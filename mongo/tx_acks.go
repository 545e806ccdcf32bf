package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// ackedStep is a document of acked_steps: a step of which a record was acked in a user's
// transaction, until it is counted. AckInTx inserts it and does not count it, because two
// transactions that change the counts of one join conflict.
type ackedStep struct {
	ID   bson.ObjectID `bson:"_id"`
	Step uuid          `bson:"step"`
}

// HoldForTx extends leases. See storekit.TxAcker.
func (s *Store) HoldForTx(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	if lease == 0 {
		return leases, s.explain(ctx, "hold for a transaction", s.usable(ctx))
	}
	return s.Extend(ctx, lease, leases)
}

// AckInTx makes records processed in the transaction of the session. If a claim, a reaper or an
// extension has changed one of the records since the transaction began, that is a write conflict,
// and the outermost Transact repeats the transaction. A reaper or a claim would wait for the open
// transaction, but only if the lease has ended, and a lease that HoldForTx extends beyond TxLimit
// outlasts every transaction. See storekit.TxAcker.
func (s *Store) AckInTx(ctx context.Context, by string, leases []outmill.Lease) error {
	const operation = "ack in a transaction"
	session, err := storekit.RequireTx(s.sessionOf(ctx))
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
	of := &settlement{s: s, items: storekit.Bare(leases), how: &isAcked}
	return s.within(ctx, operation, session, func(ctx context.Context) error {
		acked, err := of.write(ctx, s.acked(by))
		if err != nil || acked == len(leases) {
			return err
		}
		return of.ackSteps(ctx, s.acked(by), len(leases)-acked)
	})
}

// ackSteps acks the records of steps among the leases. There must be as many as left.
func (of *settlement) ackSteps(ctx context.Context, update func(leaseGroup) any, left int) error {
	order, ids := sorted(of.items)
	for _, g := range order {
		found, err := findAll[stepRecord](ctx, of.s.records, append(g.standing(ids[g]), exists("step")...), first(len(ids[g]), nil, "step"))
		if err != nil {
			return err
		}
		if len(found) == 0 {
			continue
		}
		left -= len(found)
		records, notes := make(bson.A, len(found)), make([]ackedStep, len(found))
		for i, r := range found {
			records[i], notes[i] = r.ID, ackedStep{bson.NewObjectID(), r.Step}
		}
		if _, err := of.s.records.BulkWrite(ctx, []driver.WriteModel{writing(in("_id", records), update(g))}); err != nil {
			return err
		}
		if _, err := of.s.ackedSteps.InsertMany(ctx, notes); err != nil {
			return err
		}
	}
	if left > 0 {
		return storekit.ErrLeaseLost
	}
	return nil
}

// AckedInTx counts steps of joins, and makes claims check the keys of the records. See
// storekit.TxAcker.
func (s *Store) AckedInTx(ctx context.Context, records []*outmill.Record) error {
	const operation = "ack"
	keys := map[lineKey]bool{}
	joins := false
	for _, r := range records {
		joins = joins || len(r.Joins) > 0
		if r.Key != "" {
			keys[lineKey{reader(r.Group), r.Topic, r.Key}] = true
		}
	}
	err := s.do(ctx, operation, func(ctx context.Context) error {
		if none, err := s.noLanes(ctx); none || err != nil {
			return err
		}
		return s.openLanes(ctx, keys)
	})
	if err != nil || !joins {
		return err
	}
	return s.countAcked(ctx, operation)
}

// countAcked counts the steps that transactions have acked. Each read of a join calls it first.
// If an operator has no right to write, a subscriber counts them later.
func (s *Store) countAcked(ctx context.Context, operation string) error {
	if s.config.WithoutTransactions {
		return nil
	}
	counted := touched{}
	err := s.do(ctx, operation, func(ctx context.Context) error {
		found, err := findAll[ackedStep](ctx, s.ackedSteps, bson.D{}, first(stepsAtOnce, ascending("_id"), "step"))
		if err != nil || len(found) == 0 {
			return err
		}
		steps := make([]stepRecord, len(found))
		for i, a := range found {
			steps[i].Step = a.Step
		}
		return s.onJoins(ctx, steps, func(ctx context.Context) error {
			clear(counted)
			return s.countNotes(ctx, found, counted)
		})
	})
	if hasCode(err, codeUnauthorized) {
		return nil
	}
	if err == nil {
		s.hurry(ctx, counted)
	}
	return err
}

// countNotes counts the notes that no other process has counted, within a transaction.
func (s *Store) countNotes(ctx context.Context, notes []ackedStep, counted touched) error {
	ids := make(bson.A, len(notes))
	for i, a := range notes {
		ids[i] = a.ID
	}
	left, err := findAll[ackedStep](ctx, s.ackedSteps, in("_id", ids), first(len(ids), nil, "step"))
	if err != nil || len(left) == 0 {
		return err
	}
	if _, err := s.ackedSteps.DeleteMany(ctx, in("_id", ids)); err != nil {
		return err
	}
	moves := map[uuid]change{}
	for _, a := range left {
		moves[a.Step] = moves[a.Step].add(isAcked)
	}
	return s.moveSteps(ctx, moves, counted)
}
