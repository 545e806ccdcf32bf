package tenants

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

// Refresh asks the discovery now, and opens, swaps and removes members. It returns when the new
// ones are ready; those that are removed drain in the background. Errors: the discovery's, after
// which the set is as before, and those of stores that could not be opened, which are tried again.
func (s *Set) Refresh(ctx context.Context) error {
	if err := s.life.Usable(ctx); err != nil {
		return failed("refresh", err)
	}
	s.refreshing.Lock()
	defer s.refreshing.Unlock()
	err := s.discover(ctx)
	if err == nil {
		err = s.apply(ctx)
	}
	select {
	case s.refreshed <- struct{}{}:
	default:
	}
	return err
}

// discover asks the discovery, and keeps the last answer where it fails.
func (s *Set) discover(caller context.Context) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(caller, discoveryTimeout)
	defer cancel()
	found, err := s.cfg.Discovery.Tenants(ctx)
	var wanted map[string]Tenant
	if err == nil {
		wanted, err = byKey(found)
	}
	s.repeated.Note(caller, storekit.CallDiscover, "", began, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.discovery.AskedAt, s.discovery.Err = now, err
	if err != nil {
		return failed("discovery", err)
	}
	s.discovery.AnsweredAt, s.discovery.Tenants = now, len(wanted)
	s.wanted = wanted
	return nil
}

// apply makes the members those that are wanted.
func (s *Set) apply(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()

	toOpen := s.plan()
	errs := make([]error, len(toOpen))
	atOnce := s.cfg.Parallel
	if s.budget != nil {
		// Opening takes long where Ensure makes a schema, so none is to wait for the connections of others.
		atOnce = min(atOnce, max(s.cfg.MaxConnections-s.listening.most, 1))
	}
	var opening errgroup.Group
	opening.SetLimit(atOnce)
	for i := range toOpen {
		opening.Go(func() error {
			errs[i] = s.open(ctx, toOpen[i])
			return nil
		})
	}
	_ = opening.Wait()
	return errors.Join(errs...)
}

// plan removes what is no longer wanted, and returns what is to be opened.
func (s *Set) plan() (toOpen []Tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Closed() {
		return nil
	}
	for name, m := range s.members {
		if _, wanted := s.wanted[name]; !wanted {
			delete(s.members, name)
			s.drain(m)
		}
	}
	maps.DeleteFunc(s.opening, func(name string, _ error) bool { _, wanted := s.wanted[name]; return !wanted })
	for name, tenant := range s.wanted {
		if m := s.members[name]; m == nil || m.tenant != tenant {
			toOpen = append(toOpen, tenant)
			if _, failed := s.opening[name]; !failed {
				s.opening[name] = nil
			}
		} else {
			delete(s.opening, name)
		}
	}
	s.membersChanged()
	slices.SortFunc(toOpen, func(a, b Tenant) int { return strings.Compare(a.Key, b.Key) })
	return toOpen
}

// membersChanged has the list of members made again when somebody asks for it, because many
// change at a time. The caller holds the lock.
func (s *Set) membersChanged() {
	s.version++
	s.stale = true
}

// list returns the members by name, and the version of that. The caller holds the lock.
func (s *Set) list() ([]*member, int) {
	if s.stale {
		s.renewList()
	}
	return s.all, s.version
}

func (s *Set) renewList() {
	s.stale = false
	s.all = slices.SortedFunc(maps.Values(s.members), func(a, b *member) int { return strings.Compare(a.name(), b.name()) })
	s.txLimit = 0
	for _, m := range s.all {
		if m.transactor == nil {
			continue
		}
		if limit := m.transactor.TxLimit(); limit > 0 && (s.txLimit == 0 || limit < s.txLimit) {
			s.txLimit = limit
		}
	}
}

// open opens the store of a tenant and makes it a member.
func (s *Set) open(ctx context.Context, tenant Tenant) error {
	// What it takes to make a schema is the database's: a bound that it does not meet once, it never meets.
	ctx, cancel := context.WithTimeout(ctx, max(openTimeout, s.most(long)))
	defer cancel()
	m, err := s.openStore(ctx, tenant)
	if err == nil {
		if err = s.admit(ctx, m); err != nil {
			err = errors.Join(err, m.close())
		}
	}
	if err == nil {
		worker.InStore(s.log, tenant.Key).Info("A tenant is ready", nil)
		return nil
	}
	err = &MemberError{Member: tenant.Key, Call: "open", Err: err}
	s.mu.Lock()
	s.opening[tenant.Key] = err
	s.mu.Unlock()
	s.report("The store of a tenant could not be opened, will try again", tenant.Key, err)
	return err
}

func (s *Set) openStore(ctx context.Context, tenant Tenant) (*member, error) {
	if !outmill.IsNil(tenant.Store) {
		m := s.newMember(tenant, tenant.Store, false)
		return m, m.attach()
	}
	if s.budget != nil {
		ctx = s.budget.Context(ctx)
	}
	store, err := s.cfg.Open(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if outmill.IsNil(store) {
		return nil, errors.New("Config.Open returned no store and no error")
	}
	m := s.newMember(tenant, store, true)
	return m, m.attach()
}

// admit prepares the member and puts it in its place.
func (s *Set) admit(ctx context.Context, m *member) error {
	if s.cfg.Ensure {
		if err := m.store.Ensure(ctx); err != nil {
			return err
		}
	}
	for {
		prepared, err := s.prepare(ctx, m)
		if err != nil {
			return err
		}
		placed, err := s.place(m, prepared)
		if placed {
			s.notifier.Notify()
		}
		if placed || err != nil {
			return err
		}
	}
}

// prepare makes in the member what the set knows, and returns how much that was.
func (s *Set) prepare(ctx context.Context, m *member) (prepared int, err error) {
	s.mu.Lock()
	prepared = s.known.version + len(s.kinds)
	kinds := slices.Collect(maps.Keys(s.kinds))
	s.mu.Unlock()
	if err := s.register(ctx, m, s.remembered()); err != nil {
		return 0, err
	}
	if m.sagas != nil && len(kinds) > 0 {
		if err := m.sagas.PrepareSagas(ctx, kinds...); err != nil {
			return 0, err
		}
	}
	return prepared, nil
}

// place makes the member ready, unless the set has learnt more since it was prepared.
func (s *Set) place(m *member, prepared int) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.life.Closed():
		return false, outmill.ErrClosed
	case prepared != s.known.version+len(s.kinds):
		return false, nil
	}
	if old := s.members[m.name()]; old != nil {
		s.drain(old)
	}
	s.members[m.name()] = m
	delete(s.opening, m.name())
	s.membersChanged()
	if s.waking {
		s.listen(m)
	}
	return true, nil
}

// drain closes a member when nothing is in flight in it. The caller holds the lock, and has
// taken it out of the members or is about to.
func (s *Set) drain(m *member) {
	m.mu.Lock()
	m.draining = true
	m.mu.Unlock()
	s.listening.end(m)
	s.draining[m.name()] = append(s.draining[m.name()], m)
	worker.InStore(s.log, m.name()).Info("A tenant is removed or changed, its store is closed when nothing is in flight", nil)
	s.background.Go(func() {
		_ = storekit.Pause(s.ctx, max(s.cfg.Linger, 0))
		for {
			m.awaitIdle(s.ctx)
			if s.leave(m) {
				break
			}
		}
		if err := m.close(); err != nil {
			s.report("The store of a tenant was not closed", m.name(), err)
		}
	})
}

// leave forgets a member that has drained, unless a call has just begun.
func (s *Set) leave(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if idle, _ := m.idle(time.Now()); !idle && s.ctx.Err() == nil {
		return false
	}
	left := slices.DeleteFunc(slices.Clone(s.draining[m.name()]), func(other *member) bool { return other == m })
	if s.draining[m.name()] = left; len(left) == 0 {
		delete(s.draining, m.name())
	}
	s.pauses.forget(m)
	return true
}

// refreshLoop asks the discovery now and then, and tries again what has failed.
func (s *Set) refreshLoop() {
	trouble := storekit.NewWaits(time.Second, maxTrouble)
	next := s.nextRefresh()
	for {
		wait := next
		if s.inTrouble() {
			wait = min(trouble.Next(), next)
		} else {
			trouble.Reset()
		}
		timer := time.NewTimer(wait)
		began := time.Now()
		select {
		case <-s.ctx.Done():
			timer.Stop()
			return
		case <-s.refreshed:
			timer.Stop()
			next = s.nextRefresh()
			continue
		case <-timer.C:
		}
		next -= time.Since(began)
		s.refreshing.Lock()
		s.refreshAgain(next <= 0)
		s.refreshing.Unlock()
		if next <= 0 {
			next = s.nextRefresh()
		}
	}
}

func (s *Set) nextRefresh() time.Duration {
	if s.cfg.Refresh < 0 {
		return 100 * 365 * 24 * time.Hour
	}
	return s.cfg.Refresh
}

func (s *Set) inTrouble() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.discovery.Err != nil || len(s.opening) > 0
}

// refreshAgain asks the discovery where it is time to, or it failed before.
func (s *Set) refreshAgain(due bool) {
	s.mu.RLock()
	ask := due || s.discovery.Err != nil
	s.mu.RUnlock()
	if ask {
		if err := s.discover(s.ctx); err != nil {
			s.report("The discovery of tenants failed, its last answer is kept", s.cfg.Name, err)
			return
		}
	}
	_ = s.apply(s.ctx)
}
