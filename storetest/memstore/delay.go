package memstore

import (
	"context"
	"sync/atomic"
	"time"
)

// delay is how late the database answers, and how many calls it has answered late.
type delay struct{ by, calls atomic.Int64 }

// Delay has each further call to a store of the database begin only after that time, so that a test sees
// what a slow database does, or with an hour one that hangs. A call whose context ends before returns the
// error of the context. 0, as at first, is no delay.
func (d *Database) Delay(by time.Duration) { d.delay.by.Store(int64(by)) }

// Delayed is how many calls have been delayed so far.
func (d *Database) Delayed() int { return int(d.delay.calls.Load()) }

// usable returns the error of a call that must not begin, after the delay of the database.
func (s *Store) usable(ctx context.Context) error {
	if err := s.life.Usable(ctx); err != nil {
		return err
	}
	by := time.Duration(s.db.delay.by.Load())
	if by <= 0 {
		return nil
	}
	s.db.delay.calls.Add(1)
	timer := time.NewTimer(by)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return s.life.Usable(ctx)
}
