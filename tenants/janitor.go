package tenants

import (
	"context"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// tidy does up to limit records of work in all members, which share the limit. A member that did
// all of its share is asked again.
func (s *Set) tidy(ctx context.Context, call string, limit int,
	work func(ctx context.Context, m *member, limit int) (int, error)) (total int, err error) {
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, failed(call, err)
	}
	if err := s.life.Usable(ctx); err != nil {
		return 0, failed(call, err)
	}
	queue := s.awake(call)
	asked := len(queue)
	errs := map[string]error{}
	for len(queue) > 0 && total < limit && ctx.Err() == nil {
		n := min(len(queue), s.cfg.Parallel, limit-total)
		share := (limit - total) / n
		var mu sync.Mutex
		var again []*member
		for name, err := range s.each(ctx, call, long, queue[:n], func(ctx context.Context, m *member) error {
			did, err := work(ctx, m, share)
			mu.Lock()
			defer mu.Unlock()
			total += did
			if err == nil && did == share {
				again = append(again, m)
			}
			return s.worked(ctx, m, call, err)
		}) {
			errs[name] = err
		}
		queue = append(queue[n:], again...)
	}
	return total, s.bestEffort(ctx, asked, errs)
}

// working are the members that the upkeep does not leave out.
func (s *Set) working() []*member {
	now := time.Now()
	var list []*member
	for _, m := range s.snapshot() {
		if m.trouble(now) == nil {
			list = append(list, m)
		}
	}
	return list
}

// worked takes note of how a call of the upkeep ended.
func (s *Set) worked(ctx context.Context, m *member, call string, err error) error {
	switch {
	case err == nil:
		m.well()
	case ctx.Err() == nil:
		s.fault(m, m.failed(call, err))
	}
	return m.failed(call, err)
}

// ReapExpired ends expired leases of all members. See outmill.Queue.
func (s *Set) ReapExpired(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "reap", limit, func(ctx context.Context, m *member, limit int) (int, error) {
		return m.store.ReapExpired(ctx, limit)
	})
}

// DeleteProcessed deletes processed records of all members. See outmill.Janitor.
func (s *Set) DeleteProcessed(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete processed records", limit, func(ctx context.Context, m *member, limit int) (int, error) {
		return m.store.DeleteProcessed(ctx, limit)
	})
}

// ExpireDue makes expired records of all members dead. See outmill.Janitor.
func (s *Set) ExpireDue(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "expire records", limit, func(ctx context.Context, m *member, limit int) (int, error) {
		return m.store.ExpireDue(ctx, limit)
	})
}

// DeleteDedupKeys deletes dedup keys of all members. See outmill.Janitor.
func (s *Set) DeleteDedupKeys(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete dedup keys", limit, func(ctx context.Context, m *member, limit int) (int, error) {
		return m.store.DeleteDedupKeys(ctx, limit)
	})
}

// ExpireRegistrations ends registrations in all members. See outmill.Janitor.
func (s *Set) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	var mu sync.Mutex
	// A member is done when it did less than its share of both.
	_, err = s.tidy(ctx, "expire registrations", limit, func(ctx context.Context, m *member, share int) (int, error) {
		ended, deleted, err := m.store.ExpireRegistrations(ctx, share)
		mu.Lock()
		defer mu.Unlock()
		registrations, records = registrations+ended, records+deleted
		return max(ended, deleted), err
	})
	return registrations, records, err
}

// Maintain does the housekeeping of Config.Parallel members, and returns true until each has had
// its turn. See outmill.Janitor.
func (s *Set) Maintain(ctx context.Context) (more bool, err error) {
	const call = "maintain"
	if err := s.life.Usable(ctx); err != nil {
		return false, failed(call, err)
	}
	if !s.maintaining.TryLock() {
		return false, nil
	}
	defer s.maintaining.Unlock()
	if len(s.maintained) == 0 {
		s.maintained = s.awake(call)
	}
	n := min(len(s.maintained), s.cfg.Parallel)
	turn := s.maintained[:n]
	s.maintained = s.maintained[n:]
	var mu sync.Mutex
	var left []*member
	errs := s.each(ctx, call, long, turn, func(ctx context.Context, m *member) error {
		more, err := m.store.Maintain(ctx)
		if more && err == nil {
			mu.Lock()
			defer mu.Unlock()
			left = append(left, m)
		}
		return s.worked(ctx, m, call, err)
	})
	s.maintained = append(s.maintained[:len(s.maintained):len(s.maintained)], left...)
	return len(s.maintained) > 0, s.bestEffort(ctx, n, errs)
}

// Ensure makes the schema in all members. See outmill.Schema.
func (s *Set) Ensure(ctx context.Context) error {
	if err := s.life.Usable(ctx); err != nil {
		return failed("ensure", err)
	}
	return joined(s.each(ctx, "ensure", endless, s.snapshot(), func(ctx context.Context, m *member) error {
		err := m.store.Ensure(ctx)
		if err == nil {
			m.well()
		}
		return err
	}))
}

// Statements returns none, because the members may be of different kinds: ask the store of
// [Set.Outbox].
func (*Set) Statements() []string { return nil }

// StatementsFrom is an error. See Statements.
func (*Set) StatementsFrom(int) ([]string, error) {
	return nil, storekit.InvalidConfig("a tenants.Set has no statements of its own: ask the store of Set.Outbox")
}

var _ outmill.Janitor = (*Set)(nil)
