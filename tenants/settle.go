package tenants

import (
	"context"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// part is what of a call is one member's.
type part[T any] struct {
	member *member
	list   []T
}

// split groups a list by the member that handed the lease out, and begins a call of each. What is
// of no member is left out: such a lease is not valid.
func split[T any](s *Set, list []T, leaseOf func(*T) *outmill.Lease) []part[T] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var parts []part[T]
	places := map[*member]int{}
	for _, item := range list {
		m := s.holder(*leaseOf(&item))
		if m == nil {
			continue
		}
		i, known := places[m]
		if !known {
			i = len(parts)
			places[m] = i
			parts = append(parts, part[T]{member: m})
			m.begin()
		}
		parts[i].list = append(parts[i].list, item)
	}
	return parts
}

// holder is the member that the lease is of: the one that handed it out, while that drains, and
// else the one of its name. The caller holds the lock.
func (s *Set) holder(lease outmill.Lease) *member {
	draining, m := s.draining[lease.Store], s.members[lease.Store]
	lease.Store = ""
	for _, old := range draining {
		if m == nil || old.holds(lease) {
			return old
		}
	}
	return m
}

// inParts calls fn for each part, several at a time.
func inParts[T any](ctx context.Context, s *Set, call string, list []T, leaseOf func(*T) *outmill.Lease,
	fn func(ctx context.Context, m *member, list []T) error) error {
	if err := s.life.Usable(ctx); err != nil {
		return failed(call, err)
	}
	parts := split(s, list, leaseOf)
	var mu sync.Mutex
	partial := storekit.PartialError{Failed: map[string]error{}, Asked: len(parts)}
	s.inParallel(len(parts), func(i int) {
		m := parts[i].member
		defer m.done()
		if err := s.call(ctx, m, call, brief, func(ctx context.Context) error { return fn(ctx, m, parts[i].list) }); err != nil {
			mu.Lock()
			defer mu.Unlock()
			partial.Failed[m.name()] = err
		}
	})
	return partial.OrNil()
}

// settle is inParts for leases that are over then.
func settle[T any](ctx context.Context, s *Set, call string, list []T, leaseOf func(*T) *outmill.Lease,
	fn func(store outmill.Store, ctx context.Context, list []T) error) error {
	return inParts(ctx, s, call, list, leaseOf, func(ctx context.Context, m *member, list []T) error {
		leases := make([]outmill.Lease, len(list))
		for i := range list {
			leaseOf(&list[i]).Store = ""
			leases[i] = *leaseOf(&list[i])
		}
		if call != ackCall {
			defer m.givesBack(leases)
		}
		err := fn(m.store, ctx, list)
		if err == nil {
			m.drop(leases)
		}
		return err
	})
}

// The calls that settle leases.
const (
	ackCall     = "ack"
	releaseCall = "release"
)

func itself(l *outmill.Lease) *outmill.Lease             { return l }
func ofSettlement(st *outmill.Settlement) *outmill.Lease { return &st.Lease }

// Extend sets the end of the leases, each in its member, and returns those that stand. See
// outmill.Queue. Where some members fail, it returns those of the others with the error.
func (s *Set) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	if err := storekit.CheckExtend(lease); err != nil {
		return nil, failed("extend", err)
	}
	var mu sync.Mutex
	var standing []outmill.Lease
	err := inParts(ctx, s, "extend", leases, itself, func(ctx context.Context, m *member, leases []outmill.Lease) error {
		kept, err := m.store.Extend(ctx, lease, bare(leases))
		s.pauses.note(m)
		m.hold(kept, time.Now().Add(lease))
		mu.Lock()
		defer mu.Unlock()
		standing = append(standing, m.named(kept)...)
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	return standing, err
}

// Ack makes the records processed, each in its member. See outmill.Queue.
func (s *Set) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	if err := storekit.CheckWorker(by); err != nil {
		return failed("ack", err)
	}
	return settle(ctx, s, ackCall, leases, itself, func(store outmill.Store, ctx context.Context, leases []outmill.Lease) error {
		return store.Ack(ctx, by, leases)
	})
}

// Release gives the records back, each in its member. See outmill.Queue.
func (s *Set) Release(ctx context.Context, leases []outmill.Lease) error {
	return settle(ctx, s, releaseCall, leases, itself, outmill.Store.Release)
}

// Abandon makes the records due again, each in its member. See outmill.Queue.
func (s *Set) Abandon(ctx context.Context, settlements []outmill.Settlement) error {
	err := settle(ctx, s, "abandon", settlements, ofSettlement, outmill.Store.Abandon)
	s.dueAgain(settlements)
	return err
}

// Snooze makes the records due again and counts no attempt, each in its member. See outmill.Queue.
func (s *Set) Snooze(ctx context.Context, settlements []outmill.Settlement) error {
	err := settle(ctx, s, "snooze", settlements, ofSettlement, outmill.Store.Snooze)
	s.dueAgain(settlements)
	return err
}

// Fail makes the records dead, each in its member. See outmill.Queue.
func (s *Set) Fail(ctx context.Context, settlements []outmill.Settlement) error {
	return settle(ctx, s, "fail", settlements, ofSettlement, outmill.Store.Fail)
}

// dueAgain has the readers look at the members when the records are due, and not only when the
// time of an idle member comes.
func (s *Set) dueAgain(settlements []outmill.Settlement) {
	first := map[string]time.Duration{}
	for _, st := range settlements {
		if d, known := first[st.Lease.Store]; !known || st.Delay < d {
			first[st.Lease.Store] = st.Delay
		}
	}
	now := time.Now()
	for _, r := range s.everyReader() {
		for name, delay := range first {
			r.dueBy(name, now.Add(max(delay, 0)))
		}
	}
}
