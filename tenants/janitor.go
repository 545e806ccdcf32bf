package tenants

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// tidy does up to limit records of work in all members that have the role, which share the limit. A member that did
// all of its share is asked again.
func tidy[Role any](ctx context.Context, s *Set, call string, limit int, of roleOf[Role],
	work func(role Role, ctx context.Context, limit int) (int, error)) (int, error) {
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, failed(call, err)
	}
	if err := s.life.Usable(ctx); err != nil {
		return 0, failed(call, err)
	}
	members := having(s.awake(call), of)
	total, errs := share(ctx, s, call, limit, members, of, func(ctx context.Context, m *member, role Role, limit int) (int, bool, error) {
		did, err := work(role, ctx, limit)
		return did, did == limit, s.worked(ctx, m, call, err)
	})
	return total, s.bestEffort(ctx, len(members), errs)
}

// share has the members do up to limit pieces of work in all. A member whose work, of which it got a share, says
// that it has more is asked again.
func share[Role any](ctx context.Context, s *Set, call string, limit int, members []*member, of roleOf[Role],
	work func(ctx context.Context, m *member, role Role, limit int) (did int, more bool, err error)) (total int, errs map[string]error) {
	type done struct {
		did  int
		more bool
	}
	errs = map[string]error{}
	for queue := members; len(queue) > 0 && total < limit && ctx.Err() == nil; {
		n := min(len(queue), s.cfg.Parallel, limit-total)
		part := (limit - total) / n
		var again []*member
		maps.Copy(errs, gather(ctx, s, call, queue[:n], of, func(ctx context.Context, m *member, role Role) (d done, err error) {
			d.did, d.more, err = work(ctx, m, role, part)
			return d, err
		}, func(m *member, d done, err error) {
			if total += d.did; d.more && err == nil {
				again = append(again, m)
			}
		}))
		queue = append(queue[n:len(queue):len(queue)], again...)
	}
	return total, errs
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
	return tidy(ctx, s, "reap", limit, storeOf, outmill.Store.ReapExpired)
}

// DeleteProcessed deletes processed records of all members. See outmill.Janitor.
func (s *Set) DeleteProcessed(ctx context.Context, limit int) (int, error) {
	return tidy(ctx, s, "delete processed records", limit, storeOf, outmill.Store.DeleteProcessed)
}

// ExpireDue makes expired records of all members dead. See outmill.Janitor.
func (s *Set) ExpireDue(ctx context.Context, limit int) (int, error) {
	return tidy(ctx, s, "expire records", limit, storeOf, outmill.Store.ExpireDue)
}

// DeleteDedupKeys deletes dedup keys of all members. See outmill.Janitor.
func (s *Set) DeleteDedupKeys(ctx context.Context, limit int) (int, error) {
	return tidy(ctx, s, "delete dedup keys", limit, storeOf, outmill.Store.DeleteDedupKeys)
}

// ExpireRegistrations ends registrations in all members. See outmill.Janitor.
func (s *Set) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	var mu sync.Mutex
	// A member is done when it did less than its share of both.
	_, err = tidy(ctx, s, "expire registrations", limit, storeOf, func(store outmill.Store, ctx context.Context, share int) (int, error) {
		ended, deleted, err := store.ExpireRegistrations(ctx, share)
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
