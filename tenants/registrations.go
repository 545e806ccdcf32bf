package tenants

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// registrations are those that a new member gets before anybody writes to it. The set's lock
// guards them.
type registrations struct {
	// version counts the registrations that were new.
	version int
	list    map[string]remembered
}

type remembered struct {
	outmill.Registration
	// until is when a registration with a TTL ends; zero is never.
	until time.Time
}

func selectionKey(group string, topics outmill.Topics) string {
	return group + "\x00" + strings.Join(topics.Include, "\x01") + "\x00" + strings.Join(topics.Exclude, "\x01")
}

func (r *registrations) remember(regs []outmill.Registration, now time.Time) {
	if r.list == nil {
		r.list = map[string]remembered{}
	}
	for _, reg := range regs {
		key := selectionKey(reg.Group, reg.Topics)
		old, known := r.list[key]
		if !known {
			r.version++
		}
		next := remembered{Registration: reg}
		if reg.TTL > 0 {
			next.until = now.Add(reg.TTL)
		}
		if known && old.until.IsZero() {
			// As in a store: what was permanent stays so.
			next.TTL, next.until = 0, time.Time{}
		}
		next.Hold = next.Hold && (!known || old.Hold)
		r.list[key] = next
	}
}

// stop takes the names of workers that have stopped from the registrations, because a member that
// comes later is read by others only.
func (r *registrations) stop(stopped []outmill.Registration) {
	for key, reg := range r.list {
		if slices.ContainsFunc(stopped, func(s outmill.Registration) bool { return s.Group == reg.Group && s.Worker == reg.Worker }) {
			reg.Worker, reg.Problems, reg.Failing, reg.Handling, reg.Reads = "", nil, nil, nil, nil
			r.list[key] = reg
		}
	}
}

func (r *registrations) forget(group string) {
	for key, reg := range r.list {
		if reg.Group == group {
			delete(r.list, key)
		}
	}
}

// standing returns those that have not ended, and forgets the others.
func (r *registrations) standing(now time.Time) []outmill.Registration {
	regs := make([]outmill.Registration, 0, len(r.list))
	for key, reg := range r.list {
		if !reg.until.IsZero() && !reg.until.After(now) {
			delete(r.list, key)
			continue
		}
		regs = append(regs, reg.Registration)
	}
	return regs
}

// RegisterGroup makes the registrations in all members, and in each member that joins later. A
// member in which that fails gets them before it is claimed from or written to, and is asked again in
// the background. See outmill.Queue.
func (s *Set) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	if err := storekit.CheckRegistrations(regs); err != nil {
		return failed(registerCall, err)
	}
	if err := s.life.Usable(ctx); err != nil {
		return failed(registerCall, err)
	}
	s.served.Store(true)
	stopped, regs := storekit.Stopped(storekit.WithGroups(regs))
	s.mu.Lock()
	s.known.remember(regs, time.Now())
	s.known.stop(stopped)
	members, _ := s.list()
	s.mu.Unlock()
	errs := s.each(ctx, registerCall, long, members, func(ctx context.Context, m *member) error {
		if len(stopped) > 0 {
			if err := m.stopWorkers(ctx, stopped); err != nil {
				return err
			}
		}
		due := m.toRegister(m.onlyOwn(regs), time.Now())
		if len(due) == 0 && !m.owes.Load() {
			return nil
		}
		return s.register(ctx, m, due)
	})
	for _, m := range members {
		if errs[m.name()] != nil {
			s.owe(m)
		}
	}
	return s.bestEffort(ctx, len(members), errs)
}

const registerCall = "register a group"

// register makes registrations in one member, and those that it owes.
func (s *Set) register(ctx context.Context, m *member, regs []outmill.Registration) error {
	if err := m.registering.Acquire(ctx, 1); err != nil {
		return m.failed(registerCall, err)
	}
	defer m.registering.Release(1)
	if m.owes.Load() {
		regs = s.remembered()
	}
	if len(regs) == 0 {
		m.owes.Store(false)
		return nil
	}
	regs = m.onlyOwn(regs)
	err := m.store.RegisterGroup(ctx, regs...)
	m.owes.Store(err != nil)
	if err == nil {
		m.noteRegistered(regs, time.Now())
	}
	return m.failed(registerCall, err)
}

func (s *Set) remembered() []outmill.Registration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known.standing(time.Now())
}

// stopWorkers notes in the member that workers have stopped. If they come again, they register although
// the member rests.
func (m *member) stopWorkers(ctx context.Context, stopped []outmill.Registration) error {
	m.forgetRegistered()
	return m.failed(registerCall, m.store.RegisterGroup(ctx, stopped...))
}

// settleDebts makes the registrations that the member owes.
func (s *Set) settleDebts(ctx context.Context, m *member) error {
	if !m.owes.Load() {
		return nil
	}
	return s.register(ctx, m, nil)
}

// owe notes that the member owes registrations, and has them made in the background too: a program that writes
// in transactions of its own, and claims nothing, would wait for a call that makes them.
func (s *Set) owe(m *member) {
	m.owes.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !m.paying && !s.life.Closed() {
		m.paying = true
		s.background.Go(func() { s.pay(m) })
	}
}

// pay makes the registrations that the member owes, unless a call is quicker or the member drains.
func (s *Set) pay(m *member) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer context.AfterFunc(m.ctx, cancel)()
	waits := storekit.NewWaits(firstTrouble, maxTrouble)
	for storekit.Pause(ctx, waits.Next()) == nil && s.reuseReady(m) {
		// RegisterGroup has told of the error.
		_ = s.call(ctx, m, registerCall, long, func(ctx context.Context) error { return s.settleDebts(ctx, m) })
		m.done()
		if s.hasPaid(m) {
			return
		}
	}
}

func (s *Set) hasPaid(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.paying = m.owes.Load()
	return !m.paying
}

// DropGroup removes the group from all members. See outmill.Inspector. After an error the counts
// are those of the members that have removed it.
func (s *Set) DropGroup(ctx context.Context, group string) (outmill.Dropped, error) {
	var dropped outmill.Dropped
	if err := storekit.CheckGroup(group); err != nil {
		return dropped, failed("drop a group", err)
	}
	s.mu.Lock()
	s.known.forget(storekit.GroupOf(group))
	s.mu.Unlock()
	err := inspect(ctx, s, "drop a group", s.snapshot(), func(ctx context.Context, m *member, store outmill.Store) (outmill.Dropped, error) {
		m.forgetRegistered()
		return store.DropGroup(ctx, group)
	}, func(_ *member, n outmill.Dropped, _ error) {
		dropped.GivenBack += n.GivenBack
		dropped.Deleted += n.Deleted
	})
	return dropped, err
}
