package memstore

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// workbench provides the calls of storekit.Workbench, and Audited.
type workbench = storekit.WorkbenchEngine

// bench implements the methods that storekit.WorkbenchEngine needs from the store.
type bench struct{ finding }

// Letters returns the dead records that no other record has parked.
func (w bench) Letters(ctx context.Context, operation string, ids []outmill.WorkItemID) (letters []storekit.DeadLetter, err error) {
	err = w.do(ctx, operation, func(d *Database, now time.Time) error {
		for _, id := range ids {
			r := d.byID[id]
			if r == nil || r.Status != outmill.StatusDead || r.parked && d.firstParked(r) != r {
				continue
			}
			letter := storekit.DeadLetter{Record: withContentOf(ctx, d.record(r, now))}
			if r.holds() {
				letter.Waiting = d.waiting(r)
			}
			letters = append(letters, letter)
		}
		return nil
	})
	return letters, err
}

// holds reports whether the record parks its key, or did so until a Skip began.
func (r *row) holds() bool { return r.parked || r.Key != "" && r.LastError == storekit.SkippedError }

// firstParked returns the first row of the key that is marked as parked, or nil.
func (d *Database) firstParked(of *row) (first *row) {
	d.each(func(r *row) {
		if first == nil && r.parked && r.sameKey(of) {
			first = r
		}
	})
	return first
}

// waiting counts what waits behind a row.
func (d *Database) waiting(head *row) (n int) {
	d.each(func(r *row) {
		if r.parked && r.seq > head.seq && r.sameKey(head) {
			n = min(n+1, storekit.MaxWaiting)
		}
	})
	return n
}

// EditDead changes a dead record.
func (w bench) EditDead(ctx context.Context, operation string, id outmill.WorkItemID,
	change func(before *outmill.Record) (*outmill.Record, storekit.AuditEntry, error)) error {
	return w.do(ctx, operation, func(d *Database, now time.Time) error {
		r := d.byID[id]
		if r == nil {
			return outmill.ErrNotFound
		}
		after, entry, err := change(d.record(r, now))
		if err != nil || after == nil {
			return err
		}
		after = copied(after)
		r.Payload, r.Metadata = after.Payload, after.Metadata
		d.audit(entry, 1, now)
		return nil
	})
}

// SkipDead removes a dead record and requeues what is parked behind it, all in one step.
func (w bench) SkipDead(ctx context.Context, operation string, id outmill.WorkItemID, _ int,
	check func(*outmill.Record) (storekit.AuditEntry, error)) (skipped storekit.Skipped, err error) {
	err = w.do(ctx, operation, func(d *Database, now time.Time) error {
		r := d.byID[id]
		if r == nil {
			return outmill.ErrNotFound
		}
		entry, err := check(d.record(r, now))
		if err != nil {
			return err
		}
		if first := d.firstParked(r); r.holds() && first != nil && first.seq >= r.seq {
			skipped.Released = d.release(r, now)
		}
		d.remove(r)
		skipped.Done = true
		entry.After.Status = storekit.AuditDeleted
		d.audit(entry, skipped.Released+1, now)
		return nil
	})
	if skipped.Released > 0 {
		w.wake()
	}
	return skipped, err
}

// release makes the marked rows behind the head pending.
func (d *Database) release(head *row, now time.Time) (n int) {
	d.each(func(r *row) {
		if r.parked && r.seq > head.seq && r.sameKey(head) {
			r.again(now)
			n++
		}
	})
	return n
}
