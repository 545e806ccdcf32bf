package memstore

import (
	"context"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.WaitingReader = (*Store)(nil)

// FirstWaiting returns the first records of a group and topic that wait. See storekit.WaitingReader.
func (s *Store) FirstWaiting(ctx context.Context, group, topic string, limit int) (found storekit.Waiting, err error) {
	const operation = "first waiting"
	if err := storekit.CheckWaiting(limit); err != nil {
		return found, failed(operation, err)
	}
	err = s.do(ctx, operation, func(d *Database, now time.Time) error {
		stages := []int{storekit.StageReady, storekit.StageHeld, storekit.StageWaiting, storekit.StageLeased}
		counts := map[int]int{}
		collected := storekit.NewWaitingOf(limit, stages...)
		d.each(func(r *row) {
			part, due := r.waits(now)
			if r.Group != group || r.Topic != topic || part < 0 || counts[part] == limit {
				return
			}
			counts[part]++
			collected.Add(part, storekit.WaitingRecord{ID: r.ID, DueAt: due, Key: r.Key, TenantID: r.TenantID, Attempts: r.Attempts})
		})
		found = collected.At(now)
		return nil
	})
	return found, err
}

// waits returns the place of the row's stage in the list of FirstWaiting, below 0 for none, and since or
// from when the row is due.
func (r *row) waits(now time.Time) (part int, due time.Time) {
	switch {
	case r.Status == outmill.StatusLeased:
		return 3, r.LeaseUntil
	case r.Status != outmill.StatusPending:
		return -1, due
	case r.behind:
		part = 1
	case r.next.After(now) && r.Claims == 0:
		return -1, due
	case r.next.After(now):
		part = 2
	}
	if due = r.next; due.Before(r.CreatedAt) {
		due = r.CreatedAt
	}
	return part, due
}
