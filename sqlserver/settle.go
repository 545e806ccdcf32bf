package sqlserver

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// settle calls a procedure on the leases, in one round trip. If there are more than maxAtOnce
// leases, it makes several calls in one transaction. It returns the joins that were counted, or
// for which records wait.
func (s *Store) settle(ctx context.Context, operation, procedure string, rows []leaseRow, more ...any) ([]outmill.JoinID, error) {
	var joins []outmill.JoinID
	var calls []call
	for some := range slices.Chunk(rows, maxAtOnce) {
		calls = append(calls, call{
			template: procedure, args: append([]any{set(s, "Leases", "Lease", some)}, more...),
			sets: []reader{joinIDs(&joins)},
		})
	}
	if len(calls) > 0 {
		calls[0].reset = func() { joins = nil }
	}
	err := s.runAll(ctx, operation, calls)
	return joins, err
}

// Ack makes the records processed. See outmill.Queue.
func (s *Store) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	const operation = "ack"
	if err := storekit.CheckWorker(by); err != nil {
		return s.explain(ctx, operation, err)
	}
	counted, err := s.settle(ctx, operation, "[dbo].[Outbox_Ack]", s.leaseRows(storekit.Bare(leases)), named("Keep", s.config.Retain > 0),
		named("By", some(by)))
	if err == nil {
		s.hurry(ctx, counted)
	}
	return err
}

// Release gives the records back. See outmill.Queue.
func (s *Store) Release(ctx context.Context, leases []outmill.Lease) error {
	_, err := s.settle(ctx, "release", "[dbo].[Outbox_Release]", s.leaseRows(storekit.Bare(leases)))
	if err == nil && len(leases) > 0 {
		s.notifier.Notify()
	}
	return err
}

// Extend sets the end of the valid leases, and returns them. See outmill.Queue.
func (s *Store) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	const operation = "extend"
	if err := storekit.CheckExtend(lease); err != nil {
		return nil, s.explain(ctx, operation, err)
	}
	var extended []outmill.Lease
	var pauses int64
	var calls []call
	for some := range slices.Chunk(s.leaseRows(storekit.Bare(leases)), maxAtOnce) {
		calls = append(calls, call{
			template: "[dbo].[Outbox_Extend]", args: []any{set(s, "Leases", "Lease", some), named("Micros", sqlkit.CeilMicros(lease))},
			sets: []reader{numbers(&pauses), func(scan func(...any) error) error {
				var id []byte
				var owner string
				var l outmill.Lease
				if err := scan(&id, &owner, &l.Claim); err != nil {
					return err
				}
				if err := l.Owner.Scan(owner); err != nil {
					return err
				}
				err := uuidFrom(id, (*[16]byte)(&l.ID))
				extended = append(extended, l)
				return err
			}},
		})
	}
	if len(calls) > 0 {
		calls[0].reset = func() { extended = nil }
	}
	err := s.runAll(ctx, operation, calls)
	if err == nil && len(calls) > 0 {
		err = s.learnPauses(ctx, operation, pauses)
	}
	if err != nil {
		return nil, err
	}
	return extended, nil
}

// Abandon makes the records due again after their delay. See outmill.Queue.
func (s *Store) Abandon(ctx context.Context, settlements []outmill.Settlement) error {
	items := storekit.ForAbandon(settlements)
	_, err := s.settle(ctx, "abandon", "[dbo].[Outbox_Abandon]", s.leaseRows(items))
	if err == nil && storekit.SomeAtOnce(items) {
		s.notifier.Notify()
	}
	return err
}

// Snooze makes the records due again after their delay, and counts no attempt. See outmill.Queue.
func (s *Store) Snooze(ctx context.Context, settlements []outmill.Settlement) error {
	items := storekit.ForSnooze(settlements)
	waitedFor, err := s.settle(ctx, "snooze", "[dbo].[Outbox_Snooze]", s.leaseRows(items))
	if err != nil {
		return err
	}
	if storekit.SomeAtOnce(items) {
		s.notifier.Notify()
	}
	s.hurry(ctx, waitedFor)
	return nil
}

// Fail makes the records dead. See outmill.Queue.
func (s *Store) Fail(ctx context.Context, settlements []outmill.Settlement) error {
	rows := s.leaseRows(storekit.ForFail(settlements))
	counted, err := s.settle(ctx, "fail", "[dbo].[Outbox_Fail]", rows, named("Parked", storekit.ParkedError))
	if err == nil {
		s.hurry(ctx, counted)
	}
	return err
}

// joinIDs collects ids of joins.
func joinIDs(into *[]outmill.JoinID) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		var bytes []byte
		var id outmill.JoinID
		if err := scan(&bytes); err != nil {
			return err
		}
		err := uuidFrom(bytes, (*[16]byte)(&id))
		*into = append(*into, id)
		return err
	}
}
