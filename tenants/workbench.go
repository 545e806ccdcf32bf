package tenants

import (
	"context"
	"errors"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

var _ roles.Repairs = (*Set)(nil)

// DeadLetters returns a page of the dead letters of all members, or of the one that [WithTenant]
// names, in the order of ids; Record.Store names the member. See roles.Repairs, and
// [Set.Find] for pages and errors.
func (s *Set) DeadLetters(ctx context.Context, query outmill.ListQuery) (roles.DeadPage, error) {
	const call = "list dead letters"
	query, err := storekit.CheckDeadLetters(query)
	if err != nil {
		return roles.DeadPage{}, failed(call, err)
	}
	members, err := s.operated(ctx, call)
	if err != nil {
		return roles.DeadPage{Next: query.After}, err
	}
	found, waiting := merged{query: query}, map[outmill.WorkItemID]int{}
	errs := gather(ctx, s, call, members, repairsOf, func(ctx context.Context, _ *member, repairs roles.Repairs) (roles.DeadPage, error) {
		return repairs.DeadLetters(ctx, query)
	}, func(m *member, part roles.DeadPage, err error) {
		if err != nil {
			return
		}
		page := roles.Page{Examined: part.Examined, Next: part.Next, Done: part.Done}
		for _, letter := range part.Letters {
			m.own(letter.Record)
			page.Records = append(page.Records, letter.Record)
			waiting[letter.Record.ID] = letter.Waiting
		}
		found.add(page)
	})
	page := found.page()
	result := roles.DeadPage{Examined: page.Examined, Next: page.Next, Done: page.Done}
	for _, r := range page.Records {
		result.Letters = append(result.Letters, roles.DeadLetter{Record: r, Waiting: waiting[r.ID]})
	}
	return result, partly(ctx, call, len(members), errs)
}

// Edit edits a dead record of the member that [WithTenant] names, and without that asks all
// members. See roles.Repairs.
func (s *Set) Edit(ctx context.Context, id outmill.WorkItemID, edit roles.Edit) (edited *outmill.Record, err error) {
	err = s.inMember(ctx, "edit", id, func(ctx context.Context, m *member, repairs roles.Repairs) error {
		after, err := repairs.Edit(ctx, id, edit)
		if err == nil {
			m.own(after)
			edited = after
		}
		return err
	})
	return edited, err
}

// Skip skips a dead record of the member that [WithTenant] names, and without that asks all
// members. See roles.Repairs.
func (s *Set) Skip(ctx context.Context, id outmill.WorkItemID) (skipped roles.Skipped, err error) {
	err = s.inMember(ctx, "skip", id, func(ctx context.Context, m *member, repairs roles.Repairs) (err error) {
		skipped, err = repairs.Skip(ctx, id)
		if skipped.Released > 0 {
			s.woken(m, "")
		}
		return err
	})
	return skipped, err
}

// inMember calls fn for the member that has the record. It looks for the member first, because
// every other one would answer that it does not know the record.
func (s *Set) inMember(ctx context.Context, call string, id outmill.WorkItemID,
	fn func(ctx context.Context, m *member, repairs roles.Repairs) error) error {
	r, err := s.Get(ctx, id)
	if errors.Is(err, outmill.ErrNotFound) {
		return failed(call, outmill.ErrNotFound)
	}
	if err != nil {
		return err
	}
	m, done, err := s.use(r.Store)
	if err != nil {
		return failed(call, err)
	}
	defer done()
	repairs, err := roleOf[roles.Repairs](repairsOf).in(m)
	if err != nil {
		return err
	}
	return s.call(ctx, m, call, long, func(ctx context.Context) error { return fn(ctx, m, repairs) })
}
