package txtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest/internal/mutants"
	"github.com/outmill/outmill/storetest/internal/suite"
	"github.com/outmill/outmill/storetest/memstore"
)

func brokenNotes() []mutant {
	return []mutant{
		{"takes lost leases", puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
			duplicate, err := m.PutNote(ctx, note, wait)
			if errors.Is(err, outmill.ErrLeaseLost) {
				note.Lease = outmill.Lease{}
				return m.PutNote(ctx, note, wait)
			}
			return duplicate, err
		}), []string{
			"notes: a handler that is stopped before its note, and goes on late, does nothing",
			"notes: a lost lease comes before a duplicate, and leaves the transaction usable",
			"notes: a note of a lease that was lost is ErrLeaseLost, and nothing is written",
		}},
		{"forgets which record a note is of",
			puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
				if !valid(ctx, m, note.Lease) {
					return m.PutNote(ctx, note, wait)
				}
				note.Lease = outmill.Lease{}
				return m.PutNote(ctx, note, wait)
			}), []string{
				"notes: a message that was handled and not acked is a duplicate at any time later, whatever was done with its record",
				"notes: notes of records that are gone or processed are deleted after their retention, and others stay",
				"notes: notes that stay keep no others from being deleted",
			}},
		{"takes no lease that has ended", puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
			if _, err := m.ReapExpired(context.WithoutCancel(ctx), 1000); err != nil {
				return false, err
			}
			return m.PutNote(ctx, note, wait)
		}), []string{
			"notes: a handler that is stopped before its note, and goes on late, does nothing",
			"notes: a lease that has ended, and that nobody has taken, is valid for a note",
			"notes: notes of records that are gone or processed are deleted after their retention, and others stay",
		}},
		{"looks at the lease also without a transaction",
			puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
				if tx, err := m.TxOf(ctx); err == nil && tx == nil && note.Own() && !valid(ctx, m, note.Lease) {
					return false, outmill.ErrLeaseLost
				}
				return m.PutNote(ctx, note, wait)
			}), []string{
				"notes: a note without a transaction is written whatever has become of the lease",
			}},
		{"rolls back for a lost lease", puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
			duplicate, err := m.PutNote(ctx, note, wait)
			if tx, ok := m.Tx(ctx); ok && errors.Is(err, outmill.ErrLeaseLost) {
				return false, errors.Join(err, tx.Rollback())
			}
			return duplicate, err
		}), []string{
			"notes: a lost lease comes before a duplicate, and leaves the transaction usable",
		}},
		{"looks for a note before the lease",
			puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
				if found, err := m.HasNote(ctx, note.Consumer, note.Key); err == nil && found {
					return true, nil
				}
				return m.PutNote(ctx, note, wait)
			}), []string{
				"notes: a lost lease comes before a duplicate, and leaves the transaction usable",
			}},
		{"keeps the lease until the transaction has ended", func(m mutants.Memory) outmill.Store { return keepsLease{m} }, []string{
			"notes: an open transaction with a note stalls neither the lease of its record nor claims",
		}},
		{"extends the lease that it looks at",
			puts(func(m mutants.Memory, ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
				if tx, err := m.TxOf(ctx); err == nil && tx != nil && note.Own() {
					if _, err := m.Extend(context.WithoutCancel(ctx), 24*time.Hour, []outmill.Lease{note.Lease}); err != nil {
						return false, err
					}
				}
				return m.PutNote(ctx, note, wait)
			}), []string{
				"notes: a message that was handled and not acked is a duplicate at any time later, whatever was done with its record",
				"notes: a message whose handler is stopped is handled once, also after something was done with its record",
			}},
		{"deletes notes of records that may come again", func(m mutants.Memory) outmill.Store { return deletesNotesOfDead{m} }, []string{
			"notes: a message that was handled and not acked is a duplicate at any time later, whatever was done with its record",
			"notes: notes of records that are gone or processed are deleted after their retention, and others stay",
		}},
		{"stops at the first note that stays", func(m mutants.Memory) outmill.Store { return stopsAtKept{m} }, []string{
			"notes: notes that stay keep no others from being deleted",
		}},
	}
}

// valid reports whether a lease is valid.
func valid(ctx context.Context, m mutants.Memory, l outmill.Lease) bool {
	r, err := m.Get(context.WithoutCancel(ctx), l.ID)
	return err == nil && r.Status == outmill.StatusLeased && r.Lease() == l
}

func ignore(what, err error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

// deletesNotesOfDead takes dead records for gone.
type deletesNotesOfDead struct{ mutants.Memory }

func (m deletesNotesOfDead) DeleteNotes(ctx context.Context, limit int) (int, error) {
	found, err := m.List(ctx, outmill.ListQuery{Status: outmill.StatusDead})
	if err != nil {
		return 0, err
	}
	for _, r := range found {
		if _, err := m.Delete(ctx, r.ID); err != nil {
			return 0, err
		}
	}
	return m.Memory.DeleteNotes(ctx, limit)
}

// stopsAtKept looks at limit notes, and takes the leased records for those of the first ones.
type stopsAtKept struct{ mutants.Memory }

func (m stopsAtKept) DeleteNotes(ctx context.Context, limit int) (int, error) {
	found, err := m.List(ctx, outmill.ListQuery{Status: outmill.StatusLeased})
	if err != nil || len(found) >= limit {
		return 0, err
	}
	return m.Memory.DeleteNotes(ctx, limit)
}

// keepsLease lets nobody extend a lease while the transaction of its note is open.
type keepsLease struct{ mutants.Memory }

// noters are the transactions that have put notes, by database.
var noters sync.Map

func (m keepsLease) PutNote(ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
	if tx, ok := m.Tx(ctx); ok {
		noters.Store(m.DB, tx)
	}
	return m.Memory.PutNote(ctx, note, wait)
}

func (m keepsLease) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	// An ended transaction accepts no record.
	tx, noted := noters.Load(m.DB)
	if noted && m.Append(m.WithTx(ctx, tx.(*memstore.Tx)), suite.Rec("probe", "probe")) == nil {
		return nil, context.DeadlineExceeded
	}
	return m.Memory.Extend(ctx, lease, leases)
}

// fileMutant is a mutant of SQLite's store.
type fileMutant struct {
	name    string
	change  func(mutants.File) outmill.Store
	noticed []string
}

func brokenSteps() []fileMutant {
	return []fileMutant{
		{"counts a step with its note", func(f mutants.File) outmill.Store { return countsWithNote{f} }, []string{
			"steps: a step of a join counts with its ack, and not with the note of its handler",
			"steps: a step that was handled, and is dead, counts as failed until it is requeued and its note is found",
		}},
		{"does not count a requeue", func(f mutants.File) outmill.Store { return keepsFailed{f} }, []string{
			"steps: a step that was handled, and is dead, counts as failed until it is requeued and its note is found",
		}},
		{"starts joins alone if the transaction has ended", func(f mutants.File) outmill.Store { return startsAlone{f} }, []string{
			"steps: calls about joins in a transaction that has ended are ErrInvalidTx, and nothing is written",
		}},
	}
}

// countsWithNote completes the step of a record when its note is written.
type countsWithNote struct{ mutants.File }

func (m countsWithNote) PutNote(ctx context.Context, note roles.Note, wait time.Duration) (bool, error) {
	duplicate, err := m.File.PutNote(ctx, note, wait)
	tx, ok := m.Tx(ctx)
	if err != nil || duplicate || !ok {
		return duplicate, err
	}
	_, err = tx.ExecContext(ctx, `UPDATE outmill_entries
		SET value = json_set(value, '$.Completed', coalesce(json_extract(value, '$.Completed'), 0) + 1) WHERE kind = 'join'`)
	return false, err
}

// keepsFailed requeues a record without its step.
type keepsFailed struct{ mutants.File }

func (m keepsFailed) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	if _, err := m.DB().ExecContext(ctx, `UPDATE outmill_records SET step = NULL WHERE stage = 6`); err != nil {
		return 0, err
	}
	return m.File.Requeue(ctx, ids...)
}
