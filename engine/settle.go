package engine

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// settling is one call that acts on valid leases.
type settling struct {
	operation string
	list      []outmill.Settlement
	// change changes a row whose lease is valid. It may run again for a row.
	change func(t *tx, r driver.Row, s outmill.Settlement)
	// then runs after rows were changed, in the same transaction. It may be nil.
	then func(ctx context.Context, t *tx, settled []leased) error
	// urgent: see driver.Begin. durable waits for the disk, whatever Config.DurableSettle is.
	urgent, durable bool
}

// settle returns the rows whose leases were valid.
func (e *Engine) settle(ctx context.Context, s settling) (valid []leased, err error) {
	if len(s.list) == 0 {
		return nil, e.explain(ctx, s.operation, e.life.Usable(ctx))
	}
	ids := mapped(s.list, func(one outmill.Settlement) outmill.WorkItemID { return one.Lease.ID })
	begin := driver.Begin{Find: ids, Durable: s.durable || e.config.DurableSettle, Urgent: s.urgent}
	err = e.updateFrom(ctx, s.operation, begin, func(ctx context.Context, t *tx) error {
		valid = nil
		left := ids
		for range attempts {
			found, err := t.Find(ctx, left)
			if err != nil {
				return err
			}
			rows := s.valid(found)
			for _, r := range rows {
				s.change(t, r.Row, r.Settlement)
			}
			done, err := t.write(ctx)
			if err != nil {
				return err
			}
			left = nil
			rows = slices.DeleteFunc(rows, func(r leased) bool {
				if done.Lost[r.ID] {
					left = append(left, r.ID)
				}
				return done.Lost[r.ID]
			})
			valid = append(valid, rows...)
			if s.then != nil {
				err = s.then(ctx, t, rows)
			}
			if err != nil || len(left) == 0 {
				return err
			}
		}
		return errLost
	})
	return valid, err
}

// leased is a row with a valid lease, and what becomes of it.
type leased struct {
	driver.Row
	outmill.Settlement
}

// valid returns the rows that have the lease of a settlement, in the order of the list. A row that the list
// has twice is settled once.
func (s *settling) valid(found []driver.Row) []leased {
	rows := make(map[outmill.WorkItemID]driver.Row, len(found))
	for _, r := range found {
		rows[r.ID] = r
	}
	valid := make([]leased, 0, len(rows))
	for _, one := range s.list {
		r, known := rows[one.Lease.ID]
		if known && holds(r, one.Lease) {
			delete(rows, r.ID)
			valid = append(valid, leased{r, one})
		}
	}
	return valid
}

// holds reports whether the row has the lease. It is valid until the row is settled, reaped or claimed again.
func holds(r driver.Row, lease outmill.Lease) bool {
	return r.Stage == driver.Leased && r.Claims == lease.Claim && r.Owner == lease.Owner.String()
}

// giveBack settles what becomes pending again, and wakes readers.
func (e *Engine) giveBack(ctx context.Context, operation string, list []outmill.Settlement,
	how func(t *tx, r *driver.Row, s outmill.Settlement)) error {
	_, err := e.settle(ctx, settling{operation: operation, durable: true, list: list, change: func(t *tx, r driver.Row, s outmill.Settlement) {
		t.change(r, func(r *driver.Row) { how(t, r, s) })
	}})
	if err == nil && someAtOnce(list) {
		e.wake()
	}
	return err
}

// Extend moves the end of leases. See outmill.Queue.
func (e *Engine) Extend(ctx context.Context, length time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	const operation = "extend"
	if err := storekit.CheckExtend(length); err != nil {
		return nil, e.explain(ctx, operation, err)
	}
	extend := func(t *tx, r driver.Row, _ outmill.Settlement) {
		t.rewrite(r, func(r *driver.Row) { r.Wake = t.after(length) })
	}
	extended, err := e.settle(ctx, settling{operation: operation, list: bare(leases), change: extend, urgent: true})
	if err != nil {
		return nil, err
	}
	return mapped(extended, func(r leased) outmill.Lease { return r.Lease }), nil
}

// Ack makes records processed. See outmill.Queue.
func (e *Engine) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	const operation = "ack"
	if err := storekit.CheckWorker(by); err != nil {
		return e.explain(ctx, operation, err)
	}
	ofOthers := func(l outmill.Lease) bool { return l.Owner != leases[0].Owner }
	if acker, ok := e.db.(driver.Acker); ok && e.config.Retain <= 0 && len(leases) > 0 && !slices.ContainsFunc(leases, ofOthers) {
		if err := e.ready(ctx); err != nil {
			return e.explain(ctx, operation, err)
		}
		left, err := acker.Ack(ctx, leases, e.config.DurableSettle)
		if err != nil || len(left) == 0 {
			return e.explain(ctx, operation, err)
		}
		leases = left
	}
	ack := func(t *tx, r driver.Row, _ outmill.Settlement) {
		if e.config.Retain <= 0 {
			t.removeAs(r, counted(driver.Processed))
			return
		}
		t.change(r, func(r *driver.Row) { process(r, by, t.now) })
	}
	_, err := e.settle(ctx, settling{operation: operation, list: bare(leases), change: ack})
	return err
}

// Abandon makes records due again after a delay, and counts the attempt. See outmill.Queue.
func (e *Engine) Abandon(ctx context.Context, list []outmill.Settlement) error {
	return e.giveBack(ctx, "abandon", forAbandon(list), func(t *tx, r *driver.Row, s outmill.Settlement) {
		abandon(r, t.now, t.after(s.Delay), s.Err)
	})
}

// Snooze makes records due again after a delay. See outmill.Queue.
func (e *Engine) Snooze(ctx context.Context, list []outmill.Settlement) error {
	return e.giveBack(ctx, "snooze", forSnooze(list), func(t *tx, r *driver.Row, s outmill.Settlement) {
		snooze(r, t.after(s.Delay))
	})
}

// Release gives records back. See outmill.Queue.
func (e *Engine) Release(ctx context.Context, leases []outmill.Lease) error {
	return e.giveBack(ctx, "release", bare(leases), func(_ *tx, r *driver.Row, _ outmill.Settlement) { giveBack(r) })
}

// Fail makes records dead, and parks later records of their keys. Claims park those that are too many for one
// transaction. See outmill.Queue.
func (e *Engine) Fail(ctx context.Context, list []outmill.Settlement) error {
	parks := func(r driver.Row, s outmill.Settlement) bool { return s.Park && r.Key != "" }
	fail := func(t *tx, r driver.Row, s outmill.Settlement) {
		t.change(r, func(r *driver.Row) {
			if s.Unhandled {
				kill(r, s.Err)
			} else {
				fail(r, t.now, s.Err)
			}
			r.Parked = parks(*r, s)
		})
	}
	// A key counts as parked from its first row on.
	then := func(ctx context.Context, t *tx, failed []leased) error {
		var behind []driver.Search
		for _, r := range failed {
			if parks(r.Row, r.Settlement) {
				behind = append(behind, driver.Search{By: driver.ByKey, Line: r.Line, Key: r.Key, From: r.Seq, Free: true})
			}
		}
		return t.parkBehind(ctx, behind)
	}
	_, err := e.settle(ctx, settling{operation: "fail", durable: true, list: forFail(list), change: fail, then: then})
	return err
}

// parkBehind parks the rows that the searches find, as many as one transaction may.
func (t *tx) parkBehind(ctx context.Context, searches []driver.Search) error {
	if len(searches) == 0 {
		return nil
	}
	_, _, err := t.changeAll(ctx, t.e.config.AtOnce.Park(), func(ctx context.Context, limit int) ([]driver.Row, error) {
		for i := range searches {
			searches[i].Limit = max(1, limit/len(searches))
		}
		rows, err := t.Rows(ctx, searches...)
		// Two records of one key have the same rows behind them.
		rows = eachOnce(rows)
		return rows[:min(len(rows), limit)], err
	}, func(r driver.Row) { t.change(r, park) })
	return err
}

// eachOnce returns the rows without repeats.
func eachOnce(rows []driver.Row) []driver.Row {
	seen := make(map[outmill.WorkItemID]bool, len(rows))
	return slices.DeleteFunc(rows, func(r driver.Row) bool {
		again := seen[r.ID]
		seen[r.ID] = true
		return again
	})
}

// ReapExpired ends leases that have run out. See outmill.Queue.
func (e *Engine) ReapExpired(ctx context.Context, limit int) (int, error) {
	search := func(*tx) driver.Search { return driver.Search{By: driver.ByEnded, Free: true} }
	reaped, err := e.sweepRows(ctx, "reap", limit, search, func(t *tx, r driver.Row) { t.change(r, reap) })
	e.log.Reaped(reaped)
	if reaped > 0 {
		e.wake()
	}
	return reaped, err
}
