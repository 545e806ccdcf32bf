package memstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Get returns one record. See outmill.Inspector.
func (s *Store) Get(ctx context.Context, id outmill.WorkItemID) (record *outmill.Record, err error) {
	err = s.do(ctx, "get", func(d *Database, now time.Time) error {
		r := d.byID[id]
		if r == nil {
			return outmill.ErrNotFound
		}
		record = d.record(r, now)
		return nil
	})
	return record, err
}

func compareIDs(a, b outmill.WorkItemID) int { return slices.Compare(a[:], b[:]) }

// Stats counts records. See outmill.Inspector.
func (s *Store) Stats(ctx context.Context, limit int) (list []outmill.TopicStats, err error) {
	limit, err = storekit.CheckStats(limit)
	if err != nil {
		return nil, failed("stats", err)
	}
	err = s.do(ctx, "stats", func(d *Database, now time.Time) error {
		list = d.stats(limit, now)
		return nil
	})
	return list, err
}

func (d *Database) stats(limit int, now time.Time) []outmill.TopicStats {
	type place struct{ group, topic string }
	counts := map[place]*outmill.TopicStats{}
	d.each(func(r *row) {
		c := counts[place{r.Group, r.Topic}]
		if c == nil {
			c = &outmill.TopicStats{Group: r.Group, Topic: r.Topic}
			counts[place{r.Group, r.Topic}] = c
		}
		status, next := r.Status, r.next
		if status == outmill.StatusLeased && !r.LeaseUntil.After(now) {
			status, next = outmill.StatusPending, r.LeaseUntil
		}
		n := map[outmill.Status]*int{
			outmill.StatusPending: &c.Pending, outmill.StatusLeased: &c.Leased,
			outmill.StatusProcessed: &c.Processed, outmill.StatusDead: &c.Dead,
		}[status]
		*n = min(*n+1, limit)
		if status == outmill.StatusPending && next.After(now) {
			c.Delayed = min(c.Delayed+1, limit)
		}
		due := status == outmill.StatusPending && !next.After(now) && !r.expired(now) && !d.pauses.Covers(&r.Record)
		if due && (c.OldestDue.IsZero() || next.Before(c.OldestDue)) {
			c.OldestDue = next
		}
	})
	list := make([]outmill.TopicStats, 0, len(counts))
	for _, c := range counts {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b outmill.TopicStats) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic))
	})
	return list
}

// Delete removes records. See outmill.Inspector.
func (s *Store) Delete(ctx context.Context, ids ...outmill.WorkItemID) (deleted int, err error) {
	return s.delete(ctx, "", ids)
}

// Requeue makes dead records pending. See outmill.Inspector.
func (s *Store) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (requeued int, err error) {
	err = s.do(ctx, "requeue", func(d *Database, now time.Time) error {
		for _, id := range ids {
			if r := d.byID[id]; r != nil && r.Status == outmill.StatusDead {
				requeued += d.requeue(r, now)
			}
		}
		d.audit(storekit.NewAuditEntry(ctx, storekit.AuditRequeue, ids...), requeued, now)
		return nil
	})
	if requeued > 0 {
		s.wake()
	}
	return requeued, err
}

// requeue makes a row pending again, with all rows that were parked with its key.
func (d *Database) requeue(head *row, now time.Time) (n int) {
	together := head.parked
	d.each(func(r *row) {
		if r == head || together && r.parked && r.sameKey(head) {
			r.again(now)
			n++
		}
	})
	return n
}

// again makes a dead row pending and due.
func (r *row) again(now time.Time) {
	r.open(outmill.StatusPending)
	r.parked, r.behind, r.ExpiresAt = false, false, time.Time{}
	r.next, r.Attempts, r.Expiries = now, 0, 0
}
