package tenants

import (
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
	var all []outmill.TopicStats
	err := inspect(ctx, s, "stats", members, func(ctx context.Context, _ *member, store outmill.Store) ([]outmill.TopicStats, error) {
		return store.Stats(ctx, limit)
	}, func(m *member, found []outmill.TopicStats, _ error) {
		for i := range found {
			found[i].Store = m.name()
		}
		all = append(all, found...)
	})
	slices.SortStableFunc(all, func(a, b outmill.TopicStats) int { return strings.Compare(a.Store, b.Store) })
	return all, err
}

// inspect calls ask for the stores of the members. take gets what they gave, one at a time, also with an error.
func inspect[T any](ctx context.Context, s *Set, call string, members []*member,
	ask func(ctx context.Context, m *member, store outmill.Store) (T, error), take func(m *member, given T, err error)) error {
	if err := s.life.Usable(ctx); err != nil {
		return failed(call, err)
	}
	return partial(len(members), gather(ctx, s, call, members, storeOf, ask, take))
}

// List returns records of all members in the order of their ids; Record.Store names the member.
// See outmill.Inspector, and [Set.Stats] for errors.
func (s *Set) List(ctx context.Context, query outmill.ListQuery) ([]*outmill.Record, error) {
	query, err := storekit.CheckList(query)
	if err != nil {
		return nil, failed("list", err)
	}
	var all []*outmill.Record
	err = inspect(ctx, s, "list", s.snapshot(), func(ctx context.Context, _ *member, store outmill.Store) ([]*outmill.Record, error) {
		return store.List(ctx, query)
	}, func(m *member, found []*outmill.Record, _ error) {
		m.own(found...)
		// In steps, so that no more than two lists are in memory.
		all = append(all, found...)
		slices.SortFunc(all, func(a, b *outmill.Record) int { return compare(a.ID, b.ID) })
		all = slices.Clip(all[:min(len(all), query.Limit)])
	})
	return all, err
}

// Get returns a record of the member that [WithTenant] names, and without that asks all members,
// Config.Parallel at a time, until one has it. If none has it and some fail, the error is a
// *storekit.PartialError. See outmill.Inspector.
func (s *Set) Get(ctx context.Context, id outmill.WorkItemID) (*outmill.Record, error) {
	members, err := s.operated(ctx, "get")
	if err != nil {
		return nil, err
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var found *outmill.Record
	missing := outmill.ErrNotFound
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
			// One member says which copies there are, if any does.
			if copies := (*outmill.CopiesError)(nil); errors.As(err, &copies) {
				missing = copies
			}
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
	return nil, failed("get", missing)
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
	return s.byID(ctx, "requeue", ids, outmill.Store.Requeue)
}

// Delete deletes records of the member that [WithTenant] names, and without that asks all
// members. See outmill.Inspector.
func (s *Set) Delete(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	return s.byID(ctx, "delete", ids, outmill.Store.Delete)
}

func (s *Set) byID(ctx context.Context, call string, ids []outmill.WorkItemID,
	change func(store outmill.Store, ctx context.Context, ids ...outmill.WorkItemID) (int, error)) (total int, err error) {
	members, err := s.operated(ctx, call)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	err = inspect(ctx, s, call, members, func(ctx context.Context, _ *member, store outmill.Store) (int, error) {
		return change(store, ctx, ids...)
	}, func(m *member, changed int, _ error) {
		total += changed
		if changed > 0 {
			s.woken(m, "")
		}
	})
	return total, err
}

// Groups lists the groups of all members, each once. See outmill.Inspector, and [Set.Stats] for
// errors.
func (s *Set) Groups(ctx context.Context) ([]outmill.GroupInfo, error) {
	groups := map[string]outmill.GroupInfo{}
	err := inspect(ctx, s, "groups", s.snapshot(), func(ctx context.Context, _ *member, store outmill.Store) ([]outmill.GroupInfo, error) {
		return store.Groups(ctx)
	}, func(_ *member, found []outmill.GroupInfo, _ error) {
		for _, g := range found {
			if other, known := groups[g.Group]; known {
				g = mergeGroups(other, g)
			}
			groups[g.Group] = g
		}
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
		w := &merged.Workers[i]
		w.SeenAt = later(w.SeenAt, worker.SeenAt)
		w.Problems = bothProblems(w.Problems, worker.Problems)
		w.Stopped = w.Stopped && worker.Stopped
		w.Handling = union(w.Handling, worker.Handling, sameHandling, alike)
		w.Failing = union(w.Failing, worker.Failing, sameFailing, failedLater)
		w.Reads = union(w.Reads, worker.Reads, sameReading, alike)
	}
	slices.SortStableFunc(merged.Workers, func(a, b outmill.WorkerInfo) int { return b.SeenAt.Compare(a.SeenAt) })
	return merged
}

// union has what a worker reported to one store or to both, each once, as it was reported last.
func union[T any](a, b []T, same, later func(old, t T) bool) []T {
	merged := slices.Clone(a)
	for _, t := range b {
		i := slices.IndexFunc(merged, func(old T) bool { return same(old, t) })
		switch {
		case i < 0:
			merged = append(merged, t)
		case later(merged[i], t):
			merged[i] = t
		}
	}
	return merged
}

func sameHandling(a, b outmill.Handling) bool { return a.Record == b.Record }

func sameReading(a, b outmill.Reading) bool {
	return a.Order == b.Order && a.KeyPolicy == b.KeyPolicy && selectionKey("", a.Topics) == selectionKey("", b.Topics)
}

func sameFailing(a, b outmill.FailingCall) bool {
	return a.Call == b.Call && a.Part == b.Part && a.Store == b.Store
}

func failedLater(a, b outmill.FailingCall) bool { return b.Times > a.Times }

// alike is the later of union for what does not change.
func alike[T any](_, _ T) bool { return false }

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
