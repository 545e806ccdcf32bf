package memstore

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// valid returns the row that the lease holds, nil where it is not valid.
func (d *Database) valid(lease outmill.Lease) *row {
	r := d.byID[lease.ID]
	if r == nil || r.Status != outmill.StatusLeased || r.Owner != lease.Owner || r.Claims != lease.Claim {
		return nil
	}
	return r
}

// settle calls fn for each row whose lease is valid.
func (s *Store) settle(ctx context.Context, operation string, list []outmill.Settlement,
	fn func(d *Database, r *row, st outmill.Settlement, now time.Time)) error {
	return s.do(ctx, operation, func(d *Database, now time.Time) error {
		for _, st := range list {
			if r := d.valid(st.Lease); r != nil {
				fn(d, r, st, now)
			}
		}
		return nil
	})
}

// Extend moves the end of leases. See outmill.Queue.
func (s *Store) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) (standing []outmill.Lease, err error) {
	if err := storekit.CheckExtend(lease); err != nil {
		return nil, failed("extend", err)
	}
	err = s.settle(ctx, "extend", storekit.Bare(leases), func(_ *Database, r *row, st outmill.Settlement, now time.Time) {
		r.LeaseUntil = now.Add(lease)
		standing = append(standing, st.Lease)
	})
	return standing, err
}

// Ack makes records processed. See outmill.Queue.
func (s *Store) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	if err := storekit.CheckWorker(by); err != nil {
		return failed("ack", err)
	}
	return s.settle(ctx, "ack", storekit.Bare(leases), func(d *Database, r *row, _ outmill.Settlement, now time.Time) {
		d.processed(r, by, s.options.Retain > 0, now)
	})
}

// processed deletes the row, or keeps it with the time and the worker's name.
func (d *Database) processed(r *row, by string, retain bool, now time.Time) {
	if !retain {
		d.remove(r)
		return
	}
	r.open(outmill.StatusProcessed)
	r.ProcessedAt, r.ProcessedBy = now, by
}

// Abandon makes records due again. See outmill.Queue.
func (s *Store) Abandon(ctx context.Context, list []outmill.Settlement) error {
	err := s.settle(ctx, "abandon", storekit.ForAbandon(list), func(_ *Database, r *row, st outmill.Settlement, now time.Time) {
		r.open(outmill.StatusPending)
		r.Attempts++
		r.Expiries, r.next, r.LastError = 0, now.Add(st.Delay), st.Err
	})
	s.wakeIf(err, list)
	return err
}

// Snooze makes records due again and counts no attempt. See outmill.Queue.
func (s *Store) Snooze(ctx context.Context, list []outmill.Settlement) error {
	err := s.settle(ctx, "snooze", storekit.ForSnooze(list), func(_ *Database, r *row, st outmill.Settlement, now time.Time) {
		r.open(outmill.StatusPending)
		r.Expiries, r.next = 0, now.Add(st.Delay)
	})
	s.wakeIf(err, list)
	return err
}

// Release gives records back. See outmill.Queue.
func (s *Store) Release(ctx context.Context, leases []outmill.Lease) error {
	list := storekit.Bare(leases)
	err := s.settle(ctx, "release", list, func(_ *Database, r *row, _ outmill.Settlement, _ time.Time) { r.open(outmill.StatusPending) })
	s.wakeIf(err, list)
	return err
}

// Fail makes records dead. See outmill.Queue.
func (s *Store) Fail(ctx context.Context, list []outmill.Settlement) error {
	return s.settle(ctx, "fail", storekit.ForFail(list), func(d *Database, r *row, st outmill.Settlement, _ time.Time) {
		r.open(outmill.StatusDead)
		r.LastError = st.Err
		if st.Park && r.Key != "" {
			r.parked = true
			d.park(r)
		}
	})
}

// park makes the later pending rows of the key dead.
func (d *Database) park(head *row) {
	d.each(func(r *row) {
		if r.sameKey(head) && r.seq > head.seq && r.Status == outmill.StatusPending {
			r.kill(storekit.ParkedError)
			r.parked = true
		}
	})
}

func (r *row) sameKey(other *row) bool {
	return r.Key == other.Key && r.Topic == other.Topic && r.Group == other.Group
}

// ReapExpired ends leases that have run out. See outmill.Queue.
func (s *Store) ReapExpired(ctx context.Context, limit int) (int, error) {
	reaped, err := s.count(ctx, "reap", limit, func(d *Database, now time.Time) (n int) {
		d.each(func(r *row) {
			if n < limit && r.leaseEnded(now) {
				r.reap()
				n++
			}
		})
		return n
	})
	if reaped > 0 {
		s.wake()
	}
	return reaped, err
}
