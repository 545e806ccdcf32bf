package tenants

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

var _ roles.Pauses = (*Set)(nil)

// Pause pauses the scope in all members, or in the one that [WithTenant] names. A member that
// joins later has the pauses of its own store only. See roles.Pauses.
//
// If members fail, the error is a *storekit.PartialError with a *[MemberError] or a *[RoleError]
// for each, and the others have the pause. The call may be repeated.
func (s *Set) Pause(ctx context.Context, scope roles.PauseScope, by, reason string) error {
	const call = "pause"
	if err := storekit.CheckPause(scope, by, reason); err != nil {
		return failed(call, err)
	}
	return pausing(ctx, s, call, func(ctx context.Context, _ *member, pauses roles.Pauses) (bool, error) {
		return false, pauses.Pause(ctx, scope, by, reason)
	}, func(*member, bool, error) {})
}

// Resume ends the pause of the scope in all members, or in the one that [WithTenant] names, and
// reports whether one of them had it. See [Set.Pause] for errors.
func (s *Set) Resume(ctx context.Context, scope roles.PauseScope) (bool, error) {
	const call = "resume"
	if err := storekit.CheckPauseScope(scope); err != nil {
		return false, failed(call, err)
	}
	some := false
	err := pausing(ctx, s, call, func(ctx context.Context, _ *member, pauses roles.Pauses) (bool, error) {
		return pauses.Resume(ctx, scope)
	}, func(m *member, ended bool, _ error) {
		if ended {
			some = true
			s.woken(m, "")
		}
	})
	return some, err
}

// Paused returns the pauses of all members, or of the one that [WithTenant] names. A pause that
// each of them has, with the same by and reason, is one entry without a Store, and its time is
// that of the first; other entries name their member. Members without the role have no pauses.
// See [Set.Pause] for errors.
func (s *Set) Paused(ctx context.Context) ([]roles.PauseInfo, error) {
	const call = "list pauses"
	members, err := s.operated(ctx, call)
	if err != nil {
		return nil, err
	}
	var all []roles.PauseInfo
	ask := func(ctx context.Context, _ *member, pauses roles.Pauses) ([]roles.PauseInfo, error) {
		return pauses.Paused(ctx)
	}
	errs := gather(ctx, s, call, having(members, pausesOf), pausesOf, ask, func(m *member, found []roles.PauseInfo, _ error) {
		for i := range found {
			found[i].Store = m.name()
		}
		all = append(all, found...)
	})
	// A list of pauses sorts them.
	return roles.NewPauseList(0, mergePauses(all, len(members))).All(), partly(ctx, call, len(members), errs)
}

// mergePauses makes one entry of a pause that each of the members has.
func mergePauses(all []roles.PauseInfo, members int) []roles.PauseInfo {
	type kind struct {
		scope      roles.PauseScope
		by, reason string
	}
	alike := map[kind][]roles.PauseInfo{}
	for _, p := range all {
		k := kind{p.PauseScope, p.By, p.Reason}
		alike[k] = append(alike[k], p)
	}
	var merged []roles.PauseInfo
	for _, list := range alike {
		if len(list) < members {
			merged = append(merged, list...)
			continue
		}
		first := slices.MinFunc(list, func(a, b roles.PauseInfo) int { return a.At.Compare(b.At) })
		first.Store = ""
		merged = append(merged, first)
	}
	return merged
}

// LastPauses returns the pauses as calls of this process last read them in each member, which
// PauseInfo.Store names. See roles.Pauses.
func (s *Set) LastPauses() *roles.PauseList { return s.pauses.list.Load() }

// pausing calls ask with the role of each member that is meant.
func pausing(ctx context.Context, s *Set, call string, ask func(ctx context.Context, m *member, pauses roles.Pauses) (bool, error),
	take func(m *member, ended bool, err error)) error {
	members, err := s.operated(ctx, call)
	if err != nil {
		return err
	}
	return partly(ctx, call, len(members), gather(ctx, s, call, members, pausesOf, ask, take))
}

// knownPauses has the pauses of all members as their last calls read them.
type knownPauses struct {
	list atomic.Pointer[roles.PauseList]

	mu         sync.Mutex
	generation int64
	// members has the list of each member that has pauses.
	members map[*member]*roles.PauseList
}

// note takes in what a call of the member has read. It costs a comparison of pointers where
// nothing has changed.
func (k *knownPauses) note(m *member) {
	if m.pauses == nil {
		return
	}
	read := m.pauses.LastPauses()
	if m.lastPauses.Swap(read) == read {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	_, known := k.members[m]
	switch read = m.pauses.LastPauses(); {
	case !read.Empty():
		k.members[m] = read
	case known:
		delete(k.members, m)
	case k.list.Load() != nil:
		// Most members have no pauses: the first answer of one changes nothing.
		return
	}
	k.build()
}

// forget forgets the pauses of a member that is gone.
func (k *knownPauses) forget(m *member) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.members[m]; known {
		delete(k.members, m)
		k.build()
	}
}

func (k *knownPauses) build() {
	var all []roles.PauseInfo
	for _, m := range slices.SortedFunc(maps.Keys(k.members), func(a, b *member) int { return cmp.Compare(a.name(), b.name()) }) {
		for _, p := range k.members[m].All() {
			p.Store = m.name()
			all = append(all, p)
		}
	}
	k.generation++
	k.list.Store(roles.NewPauseList(k.generation, all))
}
