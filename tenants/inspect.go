package tenants

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Stats counts the records of each member, which TopicStats.Store names. See outmill.Inspector.
// Where members fail, it returns what the others have with a *storekit.PartialError. It does not ask a
// member that is known to hang.
func (s *Set) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	return s.stats(ctx, s.snapshot(), limit)
}

func (s *Set) stats(ctx context.Context, members []*member, limit int) ([]outmill.TopicStats, error) {
	var mu sync.Mutex
	var all []outmill.TopicStats
	err := s.inspectSome(ctx, "stats", members, func(ctx context.Context, m *member) error {
		found, err := m.store.Stats(ctx, limit)
		for i := range found {
			found[i].Store = m.name()
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, found...)
		return err
	})
	slices.SortStableFunc(all, func(a, b outmill.TopicStats) int { return strings.Compare(a.Store, b.Store) })
	return all, err
}

// inspect calls fn for all members.
func (s *Set) inspect(ctx context.Context, call string, fn func(ctx context.Context, m *member) error) error {
	return s.inspectSome(ctx, call, s.snapshot(), fn)
}

func (s *Set) inspectSome(ctx context.Context, call string, members []*member,
	fn func(ctx context.Context, m *member) error) error {
	if err := s.life.Usable(ctx); err != nil {
		return failed(call, err)
	}
	return partial(len(members), s.each(ctx, call, long, members, fn))
}

// List returns records of all members in the order of their ids; Record.Store names the member.
// See outmill.Inspector, and [Set.Stats] for errors.
func (s *Set) List(ctx context.Context, query outmill.ListQuery) ([]*outmill.Record, error) {
	query, err := storekit.CheckList(query)
	if err != nil {
		return nil, failed("list", err)
	}
	var mu sync.Mutex
	var all []*outmill.Record
	err = s.inspect(ctx, "list", func(ctx context.Context, m *member) error {
		found, err := m.store.List(ctx, query)
		m.own(found...)
		mu.Lock()
		defer mu.Unlock()
		// In steps, so that no more than two lists are in memory.
		all = append(all, found...)
		slices.SortFunc(all, func(a, b *outmill.Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
		all = slices.Clip(all[:min(len(all), query.Limit)])
		return err
	})
	return all, err
}

// Get returns a record of the member that [WithTenant] names, and without that asks all members,
// Config.Parallel at a time, until one has it. If none has it and some fail, the error is a
// *storekit.PartialError. See outmill.Inspector.
func (s *Set) Get(ctx context.Context, id outmill.WorkItemID) (*outmill.Record, error) {
	if err := s.life.Usable(ctx); err != nil {
		return nil, failed("get", err)
	}
	members, err := s.meant(ctx)
	if err != nil {
		return nil, err
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var found *outmill.Record
	errs := s.each(asking, "get", long, members, func(ctx context.Context, m *member) error {
		if ctx.Err() != nil {
			return nil
		}
		rec, err := m.store.Get(ctx, id)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			m.own(rec)
			found = rec
			stop()
			return nil
		case errors.Is(err, outmill.ErrNotFound) || found != nil:
			return nil
		}
		return err
	})
	switch {
	case found != nil:
		return found, nil
	case ctx.Err() != nil:
		return nil, failed("get", ctx.Err())
	case len(errs) > 0:
		return nil, partial(len(members), errs)
	}
	return nil, failed("get", outmill.ErrNotFound)
}

// meant are the member that WithTenant names, or all.
func (s *Set) meant(ctx context.Context) ([]*member, error) {
	key, ok := TenantOf(ctx)
	if !ok {
		return s.snapshot(), nil
	}
	m, done, err := s.use(key)
	if err != nil {
		return nil, err
	}
	done()
	return []*member{m}, nil
}

// Requeue requeues records of the member that [WithTenant] names, and without that asks all
// members. See outmill.Inspector.
func (s *Set) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	return s.byID(ctx, "requeue", ids, func(ctx context.Context, m *member) (int, error) { return m.store.Requeue(ctx, ids...) })
}

// Delete deletes records of the member that [WithTenant] names, and without that asks all
// members. See outmill.Inspector.
func (s *Set) Delete(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	return s.byID(ctx, "delete", ids, func(ctx context.Context, m *member) (int, error) { return m.store.Delete(ctx, ids...) })
}

func (s *Set) byID(ctx context.Context, call string, ids []outmill.WorkItemID,
	fn func(ctx context.Context, m *member) (int, error)) (total int, err error) {
	if err := s.life.Usable(ctx); err != nil {
		return 0, failed(call, err)
	}
	members, err := s.meant(ctx)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	var mu sync.Mutex
	errs := s.each(ctx, call, long, members, func(ctx context.Context, m *member) error {
		n, err := fn(ctx, m)
		mu.Lock()
		defer mu.Unlock()
		total += n
		if n > 0 {
			s.woken(m, "")
		}
		return err
	})
	return total, partial(len(members), errs)
}

// Groups lists the groups of all members, each once. See outmill.Inspector, and [Set.Stats] for
// errors.
func (s *Set) Groups(ctx context.Context) ([]outmill.GroupInfo, error) {
	var mu sync.Mutex
	groups := map[string]outmill.GroupInfo{}
	err := s.inspect(ctx, "groups", func(ctx context.Context, m *member) error {
		found, err := m.store.Groups(ctx)
		mu.Lock()
		defer mu.Unlock()
		for _, g := range found {
			if other, known := groups[g.Group]; known {
				g = mergeGroups(other, g)
			}
			groups[g.Group] = g
		}
		return err
	})
	infos := slices.SortedFunc(maps.Values(groups), func(a, b outmill.GroupInfo) int { return strings.Compare(a.Group, b.Group) })
	pauses, pausesErr := s.Paused(ctx)
	for i := range infos {
		infos[i].Pauses = nil
	}
	storekit.NamePauses(infos, pauses)
	return infos, cmp.Or(err, pausesErr)
}

// mergeGroups is what two members know of a group.
func mergeGroups(a, b outmill.GroupInfo) outmill.GroupInfo {
	merged := outmill.GroupInfo{Group: a.Group, SeenAt: later(a.SeenAt, b.SeenAt)}
	for _, reg := range slices.Concat(a.Registrations, b.Registrations) {
		i := slices.IndexFunc(merged.Registrations, func(r outmill.RegistrationInfo) bool {
			return selectionKey("", r.Topics) == selectionKey("", reg.Topics)
		})
		if i < 0 {
			merged.Registrations = append(merged.Registrations, reg)
			continue
		}
		r := &merged.Registrations[i]
		r.SeenAt = later(r.SeenAt, reg.SeenAt)
		r.Holding = r.Holding || reg.Holding
		if r.ExpiresAt.IsZero() || reg.ExpiresAt.IsZero() {
			r.ExpiresAt = time.Time{}
		} else {
			r.ExpiresAt = later(r.ExpiresAt, reg.ExpiresAt)
		}
	}
	if len(merged.Registrations) == 0 {
		merged.EndedAt = later(a.EndedAt, b.EndedAt)
	}
	for _, worker := range slices.Concat(a.Workers, b.Workers) {
		i := slices.IndexFunc(merged.Workers, func(w outmill.WorkerInfo) bool { return w.Name == worker.Name })
		if i < 0 {
			merged.Workers = append(merged.Workers, worker)
			continue
		}
		merged.Workers[i].SeenAt = later(merged.Workers[i].SeenAt, worker.SeenAt)
		merged.Workers[i].Problems = bothProblems(merged.Workers[i].Problems, worker.Problems)
		merged.Workers[i].Stopped = merged.Workers[i].Stopped && worker.Stopped
		merged.Workers[i].Handling = bothHandling(merged.Workers[i].Handling, worker.Handling)
		merged.Workers[i].Failing = bothFailing(merged.Workers[i].Failing, worker.Failing)
		merged.Workers[i].Reads = bothReads(merged.Workers[i].Reads, worker.Reads)
	}
	slices.SortStableFunc(merged.Workers, func(a, b outmill.WorkerInfo) int { return b.SeenAt.Compare(a.SeenAt) })
	return merged
}

// bothHandling has the handlers that a worker reported to one store or to both, each once.
func bothHandling(a, b []outmill.Handling) []outmill.Handling {
	merged := slices.Clone(a)
	for _, h := range b {
		if !slices.ContainsFunc(merged, func(m outmill.Handling) bool { return m.Record == h.Record }) {
			merged = append(merged, h)
		}
	}
	return merged
}

// bothReads has how a worker reads, as it reported to one store or to both, each once.
func bothReads(a, b []outmill.Reading) []outmill.Reading {
	merged := slices.Clone(a)
	for _, r := range b {
		if !slices.ContainsFunc(merged, func(m outmill.Reading) bool {
			return m.Order == r.Order && m.KeyPolicy == r.KeyPolicy && selectionKey("", m.Topics) == selectionKey("", r.Topics)
		}) {
			merged = append(merged, r)
		}
	}
	return merged
}

// bothProblems has the problems that a worker reported to one store or to both.
func bothProblems(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	merged := maps.Clone(a)
	maps.Copy(merged, b)
	return merged
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
