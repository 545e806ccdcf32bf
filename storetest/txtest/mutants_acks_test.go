package txtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
)

func brokenAcks() []mutant {
	return []mutant{
		{"acks outside of the transaction", acks(func(m mutants.Memory, ctx context.Context, by string, leases []outmill.Lease) error {
			// Records that the transaction itself has acked do not concern other transactions.
			probe := m.DB.Begin()
			err := m.AckInTx(m.WithTx(ctx, probe), by, leases)
			if _, txErr := storekit.RequireTx(m.TxOf(ctx)); txErr != nil {
				return errors.Join(txErr, probe.Rollback())
			}
			return errors.Join(err, probe.Commit())
		}), []string{
			"acks: a rollback leaves the lease of an ack as it was",
			"acks: an ack in a transaction takes effect when it commits, together with its appends",
			"acks: the later records of a key wait until the transaction with the ack has ended",
			"acks: two transactions ack two records of one claim at the same time",
			"ended: AckInTx in a transaction that has ended is ErrInvalidTx, and the lease stays",
			"ended: Transact fails if its transaction has ended before the ack that also commits",
		}},
		{"acks lost leases", acks(func(m mutants.Memory, ctx context.Context, by string, leases []outmill.Lease) error {
			return ignore(storekit.ErrLeaseLost, m.AckInTx(ctx, by, leases))
		}), []string{
			"acks: one lost lease among others is ErrLeaseLost",
			"acks: the ack of a lease that another owner has taken over is ErrLeaseLost",
			"acks: the ack of a lease that was reaped is ErrLeaseLost",
			"acks: the ack of a record that was settled or deleted is ErrLeaseLost",
		}},
		{"acks under whatever lease there is", acks(func(m mutants.Memory, ctx context.Context, by string, leases []outmill.Lease) error {
			for i, l := range leases {
				if r, err := m.Get(context.WithoutCancel(ctx), l.ID); err == nil {
					leases[i] = r.Lease()
				}
			}
			return m.AckInTx(ctx, by, leases)
		}), []string{
			"acks: the ack of a lease that another owner has taken over is ErrLeaseLost",
		}},
		{"passes over the leases of settled records", acks(func(m mutants.Memory, ctx context.Context, by string, leases []outmill.Lease) error {
			if settled(ctx, m, leases) {
				return nil
			}
			return m.AckInTx(ctx, by, leases)
		}), []string{
			"acks: the ack of a record that was settled or deleted is ErrLeaseLost",
		}},
		{"acks what it can", acks(func(m mutants.Memory, ctx context.Context, by string, leases []outmill.Lease) error {
			err := m.AckInTx(ctx, by, leases)
			if errors.Is(err, storekit.ErrLeaseLost) && len(leases) > 1 {
				for _, l := range leases {
					_ = m.AckInTx(ctx, by, []outmill.Lease{l})
				}
				return nil
			}
			return err
		}), []string{
			"acks: one lost lease among others is ErrLeaseLost",
		}},
		{"takes no ack after the end of the lease", acks(func(m mutants.Memory, ctx context.Context, by string, leases []outmill.Lease) error {
			if _, err := m.ReapExpired(context.WithoutCancel(ctx), 1000); err != nil {
				return err
			}
			return m.AckInTx(ctx, by, leases)
		}), []string{
			"acks: no claim or reaper waits for an ack in an open transaction, or hands its record out",
			"acks: the ack of a lease that has ended, and that nobody has taken, is valid",
			"acks: the later records of a key wait until the transaction with the ack has ended",
		}},
		{"acks without a transaction", acks(func(m mutants.Memory, ctx context.Context, by string, leases []outmill.Lease) error {
			err := m.AckInTx(ctx, by, leases)
			if errors.Is(err, outmill.ErrNoTx) {
				return m.Ack(ctx, by, leases)
			}
			return err
		}), []string{
			"acks: an ack without a transaction is ErrNoTx, and with one of another store ErrForeignTx",
		}},
		{"takes a foreign transaction for none", acks(func(m mutants.Memory, ctx context.Context, by string, leases []outmill.Lease) error {
			err := m.AckInTx(ctx, by, leases)
			if errors.Is(err, outmill.ErrForeignTx) {
				return outmill.ErrNoTx
			}
			return err
		}), []string{
			"acks: an ack without a transaction is ErrNoTx, and with one of another store ErrForeignTx",
		}},
		{"holds every lease", func(m mutants.Memory) outmill.Store { return holdsAll{m} }, []string{
			"acks: HoldForTx returns the valid leases, and they end no earlier than it says",
		}},
		{"holds for a minute, whatever it is asked for", func(m mutants.Memory) outmill.Store { return holdsBriefly{m} }, []string{
			"acks: HoldForTx returns the valid leases, and they end no earlier than it says",
			"acks: HoldForTx with a lease of 0 makes leases ready and leaves their ends as they are",
		}},
		{"counts no attempt of what it held", func(m mutants.Memory) outmill.Store { return abandonsUncounted{m} }, []string{
			"acks: a record that was held and is not acked comes again with its attempts",
		}},
		{"acks in one transaction at a time", func(m mutants.Memory) outmill.Store { return &acksOneByOne{Memory: m} }, []string{
			"acks: two transactions ack two records of one claim at the same time",
		}},
		{"looks at the lease alone, and acks with the commit",
			acks(func(m mutants.Memory, ctx context.Context, by string, leases []outmill.Lease) error {
				if _, err := storekit.RequireTx(m.TxOf(ctx)); err != nil {
					return err
				}
				if err := storekit.CheckWorker(by); err != nil {
					return err
				}
				for _, l := range leases {
					if r, err := m.Get(ctx, l.ID); err != nil || r.Status != outmill.StatusLeased || r.Lease() != l {
						return storekit.ErrLeaseLost
					}
				}
				m.BeforeCommit(ctx, func() error { return m.Ack(context.WithoutCancel(ctx), by, leases) })
				return nil
			}), []string{
				"acks: no claim or reaper waits for an ack in an open transaction, or hands its record out",
				"acks: the later records of a key wait until the transaction with the ack has ended",
				"ended: AckInTx in a transaction that has ended is ErrInvalidTx, and the lease stays",
				"ended: Transact fails if its transaction has ended before the ack that also commits",
			}},
		{"lets claims in order wait for what is acked in a transaction", func(m mutants.Memory) outmill.Store {
			return &keepsKeys{Memory: m}
		}, []string{
			"acks: the ack in a transaction of the last record of a key lets the next ones go to another owner",
			"acks: the later records of a key wait until the transaction with the ack has ended",
		}},
		{"takes any name of a worker", acks(func(m mutants.Memory, ctx context.Context, by string, leases []outmill.Lease) error {
			return m.AckInTx(ctx, by[:min(len(by), outmill.MaxTextLength)], leases)
		}), []string{
			"acks: an ack in a transaction by a worker whose name is refused is refused, and acks nothing",
		}},
	}
}

func brokenWhereRetained() []mutant {
	return []mutant{
		{"forgets the worker of an ack in a transaction",
			acks(func(m mutants.Memory, ctx context.Context, by string, leases []outmill.Lease) error {
				if err := storekit.CheckWorker(by); err != nil {
					return err
				}
				return m.AckInTx(ctx, "", leases)
			}), []string{
				"acks: an ack in a transaction keeps the worker's name where the store retains",
			}},
	}
}

// settled reports whether there is one lease, and its record was settled or deleted.
func settled(ctx context.Context, m mutants.Memory, leases []outmill.Lease) bool {
	if len(leases) != 1 {
		return false
	}
	r, err := m.Get(ctx, leases[0].ID)
	return err != nil || r.Status != outmill.StatusLeased && r.Expiries == 0
}

func ignore(what, err error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

type ackInTx func(m mutants.Memory, ctx context.Context, by string, leases []outmill.Lease) error

// acks makes mutants that ack in transactions in a wrong way.
func acks(how ackInTx) func(mutants.Memory) outmill.Store {
	return func(m mutants.Memory) outmill.Store { return acksOtherwise{m, how} }
}

type acksOtherwise struct {
	mutants.Memory
	how ackInTx
}

func (m acksOtherwise) AckInTx(ctx context.Context, by string, leases []outmill.Lease) error {
	return m.how(m.Memory, ctx, by, leases)
}

type holdsAll struct{ mutants.Memory }

func (m holdsAll) HoldForTx(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	_, err := m.Memory.HoldForTx(ctx, lease, leases)
	return leases, err
}

type holdsBriefly struct{ mutants.Memory }

func (m holdsBriefly) HoldForTx(ctx context.Context, _ time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	return m.Memory.HoldForTx(ctx, time.Minute, leases)
}

type abandonsUncounted struct{ mutants.Memory }

func (m abandonsUncounted) Abandon(ctx context.Context, list []outmill.Settlement) error {
	return m.Snooze(ctx, list)
}

// acksOneByOne refuses the acks of a second transaction until the first one with acks has ended.
type acksOneByOne struct {
	mutants.Memory
	mu   sync.Mutex
	busy any
}

func (m *acksOneByOne) AckInTx(ctx context.Context, by string, leases []outmill.Lease) error {
	tx, err := m.TxOf(ctx)
	if err == nil && tx != nil {
		m.mu.Lock()
		first := m.busy
		m.busy = tx
		m.mu.Unlock()
		if first != nil && first != tx && len(leases) > 0 && m.open(first) {
			return context.DeadlineExceeded
		}
	}
	return m.Memory.AckInTx(ctx, by, leases)
}

// open reports whether a transaction has not ended, because an ended one accepts no record.
func (m *acksOneByOne) open(tx any) bool {
	return m.Append(storekit.ContextWithTx(context.Background(), m.DB, tx), suite.Rec("probe", "probe")) == nil
}

// keepsKeys never frees the keys of the records that it acked in a transaction.
type keepsKeys struct {
	mutants.Memory
	mu    sync.Mutex
	owner outmill.OwnerToken
}

func (m *keepsKeys) AckInTx(ctx context.Context, by string, leases []outmill.Lease) error {
	err := m.Memory.AckInTx(ctx, by, leases)
	if err == nil && len(leases) > 0 {
		m.mu.Lock()
		m.owner = leases[0].Owner
		m.mu.Unlock()
	}
	return err
}

func (m *keepsKeys) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	m.mu.Lock()
	holds := m.owner != outmill.OwnerToken{} && req.Order != outmill.OrderNone && req.Owner != m.owner
	m.mu.Unlock()
	if holds {
		return nil, nil
	}
	return m.Memory.Claim(ctx, req)
}

// fileMutant is a mutant of SQLite's store.
type fileMutant struct {
	name    string
	change  func(mutants.File) outmill.Store
	noticed []string
}

func brokenSteps() []fileMutant {
	return []fileMutant{
		// SQLite has one writer, so an open transaction delays others.
		{"has one writer", func(f mutants.File) outmill.Store { return f }, []string{
			"steps: an open transaction with the ack of a step stalls no ack of another step of the join",
		}},
		{"counts no step of an ack in a transaction", func(f mutants.File) outmill.Store { return countsNoStep{f} }, []string{
			"steps: a join counts a step that was acked in a transaction also where AckedInTx was never called",
			"steps: a message that becomes a step after one of its groups has acked it in a transaction waits for its other groups",
			"steps: a step of a join that was acked in a transaction counts after the commit, and not before",
			"steps: an open transaction with the ack of a step stalls no ack of another step of the join",
		}},
		{"starts joins alone if the transaction has ended", func(f mutants.File) outmill.Store { return startsAlone{f} }, []string{
			"steps: an open transaction with the ack of a step stalls no ack of another step of the join",
			"steps: calls about joins in a transaction that has ended are ErrInvalidTx, and nothing is written",
		}},
		{"counts a message that is attached as done", func(f mutants.File) outmill.Store { return attachesDone{f} }, []string{
			"steps: a message that becomes a step after one of its groups has acked it in a transaction waits for its other groups",
			"steps: an open transaction with the ack of a step stalls no ack of another step of the join",
		}},
	}
}

// attachesDone completes the step at once. A store that counts an earlier ack twice does the same.
type attachesDone struct{ mutants.File }

func (m attachesDone) AttachStep(ctx context.Context, join outmill.JoinID, message outmill.WorkItemID) error {
	if err := m.File.AttachStep(ctx, join, message); err != nil {
		return err
	}
	return m.ReportCompleted(ctx, join, message)
}

// countsNoStep removes the joins of a record before it acks the record.
type countsNoStep struct{ mutants.File }

func (m countsNoStep) AckInTx(ctx context.Context, by string, leases []outmill.Lease) error {
	if tx, ok := m.Tx(ctx); ok {
		for _, l := range leases {
			if _, err := tx.ExecContext(ctx, `UPDATE outmill_records SET step = NULL WHERE id = ?`, l.ID.String()); err != nil {
				return err
			}
		}
	}
	return m.File.AckInTx(ctx, by, leases)
}
