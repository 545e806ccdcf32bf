package tenants

import (
	"context"
	"sync"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

var _ roles.Examiner = (*Set)(nil)

// Examine examines all members, or the one that [WithTenant] names; Finding.Store names the
// member. A member that cannot be opened or examined is a finding, and the others are examined
// all the same. See roles.Examiner.
func (s *Set) Examine(ctx context.Context, request roles.ExamineRequest) (roles.Examination, error) {
	members, err := s.operated(ctx, "examine")
	if err != nil {
		return roles.Examination{}, err
	}
	var mu sync.Mutex
	var all roles.Examination
	add := func(name string, found roles.Examination) {
		mu.Lock()
		defer mu.Unlock()
		for _, f := range found.Findings {
			f.Store = name
			all.Add(f)
		}
		for _, text := range found.Unchecked {
			all.Skip("%s: %s", name, text)
		}
	}
	_, one := TenantOf(ctx)
	for _, m := range s.Status().Members {
		if !one && m.State == StateOpening && m.Err != nil {
			add(m.Name, roles.Examination{Findings: []roles.Finding{storekit.StoreFinding(m.Err)}})
		}
	}
	for name, err := range s.each(ctx, "examine", long, members, func(ctx context.Context, m *member) error {
		found := examined(ctx, m, request)
		if ctx.Err() == nil {
			add(m.name(), found)
		}
		return ctx.Err()
	}) {
		if ctx.Err() == nil {
			add(name, roles.Examination{Findings: []roles.Finding{storekit.StoreFinding(err)}})
		}
	}
	return all, ctx.Err()
}

func examined(ctx context.Context, m *member, request roles.ExamineRequest) roles.Examination {
	if m.examiner == nil {
		return roles.Examination{Unchecked: []string{"the store lacks the role roles.Examiner"}}
	}
	found, err := m.examiner.Examine(ctx, request)
	if err != nil {
		found.Add(storekit.StoreFinding(err))
	}
	return found
}
