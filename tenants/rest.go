package tenants

import (
	"context"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// A member at rest has nothing to deliver and nothing to tidy (roles.Idle). In a set of more
// than Config.Parallel members, the set asks all of them every Config.MaxIdle, those of one
// database together. Until the next answer no reader asks a member at rest, and the upkeep leaves
// it out.
//
// The answer is exact, and each round asks again, so a commit without a notification is found as
// soon as without rests. A store with a change stream of MongoDB answers from what it has heard, and
// wakes the set if it was about to hear more. Whatever this set does with a member ends its rest at
// once. A set that nobody claims from, tidies or registers groups in asks nothing, because rests
// would save nothing.

const (
	// firstLook is when the set first asks which members are at rest; the pause then doubles.
	firstLook = time.Second
	// restUpkeep is the time between two calls of each kind of upkeep in a member at rest, and
	// between two registrations of a group: half of it at least. It is a precaution, and keeps the
	// names of workers, which end after storekit.KeepWorkersFor.
	restUpkeep = 12 * time.Hour
	// renewals is how many times a registration with a TTL is renewed in that time.
	renewals = 8
)

// restState is what a member knows of its rest. The member's lock guards it.
type restState struct {
	resting bool
	// stirs counts what has ended the rest, or would have.
	stirs uint64
	// upkeep is when a kind of upkeep is next due, and registered when a registration is.
	upkeep     map[string]time.Time
	registered map[uint64]registeredAs
}

// registeredAs is how the member's store has a registration: with which problems, and until when
// it need not be renewed.
type registeredAs struct {
	problems uint64
	until    time.Time
}

// stir ends the rest of the member.
func (m *member) stir() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rest.resting = false
	m.rest.stirs++
}

func (m *member) atRest() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rest.resting
}

func (m *member) stirred() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rest.stirs
}

// settleDown notes an answer, and reports whether the member's rest has ended. An answer from
// before the member was stirred is no news.
func (m *member) settleDown(resting bool, stirs uint64) (ended bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ended = m.rest.resting && !resting
	m.rest.resting = resting && m.rest.stirs == stirs && m.lastErr == nil
	return ended
}

// upkeepDue reports whether that kind of upkeep is due in the member, and then counts it as done:
// always in one that is not at rest, and now and then in one that is.
func (m *member) upkeepDue(call string, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.rest.resting {
		return true
	}
	next, known := m.rest.upkeep[call]
	if known && next.After(now) {
		return false
	}
	if m.rest.upkeep == nil {
		m.rest.upkeep = map[string]time.Time{}
	}
	m.rest.upkeep[call] = now.Add(restUpkeep/2 + rand.N(restUpkeep/2))
	if !known {
		// All members were tidied at the same time before they rested.
		m.rest.upkeep[call] = now.Add(rand.N(restUpkeep))
	}
	return known
}

var registrationSeed = maphash.MakeSeed()

func registrationKey(reg outmill.Registration) uint64 {
	return maphash.String(registrationSeed, selectionKey(reg.Group, reg.Topics)+"\x00"+reg.Worker+"\x00"+reg.TTL.String()+
		fmt.Sprint(reg.Hold))
}

// problemsKey stands for the problems and the failing calls that the registration reports, and not for
// how often a call has failed, so that a call that goes on failing ends no rest.
func problemsKey(reg outmill.Registration) uint64 {
	reg.Failing = slices.Clone(reg.Failing)
	for i := range reg.Failing {
		reg.Failing[i].Times, reg.Failing[i].Err = 0, ""
	}
	return maphash.String(registrationSeed, storekit.EncodeProblems(reg))
}

// noteRegistered notes registrations that the member's store has.
func (m *member) noteRegistered(regs []outmill.Registration, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rest.registered == nil || len(m.rest.registered) > storekit.MaxWorkers {
		m.rest.registered = map[uint64]registeredAs{}
	}
	for _, reg := range regs {
		lasts := restUpkeep/2 + rand.N(restUpkeep/2)
		if reg.TTL > 0 {
			lasts = min(lasts, reg.TTL/renewals)
		}
		m.rest.registered[registrationKey(reg)] = registeredAs{problemsKey(reg), now.Add(lasts)}
	}
}

func (m *member) forgetRegistered() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rest.registered = nil
}

// toRegister returns those of the registrations that the member's store is to make. Those whose
// problems have changed are among them, so that operators do not see outdated problems.
func (m *member) toRegister(regs []outmill.Registration, now time.Time) []outmill.Registration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.rest.resting {
		return regs
	}
	var list []outmill.Registration
	for _, reg := range regs {
		if last := m.rest.registered[registrationKey(reg)]; last.problems != problemsKey(reg) || !last.until.After(now) {
			list = append(list, reg)
		}
	}
	return list
}

// restLoop asks which members are at rest until the set is closed: soon after members have come,
// because they have much to do at first, and then every MaxIdle.
func (s *Set) restLoop() {
	pause, last := firstLook, -1
	for {
		_, version := s.current()
		if version != last {
			pause, last = firstLook, version
		}
		pause = min(pause, s.cfg.MaxIdle)
		if storekit.Pause(s.ctx, pause) != nil {
			return
		}
		s.lookForRest(s.ctx)
		pause *= 2
	}
}

// resters are members that one call asks together.
type resters []*member

// lookForRest asks all members once.
func (s *Set) lookForRest(ctx context.Context) {
	if !s.served.Load() {
		return
	}
	members := s.working()
	if s.isSmall() {
		for _, m := range members {
			m.stir()
		}
		return
	}
	together := togetherAtRest(members)
	s.inParallel(len(together), func(i int) { s.askForRest(ctx, together[i]) })
}

// isSmall reports whether each claim asks all members.
func (s *Set) isSmall() bool { return len(s.snapshot()) <= s.cfg.Parallel }

// togetherAtRest groups the members that have the role by what one call can ask.
func togetherAtRest(members []*member) []resters {
	var all []resters
	last := map[any]int{}
	for _, m := range members {
		if m.idler == nil {
			continue
		}
		with, _ := m.idler.IdleWith()
		i, known := last[with]
		if !known || len(all[i]) == roles.IdleAtOnce {
			i = len(all)
			all = append(all, nil)
			last[with] = i
		}
		all[i] = append(all[i], m)
	}
	return all
}

// askForRest asks some members together. If that fails none of them is at rest.
func (s *Set) askForRest(ctx context.Context, members resters) {
	var asked resters
	var selves []any
	var stirs []uint64
	for _, m := range members {
		if !s.reuseReady(m) {
			continue
		}
		defer m.done()
		_, self := m.idler.IdleWith()
		asked, selves, stirs = append(asked, m), append(selves, self), append(stirs, m.stirred())
	}
	if len(asked) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	resting, err := asked[0].idler.AreIdle(ctx, selves)
	if err != nil || len(resting) != len(asked) {
		resting = make([]bool, len(asked))
	}
	if err != nil {
		s.report("Could not ask which tenants are at rest; all of them are asked by each reader", asked[0].name(), err)
	}
	for i, m := range asked {
		if m.settleDown(resting[i], stirs[i]) {
			s.woken(m, "")
		}
	}
}

// awake are the members in which a kind of upkeep is due.
func (s *Set) awake(call string) []*member {
	s.served.Store(true)
	now := time.Now()
	var list []*member
	for _, m := range s.working() {
		if m.upkeepDue(call, now) {
			list = append(list, m)
		}
	}
	return list
}

// StatsOfBusy is [Set.Stats] without the members at rest. See roles.Members.
func (s *Set) StatsOfBusy(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	var busy []*member
	for _, m := range s.snapshot() {
		if !m.atRest() {
			busy = append(busy, m)
		}
	}
	return s.stats(ctx, busy, limit)
}
